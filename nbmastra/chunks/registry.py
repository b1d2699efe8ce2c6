"""Which chunk types there are: family, payload model and, for deltas, where their text stands.

The models live in one module a family, which is imported at the first payload of that family that somebody asks for:
nearly a hundred models would make a start of nbmastra visibly slower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbmastra.chunks.payload import Payload

__all__ = ["CHUNK_TYPES", "EVENT_PREFIXES", "delta_key", "family", "is_data", "is_known", "payload_model"]

_FAMILIES: dict[str, dict[str, str]] = {
    "text": {
        "text-start": "text.TextStart",
        "text-delta": "text.TextDelta",
        "text-end": "text.TextEnd",
    },
    "reasoning": {
        "reasoning-start": "reasoning.ReasoningStart",
        "reasoning-delta": "reasoning.ReasoningDelta",
        "reasoning-end": "reasoning.ReasoningEnd",
        "reasoning-signature": "reasoning.ReasoningSignature",
        "redacted-reasoning": "reasoning.RedactedReasoning",
        "reasoning-file": "reasoning.ReasoningFile",
    },
    "tool": {
        "tool-call-input-streaming-start": "tool.ToolCallInputStart",
        "tool-call-delta": "tool.ToolCallDelta",
        "tool-call-input-streaming-end": "tool.ToolCallInputEnd",
        "tool-call": "tool.ToolCall",
        "tool-result": "tool.ToolResult",
        "tool-error": "tool.ToolError",
        "tool-output": "tool.ToolOutput",
        "tool-call-approval": "tool.ToolCallApproval",
        "tool-call-suspended": "tool.ToolCallSuspended",
        "tool-output-denied": "tool.ToolOutputDenied",
    },
    "source, file": {
        "source": "source_file.Source",
        "file": "source_file.File",
        "custom": "source_file.Custom",
    },
    "object": {
        "object": "object_.PartialObject",
        "object-result": "object_.WholeObject",
    },
    "control": {
        "start": "control.Start",
        "step-start": "control.StepStart",
        "step-finish": "control.StepFinish",
        "finish": "control.Finish",
        "raw": "control.Raw",
        "error": "control.Error",
        "abort": "control.Abort",
        "response-metadata": "control.ResponseMetadata",
        "watch": "control.Watch",
        "is-task-complete": "control.IsTaskComplete",
    },
    "special": {
        "goal": "goal.Goal",
        "tripwire": "tripwire.Tripwire",
    },
    "background task": {
        "background-task-started": "background.TaskStarted",
        "background-task-running": "background.TaskRunning",
        "background-task-progress": "background.TaskProgress",
        "background-task-output": "background.TaskOutput",
        "background-task-completed": "background.TaskCompleted",
        "background-task-failed": "background.TaskFailed",
        "background-task-suspended": "background.TaskSuspended",
        "background-task-resumed": "background.TaskResumed",
        "background-task-cancelled": "background.TaskCancelled",
    },
    "workflow": {
        "step-output": "workflow.StepOutputChunk",
        "workflow-start": "workflow.WorkflowStart",
        "workflow-finish": "workflow.WorkflowFinish",
        "workflow-canceled": "workflow.WorkflowCanceled",
        "workflow-paused": "workflow.WorkflowPaused",
        "workflow-step-start": "workflow.WorkflowStepStart",
        "workflow-step-finish": "workflow.WorkflowStepFinish",
        "workflow-step-suspended": "workflow.WorkflowStepSuspended",
        "workflow-step-waiting": "workflow.WorkflowStepWaiting",
        "workflow-step-output": "workflow.WorkflowStepOutput",
        "workflow-step-progress": "workflow.WorkflowStepProgress",
        "workflow-step-result": "workflow.WorkflowStepResult",
    },
    "network": {
        "routing-agent-start": "network.RoutingStart",
        "routing-agent-text-start": "network.RoutingTextStart",
        "routing-agent-text-delta": "network.RoutingTextDelta",
        "routing-agent-end": "network.RoutingEnd",
        "routing-agent-abort": "network.Aborted",
        "agent-execution-start": "network.AgentStart",
        "agent-execution-end": "network.AgentEnd",
        "agent-execution-approval": "network.CallApproval",
        "agent-execution-suspended": "network.CallSuspended",
        "agent-execution-abort": "network.Aborted",
        "workflow-execution-start": "network.WorkflowStart",
        "workflow-execution-end": "network.WorkflowEnd",
        "workflow-execution-approval": "network.CallApproval",
        "workflow-execution-suspended": "network.CallSuspended",
        "workflow-execution-abort": "network.Aborted",
        "tool-execution-start": "network.ToolStart",
        "tool-execution-end": "network.ToolEnd",
        "tool-execution-approval": "network.CallApproval",
        "tool-execution-suspended": "network.CallSuspended",
        "tool-execution-abort": "network.Aborted",
        "network-execution-event-step-finish": "network.NetworkStepFinish",
        "network-execution-event-finish": "network.NetworkFinish",
        "network-validation-start": "network.ValidationStart",
        "network-validation-end": "network.ValidationEnd",
        "network-object": "network.NetworkObject",
        "network-object-result": "network.NetworkObject",
    },
}
"""Family → type → module and name of its payload model."""

EVENT_PREFIXES = ("agent-execution-event-", "workflow-execution-event-")
"""Types by pattern, of the network family: the payload is a chunk of what the network runs."""

_MODELS = {kind: path for types in _FAMILIES.values() for kind, path in types.items()}
_FAMILY_OF = {kind: name for name, types in _FAMILIES.items() for kind in types}
_DELTA_KEYS = {
    "text-delta": "text",
    "reasoning-delta": "text",
    "tool-call-delta": "argsTextDelta",
    "routing-agent-text-delta": "text",
}

CHUNK_TYPES: tuple[str, ...] = tuple(_MODELS)
"""All types with a payload model, those by pattern left out."""


def payload_model(kind: str) -> type[Payload] | None:
    """The payload model of a chunk type; None for types without one."""
    path = _MODELS.get(kind) or ("network.ExecutionEvent" if kind.startswith(EVENT_PREFIXES) else None)
    if path is None:
        return None
    module, _, name = path.partition(".")
    return getattr(import_module(f"nbmastra.chunks.{module}"), name)


def family(kind: str) -> str:
    """The family of a chunk type, as WIRE's table names it; "unknown" if there is none."""
    if is_data(kind):
        return "data"
    return _FAMILY_OF.get(kind) or ("network" if kind.startswith(EVENT_PREFIXES) else "unknown")


def is_known(kind: str) -> bool:
    """True for a type that this version has a payload model for."""
    return kind in _MODELS or kind.startswith(EVENT_PREFIXES)


def delta_key(kind: str) -> str | None:
    """The payload key that holds a delta's text; None for types that are no deltas."""
    return _DELTA_KEYS.get(kind)


def is_data(kind: str) -> bool:
    """True for the `data-*` types, which an application, or a part of Mastra, defines for itself."""
    return kind.startswith("data-")
