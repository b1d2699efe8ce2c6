"""A Mastra server's own store as a source: its threads, messages and background tasks, read and never written."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool
from tqdm.auto import tqdm

from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames.build import Columns, errors_df, messages_df, tasks_df, threads_df, tool_calls_df
from nbmastra.frames.jsonb import decode_jsonb
from nbmastra.frames.kept import Kept, Record, Shelf, Unreadable

__all__ = ["MastraStore", "from_mastra_store"]

THREADS, MESSAGES, TASKS = "mastra_threads", "mastra_messages", "mastra_background_tasks"
_POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")
_TASK_NAMES = {  # @mastra/core, background tasks: the table's names and the wire's
    "tool_call_id": "toolCallId",
    "tool_name": "toolName",
    "agent_id": "agentId",
    "run_id": "runId",
    "thread_id": "threadId",
    "resource_id": "resourceId",
    "suspend_payload": "suspendPayload",
    "retry_count": "retryCount",
    "max_retries": "maxRetries",
    "timeout_ms": "timeoutMs",
}
_JSON = {THREADS: ("metadata",), MESSAGES: ("content",), TASKS: ("args", "result", "error", "suspend_payload")}
_THREAD_OF = {THREADS: "id", MESSAGES: "thread_id", TASKS: "thread_id"}


def from_mastra_store(
    url: str | Path, *, thread: str | None = None, resource: str | None = None, schema: str | None = None
) -> MastraStore:
    """A server's store: its LibSQL or SQLite file (`file:server.db`, a path) or its Postgres database, read only.

    `thread`, `resource`: only what belongs to it. `schema`: the Postgres schema, if it isn't the user's own. Postgres
    needs `pip install 'nbmastra[postgres]'`. Raises RecordingError where there is no store, SettingsError.
    """
    return MastraStore(url, thread=thread, resource=resource, schema=schema)


class MastraStore(Shelf):
    """Threads of a server's store; tables by its methods, or by `messages_df(store)` and the others.

    A row that can't be read is left out and told in `.attrs["unread"]` of each table.
    """

    def __init__(
        self, url: str | Path, *, thread: str | None = None, resource: str | None = None, schema: str | None = None
    ) -> None:
        self._engine, self._name = _engine(url)
        self._only = {"thread": thread, "resource": resource}
        tables = [THREADS, MESSAGES, TASKS]
        with self._connect() as connection:
            found = set(sa.inspect(connection).get_table_names(schema))
            if MESSAGES not in found and THREADS not in found:
                raise RecordingError(f"{self._name} is no Mastra store: it has no tables {THREADS}, {MESSAGES}")
            meta = sa.MetaData()
            # Reflected, since older servers have fewer columns.
            self._tables = {
                name: sa.Table(name, meta, schema=schema, autoload_with=connection, resolve_fks=False)
                for name in tables
                if name in found
            }
        for name, table in self._tables.items():
            if missing := {_THREAD_OF[name], "id", "createdAt", *_JSON[name]} - set(table.columns.keys()):
                raise RecordingError(f"{self._name} is no Mastra store: {name} has no column {min(missing)}")

    # --- tables ------------------------------------------------------------------------------------------------------

    def threads_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per thread; `messages` counts its messages."""
        return threads_df(self, columns)

    def messages_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per message."""
        return messages_df(self, columns)

    def tasks_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per background task. No message is read."""
        return tasks_df(_TasksOnly(self), columns)

    def tool_calls_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per tool call that a message tells of; stores don't keep when and how long."""
        return tool_calls_df(self, columns)

    def errors_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per call or task that failed."""
        return errors_df(self, columns)

    # --- rows --------------------------------------------------------------------------------------------------------

    def threads(self) -> Iterator[Kept]:
        """Each thread with its messages and tasks, by id; what belongs to no thread comes last."""
        return self._threads(messages=True)

    def _threads(self, *, messages: bool) -> Iterator[Kept]:
        with self._connect() as connection:
            records, tasks = self._by_thread(connection, THREADS), self._by_thread(connection, TASKS)
            bar = tqdm(total=len(records), unit="thread", delay=1, leave=False)
            groups = _groups(self._rows(connection, MESSAGES)) if messages else iter(())
            with bar:
                for id, rows in groups:
                    bar.update()
                    yield _kept(id, records.pop(id, []), rows, tasks.pop(id, []))
                for id in sorted({*records, *tasks}, key=lambda id: (id is None, id or "")):
                    yield _kept(id, records.pop(id, []), [], tasks.pop(id, []))

    def _by_thread(self, connection: sa.Connection, name: str) -> dict[str | None, list[Record | Unreadable]]:
        found: dict[str | None, list[Record | Unreadable]] = defaultdict(list)
        for id, row in self._rows(connection, name):
            found[id].append(row)
        return found

    def _rows(self, connection: sa.Connection, name: str) -> Iterator[tuple[str | None, Record | Unreadable]]:
        """The rows of a table with the thread that they belong to: its messages by thread, oldest first."""
        table = self._tables.get(name)
        if table is None:
            return
        thread, created = table.c[_THREAD_OF[name]], table.c["createdAt"]
        # JSON as text: read here, one broken value fails its row only.
        columns = [
            sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON) else column
            for column in table.columns
        ]
        query = sa.select(*columns).order_by(thread, created)
        if self._only["thread"] is not None:
            query = query.where(thread == self._only["thread"])
        if self._only["resource"] is not None:
            resource = table.c.get("resourceId", table.c.get("resource_id"))
            query = query.where(resource == self._only["resource"] if resource is not None else sa.false())
        for row in connection.execution_options(yield_per=1000).execute(query).mappings():
            id = row[thread.name]
            yield (id if isinstance(id, str) else None), _record(name, dict(row))

    @contextmanager
    def _connect(self) -> Generator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            reason = str(error.orig).strip().partition("\n")[0]
            raise RecordingError(f"can't read {self._name}: {reason}") from None

    def __enter__(self) -> MastraStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def __repr__(self) -> str:
        return f"<MastraStore {self._name}: threads_df(), messages_df(), tool_calls_df(), tasks_df()>"


class _TasksOnly(Shelf):
    def __init__(self, store: MastraStore) -> None:
        self._store = store

    def threads(self) -> Iterator[Kept]:
        """The threads of the store without their messages."""
        return self._store._threads(messages=False)  # pyright: ignore[reportPrivateUsage]


Row = tuple[str | None, Record | Unreadable]


def _groups(rows: Iterator[Row]) -> Iterator[tuple[str | None, list[Record | Unreadable]]]:
    """Rows that follow each other and belong to one thread."""
    last: str | None = None
    together: list[Record | Unreadable] = []
    for id, row in rows:
        if together and id != last:
            yield last, together
            together = []
        last = id
        together.append(row)
    if together:
        yield last, together


def _kept(
    id: str | None,
    thread: list[Record | Unreadable],
    messages: list[Record | Unreadable],
    tasks: list[Record | Unreadable],
) -> Kept:
    def read(rows: list[Record | Unreadable]) -> list[Record]:
        return [row for row in rows if not isinstance(row, Unreadable)]

    unread = [row for row in (*thread, *messages, *tasks) if isinstance(row, Unreadable)]
    return Kept(id, next(iter(read(thread)), None), read(messages), read(tasks), unread)


# --- values ----------------------------------------------------------------------------------------------------------


def _record(table: str, row: Record) -> Record | Unreadable:
    """A row in the wire's words."""
    try:
        for name in _JSON[table]:
            row[name] = _json(row.get(name), plain=table == MESSAGES and row.get("type") != "v2")
        if table == TASKS and isinstance(row["args"], str):
            row["args"] = json.loads(row["args"])  # Postgres stores keep them as JSON in JSON
    except (ValueError, RecursionError) as error:
        return Unreadable(f"{table} {row.get('id')}", str(error)[:200])
    for name in ("createdAt", "updatedAt", "startedAt", "suspendedAt", "completedAt"):
        if row.get(name) is not None:
            row[name] = _time(row.get(f"{name}Z") or row[name])
    names = _TASK_NAMES if table == TASKS else {"thread_id": "threadId"}
    return {names.get(name, name): value for name, value in row.items() if not name.endswith("Z")}


