"""The tool calls of a step: run at the same time, each result out as it comes; who needs a person's answer waits."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import encode_json
from nbmastra.errors import ToolInputError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.chunks_out import data_chunk, error_json, error_text
from nbmastra.runtime.conversation import result_output
from nbmastra.runtime.step import ModelStep, StepCall
from nbmastra.runtime.subagents import AgentTool
from nbmastra.tools import SchemaTool, Tool, ToolContext, ToolSuspended

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun

__all__ = ["run_calls"]

_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "true lets the call run, false declines it"},
        "reason": {"type": "string", "description": "Why; the model is told if the call is declined"},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
_DECLINED = "The user declined this call."


class ToolNotFoundError(Exception):
    """The model called a tool that this agent doesn't have, or may not use in this step."""


async def run_calls(run: AgentRun, step: ModelStep, calls: Sequence[StepCall]) -> None:
    """Run what can run; afterwards each call is done, failed, denied, waiting, or still called.

    Calls run one after another if one of them may need an approval, as in Mastra: the first that waits holds up those
    behind it. Results that come at the same moment go out errors first, then in the order of the calls.
    """
    one_by_one = any(_may_ask(run, call) for call in calls)
    limit = 1 if one_by_one else max(run.options.tool_call_concurrency, 1)
    todo = deque(call for call in calls if call.state in ("called", "approved", "denied"))
    place = {call.id: index for index, call in enumerate(calls)}
    running: dict[asyncio.Task[None], StepCall] = {}
    try:
        while todo or running:
            while todo and len(running) < limit:
                call = todo.popleft()
                running[asyncio.create_task(_run_call(run, call))] = call
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            ended = [(task, running.pop(task)) for task in done]
            for task, call in sorted(ended, key=lambda one: (one[1].state != "failed", place[one[1].id])):
                task.result()
                await run.written()
                await _tell(run, step, call)
            if one_by_one and any(call.state == "waiting" for _, call in ended):
                return
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


def _may_ask(run: AgentRun, call: StepCall) -> bool:
    tool = run.tool_of(call)
    return bool(run.options.require_tool_approval) or (tool is not None and bool(tool.require_approval))


async def _run_call(run: AgentRun, call: StepCall) -> None:
    """Settle a call's state; raises only if cancelled."""
    if call.state == "denied":
        return
    tool = run.tool_of(call)
    try:
        if tool is None:
            names = ", ".join(run.tool_names) or "none"
            raise ToolNotFoundError(
                f'There is no tool "{call.name[:80]}". Tools: {names}. Use one of these exact names.'
            )
        if isinstance(tool, SchemaTool) and "jsonschema" not in sys.modules:
            # With all its formats it may take seconds to import; the engine's loop is everybody's.
            await asyncio.to_thread(import_module, "jsonschema")
        arguments = tool.parse(_for_tool(run, call))
        if call.state != "approved" and await _needs_approval(run, tool, call, arguments):
            call.state, call.suspended = "waiting", {"kind": "approval", "name": call.name, "args": call.wire_args}
            return
        call.result = await _run_tool(run, tool, call, arguments)
        call.state = "waiting" if call.suspended is not None else "done"
    except ToolInputError as error:
        call.state, call.result = "done", error.to_result()
    except ToolSuspended as suspended:
        call.state = "waiting"
        call.suspended = {"kind": "data", "payload": suspended.data, "schema": suspended.resume_schema}
    except asyncio.CancelledError as error:
        if was_cancelled():
            raise
        call.state, call.result = "failed", RuntimeError(f"the tool was cancelled from within {error}".strip())
    except Exception as error:
        call.state, call.result = "failed", error


