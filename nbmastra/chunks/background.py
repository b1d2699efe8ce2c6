"""The background-task family: tool calls that run beside the conversation.

Chunks of the task manager have no run id and no origin at the top level; their payload has `run_id`.
"""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from nbmastra.chunks.payload import Number, Payload, Timestamp

__all__ = [
    "TaskCancelled",
    "TaskCompleted",
    "TaskError",
    "TaskFailed",
    "TaskOutput",
    "TaskProgress",
    "TaskResumed",
    "TaskRunning",
    "TaskStarted",
    "TaskSuspended",
]


class TaskStarted(Payload):
    """A tool call was queued as a background task."""

    task_id: str
    """Id of the task."""
    tool_name: str
    """Name of the tool."""
    tool_call_id: str
    """Id of the model's call that the task carries out."""


class _AgentTask(TaskStarted):
    run_id: str
    """Id of the run that made the call."""
    agent_id: str
    """Id of the agent that made the call."""


class TaskRunning(_AgentTask):
    """A worker took the task and runs the tool."""

    started_at: Timestamp
    """When it began."""
    args: Any
    """Arguments that the tool gets, by name."""


class TaskProgress(Payload):
    """How many tasks of an agent still run; only where a waiting time is set, never until idle."""

    task_ids: list[str]
    """Ids of the running tasks."""
    running_count: int
    """How many there are."""
    elapsed_ms: Number
    """Milliseconds since the agent began to wait."""


class TaskOutput(_AgentTask):
    """Something that the running tool wrote."""

    payload: dict[str, Any]
    """A whole `tool-output` chunk (see `nested_chunk`)."""


class TaskCompleted(_AgentTask):
    """The task is done; until idle, another turn follows."""

    result: Any = None
    """What the tool returned; absent if it returned nothing."""
    completed_at: Timestamp
    """When it ended."""
    is_error: bool | None = None
    """True if the tool returned an error instead of raising it."""


class TaskError(Payload):
    """Why a task failed."""

    message: str
    """The error in words."""
    stack: str | None = None
    """Where it happened in the server's code."""


class TaskFailed(_AgentTask):
    """The task raised or took too long; until idle, another turn follows."""

    error: TaskError
    """What was raised."""
    completed_at: Timestamp
    """When it ended."""


class TaskSuspended(_AgentTask):
    """The tool stopped itself and waits for data; until idle, nobody waits for it any more."""

    suspend_data: Any = Field(default=None, validation_alias=AliasChoices("suspendData", "suspendPayload"))
    """What the tool says it waits for (`suspendData` in the documents, `suspendPayload` on a server)."""
    suspended_at: Timestamp | None = None
    """When it stopped."""
    args: Any = None
    """Arguments that the tool got."""

    @property
    def suspend_payload(self) -> Any:
        """`suspend_data` by the server's name."""
        return self.suspend_data


class TaskResumed(_AgentTask):
    """A suspended task runs again, from the tool's beginning, with the data it waited for."""

    started_at: Timestamp
    """When it went on."""
    args: Any
    """Arguments that the tool got the first time."""


class TaskCancelled(_AgentTask):
    """The task was cancelled before it ended; until idle, another turn follows."""

    completed_at: Timestamp
    """When it was cancelled."""
