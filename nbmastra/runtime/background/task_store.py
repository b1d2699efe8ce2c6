"""Tasks in the database: each change of state is one transaction, which the table of states decides."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from nbmastra.chunks import Chunk
from nbmastra.runtime.background.owner import surely_alive, surely_dead
from nbmastra.runtime.background.record import BackgroundTask, TaskList, now_text, task_chunk
from nbmastra.runtime.background.states import TERMINAL, TaskStatus, may_move
from nbmastra.runtime.database import TASK_ATTEMPTS, TASK_EVENTS, TASKS
from nbmastra.runtime.store import Store

__all__ = ["TaskStore"]

_COLUMNS = (
    "id",
    "status",
    "agent_id",
    "tool_name",
    "tool_call_id",
    "thread_id",
    "resource_id",
    "run_id",
    "created_at",
    "started_at",
    "suspended_at",
    "completed_at",
    "owner",
)
_BODY = (
    "tool_call_id",  # again, as it is: columns have texts that every database takes
    "args",
    "result",
    "error",
    "retry_count",
    "max_retries",
    "timeout_ms",
    "suspend_payload",
    "resume_data",
    "resumed",
)


class TaskStore:
    """The tasks of a store. Methods block; several kernels may use the same database. All raise StoreError."""

    def __init__(self, store: Store, owner: str) -> None:
        self.store = store
        self.owner = owner

    def add(self, task: BackgroundTask) -> BackgroundTask:
        """Keep a new task; one with a known id is given as it is."""
        with self.store.transaction(write=True) as connection:
            known = _get(connection, task.id)
            if known is None:
                connection.execute(sa.insert(TASKS).values({**_row(task), "ready_at": 0.0}))
            return known or task

    def get(self, task_id: str) -> BackgroundTask | None:
        """A task; None if there is none of that id."""
        with self.store.transaction(write=False) as connection:
            return _get(connection, task_id)

    def find(
        self,
        equal: dict[str, Any],
        statuses: Collection[str] = (),
        *,
        order_by: str = "created_at",
        descending: bool = False,
        date_column: str = "created_at",
        from_date: str | None = None,
        to_date: str | None = None,
        page: int = 0,
        per_page: int | None = None,
    ) -> TaskList:
        """Tasks whose columns have these values. `from_date` is within the range, `to_date` not."""
        where = [TASKS.c[name] == _plain(value) for name, value in equal.items() if value is not None]
        if statuses:
            where.append(TASKS.c.status.in_(statuses))
        if from_date is not None:
            where.append(TASKS.c[date_column] >= from_date)
        if to_date is not None:
            where.append(TASKS.c[date_column] < to_date)
        column = TASKS.c[order_by]
        order = (column.desc(), TASKS.c.position.desc()) if descending else (column, TASKS.c.position)
        query = sa.select(TASKS).where(*where).order_by(*order)
        if per_page is not None:
            query = query.limit(per_page).offset(page * per_page)
        with self.store.transaction(write=False) as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(TASKS).where(*where)).scalar() or 0
            return TaskList([_task(row) for row in connection.execute(query).mappings()], total)

    def claim(
        self, known: Collection[tuple[str, str]], room: int, room_of: dict[str, int], per_agent: int, lease_s: float
    ) -> list[tuple[BackgroundTask, list[Chunk]]]:
        """Take pending tasks of known (agent, tool), oldest first, as far as there is room; they run from now on."""
        taken: list[tuple[BackgroundTask, list[Chunk]]] = []
        waiting = sa.select(TASKS).where(TASKS.c.status == "pending", TASKS.c.ready_at <= time.time())
        waiting = waiting.order_by(TASKS.c.position).with_for_update(skip_locked=True)
        with self.store.transaction(write=True) as connection:
            rows: list[sa.RowMapping] = []
            for agent in {agent for agent, _ in known}:
                tools = [tool for owner, tool in known if owner == agent]
                of_agent = waiting.where(TASKS.c.agent_id == _plain(agent), TASKS.c.tool_name.in_(tools))
                most = min(room, room_of.get(agent, per_agent))
                rows += connection.execute(of_agent.limit(max(most, 0))).mappings()
            for row in sorted(rows, key=lambda row: row["position"])[:room]:
                task, now = _task(row), now_text()
                task = task.with_changes(status="running", started_at=now, suspended_at=None, owner=self.owner)
                chunks = self._write(connection, task, lease_until=time.time() + lease_s)
                attempt = {"task_id": task.id, "owner": self.owner, "started_at": now}
                connection.execute(sa.insert(TASK_ATTEMPTS).values(attempt))
                taken.append((task, chunks))
        return taken

    def move(
        self,
        task_id: str,
        act: str,
        to: TaskStatus,
        *,
        mine: bool = False,
        ready_at: float = 0.0,
        output: Sequence[dict[str, Any]] = (),
        **changes: Any,
    ) -> tuple[BackgroundTask, list[Chunk]] | None:
        """Change a task's state, with its chunks; None if the table of states, or another owner, doesn't allow it.

        mine: only if this manager runs it, so that a late result of one whose lease ran out is nothing.
        """
        with self.store.transaction(write=True) as connection:
            task = _get(connection, task_id, lock=True)
            if task is None or not may_move(task.status, to, act) or (mine and task.owner != self.owner):
                return None
            chunks = self._output(connection, task, output) if output else []
            was_running = task.status == "running"
            if to in TERMINAL:
                changes["completed_at"] = now_text()
            elif to == "suspended":
                changes["suspended_at"] = now_text()
            made = task.with_changes(status=to, owner=None, **changes)
            chunks += self._write(connection, made, ready_at=ready_at)
            if was_running:
                where = (TASK_ATTEMPTS.c.task_id == task_id, TASK_ATTEMPTS.c.ended_at.is_(None))
                ended = {"ended_at": now_text(), "ended_as": act if to == "pending" else to}
                connection.execute(sa.update(TASK_ATTEMPTS).where(*where).values(ended))
            return made, chunks

    def write_output(self, task: BackgroundTask, output: Sequence[dict[str, Any]]) -> None:
        """Keep what a running task's tool wrote; nothing once it isn't this manager's any more."""
        with self.store.transaction(write=True) as connection:
            now = _get(connection, task.id)
            if now is not None and now.owner == self.owner:
                self._output(connection, task, output)

    def renew(self, lease_s: float) -> set[str]:
        """Prolong the lease of what this manager runs; gives the ids of these tasks."""
        where = (TASKS.c.owner == self.owner, TASKS.c.status == "running")
        with self.store.transaction(write=True) as connection:
            connection.execute(sa.update(TASKS).where(*where).values(lease_until=time.time() + lease_s))
            return set(connection.scalars(sa.select(TASKS.c.id).where(*where)))

    def give_up(self) -> None:
        """Leave all that this manager runs to others, though its process lives."""
        where = (TASKS.c.owner == self.owner, TASKS.c.status == "running")
        with self.store.transaction(write=True) as connection:
            connection.execute(sa.update(TASKS).where(*where).values(owner="nobody", lease_until=0.0))

    def left_behind(self) -> list[BackgroundTask]:
        """Running tasks whose kernel is dead, or hasn't renewed its lease and isn't known to live."""
        query = sa.select(TASKS).where(TASKS.c.status == "running", TASKS.c.owner != self.owner)
        with self.store.transaction(write=False) as connection:
            rows = connection.execute(query).mappings().all()
        now = time.time()
        dead = [
            row
            for row in rows
            if surely_dead(row["owner"]) or (row["lease_until"] < now and not surely_alive(row["owner"]))
        ]
        return [_task(row) for row in dead]

    def take_over(self, task: BackgroundTask) -> tuple[BackgroundTask, list[Chunk]] | None:
        """Of a task that was left behind: try again if it may, else it has failed. None if another was faster."""
        with self.store.transaction(write=True) as connection:
            now = _get(connection, task.id, lock=True)
            if now is None or now.status != "running" or now.owner != task.owner:
                return None
            ended: dict[str, Any] = {"ended_at": now_text(), "ended_as": "left behind"}
            where = (TASK_ATTEMPTS.c.task_id == task.id, TASK_ATTEMPTS.c.ended_at.is_(None))
            connection.execute(sa.update(TASK_ATTEMPTS).where(*where).values(ended))
            if now.retry_count < now.max_retries:
                made = now.with_changes(status="pending", owner=None, retry_count=now.retry_count + 1)
            else:
                error = {"message": "the kernel that ran it ended before the task did", "stack": ""}
                made = now.with_changes(status="failed", owner=None, error=error, completed_at=now_text())
            return made, self._write(connection, made)

    def attempts(self, task_id: str) -> list[dict[str, Any]]:
        """The attempts of a task, oldest first: owner, started_at, ended_at, ended_as."""
        query = sa.select(TASK_ATTEMPTS).where(TASK_ATTEMPTS.c.task_id == task_id).order_by(TASK_ATTEMPTS.c.position)
        with self.store.transaction(write=False) as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def chunks(self, task_id: str) -> list[dict[str, Any]]:
        """The chunks of a task that were kept, oldest first."""
        query = sa.select(TASK_EVENTS.c.body).where(TASK_EVENTS.c.task_id == task_id).order_by(TASK_EVENTS.c.position)
        with self.store.transaction(write=False) as connection:
            return [json.loads(body) for body in connection.scalars(query)]

    def news(self, after: int | None) -> tuple[int, list[tuple[str, dict[str, Any]]]]:
        """Chunks that other kernels wrote after a position, with their tasks' ids; without one none, but the newest."""
        newest = sa.select(sa.func.coalesce(sa.func.max(TASK_EVENTS.c.position), 0))
        with self.store.transaction(write=False) as connection:
            if after is None:
                return connection.execute(newest).scalar() or 0, []
            query = sa.select(TASK_EVENTS).where(TASK_EVENTS.c.position > after).order_by(TASK_EVENTS.c.position)
            rows = connection.execute(query.limit(1000)).mappings().all()
        told = [(row["task_id"], json.loads(row["body"])) for row in rows if row["origin"] != self.owner]
        return (rows[-1]["position"] if rows else after), told

    def live(self, known: Collection[tuple[str, str]]) -> bool:
        """Whether there is a task of these (agent, tool) that hasn't ended."""
        query = sa.select(TASKS.c.agent_id, TASKS.c.tool_name).where(TASKS.c.status.not_in(TERMINAL)).distinct()
        with self.store.transaction(write=False) as connection:
            return any((row[0], row[1]) in known for row in connection.execute(query))

    def clean(self, completed_before: str, failed_before: str) -> int:
        """Forget tasks that ended before, with attempts and chunks; gives how many."""
        old = sa.or_(
            sa.and_(TASKS.c.status == "completed", TASKS.c.completed_at < completed_before),
            sa.and_(TASKS.c.status.in_(TERMINAL - {"completed"}), TASKS.c.completed_at < failed_before),
        )
        with self.store.transaction(write=True) as connection:
            ids = sa.select(TASKS.c.id).where(old)
            for table in (TASK_EVENTS, TASK_ATTEMPTS):
                connection.execute(sa.delete(table).where(table.c.task_id.in_(ids)))
            return connection.execute(sa.delete(TASKS).where(old)).rowcount

    def _write(
        self, connection: sa.Connection, task: BackgroundTask, *, lease_until: float | None = None, ready_at: float = 0
    ) -> list[Chunk]:
        row = {**_row(task), "lease_until": lease_until, "ready_at": ready_at}
        connection.execute(sa.update(TASKS).where(TASKS.c.id == task.id).values(row))
        chunk = task_chunk(task)
        if chunk is None:
            return []
        self._keep(connection, task, chunk)
        return [chunk]

    def _output(self, connection: sa.Connection, task: BackgroundTask, output: Sequence[dict[str, Any]]) -> list[Chunk]:
        for one in output:
            self._keep(connection, task, task_chunk(task, one))
        return []  # told already, when it was written

    def _keep(self, connection: sa.Connection, task: BackgroundTask, chunk: Chunk) -> None:
        if not self.store.address.is_sqlite:
            # Positions are given at the insertion, but seen at the commit: in order of one another only if there is
            # one writer at a time, as in SQLite. Rows are locked before, so that two never wait for each other.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7236352)"))
        row = {"task_id": task.id, "origin": self.owner, "body": json.dumps(chunk.to_wire())}
        connection.execute(sa.insert(TASK_EVENTS).values(row))


def _get(connection: sa.Connection, task_id: str, *, lock: bool = False) -> BackgroundTask | None:
    query = sa.select(TASKS).where(TASKS.c.id == _plain(task_id))
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return None if row is None else _task(row)


def _row(task: BackgroundTask) -> dict[str, Any]:
    row = {name: _plain(getattr(task, name)) for name in _COLUMNS}
    return {**row, "body": json.dumps({name: getattr(task, name) for name in _BODY})}


def _task(row: sa.RowMapping) -> BackgroundTask:
    return BackgroundTask(**{**{name: row[name] for name in _COLUMNS}, **json.loads(row["body"])})


def _plain(value: Any) -> Any:
    """A text that every database takes: models choose some of them."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
