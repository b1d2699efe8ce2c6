"""A local run as the source of an output: it runs in a task of its own, its chunks go out together as they come."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk
from nbmastra.errors import MastraStreamError
from nbmastra.output import Batch, MastraModelOutput
from nbmastra.runtime.loop import AgentRun
from nbmastra.tools import AbortSignal

if TYPE_CHECKING:
    from nbmastra.runtime.options import Callback, StreamOptions

__all__ = ["Callbacks", "LocalSource"]

_logger = logging.getLogger("nbmastra")


@dataclass(slots=True)
class Callbacks:
    """What the user wants to be told, and when. Those of chunks and steps are called when the output has them."""

    on_chunk: Callback | None = None
    on_step_finish: Callback | None = None
    on_finish: Callback | None = None
    on_error: Callback | None = None
    on_abort: Callback | None = None

    @classmethod
    def of(cls, options: StreamOptions) -> Callbacks:
        """Those that were given."""
        return cls(*(options.get(name) for name in cls.__slots__))

    @property
    def any(self) -> bool:
        """True if anything was given."""
        return any(getattr(self, name) is not None for name in self.__slots__)

    async def tell(self, out: MastraModelOutput, chunks: list[Chunk], steps: int) -> None:
        """Call what belongs to chunks that the output has taken in, with `steps` finished ones before them."""
        for chunk in chunks:
            await _call(out, self.on_chunk, "on_chunk", chunk)
            match chunk.type:
                case "step-finish":
                    await _call(out, self.on_step_finish, "on_step_finish", out.state.steps[steps])
                    steps += 1
                case "error":
                    error = out.state.error
                    text = error.message if error is not None else "the run failed"
                    status = error.status_code if error is not None else None
                    name = error.name if error is not None else "Error"
                    failure = MastraStreamError(text, name=name, status_code=status)
                    await _call(out, self.on_error, "on_error", failure)
                case "finish":
                    if self.on_finish is not None:
                        full = out.full_output_now()
                        failed, blocked = out.state.error is not None, full.finish_reason == "tripwire"
                        status = "failed" if failed else "tripwire" if blocked else "success"
                        full = replace(full, status=status, status_reason=full.finish_reason or "")
                        await _call(out, self.on_finish, "on_finish", full)
                case _:
                    pass


async def _call(out: MastraModelOutput, callback: Callback | None, name: str, value: Any) -> None:
    """A callback that fails must not take the run with it."""
    if callback is None:
        return
    try:
        answer = callback(value)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        _logger.warning("%s of a run failed", name, exc_info=True)
        problem = f"{type(error).__name__}: {error}"
        out.state.notice("callback", "warning", f"{name} failed", out.elapsed_s, problem[:300])


class LocalSource:
    """The chunks of an agent's run."""

    def __init__(
        self,
        run: AgentRun,
        out: MastraModelOutput,
        callbacks: Callbacks,
        abort_signal: AbortSignal | None,
        ended: Callable[[AgentRun], Awaitable[None]],
    ) -> None:
        self.done = False
        """True once the run has ended by itself."""
        self._run = run
        self._out = out
        self._callbacks = callbacks
        self._abort = AbortSignal(abort_signal)
        self._ended = ended
        self._chunks: list[Chunk] = []
        self._events = 0
        self._news: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come; what comes while they are being read is the next batch."""
        self._task = asyncio.create_task(self._work())
        loop, told = asyncio.get_running_loop(), len(self._out.state.steps)

        def stop() -> None:
            loop.call_soon_threadsafe(self._stop)

        forget = self._abort.on_abort(stop)
        try:
            while True:
                chunks, self._chunks = self._chunks, []
                if chunks:
                    yield None, chunks
                    if self._callbacks.any:
                        await self._callbacks.tell(self._out, chunks, told)
                        told += sum(chunk.type == "step-finish" for chunk in chunks)
                elif self._task.done():
                    self._task.result()
                    self.done = True
                    if self._abort.aborted:
                        self._out.was_stopped(self._abort.reason or "stopped by its abort signal")
                    await self._say_aborted()
                    return
                else:
                    self._news = loop.create_future()
                    await self._news
        finally:
            forget()

    async def _work(self) -> None:
        try:
            await self._run.run(self._take, self._abort)
            await self._ended(self._run)
        except asyncio.CancelledError:
            if not self._abort.aborted:
                raise
            for chunk in self._run.parting():
                self._take(chunk)
            await self._run.remember()
        finally:
            self._wake()

    def _take(self, chunk: Chunk) -> None:
        chunk.event = self._events
        self._events += 1
        self._chunks.append(chunk)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _say_aborted(self) -> None:
        if self._abort.aborted:
            await _call(self._out, self._callbacks.on_abort, "on_abort", list(self._out.state.steps))

    def parting(self) -> list[Chunk]:
        """The last chunks of a run that its output stops; its tools are told."""
        self._abort.abort("the run was stopped")
        for chunk in self._run.parting():
            self._take(chunk)
        chunks, self._chunks = self._chunks, []
        return chunks

    async def aclose(self) -> None:
        """Stop what still runs: the model's request is closed, tools are cancelled."""
        aborted = self._abort.aborted and not self.done
        self._abort.abort("the run is over")
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
            if not self._run.suspended:
                await self._run.remember()
        if aborted:
            await self._say_aborted()
