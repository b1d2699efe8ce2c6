"""Until idle: one stream of a first turn and of the turns that its background tasks bring about.

first turn ─▶ wait while tasks run ─▶ one turn with all results that are there ─▶ … ─▶ nothing runs, nothing is queued
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from nbmastra.chunks import Chunk
from nbmastra.errors import SettingsError
from nbmastra.output import Batch, MastraModelOutput
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.source import LocalSource

if TYPE_CHECKING:
    from nbmastra.runtime.background.manager import BackgroundTaskManager

__all__ = ["IdleSource", "directive", "idle_s"]

_IDLE_S = 300.0
_QUEUED = {
    "background-task-completed": "completed",
    "background-task-failed": "failed",
    "background-task-cancelled": "were cancelled",
}


def idle_s(given: Any) -> float:
    """The longest silence between turns, of `until_idle=`: seconds. Raises SettingsError."""
    if given is True:
        return _IDLE_S
    options = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"?": given}
    value = options.get("max_idle_ms", options.get("maxIdleMs", 1000 * _IDLE_S))
    known = options.keys() <= {"max_idle_ms", "maxIdleMs"}
    if not known or isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise SettingsError('until_idle= takes True or {"max_idle_ms": 60_000}')
    return value / 1000


def directive(batch: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """What the model is told of the tasks that have ended since the last turn; not kept in memory."""
    said = ["Some of your tool calls ran as background tasks. Their results now stand where they were called."]
    for kind, words in _QUEUED.items():
        calls = ", ".join(
            f"{payload.get('toolCallId')} ({payload.get('toolName')}, task {payload.get('taskId')})"
            for type, payload in batch
            if type == kind
        )
        if calls:
            said.append(f"These tool calls {words}: {calls}.")
    said.append("Tell the user what came of them. Don't call these tools again with the same arguments.")
    return " ".join(said)


class IdleSource:
    """The chunks of several turns, and of the tasks of their thread."""

    def __init__(
        self,
        manager: BackgroundTaskManager,
        out: MastraModelOutput,
        first: LocalSource,
        go_on: Callable[[str], LocalSource],
        *,
        scope: tuple[str, str | None, str | None],
        streams: dict[tuple[str, str | None, str | None], IdleSource],
        max_idle_s: float,
    ) -> None:
        """`go_on` makes a turn that is told a directive; `scope`: agent, thread, resource, the key in `streams`."""
        self.done = False
        self._manager = manager
        self._out = out
        self._inner = first
        self._go_on = go_on
        self._scope = scope
        self._streams = streams
        self._max_idle_s = max_idle_s
        self._chunks: list[Chunk] = []
        self._news = asyncio.Event()
        self._drained = asyncio.Event()
        self._running: set[str] = set()
        self._over: set[str] = set()
        """Tasks that have ended or wait: their start, if it is told later, doesn't make them run again."""
        self._batch: list[tuple[str, Mapping[str, Any]]] = []
        self._taken = False
        self._turn: asyncio.Task[None] | None = None

    async def batches(self) -> AsyncIterator[Batch]:
        """Chunks as they come, until nothing runs any more and nothing is queued."""
        forget = await self._manager.listen(self._hear)
        earlier = self._streams.get(self._scope)
        if earlier is not None:
            earlier.take_over()
        self._streams[self._scope] = self
        self._turn = asyncio.create_task(self._pipe())
        try:
            while True:
                if self._chunks:
                    chunks, self._chunks = self._chunks, []
                    yield None, chunks
                    continue
                self._drained.set()
                if self._taken:
                    self._say("superseded", "another call for the same thread has taken over")
                    return
                if self._turn.done():
                    self._turn.result()
                    if self._running:
                        if not await self._heard(self._max_idle_s):
                            self._say("idle", f"no task ended within {self._max_idle_s:g} s: they go on without it")
                            return
                        continue
                    if not self._batch:
                        self.done = True
                        return
                    batch, self._batch = self._batch, []
                    self._inner = self._go_on(directive(batch))
                    self._turn = asyncio.create_task(self._pipe())
                await self._heard(None)
        finally:
            forget()
            if self._streams.get(self._scope) is self:
                del self._streams[self._scope]
            if not self._turn.done():
                self._turn.cancel()
                await asyncio.wait({self._turn})

    async def _heard(self, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def _pipe(self) -> None:
        """A turn's chunks; its callbacks are called when the output has them."""
        try:
            async with aclosing(cast("Any", self._inner.batches())) as batches:
                async for _, chunks in batches:
                    self._drained.clear()
                    for chunk in chunks:
                        self._take(chunk)
                    self._news.set()
                    await self._drained.wait()
        finally:
            self._news.set()

    def _take(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        if chunk.type == "background-task-started":
            task_id = str(chunk.raw_payload().get("taskId"))
            if task_id not in self._over:
                self._running.add(task_id)

    def _hear(self, task: BackgroundTask, chunk: Chunk) -> None:
        if (task.agent_id, task.thread_id, task.resource_id) != self._scope:
            return
        self._chunks.append(chunk)
        self._news.set()
        match chunk.type:
            case "background-task-running" | "background-task-resumed":
                self._over.discard(task.id)
                self._running.add(task.id)
            case "background-task-suspended":
                self._over.add(task.id)
                self._running.discard(task.id)
            case kind if kind in _QUEUED:
                self._over.add(task.id)
                self._running.discard(task.id)
                self._batch.append((kind, chunk.raw_payload()))
            case _:
                pass

    def take_over(self) -> None:
        """A later call for the same thread goes on in this one's place."""
        self._taken = True
        self._news.set()

    def _say(self, code: str, reason: str) -> None:
        self.done = True
        self._out.state.notice(code, "warning", "the stream was closed", self._out.elapsed_s, reason)

    def parting(self) -> list[Chunk]:
        """The last chunks of the turn that the output stops."""
        chunks, self._chunks = self._chunks, []
        return [*chunks, *self._inner.parting()]

    async def aclose(self) -> None:
        """Stop the turn that runs. Tasks go on."""
        await self._inner.aclose()
