"""`MastraModelOutput`: one run, live or finished, as its user sees it.

source ──batches──▶ fold (`state`) ──▶ log ──▶ readers, views, awaitables
                     on the engine's loop      anywhere
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio

from nbmastra.chunks import Chunk
from nbmastra.engine import Engine, Job, get_engine
from nbmastra.errors import AlreadyResumed, NotSuspended, printable
from nbmastra.fold import RunState, ToolCall, WorkflowStep
from nbmastra.hooks import hooks
from nbmastra.output.control import Answer, Control, NoControl
from nbmastra.output.frame_methods import FrameMethods
from nbmastra.output.limits import Limits
from nbmastra.output.schema import ObjectSchema
from nbmastra.output.source import Batch, ChunkLike, Ended, IterableSource, Source, StreamEnded
from nbmastra.output.streams import ElementReader, ItemReader, ObjectReader, Stream
from nbmastra.output.values import RunValues
from nbmastra.replay_log import ReplayLog

__all__ = ["MastraModelOutput"]

SETTLE_S = 0.5
"""Silence after an error or a question, after which the run is over though the server holds the connection."""
CLOSE_S = 1.0
"""How long closing a source may take; a source that doesn't let itself be cancelled gets half of it."""
BREATH_S = 0.005
"""How long chunks that are all there may keep the engine's loop from everything else."""

_logger = logging.getLogger("nbmastra")


