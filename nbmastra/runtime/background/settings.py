"""Settings of tasks, with Mastra's defaults; times in seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, cast

from nbmastra.errors import SettingsError

__all__ = ["Backpressure", "Cleanup", "Retries", "TaskFilter", "column_filter", "read_settings"]

Backpressure = Literal["queue", "reject", "fallback-sync"]
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a failed attempt is followed by another, and when: after `delay_s`, times `backoff` each time.

    `max_delay_s` is the longest delay. `retryable`: a function of the exception, True for those that are worth another
    attempt; without it, all.
    """

    max_retries: int = 0
    delay_s: float = 1.0
    backoff: float = 2.0
    max_delay_s: float = 30.0
    retryable: Callable[[BaseException], bool] | None = None

    def delay(self, retry: int) -> float:
        """Seconds before a retry, the first being 1."""
        return min(self.delay_s * self.backoff ** min(retry - 1, 64), self.max_delay_s)

    def again(self, error: BaseException) -> bool:
        """Whether an error is worth another attempt."""
        return self.retryable is None or bool(self.retryable(error))


@dataclass(frozen=True, slots=True)
class Cleanup:
    """How long tasks are kept after their end."""

    completed_s: float = 3600.0
    failed_s: float = 86400.0
    every_s: float = 60.0


def read_settings(kind: type[S], given: Any, what: str) -> S:
    """Settings of a kind, from one, a dict of its fields, a number for the first, or None. Raises SettingsError."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    names = [item.name for item in fields(cast("Any", kind))]
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {names[0]: given}
    if not isinstance(given, Mapping):
        raise SettingsError(f"{what}= takes a dict of {', '.join(names)}, not {type(given).__name__}")
    values = dict(cast("Mapping[str, Any]", given))
    unknown = [name for name in values if name not in names]
    if unknown:
        raise SettingsError(f"{what}= has no {unknown[0]!r:.40}: there is {', '.join(names)}")
    return kind(**values)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; what is None doesn't matter."""

    agent: str | None = None
    thread: str | None = None
    resource: str | None = None
    run_id: str | None = None
    tool: str | None = None
    tool_call_id: str | None = None
    task_id: str | None = None

    def fits(self, task: Any) -> bool:
        """Whether a task is one of them."""
        return all(getattr(task, name) == value for name, value in column_filter(self).items())


_COLUMNS = {
    "agent": "agent_id",
    "thread": "thread_id",
    "resource": "resource_id",
    "run_id": "run_id",
    "tool": "tool_name",
    "tool_call_id": "tool_call_id",
    "task_id": "id",
}


def column_filter(wanted: TaskFilter) -> dict[str, Any]:
    """What matters of a filter, by the names of a task's fields."""
    return {name: getattr(wanted, key) for key, name in _COLUMNS.items() if getattr(wanted, key) is not None}
