"""The network family: a routing agent picks an agent, workflow or tool, again and again, until the task is done.

Only servers describe these types, so of their fields only what names the thing is required. `agent-execution-event-X`
and `workflow-execution-event-X` are types by pattern: the payload is the chunk `X` of what runs (see `nested_chunk`).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from nbmastra.chunks.goal import ScorerResult
from nbmastra.chunks.payload import Number, Payload

__all__ = [
    "Aborted",
    "AgentEnd",
    "AgentStart",
    "CallApproval",
    "CallSuspended",
    "ExecutionEvent",
    "NetworkFinish",
    "NetworkObject",
    "NetworkStepFinish",
    "RoutingEnd",
    "RoutingStart",
    "RoutingTextDelta",
    "RoutingTextStart",
    "ToolEnd",
    "ToolStart",
    "ValidationEnd",
    "ValidationStart",
    "WorkflowEnd",
    "WorkflowStart",
]


class RoutingStart(Payload):
    """The routing agent is asked what to do next."""

    agent_id: str | None = None
    """Id of the routing agent."""
    network_id: str | None = None
    """Id of the agent whose network this is."""
    run_id: str | None = None
    """Id of this decision."""
    input_data: dict[str, Any] | None = None
    """What it is told: `task`, the last `result`, `iteration`, thread, and others."""


class _Outcome(Payload):
    task: str | None = None
    """The task, in words."""
    primitive_id: str | None = None
    """Id of the agent, workflow or tool."""
    primitive_type: str | None = None
    """`agent`, `workflow`, `tool` or `none`."""
    result: Any = None
    """What came out: text; of a tool or workflow, any JSON."""
    is_complete: bool | None = None
    """True if the task is done."""
    iteration: int | None = None
    """Number of the decision, from 0."""


class RoutingEnd(_Outcome):
    """The routing agent decided."""

    prompt: str | None = None
    """What the chosen one is asked; for workflows and tools, JSON text."""
    selection_reason: str | None = None
    """Why it was chosen."""
    run_id: str | None = None
    """Id of this decision."""
    usage: dict[str, Any] | None = None
    """Tokens of this decision."""
    conversation_context: list[Any] | None = None
    """Messages that the chosen one gets along."""


class RoutingTextStart(Payload):
    """The network's own answer begins."""

    run_id: str | None = None
    """Id of the validation or decision that writes it."""


class RoutingTextDelta(Payload):
    """The next piece of the network's own answer."""

    text: str
    """The piece."""


class AgentStart(Payload):
    """An agent of the network begins."""

    agent_id: str | None = None
    """Id of the agent."""
    args: dict[str, Any] | None = None
    """The decision that led to it, with its `prompt`."""
    run_id: str | None = None
    """Id of this execution."""


class AgentEnd(_Outcome):
    """An agent of the network is done."""

    agent_id: str | None = None
    """Id of the agent."""
    run_id: str | None = None
    """Id of this execution."""
    usage: dict[str, Any] | None = None
    """Tokens of this execution."""


class WorkflowStart(Payload):
    """A workflow of the network begins."""

    name: str | None = None
    """Name of the workflow."""
    workflow_id: str | None = None
    """Id of the workflow."""
    args: dict[str, Any] | None = None
    """The decision that led to it, with its `prompt`."""
    run_id: str | None = None
    """Id of this execution."""


class WorkflowEnd(_Outcome):
    """A workflow of the network is done; `result` holds its whole state."""

    name: str | None = None
    """Name of the workflow."""
    workflow_id: str | None = None
    """Id of the workflow."""
    run_id: str | None = None
    """Id of this execution."""
    usage: dict[str, Any] | None = None
    """Tokens of this execution."""


class ToolStart(Payload):
    """A tool of the network begins."""

    args: dict[str, Any] | None = None
    """The decision that led to it, with `toolName`, `toolCallId` and the tool's own `args`."""
    run_id: str | None = None
    """Id of the network's run."""


