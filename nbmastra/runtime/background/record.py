"""A task as the store keeps it, and the chunks that tell of it. Source of the names: WIRE, "Background tasks"."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, overload

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk
from nbmastra.runtime.background.states import TERMINAL, TaskStatus
from nbmastra.runtime.stored import iso_time

__all__ = ["STOPS", "BackgroundTask", "TaskList", "now_text", "task_chunk"]


def now_text() -> str:
    """Now, as the wire writes times."""
    return iso_time(time.time_ns() // 1_000_000)


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A task; times are texts as on the wire (UTC), `timeout_ms` counts for each attempt. `to_wire` for its record."""

    id: str
    status: TaskStatus
    tool_name: str
    tool_call_id: str = ""
    args: Any = None
    agent_id: str = ""
    thread_id: str | None = None
    resource_id: str | None = None
    run_id: str = ""
    result: Any = None
    error: dict[str, Any] | None = None
    """`message` and `stack`."""
    created_at: str = ""
    started_at: str | None = None
    suspended_at: str | None = None
    completed_at: str | None = None
    retry_count: int = 0
    max_retries: int = 0
    timeout_ms: float | None = None
    suspend_payload: Any = None
    owner: str | None = None
    """The kernel that runs it."""
    resume_data: Any = None
    resumed: bool = False
    """True from `resume` to the end of that attempt."""
    request_context: dict[str, Any] | None = None
    """What of the run's is JSON, for a kernel that knows only the store."""
    run_state: Any = None
    """What a sub-agent that waits goes on from."""

    @property
    def ended(self) -> bool:
        """True in a final state."""
        return self.status in TERMINAL

    def to_wire(self) -> dict[str, Any]:
        """The record as a server gives it."""
        made = {
            "id": self.id,
            "status": self.status,
            "toolName": self.tool_name,
            "toolCallId": self.tool_call_id,
            "args": self.args,
            "agentId": self.agent_id,
            "threadId": self.thread_id,
            "resourceId": self.resource_id,
            "runId": self.run_id,
            "result": self.result,
            "error": self.error,
            "createdAt": self.created_at,
            "startedAt": self.started_at,
            "suspendedAt": self.suspended_at,
            "completedAt": self.completed_at,
            "retryCount": self.retry_count,
            "maxRetries": self.max_retries,
            "timeoutMs": self.timeout_ms,
            "suspendPayload": self.suspend_payload,
        }
        return {key: value for key, value in made.items() if value is not None}

    def with_changes(self, **changes: Any) -> BackgroundTask:
        """The same with other values."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        why = f": {self.error['message']}" if self.error else ""
        return f"<BackgroundTask {self.tool_name} {self.status} {self.id}{why}>"[:300]


class TaskList(tuple[BackgroundTask, ...]):
    """A page of tasks, `tasks`; `total` counts those of all pages."""

    total: int

    def __new__(cls, tasks: Iterable[BackgroundTask], total: int) -> TaskList:
        """A page."""
        made = super().__new__(cls, tasks)
        made.total = total
        return made

    @property
    def tasks(self) -> list[BackgroundTask]:
        """The tasks of this page."""
        return list(self)

    def __repr__(self) -> str:
        return "\n".join([f"{len(self)} of {self.total} tasks", *map(repr, self)])


_KINDS: dict[str, str] = {
    "running": "background-task-running",
    "suspended": "background-task-suspended",
    "completed": "background-task-completed",
    "failed": "background-task-failed",
    "timed_out": "background-task-failed",
    "cancelled": "background-task-cancelled",
}


STOPS = frozenset(_KINDS[status] for status in (*TERMINAL, "suspended"))
"""The chunks of states in which nothing runs."""


@overload
def task_chunk(task: BackgroundTask) -> Chunk | None: ...
@overload
def task_chunk(task: BackgroundTask, output: dict[str, Any]) -> Chunk: ...
def task_chunk(task: BackgroundTask, output: dict[str, Any] | None = None) -> Chunk | None:
    """The chunk of the state that a task has come to, or of what its tool wrote; None where nothing is told."""
    payload: dict[str, Any] = {
        "taskId": task.id,
        "toolName": task.tool_name,
        "toolCallId": task.tool_call_id,
        "agentId": task.agent_id,
        "runId": task.run_id,
    }
    if output is not None:
        return build_chunk({"type": "background-task-output", "payload": {**payload, "payload": output}})
    kind = _KINDS.get(task.status)
    if kind is None:
        return None
    match task.status:
        case "running":
            kind = "background-task-resumed" if task.resumed else kind
            payload |= {"startedAt": task.started_at, "args": task.args}
            if task.retry_count:
                payload["retryCount"] = task.retry_count
        case "suspended":
            # The documents say suspendData, servers suspendPayload.
            data = task.suspend_payload
            payload |= {"suspendPayload": data, "suspendData": data}
            payload |= {"suspendedAt": task.suspended_at, "args": task.args}
        case "completed":
            payload |= {"completedAt": task.completed_at, "result": task.result}
        case "cancelled":
            payload["completedAt"] = task.completed_at
        case _:
            payload |= {"completedAt": task.completed_at, "error": task.error}
    return build_chunk({"type": kind, "payload": payload})