def was_cancelled() -> bool:
    """True if the running task is being cancelled; else a CancelledError came out of something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _for_tool(run: AgentRun, call: StepCall) -> Any:
    """The arguments as the model wrote them, without what is meant for whoever dispatches the call."""
    args = as_dict(call.args)
    if run.dispatch is None or "_background" not in args:
        return call.text
    call.background = args["_background"]
    return {key: value for key, value in args.items() if key != "_background"}


async def _needs_approval(run: AgentRun, tool: Tool, call: StepCall, arguments: dict[str, Any]) -> bool:
    if call.resume_data is not None:  # it was let in before, and has waited for data since
        return False
    wanted = run.options.require_tool_approval
    if callable(wanted):
        answer = wanted(call.name, arguments)
        wanted = await answer if hasattr(answer, "__await__") else answer
    return bool(wanted) or await tool.needs_approval(arguments)


async def _run_tool(run: AgentRun, tool: Tool, call: StepCall, arguments: dict[str, Any]) -> Any:
    async def run_tool(context: ToolContext | None = None) -> Any:
        if isinstance(tool, AgentTool) and context is None:
            return await tool.run_nested(run, call, arguments)
        return await tool.run(arguments, context or make_context(run, call))

    if run.dispatch is not None:
        return await run.dispatch(run, call, tool, run_tool)
    return await run_tool()


def make_context(run: AgentRun, call: StepCall) -> ToolContext:
    """What a call's tool gets; what it writes becomes chunks of the run."""
    return ToolContext(
        tool_call_id=call.id,
        tool_name=call.name,
        run_id=run.run_id,
        agent_id=run.agent_id,
        thread_id=run.thread,
        resource_id=run.resource,
        request_context=run.options.request_context,
        messages=run.step.request.messages if run.step is not None else (),
        resume_data=call.resume_data,
        abort=run.abort,
        write=lambda value: run.write(run.writer.tool_output(value, call.id, call.name)),
        custom=lambda chunk: run.write(data_chunk(chunk)),
        printed=lambda text: run.write(run.writer.tool_output(text, call.id, call.name)),
    )


async def _tell(run: AgentRun, step: ModelStep, call: StepCall) -> None:
    """The chunk of a call that is settled or waits, and its result in the conversation."""
    about = {"args": call.wire_args, "toolCallId": call.id, "toolName": call.name}
    conversation, write = run.conversation, run.writer.write
    if call.state == "done":
        metadata = {"providerMetadata": call.metadata} if call.metadata else {}
        conversation.set_result(call.id, result_output(call.result), metadata=call.metadata)
        chunk = write("tool-result", {**about, "result": call.result, **metadata})
    elif call.state == "failed":
        conversation.set_result(call.id, {"type": "error-text", "value": error_text(call.result)})
        chunk = write("tool-error", {"error": _tool_error(call.result, run.model.model_id), **about})
    elif call.state == "denied":
        approval = {"id": call.id, "approved": False}
        if call.result:
            approval["reason"] = call.result
        conversation.set_result(call.id, {"type": "text", "value": call.result or _DECLINED})
        chunk = write("tool-output-denied", {**about, "approval": approval})
    else:
        chunk = question_chunk(run, call)
    await run.send(chunk, step)


def question_chunk(run: AgentRun, call: StepCall) -> Chunk:
    """What a call that waits asks."""
    asked = call.suspended or {}
    payload: dict[str, Any] = {"toolCallId": call.id, "toolName": call.name, "args": call.wire_args}
    if asked.get("kind") == "approval":
        schema = encode_json(_APPROVAL_SCHEMA).decode()
        payload |= {"toolName": asked["name"], "args": asked["args"], "resumeSchema": schema}
        return run.writer.write("tool-call-approval", payload)
    payload["suspendPayload"] = asked.get("payload")
    schema = asked.get("schema")
    if schema is not None:
        payload["resumeSchema"] = schema if isinstance(schema, str) else encode_json(schema).decode()
    return run.writer.write("tool-call-suspended", payload)


def _tool_error(error: BaseException, model_id: str) -> dict[str, Any]:
    """As Mastra tells it, with message and traceback beside, which its JSON loses."""
    told = error_json(error)
    if isinstance(error, ToolNotFoundError):
        return {"name": told["name"], "message": told["message"]}
    return {
        **told,
        "cause": {"message": told["message"], "name": told["name"]},
        "id": "TOOL_EXECUTION_FAILED",
        "domain": "TOOL",
        "category": "USER",
        "details": {"errorMessage": f"{told['name']}: {told['message']}", "model": model_id},
    }
