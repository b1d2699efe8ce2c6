"""Tool calls: arguments, results, errors, questions to the user, and what runs inside of a call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import ChunkError
from nbmastra.fold.calls import Task, ToolCall
from nbmastra.fold.parts import ErrorInfo
from nbmastra.fold.reading import ORIGINS, as_dict, as_text, error_info, is_chunk_like, read, read_row, schema_of
from nbmastra.fold.turns import Step
from nbmastra.partial_json import recover_json

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = [
    "AT_ONCE",
    "HANDLERS",
    "call_in_step",
    "close_nested",
    "find_call",
    "finish_call",
    "follow_task",
    "settle_calls",
    "wait_for_answer",
]


class _ArgsDelta(msgspec.Struct, gc=False, rename="camel"):
    args_text_delta: str
    tool_call_id: str
    tool_name: Any = None


_ARGS_DELTA = msgspec.json.Decoder(_ArgsDelta)


class _Output(msgspec.Struct, gc=False, rename="camel"):
    """A tool's output unread: it may be a whole chunk of a sub-agent."""

    output: msgspec.Raw = msgspec.Raw(b"null")
    tool_call_id: Any = None
    tool_name: Any = None


_OUTPUT = msgspec.json.Decoder(_Output)


def on_input_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    call = call_in_step(state, step, as_text(payload.get("toolCallId")), as_text(payload.get("toolName")), at, chunk)
    call.provider_executed = payload.get("providerExecuted") is True
    state.token(at)


def on_args_delta(state: RunState, chunk: Chunk, at: float) -> None:
    delta = read(chunk, _ARGS_DELTA, _ArgsDelta)
    step = state.step
    if step is None or step.ended_at is not None:
        step = state.current_step(at, chunk.run_id)
    call = step.calls.get(delta.tool_call_id)
    if call is None:
        call = call_in_step(state, step, delta.tool_call_id, as_text(delta.tool_name), at, chunk)
    call.args_pieces.append(delta.args_text_delta)
    if step.first_token_at is None:
        state.token(at)
    state.touch(call)


def grow_args_at_once(state: RunState, chunks: Sequence[Chunk], at: float) -> bool:
    """Deltas of arguments of the same head, as one; False, and nothing done, if they aren't all of one call."""
    step = state.step
    if step is None or step.ended_at is not None or chunks[0].head.whole is not None:
        return False
    try:
        deltas = read_row(chunks, _ARGS_DELTA)
    except ValueError:
        return False
    first = deltas[0]
    if len({delta.tool_call_id for delta in deltas}) > 1:
        return False
    call = step.calls.get(first.tool_call_id)
    if call is None:
        call = call_in_step(state, step, first.tool_call_id, as_text(first.tool_name), at, chunks[0])
    pieces = [delta.args_text_delta for delta in deltas]
    call.args_pieces.extend(pieces)
    for chunk, piece in zip(chunks, pieces, strict=True):
        chunk.kept_delta = piece
    if step.first_token_at is None:
        state.token(at)
    state.touch(call)
    return True


def on_input_end(state: RunState, chunk: Chunk, at: float) -> None:
    call = find_call(state, as_text(as_dict(chunk.raw_payload()).get("toolCallId")), in_step=True)
    if call is not None and call.status == "streaming":
        _read_args(call)
        call.called_at = at
        state.touch(call)