class ToolEnd(_Outcome):
    """A tool of the network is done."""

    tool_call_id: str | None = None
    """Id of the call."""
    tool_name: str | None = None
    """Name of the tool."""


class CallApproval(Payload):
    """What the network picked waits until somebody approves or declines it."""

    tool_call_id: str
    """Id of the call; for agents, the agent's id."""
    tool_name: str
    """Name of the tool or agent."""
    args: Any = None
    """Arguments it will get."""
    resume_schema: str | None = None
    """JSON Schema, as text, of what an answer must look like."""
    agent_id: str | None = None
    """Id of the agent, if it is one."""
    selection_reason: str | None = None
    """Why it was chosen."""
    run_id: str | None = None
    """Id of this execution."""
    usage: dict[str, Any] | None = None
    """Tokens so far."""


class CallSuspended(CallApproval):
    """What the network picked stopped itself and waits for data."""

    suspend_payload: Any = None
    """What it says it waits for."""
    name: str | None = None
    """Name of the workflow, if it is one."""
    workflow_id: str | None = None
    """Id of the workflow, if it is one."""


class Aborted(Payload):
    """The network was aborted while this ran."""

    primitive_type: str | None = None
    """`routing`, `agent`, `workflow` or `tool`."""
    primitive_id: str | None = None
    """Id of what ran."""


class ExecutionEvent(Payload):
    """A chunk of what the network runs: type, origin and payload of that chunk (see `nested_chunk`)."""

    type: str
    """Type of the inner chunk."""
    run_id: str | None = None
    """Id of this execution."""
    from_: str | None = Field(default=None, alias="from")
    """Origin of the inner chunk."""
    payload: Any = None
    """Payload of the inner chunk, as it came."""


class NetworkStepFinish(Payload):
    """One decision and its execution are complete."""

    task: str | None = None
    """The task, in words."""
    result: str | None = None
    """What came out."""
    is_complete: bool | None = None
    """True if the task is done."""
    iteration: int | None = None
    """Number of the decision, from 0."""
    run_id: str | None = None
    """Id of the network's run."""


class NetworkFinish(_Outcome):
    """The network is done; `result` is its answer."""

    prompt: str | None = None
    """What the last one chosen was asked."""
    object: Any = None
    """The structured output, if asked for."""
    completion_reason: str | None = None
    """Why it counts as done."""
    thread_id: str | None = None
    """Memory thread of the run."""
    thread_resource_id: str | None = None
    """Resource that the thread belongs to."""
    is_one_off: bool | None = None
    """True if only one decision was wanted."""
    validation_passed: bool | None = None
    """True if the scorers agreed."""
    usage: dict[str, Any] | None = None
    """Tokens of the whole network."""


class ValidationStart(Payload):
    """The network's result is checked."""

    run_id: str | None = None
    """Id of the network's run."""
    iteration: int | None = None
    """Number of the decision, from 0."""
    checks_count: int | None = None
    """How many scorers look at it."""


class ValidationEnd(Payload):
    """The network's result was checked."""

    run_id: str | None = None
    """Id of the network's run."""
    iteration: int | None = None
    """Number of the decision, from 0."""
    passed: bool | None = None
    """True if it is good enough; else another decision follows."""
    results: list[ScorerResult] | None = None
    """What each scorer found."""
    duration: Number | None = None
    """Time of all scorers, in milliseconds."""
    timed_out: bool | None = None
    """True if the scorers took too long."""
    reason: str | None = None
    """Why, in the words of the scorer that decided."""
    max_iteration_reached: bool | None = None
    """True if no further try follows."""
    suppress_feedback: bool | None = None
    """True if the feedback isn't given to the model."""


class NetworkObject(Payload):
    """The network's structured output, as far as it is known or whole."""

    object: Any = None
    """The (partial) object, any JSON."""
