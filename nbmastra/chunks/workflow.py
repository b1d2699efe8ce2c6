"""The workflow family: a workflow's run and its steps.

Only servers describe these types, so of their fields only what names the thing is required.
"""

from __future__ import annotations

from typing import Any

from nbmastra.chunks.payload import Number, Payload
from nbmastra.chunks.tripwire import Tripwire

__all__ = [
    "StepOutputChunk",
    "WorkflowCanceled",
    "WorkflowFinish",
    "WorkflowPaused",
    "WorkflowStart",
    "WorkflowStep",
    "WorkflowStepFinish",
    "WorkflowStepOutput",
    "WorkflowStepProgress",
    "WorkflowStepResult",
    "WorkflowStepStart",
    "WorkflowStepSuspended",
    "WorkflowStepWaiting",
]


class StepOutputChunk(Payload):
    """Something that a running step wrote: any JSON, often a whole chunk (see `nested_chunk`)."""

    output: Any = None
    """What was written; absent if the step wrote `undefined`."""


class WorkflowStart(Payload):
    """A workflow begins."""

    workflow_id: str | None = None
    """Id of the workflow."""


class WorkflowFinish(Payload):
    """A workflow ended, well or not."""

    workflow_status: str
    """`success`, `failed`, `suspended`, `tripwire`, `canceled`, `paused`, `bailed`; other words mean it isn't over."""
    final_workflow_result: Any = None
    """Its result, any JSON; only of a success."""
    output: dict[str, Any] | None = None
    """`usage`: tokens of all its agents, zeros if there were none."""
    metadata: dict[str, Any] | None = None
    """Error and message, if it failed."""
    tripwire: Tripwire | None = None
    """What blocked it, if something did."""


class WorkflowCanceled(Payload):
    """The workflow was cancelled."""


class WorkflowPaused(Payload):
    """The workflow stopped between two steps and can go on."""


class WorkflowStep(Payload):
    """What all notices about a step have; a step in a loop or branch has the same id each time."""

    id: str
    """Id of the step."""
    step_name: str | None = None
    """Name of the step."""
    step_call_id: str | None = None
    """Id of this execution of the step."""
    status: str | None = None
    """`running`, `success`, `failed`, `suspended`, `waiting`, `paused`, `canceled`, `skipped`, `bailed`."""
    output: Any = None
    """What the step gave, any JSON."""
    payload: Any = None
    """What the step got, any JSON."""
    resume_payload: Any = None
    """What it was resumed with."""
    suspend_payload: Any = None
    """What it says it waits for."""
    started_at: Number | None = None
    """When it began, in milliseconds since 1970."""
    ended_at: Number | None = None
    """When it ended, in milliseconds since 1970."""
    error: Any = None
    """Why it failed: text, or an object with `message`, `name`, `stack`."""


class WorkflowStepStart(WorkflowStep):
    """A step begins."""


class WorkflowStepSuspended(WorkflowStep):
    """A step stopped itself and waits for data."""


class WorkflowStepWaiting(WorkflowStep):
    """A step sleeps, or waits for an event."""


class WorkflowStepResult(WorkflowStep):
    """A step ended; `status` says how."""

    tripwire: Tripwire | None = None
    """What blocked it, if a processor did."""


class WorkflowStepFinish(Payload):
    """A step is over, after its result."""

    id: str
    """Id of the step."""
    metadata: dict[str, Any] | None = None
    """What the server adds; usually empty."""


class WorkflowStepOutput(StepOutputChunk):
    """Something that a running step wrote: any JSON, often a whole chunk (see `nested_chunk`)."""

    step_name: str | None = None
    """Name of the step."""
    run_id: str | None = None
    """Id of the run."""


class WorkflowStepProgress(Payload):
    """How far a step over many items is."""

    id: str
    """Id of the step."""
    completed_count: int | None = None
    """Items done so far."""
    total_count: int | None = None
    """Items in all."""
    current_index: int | None = None
    """Index of the item just done, from 0."""
    iteration_status: str | None = None
    """How it ended: `success`, `failed` or `suspended`."""
    iteration_output: Any = None
    """What it gave, any JSON; only of a success."""
