"""Agents as tools of another: `agent-NAME`. Their chunks come within tool-output, their memory is their own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from nbmastra.chunks import Chunk
from nbmastra.errors import ToolInputError
from nbmastra.runtime.model import Message
from nbmastra.runtime.step import StepCall
from nbmastra.tools import Tool, ToolContext
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

    def __init__(self, name: str, agent: Agent) -> None:
        self.name = check_name(f"agent-{name}")
        self.description = agent.description or f"Agent: {name}"
        self.agent = agent
        self.agent_name = name

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
        """Run the agent by itself, as a background task: without the caller's conversation, and without memory.

        Raises SubAgentError if it fails, or waits for somebody.
        """
        nested = self.agent.runs.as_task(arguments["prompt"], context.request_context, arguments.get("instructions"))

        def emit(chunk: Chunk) -> None:
            wire = chunk.to_wire()
            (context.writer.custom if chunk.type.startswith("data-") else context.writer.write)(wire)

        await nested.run(emit, context.abort)
        if nested.failure is not None:
            raise SubAgentError(f"{self.agent_name}: {nested.failure}") from nested.failure
        if nested.waiting:
            raise SubAgentError(f"{self.agent_name} waits for an answer, which nobody can give to a background task")
        return {"text": nested.text}

    async def run_nested(self, run: AgentRun, call: StepCall, arguments: dict[str, Any]) -> Any:
        """Run the agent within a call; gives the call's result. If the agent waits, so does the call.

        Raises SubAgentError if it fails.
        """
        nested: AgentRun | None = call.nested
        if nested is None:
            thread, resource = arguments.get("threadId"), arguments.get("resourceId")
            nested = self.agent.runs.nested(
                run,
                arguments["prompt"],
                context=_context(run),
                thread=f"{thread}-{uuid.uuid4()}" if thread else str(uuid.uuid4()),
                resource=f"{resource}-{self.agent_name}" if resource else str(uuid.uuid4()),
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
        text = nested.text
        call.metadata = {"mastra": {"modelOutput": {"type": "text", "value": text}}}
        return {
            "text": text,
            "subAgentThreadId": nested.thread,
            "subAgentResourceId": nested.resource,
            "subAgentToolResults": [
                {"toolName": done.name, "toolCallId": done.id, "result": done.result, "args": done.wire_args}
                for step in nested.results
                for done in step.tool_results
            ],
        }


def _context(run: AgentRun) -> list[Message]:
    """The conversation so far without its tool calls, which a sub-agent couldn't make sense of."""
    kept: list[Message] = []
    for message in run.conversation.wire()["all"]:
        if message["role"] in ("user", "assistant"):
            content = [part for part in message["content"] if part["type"] in ("text", "file", "image")]
            if content:
                kept.append({**message, "content": content})
    return kept
