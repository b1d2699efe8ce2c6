"""Tasks in the database: changes are made in transactions of many, one writer at a time; reading waits for nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nbmastra.chunks.built import encode_json
from nbmastra.runtime.background.owner import surely_alive, surely_dead
from nbmastra.runtime.background.record import BackgroundTask, TaskList
from nbmastra.runtime.background.states import LIVE, TERMINAL
from nbmastra.runtime.background.task_changes import Add, Changes, Move, Output, TakeOver, plain_text
from nbmastra.runtime.database import TASK_ATTEMPTS, TASK_EVENTS, TASKS
from nbmastra.runtime.store import Store

__all__ = ["Change", "Claim", "TaskStore"]

_CHANGING = ("status", "started_at", "suspended_at", "completed_at", "owner")
_COLUMNS = (
    "id",
    "agent_id",
    "tool_name",
    "tool_call_id",
    "thread_id",
    "resource_id",
    "run_id",
    "created_at",
    *_CHANGING,
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
    "request_context",
    "run_state",
)
_MANY = 500  # a statement's parameters have a limit
_INSERT = sa.insert(TASKS)
_UPDATE = (
    sa.update(TASKS)
    .where(TASKS.c.id == sa.bindparam("of"))
    .values({name: sa.bindparam(name) for name in (*_CHANGING, "lease_until", "ready_at", "body")})
)
_END = (
    sa.update(TASK_ATTEMPTS)
    .where(TASK_ATTEMPTS.c.task_id == sa.bindparam("of"), TASK_ATTEMPTS.c.ended_at.is_(None))
    .values(ended_at=sa.bindparam("ended_at"), ended_as=sa.bindparam("ended_as"))
)
# A program that writes holds this until its commit. So positions of events, which are given at the insertion but seen
# at the commit, are seen in their order, as in SQLite, and two programs never wait for each other's rows. The database
# says what time it is: clocks of kernels may differ.
_TURN = sa.text("SELECT extract(epoch FROM clock_timestamp()) FROM (SELECT pg_advisory_xact_lock(7236352)) AS turn")
_CLOCK = sa.text("SELECT extract(epoch FROM clock_timestamp())")


@dataclass(frozen=True, slots=True)
class Claim:
    """Take pending tasks of known (agent, tool), oldest first, as far as there is room; they run from now on."""

    known: Collection[tuple[str, str]]
    room: int
    room_of: dict[str, int]
    per_agent: int
    lease_s: float


Change = Add | Move | Output | TakeOver | Claim


class TaskStore:
    """The tasks of a store. Methods block; several kernels may use the same database. All raise StoreError."""

    def __init__(self, store: Store, owner: str) -> None:
        self.store = store
        self.owner = owner

    def apply(self, changes: Sequence[Change]) -> list[Any]:
        """Make changes in one transaction, in their order, claims after all others; gives what each gives.

        Add: the task. Move, TakeOver: `Moved` or None. Claim: a list of `Moved`.
        """
        about = {plain_text(change.task_id) for change in changes if not isinstance(change, Claim)}
        with self.store.transaction(write=True) as connection:
            now = self._turn(connection)
            made = Changes(self.owner, now, _read(connection, about))
            for one in changes:
                if isinstance(one, Move | Output) and one.kept is not None:
                    made.kept_outputs[plain_text(one.task_id)] = _outputs(connection, one.task_id)
            given: list[Any] = [None if isinstance(one, Claim) else one.apply(made) for one in changes]
            _write(connection, made)
            for number, change in enumerate(changes):
                if isinstance(change, Claim):
                    claimed = Changes(self.owner, now, {})
                    given[number] = [claimed.claim(task, change.lease_s) for task in _waiting(connection, change, now)]
                    _write(connection, claimed)
        return given

    def get(self, task_id: str) -> BackgroundTask | None:
        """A task; None if there is none of that id."""
        with self.store.transaction(write=False) as connection:
            return _get(connection, task_id)

    def get_many(self, ids: Collection[str]) -> dict[str, BackgroundTask]:
        """Tasks by id, as events name them; without those that there are none of."""
        with self.store.transaction(write=False) as connection:
            return _read(connection, ids)

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
        where = [TASKS.c[name] == plain_text(value) for name, value in equal.items() if value is not None]
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

    def renew(self, lease_s: float) -> list[BackgroundTask]:
        """Prolong the lease of what this manager runs; gives these tasks."""
        where = (TASKS.c.owner == self.owner, TASKS.c.status == "running")
        with self.store.transaction(write=False) as connection:
            if connection.execute(sa.select(TASKS.c.id).where(*where).limit(1)).first() is None:
                return []
        with self.store.transaction(write=True) as connection:
            until = self._turn(connection) + lease_s
            connection.execute(sa.update(TASKS).where(*where).values(lease_until=until))
            return [_task(row) for row in connection.execute(sa.select(TASKS).where(*where)).mappings()]

    def give_up(self) -> None:
        """Leave all that this manager runs to others, though its process lives."""
        where = (TASKS.c.owner == self.owner, TASKS.c.status == "running")
        with self.store.transaction(write=True) as connection:
            self._turn(connection)
            connection.execute(sa.update(TASKS).where(*where).values(owner="nobody", lease_until=0.0))

    def left_behind(self) -> list[BackgroundTask]:
        """Running tasks whose kernel is dead, or hasn't renewed its lease and isn't known to live."""
        query = sa.select(TASKS).where(TASKS.c.status == "running", TASKS.c.owner != self.owner)
        with self.store.transaction(write=False) as connection:
            rows = connection.execute(query).mappings().all()
            now = self._clock(connection) if rows else 0.0
        dead = [
            row
            for row in rows
            if surely_dead(row["owner"]) or (row["lease_until"] < now and not surely_alive(row["owner"]))
        ]
        return [_task(row) for row in dead]

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

    def live(self, known: Collection[tuple[str, str]]) -> set[str]:
        """The states of tasks of these (agent, tool) that haven't ended."""
        query = sa.select(TASKS.c.agent_id, TASKS.c.tool_name, TASKS.c.status).where(TASKS.c.status.in_(LIVE))
        with self.store.transaction(write=False) as connection:
            return {row[2] for row in connection.execute(query.distinct()) if (row[0], row[1]) in known}

    def clean(self, completed_before: str, failed_before: str) -> int:
        """Forget tasks that ended before, with attempts and chunks; gives how many."""
        old = sa.or_(
            sa.and_(TASKS.c.status == "completed", TASKS.c.completed_at < completed_before),
            sa.and_(TASKS.c.status.in_(TERMINAL - {"completed"}), TASKS.c.completed_at < failed_before),
        )
        with self.store.transaction(write=True) as connection:
            self._turn(connection)
            ids = sa.select(TASKS.c.id).where(old)
            for table in (TASK_EVENTS, TASK_ATTEMPTS):
                connection.execute(sa.delete(table).where(table.c.task_id.in_(ids)))
            return connection.execute(sa.delete(TASKS).where(old)).rowcount

    def _turn(self, connection: sa.Connection) -> float:
        """Wait until no other program writes tasks; gives the database's time, in seconds since 1970."""
        if self.store.address.is_sqlite:  # its write transaction keeps others out already
            return time.time()
        return float(connection.execute(_TURN).scalar_one())

    def _clock(self, connection: sa.Connection) -> float:
        return time.time() if self.store.address.is_sqlite else float(connection.execute(_CLOCK).scalar_one())


