"""The store: threads, messages and suspended runs in a database, for many threads and many kernels at once."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from nbmastra.engine import Engine, get_engine
from nbmastra.errors import AlreadyResumed, NotSuspended, SettingsError, StoreError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.database import (
    MESSAGES,
    SUSPENDED_RUNS,
    THREADS,
    DatabaseAddress,
    open_database,
    told,
    transaction,
)
from nbmastra.runtime.held import close_with
from nbmastra.runtime.stored import iso_time

__all__ = ["Store", "shared_store"]

T = TypeVar("T")
FindCall = Callable[[str], dict[str, Any] | None]

# Its own: forty slow tools, which use anyio's, must not keep memory from being written.
_limiter: RunVar[CapacityLimiter] = RunVar("nbmastra_store_limiter")


class Store:
    """A database for memory and suspended runs; `url` as `Memory(store=)` takes it.

    Opened at first use, closed when the engine ends or by `close`; used again, it is opened again (in memory: empty).
    Methods block; `await store.run(method, …)` calls them in a worker thread. All raise StoreError, SettingsError.
    """

    def __init__(self, url: str | Path | None = None, *, engine: Engine | None = None) -> None:
        self.address = DatabaseAddress.of(url)
        self.engine = engine or get_engine()
        self._lock = threading.RLock()
        self._writing = threading.RLock()
        self._database: sa.Engine | None = None
        self._pid = os.getpid()

    async def run(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call one of this store's methods in a worker thread; what has begun is completed even if it is cancelled."""
        limiter = _limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(8)
            _limiter.set(limiter)
        call = asyncio.ensure_future(to_thread.run_sync(partial(method, *args, **kwargs), limiter=limiter))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # Who cancels may close the store next, or tell it that nothing is under way any more.
            while not call.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({call})
            if not call.cancelled():
                call.exception()
            raise

    def remember(
        self,
        thread: str,
        resource: str,
        build: Callable[[FindCall], list[dict[str, Any]]],
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Add the records that `build(find)` gives, or replace those of the same id; make the thread if there is none.

        `find(call id)` gives the thread's newest record with that tool call.
        """
        with self.transaction(write=True) as connection:
            self._own_thread(connection, thread, resource, title, metadata)
            built = build(lambda call_id: _record_with_call(connection, thread, call_id))
            records = [record | {"threadId": thread, "resourceId": resource} for record in built]
            _write(connection, thread, records)
        return records

    def messages(self, thread: str, *, resource: str | None = None, last: int | None = None) -> list[dict[str, Any]]:
        """A thread's records, oldest first; the `last` ones if given. Empty for a thread that doesn't exist."""
        query = sa.select(MESSAGES.c.body).where(MESSAGES.c.thread_id == _id("thread", thread))
        with self.transaction(write=False) as connection:
            found = _thread(connection, thread)
            if found is not None and resource is not None:
                _check_owner(found, resource)
            if last is None:
                return [json.loads(body) for body in connection.scalars(query.order_by(MESSAGES.c.position))]
            newest = connection.scalars(query.order_by(MESSAGES.c.position.desc()).limit(last)).all()
        return [json.loads(body) for body in reversed(newest)]

    def thread(self, thread: str) -> dict[str, Any] | None:
        """A thread's record: id, resourceId, title, metadata, createdAt, updatedAt; None if there is none."""
        with self.transaction(write=False) as connection:
            return _thread(connection, _id("thread", thread))

    def threads(
        self, *, resource: str | None = None, page: int = 0, per_page: int | None = None
    ) -> list[dict[str, Any]]:
        """Threads, the one last written to first; of one resource if given; `page` counts from 0."""
        query = sa.select(THREADS).order_by(THREADS.c.updated_at.desc(), THREADS.c.id)
        if resource is not None:
            query = query.where(THREADS.c.resource_id == _id("resource", resource))
        if per_page is not None:
            query = query.limit(per_page).offset(page * per_page)
        with self.transaction(write=False) as connection:
            return [_thread_record(row) for row in connection.execute(query).mappings()]

    def save_thread(
        self, thread: str, resource: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make a thread, or change its title or metadata; gives its record."""
        with self.transaction(write=True) as connection:
            self._own_thread(connection, thread, resource, title, metadata)
            found = _thread(connection, thread)
        assert found is not None
        return found

    def delete_thread(self, thread: str, *, resource: str | None = None) -> bool:
        """Delete a thread with its messages; False if there is none."""
        with self.transaction(write=True) as connection:
            found = _thread(connection, _id("thread", thread), lock=True)
            if found is None:
                return False
            if resource is not None:
                _check_owner(found, resource)
            connection.execute(sa.delete(MESSAGES).where(MESSAGES.c.thread_id == thread))
            connection.execute(sa.delete(THREADS).where(THREADS.c.id == thread))
        return True

    def delete_messages(self, thread: str, ids: Sequence[str]) -> int:
        """Delete messages of a thread by their ids; gives how many there were."""
        where = (MESSAGES.c.thread_id == _id("thread", thread), MESSAGES.c.id.in_([_id("message", one) for one in ids]))
        with self.transaction(write=True) as connection:
            return connection.execute(sa.delete(MESSAGES).where(*where)).rowcount

    def save_suspended(
        self,
        run_id: str,
        state: object,
        *,
        agent: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
    ) -> None:
        """Keep what a suspended run needs to go on (any JSON), until it is taken; again if it is suspended again."""
        row: dict[str, Any] = {
            "agent_id": agent,
            "thread_id": thread,
            "resource_id": resource,
            "suspended_at": _now(),
            "taken_at": None,
            "state": json.dumps(state),
        }
        with self.transaction(write=True) as connection:
            where = SUSPENDED_RUNS.c.run_id == _id("run_id", run_id)
            if not connection.execute(sa.update(SUSPENDED_RUNS).where(where).values(row)).rowcount:
                connection.execute(sa.insert(SUSPENDED_RUNS).values(row | {"run_id": run_id}))

    def take_suspended(self, run_id: str) -> Any:
        """The state of a suspended run, once: a second time raises AlreadyResumed, an unknown run NotSuspended."""
        where = SUSPENDED_RUNS.c.run_id == _id("run_id", run_id)
        with self.transaction(write=True) as connection:
            row = connection.execute(sa.select(SUSPENDED_RUNS).where(where).with_for_update()).mappings().first()
            if row is None:
                raise NotSuspended(f"no run {run_id!r} waits for an answer in the store {self.address.shown}")
            if row["taken_at"] is not None:
                raise AlreadyResumed(f"run {run_id!r} was resumed before ({row['taken_at']})")
            # The row stays, without its content, so that a second time can be told from a run that never was.
            connection.execute(sa.update(SUSPENDED_RUNS).where(where).values(taken_at=_now(), state="null"))
        return json.loads(row["state"])

    def suspended_runs(self, *, agent: str | None = None) -> list[dict[str, Any]]:
        """The runs that wait, oldest first: runId, agentId, threadId, resourceId, suspendedAt, state."""
        query = sa.select(SUSPENDED_RUNS).where(SUSPENDED_RUNS.c.taken_at.is_(None))
        if agent is not None:
            query = query.where(SUSPENDED_RUNS.c.agent_id == agent)
        with self.transaction(write=False) as connection:
            rows = connection.execute(query.order_by(SUSPENDED_RUNS.c.suspended_at)).mappings().all()
        return [
            {
                "runId": row["run_id"],
                "agentId": row["agent_id"],
                "threadId": row["thread_id"],
                "resourceId": row["resource_id"],
                "suspendedAt": row["suspended_at"],
                "state": json.loads(row["state"]),
            }
            for row in rows
        ]

    @property
    def is_open(self) -> bool:
        """True while it holds connections."""
        return self._database is not None

    def close(self) -> None:
        """Close its connections."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.dispose()

    async def aclose(self) -> None:
        """The same, without blocking the loop."""
        await self.run(self.close)

    def _opened(self) -> sa.Engine:
        with self._lock:
            if self._pid != os.getpid():  # forked: the connection is the parent's, and stays open there
                self._pid, self._database = os.getpid(), None
            if self._database is None:
                self._database = open_database(self.address)
                weakref.finalize(self, self._database.dispose).atexit = False
                close_with(self.engine, self)
            return self._database

    @contextmanager
    def transaction(self, *, write: bool) -> Generator[sa.Connection]:
        """A transaction, for whoever keeps tables of its own beside these; committed at the block's end."""
        # Writers of a SQLite file take turns here, where they are woken at once; readers wait for nobody.
        turn = self._writing if self.address.in_memory or (self.address.is_sqlite and write) else nullcontext()
        with turn, told(self.address), transaction(self._opened(), write=write) as connection:
            yield connection

    def _own_thread(
        self,
        connection: sa.Connection,
        thread: str,
        resource: str,
        title: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        """Make the thread, or check that it is the resource's; nobody else writes to it until the transaction ends."""
        about: dict[str, Any] = {"title": title, "metadata": dict(metadata) if metadata is not None else None}
        new = {key: value for key, value in about.items() if value is not None}
        found = _thread(connection, _id("thread", thread), lock=True)
        if found is None:
            row = {"id": thread, "resource_id": _id("resource", resource), "created_at": _now(), "updated_at": _now()}
            about = {"title": "", "metadata": None} | new
            made = sa.text(
                "INSERT INTO nbmastra_threads (id, resource_id, created_at, updated_at, about) "
                "VALUES (:id, :resource_id, :created_at, :updated_at, :about) ON CONFLICT (id) DO NOTHING"
            )
            if connection.execute(made, row | {"about": _json(about)}).rowcount:
                return
            found = _thread(connection, thread, lock=True)  # made by another kernel in this moment
            if found is None:
                raise StoreError(f"thread {thread!r} is being deleted by another program")
        _check_owner(found, resource)
        about = {"title": found["title"], "metadata": found["metadata"]} | new
        values = {"updated_at": _now(), "about": _json(about)}
        connection.execute(sa.update(THREADS).where(THREADS.c.id == thread).values(values))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kept = " (in memory: gone when it is closed)" if self.address.in_memory else ""
        return f"<Store {self.address.shown}{kept}>"


def shared_store(url: str | Path | None = None, *, engine: Engine | None = None) -> Store:
    """The store of this address that all agents of the process share; in memory, a new one."""
    address = DatabaseAddress.of(url)
    if address.in_memory:
        return Store(url, engine=engine)
    engine = engine or get_engine()
    with _shared_lock:
        store = _shared.get((address.url, id(engine)))
        if store is None:
            store = _shared[address.url, id(engine)] = Store(url, engine=engine)
        return store


_shared: weakref.WeakValueDictionary[tuple[sa.URL, int], Store] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def _thread(connection: sa.Connection, thread: str, *, lock: bool = False) -> dict[str, Any] | None:
    query = sa.select(THREADS).where(THREADS.c.id == thread)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return None if row is None else _thread_record(row)


def _thread_record(row: sa.RowMapping) -> dict[str, Any]:
    about = json.loads(row["about"])
    return {
        "id": row["id"],
        "resourceId": row["resource_id"],
        "title": about["title"],
        "metadata": about["metadata"],
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
    }


def _check_owner(thread: Mapping[str, Any], resource: str) -> None:
    if thread["resourceId"] != resource:
        raise SettingsError(
            f"thread {thread['id']!r} belongs to another resource than {resource!r}: give the resource that it was "
            "begun with, or another thread"
        )


def _write(connection: sa.Connection, thread: str, records: list[dict[str, Any]]) -> None:
    ids = [_id("message", record["id"]) for record in records]
    rows = connection.execute(
        sa.select(MESSAGES.c.id, MESSAGES.c.created_at).where(MESSAGES.c.thread_id == thread, MESSAGES.c.id.in_(ids))
    )
    known: dict[str, str] = {row[0]: row[1] for row in rows}
    for record in records:
        if (created := known.get(record["id"])) is not None:  # a longer version of what is there: it keeps its place
            where = (MESSAGES.c.thread_id == thread, MESSAGES.c.id == record["id"])
            body = _json(record | {"createdAt": created})
            connection.execute(sa.update(MESSAGES).where(*where).values(body=body))
            continue
        known[record["id"]] = record["createdAt"]
        row = {"thread_id": thread, "id": record["id"], "created_at": record["createdAt"], "body": _json(record)}
        connection.execute(sa.insert(MESSAGES).values(row))


def _record_with_call(connection: sa.Connection, thread: str, call_id: str) -> dict[str, Any] | None:
    query = sa.select(MESSAGES.c.body).where(MESSAGES.c.thread_id == thread)
    for body in connection.scalars(query.order_by(MESSAGES.c.position.desc()).limit(50)):
        record = json.loads(body)
        if any(as_dict(part.get("toolInvocation")).get("toolCallId") == call_id for part in record["content"]["parts"]):
            return record
    return None


def _id(name: str, value: object) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise SettingsError(f"{name} is a text that names it, such as {name}='t1'; not {value!r:.60}")


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"what is remembered must be JSON ({error})") from None


def _now() -> str:
    return iso_time(time.time_ns() // 1_000_000)
