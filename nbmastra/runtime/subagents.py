"""Agents as tools of another: `agent-NAME`. Their chunks come within tool-output, their memory is their own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk
from nbmastra.runtime.model import Message
from nbmastra.runtime.step import StepCall
from nbmastra.tools import SchemaTool, ToolContext

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent
    from nbmastra.runtime.loop import AgentRun

__all__ = ["AgentTool"]

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What the agent shall do"},
        "threadId": {"type": ["string", "null"], "description": "Thread to continue, if any"},
        "resourceId": {"type": ["string", "null"], "description": "Owner of that thread"},
        "instructions": {"type": ["string", "null"], "description": "Instructions besides the agent's own"},
        "maxSteps": {"type": ["integer", "null"], "minimum": 1, "description": "At most so many steps"},
    },
    "required": ["prompt"],
}


class SubAgentError(Exception):
    """The run of a sub-agent failed."""


class AgentTool(SchemaTool):
    """An agent that another may call. Source: Mastra, `agents` of an agent."""

    def __init__(self, name: str, agent: Agent) -> None:
        super().__init__(f"agent-{name}", agent.description or f"Agent: {name}", _PARAMETERS, _not_here)
        self.agent = agent
        self.agent_name = name

    async def run_nested(self, run: AgentRun, call: StepCall, arguments: dict[str, Any]) -> Any:
        """Run the agent within a call; gives the call's result. If the agent waits, so does the call.

        Raises SubAgentError if it fails.
        """
        nested: AgentRun | None = call.nested
        if nested is None:
            thread, resource = arguments.get("threadId"), arguments.get("resourceId")
            nested = self.agent.nested_run(
                run,
                arguments["prompt"],
                context=_context(run),
                thread=f"{thread}-{uuid.uuid4()}" if thread else str(uuid.uuid4()),
                resource=f"{resource}-{self.agent_name}" if resource else str(uuid.uuid4()),
                instructions=arguments.get("instructions"),
                max_steps=arguments.get("maxSteps"),
            )

        def emit(chunk: Chunk) -> None:
            run.emit(chunk if chunk.type.startswith("data-") else run.writer.nested(chunk, call.id, call.name))

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


async def _not_here(_arguments: dict[str, Any], _context: ToolContext) -> Any:
    raise SubAgentError("an agent's tool is run by the agent that has it")


def _context(run: AgentRun) -> list[Message]:
    """The conversation so far without its tool calls, which a sub-agent couldn't make sense of."""
    kept: list[Message] = []
    for message in run.conversation.wire()["all"]:
        if message["role"] in ("user", "assistant"):
            content = [part for part in message["content"] if part["type"] in ("text", "file", "image")]
            if content:
                kept.append({**message, "content": content})
    return kept
