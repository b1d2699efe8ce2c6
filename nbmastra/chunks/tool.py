"""The tool family: calls, their arguments as they grow, results, errors, and calls that wait for somebody.

Arguments are an object by the tool's schema, but a model can write anything: a server passes `[1]` or `5` on, so they
are any JSON here. JavaScript's `undefined` is absent on the wire: a tool that returns nothing has no `result`.
"""

from __future__ import annotations

from typing import Any

from nbmastra.chunks.payload import Metadata, Payload, ProviderPayload

__all__ = [
    "Approval",
    "ToolCall",
    "ToolCallApproval",
    "ToolCallDelta",
    "ToolCallInputEnd",
    "ToolCallInputStart",
    "ToolCallSuspended",
    "ToolError",
    "ToolOutput",
    "ToolOutputDenied",
    "ToolResult",
]


class ToolCallInputStart(ProviderPayload):
    """The model begins to write a tool call's arguments."""

    tool_call_id: str
    """Id of the call, unique within its step only."""
    tool_name: str
    """Name of the tool, as the model wrote it."""
    provider_executed: bool | None = None
    """True if the provider runs the tool itself."""
    dynamic: bool | None = None
    """True if the tool isn't known when the agent is defined."""
    title: str | None = None
    """The tool's name for people."""
    observability: Metadata | None = None
    """Trace context (W3C `traceparent`) for a tool that the client runs."""


class ToolCallDelta(ProviderPayload):
    """The next piece of a tool call's arguments."""

    args_text_delta: str
    """A piece of the arguments' JSON text."""
    tool_call_id: str
    """Id of the call."""
    tool_name: str | None = None
    """Name of the tool, if repeated."""


class ToolCallInputEnd(ProviderPayload):
    """The arguments' text is complete."""

    tool_call_id: str
    """Id of the call."""


class ToolCall(ProviderPayload):
    """A tool is called, with its whole arguments."""

    tool_call_id: str
    """Id of the call, unique within its step only."""
    tool_name: str
    """Name of the tool, as the model wrote it; it may not exist."""
    args: Any = None
    """Arguments by name; any JSON if the model wrote no object, None if it wrote none that can be read."""
    provider_executed: bool | None = None
    """True if the provider runs the tool itself."""
    output: Any = None
    """The tool's output, if it is known with the call."""
    dynamic: bool | None = None
    """True if the tool isn't known when the agent is defined."""
    title: str | None = None
    """The tool's name for people."""
    observability: Metadata | None = None
    """Trace context (W3C `traceparent`) for a tool that the client runs."""


class ToolResult(ProviderPayload):
    """What a tool gave; for a background call first a placeholder, later the real result under the same id."""

    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""
    result: Any = None
    """The result, any JSON; absent if the tool returned nothing."""
    is_error: bool | None = None
    """True if the result tells of an error."""
    provider_executed: bool | None = None
    """True if the provider ran the tool itself."""
    args: Any = None
    """Arguments that the tool got."""
    dynamic: bool | None = None
    """True if the tool isn't known when the agent is defined."""


class ToolError(ProviderPayload):
    """A tool raised, or doesn't exist, or refused its arguments."""

    id: str | None = None
    """An id of the error itself, if any."""
    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""
    args: Any = None
    """Arguments that the tool got."""
    error: Any
    """The error: text, or an object with some of `message`, `name`, `stack`, `cause`, `details`."""
    provider_executed: bool | None = None
    """True if the provider ran the tool itself."""


class ToolOutput(Payload):
    """Something that a running tool wrote: any JSON, often a whole chunk of a sub-agent (see `nested_chunk`)."""

    output: Any = None
    """What was written; absent if the tool wrote `undefined`."""
    tool_call_id: str | None = None
    """Id of the call."""
    tool_name: str | None = None
    """Name of the tool."""


class ToolCallApproval(Payload):
    """A tool call waits until somebody approves or declines it."""

    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""
    args: Any = None
    """Arguments that the tool will get."""
    resume_schema: str | None = None
    """JSON Schema, as text, of what an answer must look like."""


class ToolCallSuspended(Payload):
    """A tool stopped itself and waits for data."""

    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""
    suspend_payload: Any = None
    """What the tool says it waits for; absent if it says nothing."""
    args: Any = None
    """Arguments that the tool got."""
    resume_schema: str | None = None
    """JSON Schema, as text, of the data it waits for; absent if the tool has none."""


class Approval(Payload):
    """An answer to a call that waited for approval."""

    id: str | None = None
    """Id of the approval, which is the call's."""
    approved: bool | None = None
    """False: a call that is approved goes on without such a notice."""
    reason: str | None = None
    """Why, in the words of whoever declined."""


class ToolOutputDenied(Payload):
    """A tool call was declined; the tool doesn't run."""

    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""
    args: Any = None
    """Arguments that the tool would have got."""
    approval: Approval | None = None
    """The answer."""
