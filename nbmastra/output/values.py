"""What a run gave, to be awaited: the half of `MastraModelOutput` that only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.engine import Engine, interruptible
from nbmastra.errors import (
    MastraStreamError,
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
    ObjectPart,
    Part,
    ReasoningPart,
    RunState,
    SourcePart,
    Step,
    ToolCall,
    ToolResult,
    Turn,
)
from nbmastra.output.pending import Pending, PendingList
from nbmastra.output.results import (
    FullOutput,
    Response,
    Total,
    all_messages,
    find_trace_id,
    read_provider_metadata,
    read_request,
    read_response,
)
from nbmastra.output.schema import ObjectSchema
from nbmastra.replay_log import ReplayLog
from nbmastra.usage import Usage

__all__ = ["RunValues"]


class RunValues:
    """The values of a run. Those to be awaited follow its first turn; `turns`, `total` and `state` have all of it."""

    state: RunState
    log: ReplayLog[Chunk]
    schema: ObjectSchema | None
    until_idle: bool
    _engine: Engine
    _settled: ReplayLog[None]
    """Closed when the awaitable values are there: who waits for them isn't woken by each chunk."""
    _over: ReplayLog[None]
    """Closed when the run is over."""

    def cancel(self, reason: str = "stopped by you") -> None:
        """Stop the run."""
        raise NotImplementedError

    # --- at any moment ---------------------------------------------------------------------------------------------

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

    # --- when they are there ---------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True if the awaitable values are there: the run is over or, until idle, its first turn is."""
        return self._settled.closed

    async def settled(self) -> None:
        """Return when the awaitable values are there."""
        await self._wait(self._settled)

    async def _wait(self, flag: ReplayLog[None]) -> None:
        if flag.closed:
            return
        with interruptible(self.cancel) as interrupt:
            await flag.wait(0)
        await interrupt.passed_on()

    def settled_blocking(self, timeout: float | None = None) -> None:
        """Block until the awaitable values are there; TimeoutError after `timeout` seconds."""
        self._block(self._settled, timeout)

    def _block(self, flag: ReplayLog[None], timeout: float | None) -> None:
        self._engine.refuse_own_thread()
        with interruptible(self.cancel, blocking=True):
            if not flag.wait_blocking(0, timeout):
                raise TimeoutError(f"the run still goes on after {timeout} s")

    @property
    def _turn(self) -> Turn | None:
        return self.state.turns[0] if self.state.turns else None

    def _failure(self, partial: Any) -> RunError | None:
        """Why the values can't be given; the first turn decides, so that it never depends on when one asks."""
        turn = self._turn
        if self.state.error is not None and self.state.error_turn > 0:
            return None
        if turn is not None and turn.settled and turn.finish_reason != "error" and self.state.error is None:
            return None
        return self._run_failure(partial)

    def _run_failure(self, partial: Any) -> RunError | None:
        """The error of a run that failed or was cut off, in whatever turn."""
        state = self.state
        error = state.error
        if error is not None:
            return MastraStreamError(
                error.message, name=error.name, status_code=error.status_code, details=error.details, partial=partial
            )
        if state.status == "truncated":
            return StreamTruncated(state.status_reason, partial=partial)
        turn = self._turn
        if state.status == "failed" or (turn is not None and turn.finish_reason == "error"):
            return MastraStreamError(state.status_reason or "the run finished with an error", partial=partial)
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

    def _of_turn(self, name: str, read: Callable[[Turn], Any], missing: Any) -> Pending[Any]:
        return self._value(name, lambda: read(self._turn) if self._turn is not None else missing)

    def _list_of_turn(self, name: str, read: Callable[[Turn], list[Any]]) -> PendingList[Any]:
        return self._list(name, lambda: read(self._turn) if self._turn is not None else [])

    # --- text and object -------------------------------------------------------------------------------------------

    @property
    def text(self) -> Pending[str]:
        """The answer: the text after the last tool call."""
        return self._of_turn("text", lambda turn: turn.text, "")

    @property
    def object(self) -> Pending[Any]:
        """The object, checked against the schema; raises ObjectError with the path, or why there is none."""
        return Pending(self, "object", self._read_object)

    def _read_object(self) -> Any:
        turn, status, reason = self._turn, self.state.status, self.status_reason
        part = turn.object if turn is not None else None
        value = part.value if part is not None else None
        failure = self._failure(value)
        if failure is not None:
            raise failure
        if part is not None and (part.done or (status in ("success", "running") and (part.complete or part.told))):
            return self._checked_object(part, value)
        if status == "cancelled":
            raise RunCancelled(f"the run was cancelled before its object was complete: {reason}", partial=value)
        if status == "suspended":
            raise RunSuspended(f"the run has no object yet: {reason}", partial=value)
        if status == "tripwire":
            raise RunTripwire(f"the run was blocked: {reason}", partial=value)
        if value is not None:
            raise ObjectError(f"the object is incomplete ({reason or 'the answer stopped'})", partial=value)
        if self.schema is None:
            return None
        text = turn.text if turn is not None else ""
        raise ObjectError("the answer holds no object: its text isn't JSON", partial=text)

    def _checked_object(self, part: ObjectPart, value: Any) -> Any:
        if self.schema is None:
            return value
        try:
            return self.schema.validate(value)
        except ObjectError:
            if part.fallback:  # it needn't fit
                return value
            raise

    @property
    def used_fallback_value(self) -> Pending[bool]:
        """True if the answer didn't fit its schema, and the object is the `fallback_value`."""
        return self._of_turn("used_fallback_value", _used_fallback, False)

    @property
    def reasoning(self) -> Pending[str]:
        """What the model thought; "" if it told nothing."""
        return self._of_turn("reasoning", lambda turn: turn.reasoning, "")

    @property
    def reasoning_text(self) -> Pending[str | None]:
        """What the model thought; None if it told nothing."""
        return self._of_turn("reasoning_text", lambda turn: turn.reasoning or None, None)

    @property
    def reasoning_parts(self) -> PendingList[ReasoningPart]:
        """What the model thought, by part, with signatures."""
        return self._list_of_turn("reasoning_parts", lambda turn: turn.parts(ReasoningPart))

    # --- calls, counts and the rest --------------------------------------------------------------------------------

    @property
    def tool_calls(self) -> PendingList[ToolCall]:
        """The tool calls, in the order they began."""
        return self._list_of_turn("tool_calls", lambda turn: turn.tool_calls)

    @property
    def tool_results(self) -> PendingList[ToolResult]:
        """The results of the tool calls that have one, or an error, in the order of the calls."""
        return self._list_of_turn("tool_results", _tool_results)

    @property
    def usage(self) -> Pending[Usage]:
        """Tokens of the first turn, sub-agents not counted; missing numbers are None."""
        return self._of_turn("usage", lambda turn: turn.usage, Usage())

    @property
    def total_usage(self) -> Pending[Usage]:
        """The same as `usage`, as in Mastra; `total.usage` counts all turns, `total.grand_usage` nested runs too."""
        return self._of_turn("total_usage", lambda turn: turn.usage, Usage())

    @property
    def finish_reason(self) -> Pending[str | None]:
        """stop, length, tool-calls, content-filter, error, suspended, tripwire, abort, other or unknown."""
        return self._of_turn("finish_reason", lambda turn: turn.finish_reason, None)

    @property
    def response(self) -> Pending[Response]:
        """The provider's last answer, with `messages` and `ui_messages`."""
        return self._of_turn("response", read_response, Response())

    @property
    def request(self) -> Pending[dict[str, Any]]:
        """What was sent to the provider in the last step, where the server tells it."""
        return self._value("request", lambda: read_request(self._turn))

    @property
    def steps(self) -> PendingList[Step]:
        """The steps of the first turn."""
        return self._list_of_turn("steps", lambda turn: list(turn.steps))

    @property
    def sources(self) -> PendingList[SourcePart]:
        """The sources the answer rests on."""
        return self._list_of_turn("sources", lambda turn: turn.parts(SourcePart))

    @property
    def files(self) -> PendingList[FilePart]:
        """The files the model made."""
        return self._list_of_turn("files", lambda turn: turn.parts(FilePart))

    @property
    def content(self) -> PendingList[Part]:
        """All parts of the first turn, in their order."""
        return self._list_of_turn("content", lambda turn: turn.parts(Part))

    @property
    def warnings(self) -> PendingList[Any]:
        """What the provider warned of."""
        return self._list_of_turn("warnings", lambda turn: turn.warnings)

    @property
    def provider_metadata(self) -> Pending[dict[str, Any] | None]:
        """The provider's metadata of the last step; None if there is none."""
        return self._of_turn("provider_metadata", read_provider_metadata, None)

    @property
    def suspend_payload(self) -> Pending[Any]:
        """What a suspended run asks: the tool's own data, or the call that needs approval; None if nothing waits."""
        return self._value("suspend_payload", self._suspend_payload)

    def _suspend_payload(self) -> Any:
        call = next(iter(list(self.state.waiting.values())), None)
        if isinstance(call, ToolCall) and call.status == "needs-approval":
            return {"toolCallId": call.tool_call_id, "toolName": call.tool_name, "args": call.args}
        return call.suspend_payload if call is not None else None

    @property
    def resume_schema(self) -> Pending[dict[str, Any] | None]:
        """JSON schema of the data that a suspended run waits for; None if nothing waits or anything will do."""
        return self._value(
            "resume_schema", lambda: next((call.resume_schema for call in list(self.state.waiting.values())), None)
        )

    # --- all at once -----------------------------------------------------------------------------------------------

    async def get_full_output(self) -> FullOutput:
        """Everything at once, when the run is over (until idle: its first turn); doesn't raise for failed runs."""
        await self.settled()
        return self.full_output_now()

    def full_output_now(self) -> FullOutput:
        """As `get_full_output`, of what is there at this moment."""
        turn = self._turn or Turn(0, 0.0)
        object_error: Exception | None = None
        value: Any = None
        try:
            value = self._read_object()
        except RunError as error:
            object_error = error
        return FullOutput(
            text=turn.text,
            object=value,
            reasoning=turn.reasoning,
            tool_calls=turn.tool_calls,
            tool_results=_tool_results(turn),
            usage=turn.usage,
            total_usage=turn.usage,
            finish_reason=turn.finish_reason,
            steps=list(turn.steps),
            sources=turn.parts(SourcePart),
            files=turn.parts(FilePart),
            warnings=turn.warnings,
            response=read_response(turn),
            request=read_request(turn),
            run_id=self.run_id,
            trace_id=self.trace_id,
            status=self.status,
            status_reason=self.status_reason,
            error=self.error,
            object_error=object_error,
            used_fallback_value=_used_fallback(turn),
            tripwire=self.tripwire,
            suspend_payload=self._suspend_payload(),
        )

    async def consume_stream(self, on_error: Callable[[RunError], Any] | None = None) -> None:
        """Wait until the run is over; a failed or truncated one calls `on_error` with its error, and doesn't raise."""
        await self._wait(self._over)
        failure = self._run_failure(self._turn.text if self._turn is not None else "")
        if failure is not None and on_error is not None:
            answer = on_error(failure)
            if isawaitable(answer):
                await answer


def _used_fallback(turn: Turn) -> bool:
    return turn.object is not None and turn.object.fallback


def _tool_results(turn: Turn) -> list[ToolResult]:
    return [ToolResult(call) for call in turn.tool_calls if call.status in ("success", "error")]