def _json(value: object, *, plain: bool) -> Any:
    if isinstance(value, bytes):
        return decode_jsonb(value)
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            if plain:  # messages of old servers are text
                return value
            raise
    return value


def _time(value: object) -> object:
    """ISO text, as the wire has it. Postgres' times without a zone are UTC."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).isoformat()
    return value


# --- connections -----------------------------------------------------------------------------------------------------


def _engine(url: str | Path) -> tuple[sa.Engine, str]:
    """An engine that can't write, and a name for it without secrets."""
    text = str(url)
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in _POSTGRES:
        return _postgres(text)
    if scheme not in ("", "sqlite", "file"):
        raise SettingsError(
            f"a store is a LibSQL or SQLite file (file:server.db) or Postgres (postgresql://…), not {scheme}://…"
        )
    path = Path(text.removeprefix("sqlite:///").removeprefix("file://").removeprefix("file:").partition("?")[0])
    path = path.expanduser()
    if ":memory:" in text or not path.is_file():
        raise RecordingError(f"there is no store {path}")

    def connect() -> sqlite3.Connection:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True)
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        except sqlite3.OperationalError:  # a log of writes can't be made beside it: nobody else writes either
            connection.close()
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True)
        connection.text_factory = _text
        return connection

    return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool), path.name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _postgres(text: str) -> tuple[sa.Engine, str]:
    try:
        import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an extra
    except ImportError:
        raise SettingsError("Postgres stores need `pip install 'nbmastra[postgres]'`") from None
    try:
        url = sa.make_url(text).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise SettingsError("this is no URL of a Postgres database: postgresql://user@host:5432/name") from None
    engine = sa.create_engine(url, poolclass=NullPool, execution_options={"postgresql_readonly": True})
    return engine, f"{url.host or 'localhost'}/{url.database or ''}"
