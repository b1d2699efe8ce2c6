"""Where others take part in a run: processors, structured output, goals, memory and background tasks.

start ─▶ [ next_step ─▶ before_step ─▶ chunk, chunk … ─▶ after_model ─▶ tools ─▶ after_step ] … ─▶ finish
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from nbmastra.runtime.model import Message
from nbmastra.tools import Tool, ToolContext

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.step import ModelStep, StepCall

__all__ = ["Dispatch", "Extension", "RunMemory", "ToolSource", "Tripwire"]


class Tripwire(Exception):
    """A processor stops the run, or asks for another try: from any method of an `Extension`.

    In `start`, `before_step` and `chunk` it ends the run with a tripwire chunk. In `after_model` the step is finished
    as rejected; with `retry`, another follows, which is told the reason, at most `max_processor_retries` in a row.
    """

    def __init__(
        self, reason: str, *, retry: bool = False, metadata: Any = None, processor_id: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.metadata = metadata
        self.processor_id = processor_id


class Extension:
    """Takes part in one run; each method does nothing here. `run` gives conversation, options, steps and `run.emit`.

    What a method raises, other than Tripwire, fails the run as an error of its own.
    """

    is_processor: bool = False
    """True: it may change the answer, so `finish` tells the response as such, as Mastra's does then."""
    sees_chunks: bool = False
    """True: `chunk` is called for each chunk, which costs time for each delta."""

    async def start(self, run: AgentRun) -> None:
        """Before the first step; not again when a suspended run goes on."""

    async def next_step(self, run: AgentRun) -> None:
        """A step follows whose request isn't made yet: what is added to the conversation here, the model reads."""

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """The request is made (`step.request`, to be replaced if wanted), the model not called yet."""

    async def chunk(self, run: AgentRun, step: ModelStep | None, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """A chunk on its way out: give what shall go out in its place, `[chunk]` to leave it, [] to drop it.

        A text delta that is changed or dropped here is so in the step's text and in the conversation too.
        """
        return [chunk]

    async def after_model(self, run: AgentRun, step: ModelStep) -> None:
        """The model's answer is complete, its tools haven't run. `step.object` set here goes into `step-finish`."""

    async def after_step(self, run: AgentRun, step: ModelStep) -> None:
        """The step's tools have run. `step.continued` says whether another follows, and may be set."""

    async def finish(self, run: AgentRun) -> None:
        """The run has come to its end, or waits for somebody (`run.suspended`); the `finish` chunk is still to come."""


class RunMemory(Protocol):
    """What the loop asks of a memory: the messages of a thread, and to keep new ones."""

    async def recall(self, thread: str, resource: str, **last_messages: Any) -> list[Message]:
        """The latest messages of a thread, oldest first; [] if there is none. `last_messages`: not its own number."""
        ...

    async def remember(self, thread: str, resource: str, messages: Sequence[Message]) -> Any:
        """Keep messages at the end of a thread, which is made if it isn't there."""
        ...


class ToolSource(Protocol):
    """Tools that have to be opened and closed with a run: an MCP server's."""

    def open(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Connect; gives the tools. Leaving the context closes the connection."""
        ...


RunTool = Callable[[ToolContext | None], Awaitable[Any]]
"""Runs the tool with its checked arguments; gives JSON. Without a context, in one that writes into the run."""

Dispatch = Callable[["AgentRun", "StepCall", Tool, RunTool], Awaitable[Any]]
"""Decides how a call runs: at once (`await run_tool(None)`), or somewhere else, with a placeholder as its result.

`call.background` is what the model asked for (`_background`), `call.metadata` goes into the result's chunk.
Source: Mastra's background tasks.
"""
