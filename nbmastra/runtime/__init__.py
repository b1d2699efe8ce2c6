"""Local agents: the loop, models, tools, memory, processors, goals."""

from __future__ import annotations

from nbmastra.runtime.agent import Agent
from nbmastra.runtime.extend import Dispatch, Extension, RunMemory, ToolSource, Tripwire
from nbmastra.runtime.model import Model, ModelRequest
from nbmastra.runtime.options import StreamOptions
from nbmastra.runtime.step import StepCall, StepResult

__all__ = [
    "Agent",
    "Dispatch",
    "Extension",
    "Model",
    "ModelRequest",
    "RunMemory",
    "StepCall",
    "StepResult",
    "StreamOptions",
    "ToolSource",
    "Tripwire",
]
