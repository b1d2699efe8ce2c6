"""The states of a task, and how one follows another."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["LIVE", "TERMINAL", "TaskStatus", "may_move"]

TaskStatus = Literal["pending", "running", "suspended", "completed", "failed", "cancelled", "timed_out"]

_MOVES: dict[TaskStatus, dict[TaskStatus, str]] = {
    "pending": {"running": "claim", "cancelled": "cancel"},
    "running": {
        "pending": "retry",
        "suspended": "suspend",
        "completed": "end",
        "failed": "end",
        "timed_out": "end",
        "cancelled": "cancel",
    },
    "suspended": {"pending": "resume", "cancelled": "cancel"},
    "completed": {},
    "failed": {},
    "cancelled": {},
    "timed_out": {},
}
"""What may follow, and the one act that leads there: a suspended task runs again by nothing but `resume`."""

TERMINAL: frozenset[str] = frozenset(status for status in get_args(TaskStatus) if not _MOVES[status])
"""States that are final."""
LIVE: frozenset[str] = frozenset(get_args(TaskStatus)) - TERMINAL


def may_move(now: TaskStatus, to: TaskStatus, act: str) -> bool:
    """Whether a task comes from one state to another by an act: claim, retry, suspend, resume, end, cancel."""
    return _MOVES[now].get(to) == act
