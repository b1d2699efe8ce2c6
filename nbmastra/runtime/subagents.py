"""Agents as tools of another: `agent-NAME`. Their chunks come within tool-output, their memory is their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from nbmastra.chunks import Chunk
from nbmastra.errors import ToolInputError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.extend import RunMemory
from nbmastra.runtime.kept import run_state
from nbmastra.runtime.model import Message
from nbmastra.runtime.step import StepCall
from nbmastra.tools import Tool, ToolContext, ToolSuspended
from nbmastra.tools.base import check_name

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent
    from nbmastra.runtime.loop import AgentRun

__all__ = ["AgentTool"]


class _Arguments(BaseModel):
    """What the model says to a sub-agent. Source: Mastra, the input of `agent-…` tools."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    prompt: str = Field(description="What the agent shall do")
    thread_id: str | None = Field(None, description="Thread to continue, if any")
    resource_id: str | None = Field(None, description="Owner of that thread")
    instructions: str | None = Field(None, description="Instructions besides the agent's own")
    max_steps: int | None = Field(None, ge=1, description="At most so many steps")


class SubAgentError(Exception):
    """The run of a sub-agent failed."""


_PARAMETERS = _Arguments.model_json_schema()


class AgentTool(Tool):
    """An agent that another may call. Source: Mastra, `agents` of an agent."""

    def __init__(self, name: str, agent: Agent, memory: RunMemory | None = None) -> None:
        """`memory`: of the agent that calls it, for one that has none."""
        self.name = check_name(f"agent-{name}")
        self.description = agent.description or f"Agent: {name}"
        self.agent = agent
        self.agent_name = name
        self.background = agent.has_background_tools or None
        self._memory = agent.memory or memory

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return _PARAMETERS

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments by their names on the wire. Raises ToolInputError."""
        try:
            return _Arguments.model_validate(arguments).model_dump(by_alias=True)
        except ValidationError as error:
            problems = [(one["loc"], one["msg"]) for one in error.errors(include_url=False, include_input=False)]
            raise ToolInputError(self.name, problems, arguments=arguments) from None

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the agent as a background task, in a thread of its own. If it waits for somebody, so does the task.

        Raises SubAgentError if it fails, ToolSuspended.
        """
        nested = self._begun(arguments, context) if context.run_state is None else self._answered(context)

        def emit(chunk: Chunk) -> None:
            wire = chunk.to_wire()
            (context.writer.custom if chunk.type.startswith("data-") else context.writer.write)(wire)

        await nested.run(emit, context.abort)
        if nested.failure is not None:
            raise SubAgentError(f"{self.agent_name}: {nested.failure}") from nested.failure
        if nested.waiting:
            inner = nested.waiting[0]
            asked, data = as_dict(inner.suspended), None
            if asked.get("kind") == "approval":
                data = {"toolCallId": inner.id, "toolName": asked["name"], "args": asked["args"]}
                data = {"requireToolApproval": data}
            else:
                data = asked.get("payload")
            raise ToolSuspended(data, asked.get("schema"), run_state(nested))
        return self._result(nested)

    def _begun(self, arguments: dict[str, Any], context: ToolContext) -> AgentRun:
        of_caller = {"threadId": context.thread_id, "resourceId": context.resource_id}
        thread, resource = self._scope({**of_caller, **{key: value for key, value in arguments.items() if value}})
        return self.agent.runs.as_task(
            arguments["prompt"],
            context=_texts(context.messages),
            request_context=context.request_context,
            instructions=arguments.get("instructions"),
            max_steps=arguments.get("maxSteps"),
            memory=self._memory if context.thread_id is not None else None,
            thread=thread,
            resource=resource,
        )

    def _answered(self, context: ToolContext) -> AgentRun:
        """The run that waited, with the answer: for an approval True, or `{"approved": …, "reason": …}`."""
        run = self.agent.runs.task_restored(context.run_state, self._memory if context.thread_id is not None else None)
        call, data = run.waiting[0], context.resume_data
        if as_dict(call.suspended).get("kind") == "approval":
            said = as_dict(data)
            approved = data is True or said.get("approved") is True  # nothing else lets a call run
            run.answer(call, approved=approved, reason=said.get("reason"))
        else:
            run.answer(call, data=data)
        return run

    def _scope(self, arguments: dict[str, Any]) -> tuple[str, str]:
        thread, resource = arguments.get("threadId"), arguments.get("resourceId")
        return (
            f"{thread}-{uuid.uuid4()}" if thread else str(uuid.uuid4()),
            f"{resource}-{self.agent_name}" if resource else str(uuid.uuid4()),
        )

    async def run_nested(self, run: AgentRun, call: StepCall, arguments: dict[str, Any]) -> Any:
        """Run the agent within a call; gives the call's result. If the agent waits, so does the call.

        Raises SubAgentError if it fails.
        """
        nested: AgentRun | None = call.nested
        if nested is None:
            thread, resource = self._scope(arguments)
            nested = self.agent.runs.nested(
                run,
                arguments["prompt"],
                context=_texts(run.conversation.wire()["all"]),
                thread=thread,
                resource=resource,
                instructions=arguments.get("instructions"),
                max_steps=arguments.get("maxSteps"),
            )

        def emit(chunk: Chunk) -> None:
            run.write(chunk if chunk.type.startswith("data-") else run.writer.nested(chunk, call.id, call.name))

        call.nested = call.suspended = None
        await nested.run(emit, run.abort)
        if nested.failure is not None:
            raise SubAgentError(f"{self.agent_name}: {nested.failure}") from nested.failure
        if nested.waiting:
            inner = nested.waiting[0]
            asked = inner.suspended or {}
            call.nested = nested
            call.suspended = {"name": inner.name, "args": inner.wire_args, **asked}
            return None
        call.metadata = {"mastra": {"modelOutput": {"type": "text", "value": nested.text}}}
        return self._result(nested)

    def _result(self, nested: AgentRun) -> dict[str, Any]:
        return {
            "text": nested.text,
            "subAgentThreadId": nested.thread,
            "subAgentResourceId": nested.resource,
            "subAgentToolResults": [
                {"toolName": done.name, "toolCallId": done.id, "result": done.result, "args": done.wire_args}
                for step in nested.results
                for done in step.tool_results
            ],
        }


def _texts(messages: Iterable[Message]) -> list[Message]:
    """A conversation without its tool calls, which a sub-agent couldn't make sense of."""
    kept: list[Message] = []
    for message in messages:
        if message["role"] in ("user", "assistant"):
            content = [part for part in message["content"] if part["type"] in ("text", "file", "image")]
            if content:
                kept.append({**message, "content": content})
    return kept
