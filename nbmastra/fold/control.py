"""Turns, steps and endings; custom data, goals, and what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nbmastra.chunks import Chunk
from nbmastra.chunks.reasons import finish_reason
from nbmastra.errors import ChunkError
from nbmastra.fold.parts import DataPart, GoalPart
from nbmastra.fold.reading import as_dict, as_list, as_text, error_info, read
from nbmastra.fold.turns import Step, Turn
from nbmastra.usage import Usage, parse_usage, sum_usage

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["HANDLERS", "on_data"]


class _StepResult(msgspec.Struct, gc=False, rename="camel"):
    reason: Any = None
    is_continued: Any = None
    warnings: Any = None
    total_usage: Any = None


class _StepOutput(msgspec.Struct, gc=False):
    usage: Any = None


class _Finish(msgspec.Struct, gc=False, rename="camel"):
    """What is needed of a finish; it repeats the whole history, which is skipped."""

    step_result: _StepResult | None = None
    output: _StepOutput | None = None
    metadata: Any = None
    usage: Any = None
    total_usage: Any = None
    message_id: Any = None
    finish_reason: Any = None


_FINISH = msgspec.json.Decoder(_Finish)


def _read_finish(state: RunState, chunk: Chunk, at: float) -> tuple[_Finish, _StepResult]:
    """A finish that says nothing readable is a finish all the same."""
    try:
        finish = read(chunk, _FINISH, _Finish)
    except ChunkError as error:
        state.bad_payload(chunk, at, error)
        finish = _Finish()
    return finish, finish.step_result or _StepResult()


def on_start(state: RunState, chunk: Chunk, at: float) -> None:
    turn = state.turn
    payload = as_dict(chunk.raw_payload())
    if turn is not None and turn.awaits_caller:
        turn.awaits_caller = False  # the second half of a client-tool run: further steps of the same turn
        turn.ended_at = None
        state.step = None
    elif turn is None or turn.ended_at is not None:
        turn = state.turn = Turn(len(state.turns), at)
        state.turns.append(turn)
        state.step = None
    state.note_run(chunk.run_id, turn)
    turn.agent_id = turn.agent_id or as_text(payload.get("id")) or None
    state.agent_id = state.agent_id or turn.agent_id


def on_step_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.begin_step(at, chunk.run_id)
    step.start_chunk = chunk
    step.message_id = as_text(payload.get("messageId")) or None
    step.warnings.extend(as_list(payload.get("warnings")))


def on_step_finish(state: RunState, chunk: Chunk, at: float) -> None:
    finish, result = _read_finish(state, chunk, at)
    step = state.step
    if step is None or (step.ended_at is not None and step.finish_chunk is not None):
        step = state.current_step(at, chunk.run_id)
    step.finish_reason = finish_reason(result.reason) or finish_reason(finish.finish_reason)
    step.is_continued = result.is_continued is True
    step.finish_chunk = chunk
    step.message_id = as_text(finish.message_id) or step.message_id
    step.usage = _usage(finish, result)
    state.usage_reports += 1
    step.warnings.extend(as_list(result.warnings))
    _note_model(step, as_dict(finish.metadata))
    state.end_step(step, at)
    if step.finish_reason in ("retry", "tripwire") and not state.aborted:
        state.reject_step(step)


def on_finish(state: RunState, chunk: Chunk, at: float) -> None:
    finish, result = _read_finish(state, chunk, at)
    turn = state.current_turn(at, chunk.run_id) if state.turn is None or state.turn.ended_at is None else state.turn
    if turn.ended_at is not None and turn.finish_chunk is not None:
        return  # a second finish of the same turn says nothing new
    if state.step is not None and state.step.ended_at is None:
        state.end_step(state.step, at)
    reason = finish_reason(result.reason) or finish_reason(finish.finish_reason)
    turn.finish_reason = "abort" if turn.finish_reason == "abort" else reason
    turn.finish_chunk = state.messages_chunk = chunk
    turn.ended_at = at
    whole = _usage(finish, result)
    if not whole.nonzero:
        whole = Usage()  # the server summed up nothing (an error, an abort): what the steps reported is better
    steps = sum_usage(step.usage for step in turn.steps[turn.counted_steps :])
    turn.finished_usage = turn.finished_usage + whole.or_else(steps)
    turn.counted_steps = len(turn.steps)
    state.usage_reports += 1  # last: who sees it sees all of it
    last = turn.steps[-1] if turn.steps else None
    if last is not None:
        _note_model(last, as_dict(finish.metadata))
        if reason == "tool-calls":
            for call in last.calls.values():
                if call.status == "running" and not call.background:
                    call.status = "pending"  # a client tool: whoever asked runs it and goes on
                    turn.awaits_caller = True
                    state.touch(call)
    if reason == "tripwire" and state.tripwire is None and not state.aborted:
        state.tripwire = _tripwire_of_step(chunk)
    if state.tripwire is not None and reason not in ("tripwire", "error", "abort"):
        state.tripwire = None  # a retry was accepted


def _tripwire_of_step(chunk: Chunk) -> dict[str, Any] | None:
    """Why a processor rejected the last step: no tripwire chunk says it. Source: @mastra/core 1.71."""
    steps = as_list(as_dict(as_dict(chunk.raw_payload()).get("output")).get("steps"))
    return as_dict(as_dict(steps[-1]).get("tripwire")) or None if steps else None


def _usage(finish: _Finish, result: _StepResult) -> Usage:
    """The first place that has numbers. Source: WIRE, "Usage"."""
    output = finish.output or _StepOutput()
    for value in (output.usage, finish.usage, finish.total_usage, result.total_usage):
        usage = parse_usage(value)
        if usage.reported:
            return usage
    return Usage()


def _note_model(step: Step, metadata: dict[str, Any]) -> None:
    model = as_dict(metadata.get("modelMetadata"))
    step.model = as_text(metadata.get("modelId")) or as_text(model.get("modelId")) or step.model
    step.provider = as_text(model.get("modelProvider")) or step.provider


def on_response_metadata(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    state.current_turn(at).response_metadata.update(payload)
    step.model = as_text(payload.get("modelId")) or step.model


def on_error(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    if state.error is None:
        state.error = error_info(payload.get("error"))
        state.error_turn = state.turn.index if state.turn is not None else -1


def on_abort(state: RunState, chunk: Chunk, at: float) -> None:
    state.aborted = True
    if state.step is not None:
        state.end_step(state.step, at)
    if state.turn is not None and state.turn.ended_at is None:
        state.turn.finish_reason = "abort"


def on_tripwire(state: RunState, chunk: Chunk, at: float) -> None:
    state.tripwire = as_dict(chunk.raw_payload())
    if state.step is not None:
        state.reject_step(state.step)
        state.end_step(state.step, at)
    if state.turn is not None:
        state.turn.finish_reason = "tripwire"


def on_data(state: RunState, chunk: Chunk, at: float) -> None:
    part = DataPart(state.step.index if state.step is not None and state.step.ended_at is None else -1, at, chunk)
    known = state.data.get((part.type, part.id)) if part.id else None
    if known is not None:
        known.update(chunk)
        state.touch(known)
        return
    if part.id:
        state.data[part.type, part.id] = part
    state.add(part)


def on_goal(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.current_step(at, chunk.run_id)
    for part in reversed(step.parts):
        if isinstance(part, GoalPart) and part.pending and part.iteration == payload.get("iteration"):
            part.payload = payload
            part.ended_at = at
            state.touch(part)
            return
    state.add(GoalPart(step.index, at, chunk.type, payload))


def on_decode_error(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    state.decode_errors += 1
    text = as_text(payload.get("error")) or "not a chunk"
    state.notice(
        "decode-error", "warning", "An event could not be read", at, text, event=chunk.event, detail=payload.get("raw")
    )


def ignore(state: RunState, chunk: Chunk, at: float) -> None:
    """Known, kept and counted; nothing to fold."""


HANDLERS = {
    "start": on_start,
    "step-start": on_step_start,
    "step-finish": on_step_finish,
    "finish": on_finish,
    "response-metadata": on_response_metadata,
    "error": on_error,
    "abort": on_abort,
    "tripwire": on_tripwire,
    "goal": on_goal,
    "is-task-complete": on_goal,
    "decode-error": on_decode_error,
    "raw": ignore,
    "watch": ignore,
}
