"""Workflows: their steps, what runs inside of the steps, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.fold.calls import WorkflowStep
from nbmastra.fold.reading import as_dict, as_text, error_info, is_chunk_like, schema_of
from nbmastra.fold.tools import close_nested
from nbmastra.usage import Usage, parse_usage

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["HANDLERS", "own_usage", "settle_steps"]

_FINISH_REASONS = {"success": "stop", "bailed": "stop", "failed": "error", "canceled": "abort", "paused": "suspended"}


def on_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    turn = state.current_turn(at, chunk.run_id)
    turn.agent_id = as_text(payload.get("workflowId")) or turn.agent_id
    state.agent_id = state.agent_id or turn.agent_id


def on_step_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = _step(state, payload, chunk, at)
    if step.ended_at is not None:  # a loop runs the same step again
        step = _new_step(state, payload, chunk, at)
    step.status = "running"
    step.args = payload.get("payload", step.args)
    state.touch(step)


def on_step_output(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = _step(state, payload, chunk, at)
    output = payload.get("output")
    if is_chunk_like(output):
        inner = parse_chunk(as_dict(output))
        run = state.nested_run(step, inner.run_id or "") if inner.run_id != chunk.run_id else None
        if run is not None:
            state.apply_nested(run, inner, at)
            state.touch(step)
            return
    step.outputs.append(output)
    state.touch(step)


def on_step_progress(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = _step(state, payload, chunk, at)
    step.progress = payload
    state.touch(step)


def on_step_waiting(state: RunState, chunk: Chunk, at: float) -> None:
    step = _step(state, as_dict(chunk.raw_payload()), chunk, at)
    step.status = "waiting"
    state.touch(step)


def on_step_suspended(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = _step(state, payload, chunk, at)
    _suspend(state, step, payload, at)


def on_step_result(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = _step(state, payload, chunk, at)
    status = as_text(payload.get("status")) or "success"
    if status in ("suspended", "paused"):
        _suspend(state, step, payload, at)
        return
    failed = status in ("failed", "tripwire")
    step.status = "error" if failed else "cancelled" if status == "canceled" else status
    step.result = payload.get("output")
    step.error = error_info(payload.get("error") or payload.get("tripwire")) if failed else None
    state.waiting.pop(id(step), None)
    _end_step(state, step, at)


def on_step_finish(state: RunState, chunk: Chunk, at: float) -> None:
    step = _step(state, as_dict(chunk.raw_payload()), chunk, at)
    if step.status in ("running", "waiting"):
        step.status = "success"
        _end_step(state, step, at)


def on_finish(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    turn = state.current_turn(at, chunk.run_id)
    status = as_text(payload.get("workflowStatus")) or "success"
    if status == "tripwire":
        state.tripwire = as_dict(payload.get("tripwire")) or {"reason": "a processor blocked the workflow"}
    if status == "failed":
        metadata = as_dict(payload.get("metadata"))
        failed = next((step.error for step in reversed(state.workflow_steps) if step.error is not None), None)
        state.error = state.error or failed or error_info(metadata.get("error") or metadata.get("errorMessage"))
        state.error_turn = turn.index
    state.result = payload.get("finalWorkflowResult")
    turn.finish_reason = _FINISH_REASONS.get(status, status)
    turn.finish_chunk = chunk
    turn.ended_at = at
    turn.finished_usage = own_usage(state, parse_usage(as_dict(payload.get("output")).get("usage")))
    state.usage_reports += 1


def own_usage(state: RunState, total: Usage) -> Usage:
    """What is left of a total once the nested runs, which have rows of their own, are taken out."""
    nested = Usage()
    for run in state.nested:
        nested += run.grand_usage
    if not nested.reported:
        return total if total.nonzero else Usage()
    left = total.minus(nested)
    return left if left.nonzero else Usage()


def on_canceled(state: RunState, chunk: Chunk, at: float) -> None:
    state.aborted = True


def on_paused(state: RunState, chunk: Chunk, at: float) -> None:
    turn = state.current_turn(at, chunk.run_id)
    turn.finish_reason = "suspended"


def _suspend(state: RunState, step: WorkflowStep, payload: dict[str, Any], at: float) -> None:
    data = as_dict(payload.get("suspendPayload"))
    step.suspend_payload = {key: value for key, value in data.items() if not key.startswith("__")} or None
    step.resume_schema = schema_of(payload.get("resumeSchema")) or step.resume_schema
    known = step.status == "suspended"
    step.status = "suspended"
    if not known:
        state.waiting[id(step)] = step
        state.notice(
            "suspension", "warning", f"{step.name} waits for input", at, event=state.events
        ).tool_call_id = step.id
    state.touch(step)


def _end_step(state: RunState, step: WorkflowStep, at: float) -> None:
    step.ended_at = at
    close_nested(step.nested, at, step.error)
    state.touch(step)


def settle_steps(state: RunState, at: float) -> None:
    """The stream is over: steps that came to no end are cancelled, but for those that wait for an answer."""
    for step in state.workflow_steps:
        if step.status in ("running", "waiting"):
            step.status = "cancelled"
            step.ended_at = at
            state.touch(step)


def _step(state: RunState, payload: dict[str, Any], chunk: Chunk, at: float) -> WorkflowStep:
    """The step a chunk speaks of, the newest of its id; made if the stream began in the middle."""
    id = as_text(payload.get("id")) or as_text(payload.get("stepName")) or as_text(payload.get("stepId"))
    step = next((step for step in reversed(state.workflow_steps) if step.id == id or not id), None)
    return step if step is not None else _new_step(state, payload, chunk, at)


def _new_step(state: RunState, payload: dict[str, Any], chunk: Chunk, at: float) -> WorkflowStep:
    state.current_turn(at, chunk.run_id)
    id = as_text(payload.get("id")) or as_text(payload.get("stepName")) or "step"
    step = WorkflowStep(-1, at, id, as_text(payload.get("stepName")) or id)
    step.run_id = chunk.run_id
    state.workflow_steps.append(step)
    state.add(step)
    return step


HANDLERS = {
    "workflow-start": on_start,
    "workflow-finish": on_finish,
    "workflow-canceled": on_canceled,
    "workflow-paused": on_paused,
    "workflow-step-start": on_step_start,
    "workflow-step-finish": on_step_finish,
    "workflow-step-suspended": on_step_suspended,
    "workflow-step-waiting": on_step_waiting,
    "workflow-step-output": on_step_output,
    "workflow-step-progress": on_step_progress,
    "workflow-step-result": on_step_result,
    "step-output": on_step_output,
}
