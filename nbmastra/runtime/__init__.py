"""Local agents: the loop, models, tools, memory, processors, goals."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbmastra.runtime.agent import Agent
from nbmastra.runtime.extend import Dispatch, Extension, RunMemory, ToolSource, Tripwire
from nbmastra.runtime.model import Model, ModelRequest
from nbmastra.runtime.options import StreamOptions
from nbmastra.runtime.processors import Abort
from nbmastra.runtime.scorers import Scores, Scoring
from nbmastra.runtime.step import StepCall, StepResult

if TYPE_CHECKING:
    from nbmastra.runtime.background.dask_executor import DaskExecutor
    from nbmastra.runtime.background.executor import ProcessExecutor
    from nbmastra.runtime.background.manager import BackgroundTaskManager
    from nbmastra.runtime.memory import Memory

__all__ = [
    "Abort",
    "Agent",
    "BackgroundTaskManager",
    "DaskExecutor",
    "Dispatch",
    "Extension",
    "Memory",
    "Model",
    "ModelRequest",
    "ProcessExecutor",
    "RunMemory",
    "Scores",
    "Scoring",
    "StepCall",
    "StepResult",
    "StreamOptions",
    "ToolSource",
    "Tripwire",
]

_LAZY = {
    "BackgroundTaskManager": "nbmastra.runtime.background.manager",
    "DaskExecutor": "nbmastra.runtime.background.dask_executor",
    "Memory": "nbmastra.runtime.memory",
    "ProcessExecutor": "nbmastra.runtime.background.executor",
}
"""What loads large libraries: at first use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
