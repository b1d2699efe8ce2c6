"""Agent networks: a routing agent that has agents, workflows and tools do the work, iteration by iteration.

An iteration is a step; what the routing agent calls is a tool call of it, and the run inside is folded there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.fold.calls import ToolCall
from nbmastra.fold.control import on_goal
from nbmastra.fold.parts import GoalPart, TextPart
from nbmastra.fold.reading import as_dict, as_text, error_info
from nbmastra.fold.tools import call_in_step, find_call, finish_call, wait_for_answer
from nbmastra.fold.workflow import own_usage
from nbmastra.usage import parse_usage, sum_usage

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["HANDLERS", "on_event"]

EVENTS = ("agent-execution-event-", "workflow-execution-event-")


def on_routing_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    step = state.begin_step(at, chunk.run_id)
    turn = state.current_turn(at)
    turn.agent_id = turn.agent_id or as_text(payload.get("networkId")) or as_text(payload.get("agentId")) or None
    state.agent_id = state.agent_id or turn.agent_id
    step.message_id = None


def on_routing_text_start(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    part = step.open_text["routing"] = TextPart(step.index, at, "routing")
    state.add(part)


def on_routing_text(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    if "routing" not in step.open_text:
        on_routing_text_start(state, chunk, at)
    state.token(at)
    state.grow_text(step.open_text["routing"], chunk.delta)


def on_routing_end(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    step.usage = parse_usage(as_dict(chunk.raw_payload()).get("usage"))
    state.usage_reports += 1
    part = step.open_text.pop("routing", None)
    if part is not None:
        state.end_text(part, at)


def on_abort(state: RunState, chunk: Chunk, at: float) -> None:
    state.aborted = True


def on_execution_start(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    args = as_dict(payload.get("args"))
    id = as_text(args.get("toolCallId")) or as_text(payload.get("runId")) or f"call-{len(state.tool_calls)}"
    name = next(filter(None, (as_text(source.get(key)) for source, key in _names(payload, args))), "call")
    step = state.current_step(at, chunk.run_id)
    call = call_in_step(state, step, id, name, at, chunk)
    call.status = "running"
    call.called_at = at
    inner = args.get("args")
    call.args = inner if inner is not None else {key: args[key] for key in ("prompt", "task") if args.get(key)}
    state.touch(call)


def _names(payload: dict[str, Any], args: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    return [(payload, "agentId"), (payload, "workflowId"), (args, "toolName"), (payload, "name"), (args, "primitiveId")]


def on_execution_end(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    call = _call(state, payload, chunk, at)
    error = error_info(payload.get("error")) if payload.get("error") else None
    finish_call(state, call, at, result=payload.get("result"), error=error, has_result=error is None)


def on_execution_approval(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    wait_for_answer(state, _call(state, payload, chunk, at), payload, at, "needs-approval")


def on_execution_suspended(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    wait_for_answer(state, _call(state, payload, chunk, at), payload, at, "suspended")


def on_event(state: RunState, chunk: Chunk, at: float) -> None:
    """A chunk of the agent or workflow that the routing agent called."""
    payload = as_dict(chunk.raw_payload())
    inner = parse_chunk(payload)
    call = _call(state, {"runId": inner.run_id}, chunk, at)
    run = state.nested_run(call, inner.run_id or "")
    if run is not None:
        state.apply_nested(run, inner, at)
    state.touch(call)


def _call(state: RunState, payload: dict[str, Any], chunk: Chunk, at: float) -> ToolCall:
    """The call of an execution: by tool call id, by run id, else the newest open one."""
    for key in ("toolCallId", "runId"):
        call = find_call(state, as_text(payload.get(key)))
        if call is not None:
            return call
    open_calls = [call for call in state.tool_calls if call.open]
    if open_calls:
        return open_calls[-1]
    step = state.current_step(at, chunk.run_id)
    name = as_text(payload.get("toolName")) or as_text(payload.get("agentId")) or "call"
    call = call_in_step(
        state, step, as_text(payload.get("toolCallId")) or as_text(payload.get("runId")), name, at, chunk
    )
    call.status = "running"
    return call


def on_step_finish(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    step.finish_reason = step.finish_reason or "stop"
    step.is_continued = as_dict(chunk.raw_payload()).get("isComplete") is not True
    state.end_step(step, at)


def on_finish(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    turn = state.current_turn(at, chunk.run_id)
    if state.step is not None and state.step.ended_at is None:
        state.end_step(state.step, at)
    turn.finish_reason = "stop"
    turn.finish_chunk = chunk
    turn.ended_at = at
    steps = sum_usage(step.usage for step in turn.steps[turn.counted_steps :])
    turn.finished_usage = turn.finished_usage + own_usage(state, parse_usage(payload.get("usage"))).or_else(steps)
    turn.counted_steps = len(turn.steps)
    state.usage_reports += 1  # last: who sees it sees all of it
    state.result = payload.get("result")
    if isinstance(state.result, str) and state.result and not turn.text and turn.steps:
        part = TextPart(turn.steps[-1].index, at, "result")  # told in one piece, not streamed
        state.add(part)
        state.grow_text(part, state.result)
        state.end_text(part, at)


def on_object(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    part = state.object
    if part is None or part.ended_at is not None:
        part = state.new_object(at)
    part.show(payload.get("object"))
    state.touch(part)


def on_object_result(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    part = state.object
    if part is None or part.done:
        part = state.new_object(at)
    part.finish(payload.get("object"), at)
    state.touch(part)


def on_validation_start(state: RunState, chunk: Chunk, at: float) -> None:
    step = state.current_step(at, chunk.run_id)
    state.add(GoalPart(step.index, at, "network-validation", {**as_dict(chunk.raw_payload()), "pending": True}))


HANDLERS = {
    "routing-agent-start": on_routing_start,
    "routing-agent-text-start": on_routing_text_start,
    "routing-agent-text-delta": on_routing_text,
    "routing-agent-end": on_routing_end,
    **{
        f"{kind}-abort": on_abort
        for kind in ("routing-agent", "agent-execution", "workflow-execution", "tool-execution")
    },
    **{f"{kind}-execution-start": on_execution_start for kind in ("agent", "workflow", "tool")},
    **{f"{kind}-execution-end": on_execution_end for kind in ("agent", "workflow", "tool")},
    **{f"{kind}-execution-approval": on_execution_approval for kind in ("agent", "workflow", "tool")},
    **{f"{kind}-execution-suspended": on_execution_suspended for kind in ("agent", "workflow", "tool")},
    "network-execution-event-step-finish": on_step_finish,
    "network-execution-event-finish": on_finish,
    "network-validation-start": on_validation_start,
    "network-validation-end": on_goal,
    "network-object": on_object,
    "network-object-result": on_object_result,
}