def on_call(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    call = call_in_step(state, step, as_text(payload.get("toolCallId")), as_text(payload.get("toolName")), at, chunk)
    if call.status == "streaming":
        call.status = "running"
    call.called_at = at if call.called_at is None else call.called_at
    call.provider_executed = call.provider_executed or payload.get("providerExecuted") is True
    call.provider_metadata = as_dict(payload.get("providerMetadata")) or call.provider_metadata
    _take_args(call, payload)
    if "output" in payload:
        call.output = payload["output"]
        if is_chunk_like(call.output):
            _nested_chunk(state, call, parse_chunk(as_dict(call.output)), at)
    state.touch(call)


def on_result(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    call = _call_for(state, payload, chunk, at)
    metadata = as_dict(payload.get("providerMetadata"))
    placeholder = as_dict(as_dict(metadata.get("mastra")).get("backgroundTask"))
    if placeholder:
        # Not the result: the model was told that a task has begun. The task's own chunks bring the rest.
        call.background = True
        call.task_id = as_text(placeholder.get("taskId")) or call.task_id
        if call.status == "streaming":
            call.status = "running"
        state.touch(call)
        task = state.tasks.get(call.task_id or "")
        if task is not None:
            follow_task(state, call, task, at)  # its ending may have overtaken the placeholder
        return
    call.provider_metadata = metadata or call.provider_metadata
    call.provider_executed = call.provider_executed or payload.get("providerExecuted") is True
    result = payload.get("result")
    if payload.get("preliminary") is True:
        call.result = result
        if call.status == "streaming":
            call.status = "running"
        state.touch(call)
        return
    error = _result_error(payload, result)
    finish_call(state, call, at, result=result, error=error)


def on_error(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    call = _call_for(state, payload, chunk, at)
    finish_call(
        state, call, at, error=error_info(payload.get("error"), "the tool failed without a reason"), has_result=False
    )


def on_output(state: RunState, chunk: Chunk, at: float) -> None:
    try:
        output = _OUTPUT.decode(chunk.body) if chunk.head.whole is None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        output = None
    if output is not None:
        raw = bytes(output.output)
        call = _call_for(state, {"toolCallId": output.tool_call_id, "toolName": output.tool_name}, chunk, at)
        if raw.startswith(b"{") and b'"runId"' in raw and b'"from"' in raw and b'"type"' in raw:
            # It may be a chunk: reading its envelope is enough to know, the payload stays raw.
            inner = _chunk_or_none(raw)
            if inner is not None and inner.run_id and inner.from_ in ORIGINS:
                _nested_chunk(state, call, inner, at)
                return
        value = _json(raw, chunk)
    else:
        payload = as_dict(chunk.raw_payload())
        call = _call_for(state, payload, chunk, at)
        value = payload.get("output")
        if is_chunk_like(value):
            _nested_chunk(state, call, parse_chunk(as_dict(value)), at)
            return
    _keep_output(state, call, value, at)


def _chunk_or_none(raw: bytes) -> Chunk | None:
    try:
        return parse_chunk(raw)
    except ChunkError:
        return None


def _json(raw: bytes, chunk: Chunk) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:  # what a reader that skips values lets pass: bytes that are no text, endless numbers
        path = "payload.output"
        raise ChunkError(str(error), chunk_type=chunk.type, path=path, event=chunk.event) from None


def _nested_chunk(state: RunState, call: ToolCall, inner: Chunk, at: float) -> None:
    run = state.nested_run(call, inner.run_id or "")
    if run is None:
        _keep_output(state, call, inner.to_wire(), at)
        return
    state.apply_nested(run, inner, at)
    if call.status == "streaming":
        call.status = "running"
    state.touch(call)


def _keep_output(state: RunState, call: ToolCall, value: Any, at: float) -> None:
    call.outputs.append(value)
    if call.status == "streaming":
        call.status = "running"
    task = state.tasks.get(call.task_id or "")
    if task is not None and task.status == "pending":
        task.status, task.running_at = "running", at  # only a running task can write
        state.touch(task)
    state.touch(call)


def on_approval(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    wait_for_answer(state, _call_for(state, payload, chunk, at), payload, at, "needs-approval")


def on_suspended(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    wait_for_answer(state, _call_for(state, payload, chunk, at), payload, at, "suspended")


def wait_for_answer(state: RunState, call: ToolCall, payload: dict[str, Any], at: float, status: Any) -> None:
    """A call waits for somebody: so does the run, unless a background task of it does."""
    call_id = call.tool_call_id
    if call_id in state.answered and call_id not in state.replayed and call.called_at is not None:
        state.replayed.add(
            call_id
        )  # a resumed stream may begin with its old chunks, up to the question that was answered
        return
    if not call.open:
        return
    call.status = status
    call.called_at = at if call.called_at is None else call.called_at
    _take_args(call, payload)
    data = payload.get("suspendPayload", payload.get("suspendData"))
    call.suspend_payload = data
    call.resume_schema = schema_of(payload.get("resumeSchema"))
    if call.background:
        state.touch(call)
        return  # the task waits, not the run
    state.waiting[id(call)] = call
    approval = status == "needs-approval"
    who = state.agent_id or "The agent"
    title = f"{who} asks to run {call.tool_name}" if approval else f"{call.tool_name} waits for input"
    text = "It has not run yet. The run waits for your answer and keeps its place." if approval else ""
    notice = state.notice("approval" if approval else "suspension", "warning", title, at, text, event=state.events)
    notice.tool_call_id = call.tool_call_id
    state.touch(call)


def on_denied(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    call = _call_for(state, payload, chunk, at)
    _take_args(call, payload)
    call.status = "denied"
    call.denial_reason = (
        as_text(as_dict(payload.get("approval")).get("reason")) or as_text(payload.get("reason")) or None
    )
    call.ended_at = at
    state.waiting.pop(id(call), None)
    state.touch(call)


def finish_call(
    state: RunState,
    call: ToolCall,
    at: float,
    *,
    result: Any = None,
    error: ErrorInfo | None = None,
    has_result: bool = True,
) -> None:
    """A call has its result or its error; the last word wins, so a later one replaces an earlier one."""
    call.result = result
    call.error = error
    call.has_result = has_result
    call.status = "error" if error is not None else "success"
    call.called_at = at if call.called_at is None else call.called_at
    call.ended_at = at
    state.waiting.pop(id(call), None)
    close_nested(call.nested, at, error)
    task = state.tasks.get(call.task_id or "")
    if task is not None and not task.terminal:
        task.status, task.result, task.error = "failed" if error is not None else "completed", result, error
        task.ended_at = at
        state.touch(task)
    state.touch(call)


def close_nested(runs: Iterable[RunState], at: float, error: ErrorInfo | None) -> None:
    """What runs inside of a call or workflow step ends with it, and failed with it if it was in mid-run."""
    for run in runs:
        if error is not None and run.error is None and (run.turn is None or run.turn.ended_at is None):
            run.error = error
        run.close(at, done=True)


def follow_task(state: RunState, call: ToolCall, task: Task, at: float) -> None:
    """A background call waits, goes on and ends as its task does."""
    if not call.open:
        return
    if task.terminal and task.status != "cancelled":
        good = task.status == "completed"
        finish_call(state, call, at, result=task.result, error=task.error, has_result=good)
        return
    if task.status == "cancelled":
        call.status = "cancelled"
        call.ended_at = at
    elif task.status == "suspended":
        call.status = "suspended"
        call.suspend_payload = task.suspend_payload
    elif call.status == "suspended":
        call.status = "running"
    state.waiting.pop(id(call), None)  # the task waits, not the run
    state.touch(call)


def settle_calls(state: RunState, at: float) -> None:
    """The stream is over: calls without a result are cancelled.

    But for those in the background, which follow their tasks; client tools, unless the run is lost; and those that wait
    for an answer, unless the server gave the run up.
    """
    ended_well = state.ending is not None and state.ending.status in ("success", "suspended")
    for call in state.tool_calls:
        waits = call.status in ("suspended", "needs-approval")
        if not call.open or call.background or (call.status == "pending" and ended_well):
            continue
        if waits and not state.aborted:
            continue
        state.waiting.pop(id(call), None)
        if call.status == "streaming":
            _read_args(call)
        call.status = "cancelled"
        call.ended_at = at
        state.touch(call)


def find_call(state: RunState, tool_call_id: str, *, in_step: bool = False) -> ToolCall | None:
    """The newest call of an id: ids return in later steps, so the open step's comes first, then open ones, then any."""
    if state.step is not None:
        call = state.step.calls.get(tool_call_id)
        if call is not None:
            return call
    if in_step:
        return None
    found: ToolCall | None = None
    for step in reversed(state.steps):
        call = step.calls.get(tool_call_id)
        if call is not None:
            if call.open:
                return call
            found = found or call
    return found


def _call_for(state: RunState, payload: dict[str, Any], chunk: Chunk, at: float) -> ToolCall:
    """The call a chunk speaks of; one that isn't known (a resumed stream) is made from what the chunk says."""
    id = as_text(payload.get("toolCallId"))
    call = find_call(state, id)
    if call is None:
        step = state.current_step(at, chunk.run_id)
        call = call_in_step(state, step, id, as_text(payload.get("toolName")), at, chunk)
        call.status = "running"
        _take_args(call, payload)
    return call


def call_in_step(state: RunState, step: Step, id: str, name: str, at: float, chunk: Chunk) -> ToolCall:
    call = step.calls.get(id)
    if call is None:
        call = step.calls[id] = ToolCall(step.index, at, id, name)
        call.turn = step.turn
        call.run_id, call.from_ = chunk.run_id, chunk.from_
        state.tool_calls.append(call)
        state.add(call)
    elif name and not call.tool_name:
        call.tool_name = name
    return call


def _take_args(call: ToolCall, payload: dict[str, Any]) -> None:
    """Arguments of a chunk, if it has any; servers turn text that doesn't parse into {}, so then the text is read."""
    args = payload.get("args")
    if args is None:
        if call.args is None and call.args_pieces:
            _read_args(call)
        return
    if args == {} and call.args_text.strip() not in ("", "{}"):
        _read_args(call)
        if call.args:
            call.args_error = call.args_error or "the text is no valid JSON; the server called the tool with {}"
            return
    call.args = args
    if args != {}:
        call.args_error = None


def _read_args(call: ToolCall) -> None:
    call.args, call.args_error = recover_json(call.args_text)


def _result_error(payload: dict[str, Any], result: Any) -> ErrorInfo | None:
    if payload.get("isError") is True:
        return error_info(result, "the tool failed without a reason")
    refused = as_dict(result)
    if refused.get("error") is True and "validationErrors" in refused:
        return ErrorInfo(
            as_text(refused.get("message")) or "the arguments don't fit", "ValidationError", details=result
        )
    return None


AT_ONCE = {"tool-call-delta": grow_args_at_once}
HANDLERS = {
    "tool-call-input-streaming-start": on_input_start,
    "tool-call-delta": on_args_delta,
    "tool-call-input-streaming-end": on_input_end,
    "tool-call": on_call,
    "tool-result": on_result,
    "tool-error": on_error,
    "tool-output": on_output,
    "tool-call-approval": on_approval,
    "tool-call-suspended": on_suspended,
    "tool-output-denied": on_denied,
}
