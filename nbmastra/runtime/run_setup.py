"""What a run of an agent consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbmastra.runtime.conversation import Conversation
from nbmastra.runtime.extend import Dispatch, Extension, RunMemory, ToolSource
from nbmastra.runtime.model import Model
from nbmastra.runtime.options import Instructions, RunOptions
from nbmastra.tools import Tool

__all__ = ["RunSetup"]


@dataclass(slots=True)
class RunSetup:
    """What a run consists of."""

    agent_id: str
    model: Callable[[], Model]
    instructions: Instructions
    conversation: Conversation
    options: RunOptions
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    sources: Sequence[ToolSource] = ()
    memory: RunMemory | None = None
    has_memory: bool = False
    """True: the agent, or the one that calls it, has a memory, be it used here or not."""
    thread: str | None = None
    resource: str | None = None
    recall_options: dict[str, Any] = field(default_factory=dict[str, Any])
    recalls: bool = True
    tells_thread: bool = True
    extensions: Sequence[Extension] = ()
    dispatch: Dispatch | None = None
    nested: bool = False
