"""The fold: chunks in, one state out; every number and word that anyone shows comes from it."""

from __future__ import annotations

from nbmastra.fold.calls import Task, ToolCall, ToolResult, WorkflowStep
from nbmastra.fold.parts import (
    DataPart,
    ErrorInfo,
    FilePart,
    GoalPart,
    Notice,
    ObjectPart,
    Part,
    ReasoningPart,
    SourcePart,
    TextPart,
)
from nbmastra.fold.state import RunState
from nbmastra.fold.turns import Step, Turn

__all__ = [
    "DataPart",
    "ErrorInfo",
    "FilePart",
    "GoalPart",
    "Notice",
    "ObjectPart",
    "Part",
    "ReasoningPart",
    "RunState",
    "SourcePart",
    "Step",
    "Task",
    "TextPart",
    "ToolCall",
    "ToolResult",
    "Turn",
    "WorkflowStep",
]