def _read(connection: sa.Connection, ids: Collection[str]) -> dict[str, BackgroundTask]:
    found: dict[str, BackgroundTask] = {}
    wanted = list(ids)
    for begin in range(0, len(wanted), _MANY):
        query = sa.select(TASKS).where(TASKS.c.id.in_(wanted[begin : begin + _MANY]))
        found |= {row["id"]: _task(row) for row in connection.execute(query).mappings()}
    return found


def _outputs(connection: sa.Connection, task_id: str) -> int:
    """How many outputs of a task's newest attempt are kept."""
    query = sa.select(TASK_EVENTS.c.body).where(TASK_EVENTS.c.task_id == plain_text(task_id))
    count = 0
    for body in connection.scalars(query.order_by(TASK_EVENTS.c.position.desc())):
        if json.loads(body)["type"] != "background-task-output":
            break
        count += 1
    return count


def _write(connection: sa.Connection, changes: Changes) -> None:
    if changes.new:
        connection.execute(_INSERT, [{**_row(changes.tasks[key]), "ready_at": 0.0} for key in changes.new])
    if changes.changed:
        rows = [
            {
                **_changing(changes.tasks[key]),
                "of": key,
                "lease_until": about["lease_until"],
                "ready_at": about["ready_at"],
            }
            for key, about in changes.changed.items()
        ]
        connection.execute(_UPDATE, rows)
    if changes.begun:
        connection.execute(sa.insert(TASK_ATTEMPTS), changes.begun)
    if changes.ended:
        connection.execute(_END, changes.ended)
    if changes.events:
        connection.execute(sa.insert(TASK_EVENTS), changes.events)


def _waiting(connection: sa.Connection, claim: Claim, now: float) -> list[BackgroundTask]:
    query = sa.select(TASKS).where(TASKS.c.status == "pending", TASKS.c.ready_at <= now).order_by(TASKS.c.position)
    rows: list[sa.RowMapping] = []
    for agent in {agent for agent, _ in claim.known}:
        tools = [tool for owner, tool in claim.known if owner == agent]
        of_agent = query.where(TASKS.c.agent_id == plain_text(agent), TASKS.c.tool_name.in_(tools))
        most = min(claim.room, claim.room_of.get(agent, claim.per_agent))
        if most > 0:
            rows += connection.execute(of_agent.limit(most)).mappings()
    return [_task(row) for row in sorted(rows, key=lambda row: row["position"])[: claim.room]]


def _get(connection: sa.Connection, task_id: str) -> BackgroundTask | None:
    return _read(connection, [plain_text(task_id)]).get(plain_text(task_id))


def _row(task: BackgroundTask) -> dict[str, Any]:
    row = {name: plain_text(getattr(task, name)) for name in _COLUMNS}
    return {**row, "body": _body(task)}


def _changing(task: BackgroundTask) -> dict[str, Any]:
    return {**{name: getattr(task, name) for name in _CHANGING}, "body": _body(task)}


def _body(task: BackgroundTask) -> str:
    return encode_json({name: getattr(task, name) for name in _BODY}).decode()


def _task(row: sa.RowMapping) -> BackgroundTask:
    return BackgroundTask(**{**{name: row[name] for name in _COLUMNS}, **json.loads(row["body"])})
