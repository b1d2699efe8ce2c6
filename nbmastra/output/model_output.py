"""`MastraModelOutput`: one run, live or finished, as its user sees it.

source ──batches──▶ fold (`state`) ──▶ log ──▶ readers, views, awaitables
                     on the engine's loop      anywhere
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio

from nbmastra.chunks import Chunk
from nbmastra.engine import Engine, Job, get_engine, interruptible
from nbmastra.errors import (
    AlreadyResumed,
    MastraStreamError,
    NotSuspended,
    ObjectError,
    RunCancelled,
    RunError,
    RunSuspended,
    RunTripwire,
    StreamTruncated,
)
from nbmastra.fold import (
    ErrorInfo,
    FilePart,
    Part,
    ReasoningPart,
    RunState,
    SourcePart,
    Step,
    ToolCall,
    ToolResult,
    Turn,
    WorkflowStep,
)
from nbmastra.fold.reading import as_dict
from nbmastra.output.control import Answer, Control, NoControl
from nbmastra.output.hooks import hooks
from nbmastra.output.limits import Limits
from nbmastra.output.pending import Pending, PendingList
from nbmastra.output.results import FullOutput, Response, Total, all_messages, find_trace_id, read_response
from nbmastra.output.schema import ObjectSchema
from nbmastra.output.source import Batch, ChunkLike, Ended, IterableSource, Source, StreamEnded
from nbmastra.output.streams import ElementReader, ItemReader, ObjectReader, Stream
from nbmastra.replay_log import ReplayLog
from nbmastra.usage import Usage

__all__ = ["MastraModelOutput"]

SETTLE_S = 0.5
"""Silence after an error or a question, after which the run is over though the server holds the connection."""
CLOSE_S = 1.0
"""How long closing a source may take."""


class MastraModelOutput:
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
        self.control: Control = control if control is not None else NoControl()
        self.context: dict[str, Any] = context or {}
        """Facts for views and recordings: url, thread, resource."""
        self.limits = limits or Limits()
        self.state: RunState = RunState(
            expect_object=self.schema is not None,
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
        self._done_callbacks: list[Callable[[], None]] = []
        self._finished_log: ReplayLog[None] = ReplayLog()
        self.next: MastraModelOutput | None = None
        """The output that went on after an answer."""
        self._next_callbacks: list[Callable[[MastraModelOutput], None]] = []
        self._answered: set[int] = set()
        self._lock = threading.Lock()

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
        self._engine.start(self._run, source)
        return self

    async def _run(self, source: Source) -> None:
        ended: Ended | None = None
        try:
            with anyio.CancelScope() as self._scope:
                if self._cancel_reason:
                    self._scope.cancel()
                await self._read(source)
        except StreamEnded as end:
            ended = end.ended
        except Exception as error:
            ended = Ended(source.done, failure=str(error) or type(error).__name__)
        finally:
            # Settled before the socket is closed: nobody waits for a server that is slow to let go.
            self._settle(ended or Ended(source.done))
            # The run is over: how its connection closes changes nothing.
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S), suppress(Exception):
                await source.aclose()
            self._finished_log.close()

    async def _read(self, source: Source) -> None:
        batches = source.batches()
        limits, state = self.limits, self.state
        try:
            while True:
                # A recording tells its own times, and its end.
                settling = state.settling and self._source_at is None
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
                if batch is None:
                    return
                at, chunks = batch
                self._source_at = at
                self.feed(chunks, self.elapsed_s if at is None else at)
                crossed = limits.crossed(state)
                if crossed is not None:
                    self._stop(*crossed)
                    return
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await batches.aclose()  # type: ignore[attr-defined]  # an async generator, closed where it was read

    def feed(self, chunks: list[Chunk], at: float) -> None:
        """Take in chunks that arrived together; on the engine's loop only."""
        apply = self.state.apply
        for chunk in chunks:
            apply(chunk, at)
        self.log.extend(chunks)

    def _stop(self, code: str, reason: str) -> None:
        if not self._cancel_reason:
            self._cancel_code, self._cancel_reason = code, reason

    def _settle(self, ended: Ended) -> None:
        reason = self._cancel_reason or ("the kernel is shutting down" if self._engine.closing else "")
        if reason:
            ended = replace(ended, cancelled=reason, code=self._cancel_code, at=None)
        self.finish(ended)

    def finish(self, ended: Ended) -> None:
        """The stream is over; on the engine's loop, or where nobody else has the run yet."""
        at = self.elapsed_s if ended.at is None else ended.at
        self.ended = replace(ended, at=at)
        self.state.close(at, done=ended.done, cancelled=ended.cancelled, failure=ended.failure, code=ended.code)
        self.log.close()
        for callback in self._done_callbacks:
            callback()

    def cancel(self, reason: str = "stopped by you") -> None:
        """Stop the run, from any thread; returns at once, everything settles within a second, what came is kept."""
        with self._lock:
            if self._cancel_reason or self.log.closed:
                return
            self._cancel_reason = reason
        self._engine.call_soon(self._cancel_scope)

    def _cancel_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def aclose(self) -> None:
        """Stop the run if it goes on, and wait until its connection is closed."""
        self.cancel("closed")
        await self._finished_log.wait(0)

    def wait(self, timeout: float | None = None) -> MastraModelOutput:
        """Block until the run is over (TimeoutError after `timeout` seconds); doesn't raise for failed runs."""
        self._engine.refuse_own_thread()
        with interruptible(self.cancel):
            while not self.log.closed:
                if not self.log.wait_blocking(len(self.log.items), timeout):
                    raise TimeoutError(f"the run still goes on after {timeout} s")
        return self

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the run is over, on the engine's loop; or now, if it is."""
        self._done_callbacks.append(callback)
        if self.log.closed and callback in self._done_callbacks:
            callback()

    # --- status ----------------------------------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run was started; of a finished run, its whole time."""
        ended = self.state.ended_at
        if ended is not None:
            return ended
        return time.perf_counter() - self._started if self._source_at is None else self._source_at

    @property
    def status(self) -> str:
        """running, success, failed, suspended, tripwire, cancelled or truncated."""
        return self.state.status if self.log.closed else "running"

    @property
    def status_reason(self) -> str:
        """Why the run ended so; "" while it runs."""
        return self.state.status_reason

    @property
    def done(self) -> bool:
        """True if the run is over."""
        return self.log.closed

    @property
    def error(self) -> ErrorInfo | None:
        """The error of a failed run."""
        return self.state.error

    @property
    def tripwire(self) -> dict[str, Any] | None:
        """The tripwire's payload (reason, retry, metadata, processorId) of a run that a processor blocked."""
        return self.state.tripwire

    @property
    def run_id(self) -> str | None:
        """Id of the first run; None before its first chunk."""
        return self.state.run_id

    @property
    def trace_id(self) -> str | None:
        """Id of the run's trace, where the server tells it."""
        return find_trace_id(self.state.messages_chunk)

    @property
    def message_list(self) -> list[dict[str, Any]]:
        """The whole conversation as the server knows it after the last turn."""
        return all_messages(self.state.messages_chunk)

    @property
    def turns(self) -> Sequence[Turn]:
        """The turns so far, each with text, usage, steps, tool_calls, finish_reason and run_id."""
        return list(self.state.turns)

    @property
    def total(self) -> Total:
        """All turns together, with tasks and nested runs."""
        return Total(self.state)

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

    # --- values ----------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True if the awaitable values are there: the run is over or, until idle, its first turn is."""
        if self.log.closed:
            return True
        turns = self.state.turns
        return self.until_idle and bool(turns) and turns[0].settled

    async def settled(self) -> None:
        """Return when the awaitable values are there."""
        while not self.is_settled:
            seen = len(self.log.items)
            if self.is_settled:
                return
            with interruptible(self.cancel):
                await self.log.wait(seen)

    def settled_blocking(self, timeout: float | None = None) -> None:
        """Block until the awaitable values are there; TimeoutError after `timeout` seconds."""
        self._engine.refuse_own_thread()
        until = None if timeout is None else time.monotonic() + timeout
        with interruptible(self.cancel):
            while not self.is_settled:
                seen = len(self.log.items)
                left = None if until is None else max(until - time.monotonic(), 0)
                if not self.is_settled and not self.log.wait_blocking(seen, left):
                    raise TimeoutError(f"the run still goes on after {timeout} s")

    @property
    def _turn(self) -> Turn | None:
        return self.state.turns[0] if self.state.turns else None

    def _failure(self, partial: Any) -> RunError | None:
        """Why the values can't be given; the first turn decides, so that it never depends on when one asks."""
        state, turn = self.state, self._turn
        if state.error is not None and state.error_turn <= 0:
            error = state.error
            return MastraStreamError(
                error.message, name=error.name, status_code=error.status_code, details=error.details, partial=partial
            )
        if turn is not None and turn.settled:
            return MastraStreamError(state.status_reason, partial=partial) if turn.finish_reason == "error" else None
        if state.status == "truncated":
            return StreamTruncated(state.status_reason, partial=partial)
        if state.status == "failed":
            return MastraStreamError(state.status_reason, partial=partial)
        return None

    def _value(self, name: str, read: Callable[[], Any]) -> Pending[Any]:
        return Pending(self, name, self._checked(read))

    def _list(self, name: str, read: Callable[[], list[Any]]) -> PendingList[Any]:
        return PendingList(self, name, self._checked(read), read)

    def _checked(self, read: Callable[[], Any]) -> Callable[[], Any]:
        def checked() -> Any:
            value = read()
            failure = self._failure(value)
            if failure is not None:
                raise failure
            return value

        return checked

    @property
    def text(self) -> Pending[str]:
        """The answer: the text after the last tool call."""
        return self._value("text", lambda: self._turn.text if self._turn else "")

    @property
    def object(self) -> Pending[Any]:
        """The object, checked against the schema; raises ObjectError with the path, or why there is none."""
        return Pending(self, "object", self._read_object)

    def _read_object(self) -> Any:
        part = self.state.object
        value = part.value if part is not None else None
        failure = self._failure(value)
        if failure is not None:
            raise failure
        reason, status = self.status_reason, self.state.status
        if part is not None and (part.done or status in ("success", "running")):
            return self.schema.validate(value) if self.schema is not None else value
        if status == "cancelled":
            raise RunCancelled(f"the run was cancelled before its object was complete: {reason}", partial=value)
        if status == "suspended":
            raise RunSuspended(f"the run has no object yet: {reason}", partial=value)
        if status == "tripwire":
            raise RunTripwire(f"the run was blocked: {reason}", partial=value)
        if self.schema is None:
            return None
        raise ObjectError(
            "the answer holds no object: its text isn't JSON", partial=self._turn.text if self._turn else ""
        )

    @property
    def reasoning(self) -> Pending[str]:
        """What the model thought; "" if it told nothing."""
        return self._value("reasoning", lambda: self._turn.reasoning if self._turn else "")

    @property
    def reasoning_text(self) -> Pending[str | None]:
        """What the model thought; None if it told nothing."""
        return self._value("reasoning_text", lambda: (self._turn.reasoning if self._turn else "") or None)

    @property
    def reasoning_parts(self) -> PendingList[ReasoningPart]:
        """What the model thought, by part, with signatures."""
        return self._list("reasoning_parts", lambda: self._parts(ReasoningPart))

    @property
    def tool_calls(self) -> PendingList[ToolCall]:
        """The tool calls, in the order they began."""
        return self._list("tool_calls", lambda: self._turn.tool_calls if self._turn else [])

    @property
    def tool_results(self) -> PendingList[ToolResult]:
        """The results of the tool calls that have one, or an error, in the order of the calls."""
        return self._list(
            "tool_results",
            lambda: [
                ToolResult(call)
                for call in (self._turn.tool_calls if self._turn else [])
                if call.status in ("success", "error")
            ],
        )

    @property
    def usage(self) -> Pending[Usage]:
        """Tokens of the first turn, sub-agents not counted; missing numbers are None."""
        return self._value("usage", lambda: self._turn.usage if self._turn else Usage())

    @property
    def total_usage(self) -> Pending[Usage]:
        """The same as `usage`, as in Mastra; `total.usage` counts all turns, `total.grand_usage` nested runs too."""
        return self._value("total_usage", lambda: self._turn.usage if self._turn else Usage())

    @property
    def finish_reason(self) -> Pending[str | None]:
        """stop, length, tool-calls, content-filter, error, suspended, tripwire, abort, other or unknown."""
        return self._value("finish_reason", lambda: self._turn.finish_reason if self._turn else None)

    @property
    def response(self) -> Pending[Response]:
        """The provider's last answer, with `messages` and `ui_messages`."""
        return self._value(
            "response",
            lambda: read_response(self._turn.finish_chunk if self._turn else None, self.state.response_metadata),
        )

    @property
    def request(self) -> Pending[dict[str, Any]]:
        """What was sent to the provider in the last step, where the server tells it."""
        return self._value("request", self._request)

    def _request(self) -> dict[str, Any]:
        start = self._turn.steps[-1].start_chunk if self._turn and self._turn.steps else None
        return as_dict(as_dict(start.raw_payload()).get("request")) if start is not None else {}

    @property
    def steps(self) -> PendingList[Step]:
        """The steps of the first turn."""
        return self._list("steps", lambda: list(self._turn.steps) if self._turn else [])

    @property
    def sources(self) -> PendingList[SourcePart]:
        """The sources the answer rests on."""
        return self._list("sources", lambda: self._parts(SourcePart))

    @property
    def files(self) -> PendingList[FilePart]:
        """The files the model made."""
        return self._list("files", lambda: self._parts(FilePart))

    @property
    def content(self) -> PendingList[Part]:
        """All parts of the first turn, in their order."""
        return self._list("content", lambda: self._parts(Part))

    @property
    def warnings(self) -> PendingList[Any]:
        """What the provider warned of."""
        return self._list("warnings", lambda: [w for step in self.steps for w in step.warnings])

    @property
    def provider_metadata(self) -> Pending[dict[str, Any] | None]:
        """The provider's metadata of the last step; None if there is none."""
        return self._value("provider_metadata", self._provider_metadata)

    def _provider_metadata(self) -> dict[str, Any] | None:
        finish = self._turn.steps[-1].finish_chunk if self._turn and self._turn.steps else None
        payload = as_dict(finish.raw_payload()) if finish is not None else {}
        metadata = payload.get("providerMetadata", as_dict(payload.get("metadata")).get("providerMetadata"))
        return as_dict(metadata) or None

    @property
    def suspend_payload(self) -> Pending[Any]:
        """What a suspended run asks: the tool's own data, or the call that needs approval; None if nothing waits."""
        return self._value("suspend_payload", self._suspend_payload)

    def _suspend_payload(self) -> Any:
        call = next(iter(self.state.waiting.values()), None)
        if call is None:
            return None
        if call.status == "needs-approval":
            return {"toolCallId": call.tool_call_id, "toolName": call.tool_name, "args": call.args}
        return call.suspend_payload

    @property
    def resume_schema(self) -> Pending[dict[str, Any] | None]:
        """JSON schema of the data that a suspended run waits for; None if nothing waits or anything will do."""
        return self._value(
            "resume_schema", lambda: next((call.resume_schema for call in self.state.waiting.values()), None)
        )

    def _parts(self, kind: type[Any]) -> list[Any]:
        steps = self._turn.steps if self._turn else []
        return [part for step in steps for part in step.parts if isinstance(part, kind)]

    async def get_full_output(self) -> FullOutput:
        """Everything at once, when the run is over (until idle: its first turn); doesn't raise for failed runs."""
        await self.settled()
        return self._full_output()

    def _full_output(self) -> FullOutput:
        turn, state = self._turn, self.state
        object_error: Exception | None = None
        value: Any = None
        try:
            value = self._read_object()
        except RunError as error:
            object_error = error
        usage = turn.usage if turn else Usage()
        calls = turn.tool_calls if turn else []
        return FullOutput(
            text=turn.text if turn else "",
            object=value,
            reasoning=turn.reasoning if turn else "",
            tool_calls=calls,
            tool_results=[ToolResult(call) for call in calls if call.status in ("success", "error")],
            usage=usage,
            total_usage=usage,
            finish_reason=turn.finish_reason if turn else None,
            steps=list(turn.steps) if turn else [],
            sources=self._parts(SourcePart),
            files=self._parts(FilePart),
            warnings=[w for step in (turn.steps if turn else []) for w in step.warnings],
            response=read_response(turn.finish_chunk if turn else None, state.response_metadata),
            request=self._request(),
            run_id=self.run_id,
            trace_id=self.trace_id,
            status=self.status,
            status_reason=self.status_reason,
            error=state.error,
            object_error=object_error,
            tripwire=state.tripwire,
            suspend_payload=self._suspend_payload(),
        )

    async def consume_stream(self, on_error: Callable[[RunError], Any] | None = None) -> None:
        """Wait until the run is over; a failed or truncated one calls `on_error` with its error, and doesn't raise."""
        while not self.log.closed:
            with interruptible(self.cancel):
                await self.log.wait(len(self.log.items))
        failure = self._failure(self._turn.text if self._turn else "")
        if failure is not None and on_error is not None:
            on_error(failure)

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
            self.next = after
            for callback in self._next_callbacks:
                callback(after)
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

    def on_next(self, callback: Callable[[MastraModelOutput], None]) -> None:
        """Call `callback` with the output that goes on, when somebody has answered: on the engine's loop."""
        self._next_callbacks.append(callback)

    @property
    def waiting(self) -> list[ToolCall | WorkflowStep]:
        """The calls that wait for an approval or for data and weren't answered yet."""
        return [call for call in self.state.waiting.values() if id(call) not in self._answered]

    # --- shown -----------------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        if hooks.display is None:
            print(repr(self))
        else:
            hooks.display(self)

    def __repr__(self) -> str:
        state = self.state
        who = f" {self.agent}" if self.agent else ""
        tip = "" if self.done else ": await .text, or display it"
        return f"<MastraModelOutput{who} {self.status} {self.elapsed_s:.1f} s, {state.events} chunks{tip}>"


def _as_it_is(value: Any) -> tuple[bool, Any]:
    return True, value
