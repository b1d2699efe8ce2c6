"""A run that waits, as JSON: what another kernel needs to go on with it, with the same agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from nbmastra.runtime.chunks_out import usage_json
from nbmastra.runtime.conversation import Conversation
from nbmastra.runtime.step import ModelStep, StepCall, StepResult
from nbmastra.usage import parse_usage

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun

__all__ = ["json_only", "restore_run", "run_state"]

_VERSION = 1
_OPTIONS = ("max_steps", "tool_choice", "include_raw_chunks", "tool_call_concurrency")


def run_state(run: AgentRun) -> dict[str, Any]:
    """All that a run that waits is made of; its tools, model and functions are the agent's, and not in it."""
    step, options = run.step, run.options
    active = None if options.active_tools is None else list(options.active_tools)
    assert step is not None
    return {
        "version": _VERSION,
        "runId": run.run_id,
        "messageId": run.message_id,
        "thread": run.thread,
        "resource": run.resource,
        "recalls": run.setup.recalls,
        "conversation": run.conversation.to_json(),
        "payloads": run.payloads.to_json(),
        "usage": usage_json(run.usage),
        "retries": run.retries,
        "results": [_result_json(result) for result in run.results],
        "step": _step_json(step),
        "options": {**{name: getattr(options, name) for name in _OPTIONS}, "active_tools": active},
        "requireToolApproval": options.require_tool_approval is True,
        "modelSettings": json_only(options.model_settings),
        "requestContext": json_only(options.request_context),
    }


def restore_run(state: Mapping[str, Any], new_run: Callable[[dict[str, Any], Conversation], AgentRun]) -> AgentRun:
    """The run that a state is of; `new_run` makes one of options and a conversation.

    Nested runs are made when their call goes on.
    """
    options = {**state["options"], "run_id": state["runId"], "require_tool_approval": state["requireToolApproval"]}
    options |= {"model_settings": state["modelSettings"], "request_context": state["requestContext"]}
    run = new_run(options, Conversation.from_json(state["conversation"]))
    run.restore(
        message_id=state["messageId"],
        usage=parse_usage(state["usage"]),
        retries=state["retries"],
        results=[_result(kept) for kept in state["results"]],
        step=_step(state["step"], run),
        payloads=state["payloads"],
    )
    return run


def json_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """What of it is JSON: objects of this process can't be kept."""
    return {key: value for key, value in values.items() if isinstance(value, str | int | float | bool | list | dict)}


def _call_json(call: StepCall) -> dict[str, Any]:
    kept = {item.name: getattr(call, item.name) for item in fields(call)}
    if isinstance(call.result, BaseException):
        kept["result"] = str(call.result)
    nested: AgentRun | None = call.nested
    kept["nested"] = run_state(nested) if nested is not None else None
    return kept


def _call(kept: Mapping[str, Any]) -> StepCall:
    return StepCall(**kept)


def _result_json(result: StepResult) -> dict[str, Any]:
    return {
        "index": result.index,
        "text": result.text,
        "reasoning": result.reasoning,
        "tool_calls": [_call_json(call) for call in result.tool_calls],
        "usage": usage_json(result.usage),
        "finish_reason": result.finish_reason,
    }


def _result(kept: Mapping[str, Any]) -> StepResult:
    calls = [_call(call) for call in kept["tool_calls"]]
    usage = parse_usage(kept["usage"])
    return StepResult(kept["index"], kept["text"], kept["reasoning"], calls, usage, kept["finish_reason"])


_STEP = ("reason", "continued", "warnings", "provider_metadata", "response", "responded", "started_ms", "extra")


def _step_json(step: ModelStep) -> dict[str, Any]:
    return {
        **{name: getattr(step, name) for name in _STEP},
        "index": step.index,
        "message_id": step.message_id,
        "usage": usage_json(step.usage),
        "text": step.text,
        "reasoning": step.reasoning,
        "calls": [_call_json(call) for call in step.calls],
    }


def _step(kept: Mapping[str, Any], run: AgentRun) -> ModelStep:
    step = ModelStep(kept["index"], kept["message_id"], run.bare_request, run.writer)
    for name in _STEP:
        setattr(step, name, kept[name])
    step.usage = parse_usage(kept["usage"])
    step.calls = [_call(call) for call in kept["calls"]]
    step.restore_text(kept["text"], kept["reasoning"])
    return step