class MastraModelOutput(RunValues, FrameMethods):
    """A run: streams to read, values to await, and what can be done to it.

    Awaitable values follow the first turn, as Mastra's do; `turns`, `total` and `state` have all of it, at any moment.
    Failed and truncated runs raise from every awaitable, with what was accepted in the error's `.partial`.
    """

    def __init__(
        self,
        *,
        control: Control | None = None,
        schema: Any = None,
        agent: str | None = None,
        prompt: str | None = None,
        previous: MastraModelOutput | None = None,
        until_idle: bool = False,
        endless: bool = False,
        limits: Limits | None = None,
        answered: Iterable[str] = (),
        context: dict[str, Any] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.stream_id: str = uuid.uuid4().hex
        self.created_at: datetime = datetime.now(UTC)
        self.schema: ObjectSchema | None = ObjectSchema(schema) if schema is not None else None
        self.agent = agent
        self.prompt = prompt
        self.previous: MastraModelOutput | None = previous
        self.until_idle = until_idle
        self._endless = endless  # the source decides what its end is: after an error or a question more may follow
        self.control: Control = control if control is not None else NoControl()
        self.context: dict[str, Any] = context or {}
        """Facts for views and recordings: url, thread, resource."""
        self.limits = limits or Limits()
        self.state: RunState = RunState(
            expect_object=self.schema is not None and not self.schema.is_word,
            array_object=self.schema is not None and self.schema.is_array,
            answered=answered,
        )
        self.log: ReplayLog[Chunk] = ReplayLog()
        self._engine = engine or get_engine()
        self.ended: Ended | None = None
        """How the stream stopped; None while it runs."""
        self._started = time.perf_counter()
        self._source_at: float | None = None
        self._scope: anyio.CancelScope | None = None
        self._cancel_reason = ""
        self._cancel_code = ""
        self._job: Job[None] | None = None
        self._settled = ReplayLog()
        self._over = ReplayLog()
        self._closed_log: ReplayLog[None] = ReplayLog()  # closed when the source is
        self._done_callbacks: list[Callable[[], None]] = []
        self.next: MastraModelOutput | None = None
        """The output that went on after an answer."""
        self._next_callbacks: list[Callable[[MastraModelOutput], None]] = []
        self._answered: set[int] = set()
        self._lock = threading.RLock()  # an interrupt may call cancel() while the same thread is in it

    # --- life ------------------------------------------------------------------------------------------------------

    @classmethod
    def from_chunks(
        cls, chunks: Iterable[ChunkLike] | AsyncIterable[ChunkLike], *, schema: Any = None, **about: Any
    ) -> MastraModelOutput:
        """A run read from chunks (or their dicts, JSON texts); without a terminal chunk it ends as truncated."""
        return cls(schema=schema, **about).start(IterableSource(chunks))

    def start(self, source: Source) -> MastraModelOutput:
        """Read the source on the engine's loop; returns at once."""
        self._started = time.perf_counter()
        if hooks.started is not None:
            hooks.started(self)
        for told in list(hooks.listeners):
            _call(told, self)
        self._job = self._engine.start(self._run, source)
        return self

    async def _run(self, source: Source) -> None:
        ended: Ended | None = None
        batches = source.batches()
        try:
            with anyio.CancelScope() as self._scope:
                if not self._cancel_reason:
                    await self._read(batches)
        except StreamEnded as end:
            ended = end.ended
        except Exception as error:
            ended = Ended(source.done, failure=str(error) or type(error).__name__)
        finally:
            try:
                self._take_leave(source)
                # Settled before the socket is closed: nobody waits for a server that is slow to let go.
                self._settle(ended or Ended(source.done))
            finally:
                await _close(batches, CLOSE_S / 2)
                await _close(source, CLOSE_S)
                self._closed_log.close()

    def _take_leave(self, source: Source) -> None:
        """What a source of our own still has to say of a run that was stopped."""
        parting: Callable[[], list[Chunk]] | None = getattr(source, "parting", None)
        if self._cancel_reason and parting is not None and not self.log.closed:
            self.feed(parting(), self.elapsed_s)

    async def _read(self, batches: AsyncIterator[Batch]) -> None:
        limits, state, reports = self.limits, self.state, 0
        breath = time.perf_counter()
        while True:
            # A recording tells its own times, and its end.
            settling = state.settling and self._source_at is None and not self._endless
            wait = SETTLE_S if settling else limits.wait_s(self.elapsed_s)
            batch: Batch | None = None
            if wait is None:
                batch = await anext(batches, None)
            else:
                with anyio.move_on_after(wait) as scope:
                    batch = await anext(batches, None)
                if scope.cancelled_caught:
                    if not settling:
                        self._stop(*limits.waited_too_long(self.elapsed_s))
                    return
            if batch is None or self.log.closed:
                return
            at, chunks = batch
            self._source_at = at
            self.feed(chunks, self.elapsed_s if at is None else at)
            if state.usage_reports != reports:
                reports = state.usage_reports
                crossed = limits.crossed(state)
                if crossed is not None:
                    self._stop(*crossed)
                    return
            if time.perf_counter() - breath > BREATH_S:
                await asyncio.sleep(0)
                breath = time.perf_counter()

    def feed(self, chunks: list[Chunk], at: float) -> None:
        """Take in chunks that arrived together; on the engine's loop only."""
        self.state.apply_all(chunks, round(at, 6))  # as recordings write it: both tell the same times
        self.log.extend(chunks)
        if self.until_idle and not self._settled.closed and self.state.turns and self.state.turns[0].settled:
            self._settled.close()

    def _stop(self, code: str, reason: str) -> None:
        if not self._cancel_reason:
            self._cancel_code, self._cancel_reason = code, reason

    def _settle(self, ended: Ended) -> None:
        reason = self._cancel_reason or ("the kernel is shutting down" if self._engine.closing else "")
        if reason:
            ended = replace(ended, cancelled=reason, code=self._cancel_code, at=None)
        self.finish(ended)

    def finish(self, ended: Ended) -> None:
        """The stream is over; on the engine's loop, or where nobody else has the run yet. The first call counts."""
        if self.ended is not None:
            return
        at = round(self.elapsed_s if ended.at is None else ended.at, 6)
        self.ended = replace(ended, at=at)
        try:
            self.state.close(at, done=ended.done, cancelled=ended.cancelled, failure=ended.failure, code=ended.code)
        finally:
            with self._lock:
                for log in (self.log, self._settled, self._over):
                    log.close()
                callbacks, self._done_callbacks = self._done_callbacks, []
            for callback in callbacks:
                _call(callback)

    def cancel(self, reason: str = "stopped by you") -> None:
        """Stop the run, from any thread; returns at once, everything settles within a second, what came is kept."""
        with self._lock:
            if self._cancel_reason or self.log.closed:
                return
            self._cancel_reason = reason
        self._engine.call_soon(self._cancel_scope)

    def was_stopped(self, reason: str) -> None:
        """For the run's source: it has ended because somebody stopped it there, and why."""
        with self._lock:
            self._cancel_reason = self._cancel_reason or reason

    def _cancel_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
            # A source may be deaf to it: then the run is over without it.
            asyncio.get_running_loop().call_later(CLOSE_S / 2, self._settle, Ended())

    async def aclose(self) -> None:
        """Stop the run if it goes on, and wait until its connection is closed."""
        self.cancel("closed")
        if self._job is not None:
            with anyio.move_on_after(2 * CLOSE_S):
                await self._closed_log.wait(0)

    def wait(self, timeout: float | None = None) -> MastraModelOutput:
        """Block until the run is over (TimeoutError after `timeout` seconds); doesn't raise for failed runs."""
        self._block(self._over, timeout)
        return self

    def on_done(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the run is over, on the engine's loop; or now, if it is. Gives what takes it back."""
        with self._lock:
            if not self.log.closed:
                self._done_callbacks.append(callback)
                return lambda: self._forget(self._done_callbacks, callback)
        callback()
        return lambda: None

    def _forget(self, callbacks: list[Any], callback: Callable[..., None]) -> None:
        with self._lock:
            if callback in callbacks:
                callbacks.remove(callback)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run was started; of a finished run, its whole time."""
        ended = self.state.ended_at
        if ended is not None:
            return ended
        return time.perf_counter() - self._started if self._source_at is None else self._source_at

    # --- streams ---------------------------------------------------------------------------------------------------

    def _stream(self, new_reader: Callable[[], Any]) -> Stream[Any]:
        return Stream(self.log, new_reader, self.cancel)

    @property
    def full_stream(self) -> Stream[Chunk]:
        """Every chunk, known or not."""
        return self._stream(lambda: ItemReader(self.log.items))

    @property
    def text_stream(self) -> Stream[str]:
        """The text deltas of all turns, narration between tool calls included; nested runs are left out."""
        return self._stream(lambda: ItemReader(self.state.text_pieces))

    @property
    def reasoning_stream(self) -> Stream[str]:
        """The reasoning deltas."""
        return self._stream(lambda: ItemReader(self.state.reasoning_pieces))

    @property
    def object_stream(self) -> Stream[Any]:
        """The object as it grows, unchecked; begins anew if a processor had the answer written again."""
        return self._stream(lambda: ObjectReader(self.log, self.state))

    @property
    def element_stream(self) -> Stream[Any]:
        """The elements of an array, each once, when it is complete and fits the schema."""
        accept: Callable[[Any], tuple[bool, Any]] = self.schema.accept_element if self.schema is not None else _as_it_is
        return self._stream(lambda: ElementReader(self.log, self.state, accept))

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.full_stream)

    def __aiter__(self) -> Any:
        return self.full_stream.__aiter__()

    # --- answers ---------------------------------------------------------------------------------------------------

    def approve(self, tool_call_id: str | None = None) -> Job[MastraModelOutput]:
        """Let a waiting call run; gives the output that goes on. Raises AlreadyResumed, NotSuspended."""
        return self._answer("approve", tool_call_id)

    def decline(self, tool_call_id: str | None = None, *, reason: str | None = None) -> Job[MastraModelOutput]:
        """Refuse a call that waits for approval; the model is told the reason. Raises AlreadyResumed, NotSuspended."""
        return self._answer("decline", tool_call_id, reason=reason)

    def resume(self, data: Any, *, tool_call_id: str | None = None) -> Job[MastraModelOutput]:
        """Give a suspended tool the data it waits for. Raises AlreadyResumed, NotSuspended."""
        return self._answer("resume", tool_call_id, data=data)

    def _answer(
        self, answer: Answer, tool_call_id: str | None, *, reason: str | None = None, data: Any = None
    ) -> Job[MastraModelOutput]:
        with self._lock:
            call = self._waiting_call(tool_call_id)
            if id(call) in self._answered:
                raise AlreadyResumed(f"{call.tool_name} ({call.tool_call_id}) was answered before")
            self._answered.add(id(call))

        async def send() -> MastraModelOutput:
            try:
                after = await self.control.answer(self, call, answer, reason=reason, data=data)
            except AlreadyResumed:
                raise
            except Exception:
                self._answered.discard(id(call))  # nothing was sent or accepted: one may try again
                raise
            after.previous = self
            with self._lock:
                self.next = after
                callbacks = list(self._next_callbacks)
            for callback in callbacks:
                _call(callback, after)
            return after

        return self._engine.start(send)

    def _waiting_call(self, tool_call_id: str | None) -> ToolCall | WorkflowStep:
        waiting = list(self.state.waiting.values())
        if tool_call_id is not None:
            waiting = [call for call in waiting if call.tool_call_id == tool_call_id]
        elif len(waiting) > 1:
            ids = ", ".join(call.tool_call_id for call in waiting)
            raise NotSuspended(f"several calls wait ({ids}): name one by tool_call_id=")
        if not waiting:
            which = f"no call {tool_call_id!r} waits" if tool_call_id else "nothing waits"
            raise NotSuspended(f"{which} for an answer in this run ({self.status})")
        if not self.log.closed and not self.state.settling:
            raise NotSuspended("the run still goes on: wait until it is suspended")
        return waiting[0]

    def on_next(self, callback: Callable[[MastraModelOutput], None]) -> Callable[[], None]:
        """Call `callback` with the output that goes on, when somebody answers, on the engine's loop; or now.

        Gives what takes it back.
        """
        with self._lock:
            self._next_callbacks.append(callback)
            after = self.next
        if after is not None:
            callback(after)
        return lambda: self._forget(self._next_callbacks, callback)

    def chain(self, first: MastraModelOutput | None = None) -> list[MastraModelOutput]:
        """The outputs that led here by answers, from `first` or the very first, to this one."""
        outs: list[MastraModelOutput] = [self]
        while outs[-1] is not first and outs[-1].previous is not None:
            outs.append(outs[-1].previous)
        return outs[::-1]

    @property
    def waiting(self) -> list[ToolCall | WorkflowStep]:
        """The calls that wait for an approval or for data and weren't answered yet."""
        return [call for call in list(self.state.waiting.values()) if id(call) not in self._answered]

    # --- shown -----------------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        if hooks.display is None:
            print(repr(self))
        else:
            hooks.display(self)

    def __repr__(self) -> str:
        state = self.state
        who = f" {printable(self.agent)}" if self.agent else ""
        tip = "" if self.done else ": await .text, or display it"
        return f"<MastraModelOutput{who} {self.status} {self.elapsed_s:.1f} s, {state.events} chunks{tip}>"


def _as_it_is(value: Any) -> tuple[bool, Any]:
    return True, value


def _call(callback: Callable[..., None], *args: Any) -> None:
    """A view that fails must not take the run with it."""
    try:
        callback(*args)
    except Exception:
        _logger.exception("a callback of a run failed")


async def _close(closable: Any, deadline_s: float) -> None:
    """The run is over: how its source closes changes nothing."""
    close = getattr(closable, "aclose", None)
    if close is not None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(deadline_s), suppress(Exception):
            await close()
