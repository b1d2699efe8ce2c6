"""A background task as tables show it, whether a run tells of it or its manager."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

from nbmastra.fold import ErrorInfo, Task
from nbmastra.fold.reading import error_info
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.cards import Facts

__all__ = ["ACTIVE", "TaskRecord", "TaskSource", "of_record", "of_task"]

ACTIVE = ("pending", "running", "suspended")


class TaskSource(Protocol):
    """A task manager, of this process or of a server."""

    can: frozenset[str]
    """What can be done to its tasks: cancel, resume, restart."""

    def list(self, *, page: int | None = ..., per_page: int | None = ...) -> Awaitable[Sequence[Any]]: ...
    def get(self, task_id: str) -> Awaitable[Any]: ...
    def stream(self) -> Awaitable[MastraModelOutput]: ...


@dataclass(slots=True)
class TaskRecord:
    """What is known of a task. Times are UTC."""

    id: str
    tool_name: str
    status: str = "pending"
    args: Any = None
    agent: str = ""
    run_id: str = ""
    tool_call_id: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    suspended: datetime | None = None
    attempts: int | None = None
    outputs: list[Any] = field(default_factory=list[Any])
    result: Any = None
    error: ErrorInfo | None = None
    suspend_payload: Any = None

    @property
    def active(self) -> bool:
        """True if something may still happen to it."""
        return self.status in ACTIVE

    @property
    def facts(self) -> Facts:
        """What there is to show."""
        facts = Facts(self.tool_name or "task", self.args, self.status, 0.0, self.elapsed_s)
        facts.has_result, facts.result, facts.error = self.status == "completed", self.result, self.error
        facts.outputs = self.outputs
        return facts

    @property
    def begun(self) -> datetime | None:
        """Since when it runs, or waits to."""
        return self.started or self.created

    @property
    def elapsed_s(self) -> float | None:
        """How long it took; None while it goes on, or if nobody told."""
        return _between(self.begun, self.ended)

    @property
    def queued_s(self) -> float | None:
        """How long it waited for a free slot."""
        return _between(self.created, self.started)


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def of_task(task: Task, out: MastraModelOutput) -> TaskRecord:
    """As a run tells of it."""

    def at(seconds: float | None) -> datetime | None:
        return None if seconds is None else out.created_at + timedelta(seconds=seconds)

    attempts = task.attempts if task.attempts is not None or task.running_at is None else 1
    return TaskRecord(
        task.id,
        task.tool_name,
        task.status,
        task.args,
        task.agent_id or "",
        task.run_id or "",
        task.tool_call_id or "",
        at(task.started_at),
        at(task.running_at),
        at(task.ended_at),
        at(task.suspended_at),
        attempts,
        task.outputs,
        task.result,
        task.error,
        task.suspend_payload,
    )


def of_record(record: Any, outputs: list[Any] | None = None) -> TaskRecord:
    """As its manager keeps it; what it wrote is told by the manager's stream only."""
    started = _time(record.started_at)
    return TaskRecord(
        str(record.id),
        str(record.tool_name),
        str(record.status),
        record.args,
        str(record.agent_id or ""),
        str(record.run_id or ""),
        str(record.tool_call_id or ""),
        _time(record.created_at),
        started,
        _time(record.completed_at),
        _time(record.suspended_at),
        record.retry_count + (started is not None),
        outputs if outputs is not None else [],
        record.result,
        None if record.error is None else _error(record.error),
        record.suspend_payload,
    )


def _error(error: Any) -> ErrorInfo:
    told = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error.message)}
    return error_info(told, "the task failed without a reason")


def _time(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
