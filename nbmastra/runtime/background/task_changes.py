"""What can be done to tasks, decided on records alone; many changes make one transaction (`TaskStore.apply`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.runtime.background.record import BackgroundTask, now_text, task_chunk
from nbmastra.runtime.background.states import TERMINAL, TaskStatus, may_move

__all__ = ["Add", "Changes", "Move", "Moved", "Output", "TakeOver", "plain_text"]

Moved = tuple[BackgroundTask, list[Chunk]]
"""A task in its new state, and the chunks that tell of it."""


class Changes:
    """The tasks that a transaction is about, by id, and the rows that it has to write."""

    def __init__(self, owner: str, now: float, tasks: dict[str, BackgroundTask]) -> None:
        self.owner = owner
        self.now = now
        self.tasks = tasks
        self.kept_outputs: dict[str, int] = {}
        """How many outputs of its attempt the store holds, of tasks where that is in doubt."""
        self.new: dict[str, BackgroundTask] = {}
        self.changed: dict[str, dict[str, Any]] = {}
        """Of each changed task: lease_until, ready_at."""
        self.begun: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def keep(self, task: BackgroundTask, *, lease_until: float | None = None, ready_at: float = 0.0) -> list[Chunk]:
        """Note a task's new state; gives the chunks that tell it."""
        key = plain_text(task.id)
        self.tasks[key] = task
        self.changed[key] = {"lease_until": lease_until, "ready_at": ready_at}
        chunk = task_chunk(task)
        if chunk is None:
            return []
        self.tell(task, chunk)
        return [chunk]

    def tell(self, task: BackgroundTask, chunk: Chunk) -> None:
        """Note a chunk."""
        body = chunk.to_json().decode()
        self.events.append({"task_id": plain_text(task.id), "origin": self.owner, "body": body})

    def write(self, task: BackgroundTask, output: Sequence[dict[str, Any]], kept: int | None) -> None:
        """Note what a task's tool wrote; listeners were told when it was written."""
        if kept is not None:  # an earlier try may have come through, though its answer was lost
            output = output[self.kept_outputs.get(plain_text(task.id), 0) - kept :]
        for one in output:
            self.tell(task, task_chunk(task, one))

    def claim(self, task: BackgroundTask, lease_s: float) -> Moved:
        """Have a pending task run here from now on."""
        made = task.with_changes(status="running", started_at=now_text(), suspended_at=None, owner=self.owner)
        self.begun.append({"task_id": plain_text(task.id), "owner": self.owner, "started_at": made.started_at})
        return made, self.keep(made, lease_until=self.now + lease_s)

    def end_attempt(self, task: BackgroundTask, ended_as: str) -> None:
        """Note how an attempt has ended."""
        self.ended.append({"of": plain_text(task.id), "ended_at": now_text(), "ended_as": ended_as})


@dataclass(frozen=True, slots=True)
class Add:
    """Keep a new task; one with a known id is given as it is."""

    task: BackgroundTask

    @property
    def task_id(self) -> str:
        """Whose record must be read."""
        return self.task.id

    def apply(self, changes: Changes) -> BackgroundTask:
        """Gives the task."""
        known = changes.tasks.get(plain_text(self.task.id))
        if known is not None:
            return known
        changes.tasks[plain_text(self.task.id)] = changes.new[plain_text(self.task.id)] = self.task
        return self.task


@dataclass(frozen=True, slots=True)
class Move:
    """Change a task's state, if the table of states allows it.

    of: the attempt that asks, as it was claimed; only if it is still the one that runs, so that the late result of one
    whose lease ran out is nothing. kept: how many outputs of this attempt are kept for sure, if more may be.
    """

    task_id: str
    act: str
    to: TaskStatus
    of: BackgroundTask | None = None
    ready_in_s: float = 0.0
    output: Sequence[dict[str, Any]] = ()
    kept: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, changes: Changes) -> Moved | None:
        """Gives the task and its chunks, None if nothing was allowed."""
        task = changes.tasks.get(plain_text(self.task_id))
        if task is None or not may_move(task.status, self.to, self.act):
            return None
        if self.of is not None and not _same_attempt(task, self.of, changes.owner):
            return None
        changes.write(task, self.output, self.kept)
        values = dict(self.values)
        if self.to in TERMINAL:
            values["completed_at"] = now_text()
        elif self.to == "suspended":
            values["suspended_at"] = now_text()
        made = task.with_changes(status=self.to, owner=None, **values)
        chunks = changes.keep(made, ready_at=changes.now + self.ready_in_s if self.ready_in_s else 0.0)
        if task.status == "running":
            changes.end_attempt(task, self.act if self.to == "pending" else self.to)
        return made, chunks


@dataclass(frozen=True, slots=True)
class Output:
    """Keep what a running task's tool wrote; nothing once another attempt runs it, or none. kept: as in `Move`."""

    of: BackgroundTask
    output: Sequence[dict[str, Any]]
    kept: int | None = None

    @property
    def task_id(self) -> str:
        """Whose record must be read."""
        return self.of.id

    def apply(self, changes: Changes) -> None:
        """Note it."""
        task = changes.tasks.get(plain_text(self.of.id))
        if task is not None and _same_attempt(task, self.of, changes.owner):
            changes.write(task, self.output, self.kept)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Of a task that was left behind: try again if it may, else it has failed; nothing if another was faster.

    never_ran: it was claimed, but no attempt began, so that none is counted.
    """

    task: BackgroundTask
    never_ran: bool = False

    @property
    def task_id(self) -> str:
        """Whose record must be read."""
        return self.task.id

    def apply(self, changes: Changes) -> Moved | None:
        """Gives the task and its chunks, None if nothing was to do."""
        now, seen = changes.tasks.get(plain_text(self.task.id)), self.task
        if now is None or now.status != "running" or (now.owner, now.started_at) != (seen.owner, seen.started_at):
            return None
        changes.end_attempt(now, "left behind")
        if self.never_ran or now.retry_count < now.max_retries:
            made = now.with_changes(status="pending", owner=None, retry_count=now.retry_count + (not self.never_ran))
        else:
            error = {"message": "the kernel that ran it ended before the task did", "stack": ""}
            made = now.with_changes(status="failed", owner=None, error=error, completed_at=now_text())
        return made, changes.keep(made)


def _same_attempt(task: BackgroundTask, attempt: BackgroundTask, owner: str) -> bool:
    """Whether it is this attempt that runs the task: the same kernel may have lost it, and claimed it again."""
    mine = task.status == "running" and task.owner == owner
    return mine and (task.started_at, task.retry_count) == (attempt.started_at, attempt.retry_count)


def plain_text(value: Any) -> Any:
    """A text that every database takes: models choose some of them."""
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return value
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
