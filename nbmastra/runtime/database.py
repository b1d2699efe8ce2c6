"""The database of a store: where it is, its tables and their version, how it is opened."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import platformdirs
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from nbmastra.errors import SettingsError, StoreError

__all__ = [
    "MESSAGES",
    "MIGRATIONS",
    "STORE_VARIABLE",
    "SUSPENDED_RUNS",
    "TASKS",
    "TASK_ATTEMPTS",
    "TASK_EVENTS",
    "THREADS",
    "DatabaseAddress",
    "open_database",
    "told",
    "transaction",
]

STORE_VARIABLE = "NBMASTRA_STORE"
_BUSY_S = 30.0
_EXPECTED = "a file's path, sqlite:///path, sqlite:// (in memory) or postgresql+psycopg://user:password@host/database"

_TABLES = sa.MetaData()
_SCHEMA = sa.Table("nbmastra_schema", _TABLES, sa.Column("version", sa.Integer, nullable=False))
# All that users and models wrote is inside of JSON text, which both databases take whole: Postgres refuses a NUL
# character, and neither takes half an emoji.
THREADS = sa.Table(
    "nbmastra_threads",
    _TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("resource_id", sa.Text, nullable=False, index=True),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Text, nullable=False),
    sa.Column("about", sa.Text, nullable=False),  # title, metadata
)
MESSAGES = sa.Table(
    "nbmastra_messages",
    _TABLES,
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("thread_id", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("thread_id", "id"),
    sa.Index("nbmastra_messages_of_thread", "thread_id", "position"),
    sqlite_autoincrement=True,
)
SUSPENDED_RUNS = sa.Table(
    "nbmastra_suspended_runs",
    _TABLES,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("agent_id", sa.Text),
    sa.Column("thread_id", sa.Text),
    sa.Column("resource_id", sa.Text),
    sa.Column("suspended_at", sa.Text, nullable=False),
    sa.Column("taken_at", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
)

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TASKS = sa.Table(
    "nbmastra_tasks",
    _TABLES,
    sa.Column("position", _BIG, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("tool_name", sa.Text, nullable=False),
    sa.Column("tool_call_id", sa.Text, nullable=False),
    sa.Column("thread_id", sa.Text),
    sa.Column("resource_id", sa.Text),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("started_at", sa.Text),
    sa.Column("suspended_at", sa.Text),
    sa.Column("completed_at", sa.Text),
    sa.Column("owner", sa.Text),  # the kernel that runs it, until `lease_until` (seconds since 1970)
    sa.Column("lease_until", sa.Float),
    sa.Column("ready_at", sa.Float, nullable=False),  # not before, after a failed attempt
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("nbmastra_tasks_by_status", "status", "agent_id", "position"),
)
TASK_ATTEMPTS = sa.Table(
    "nbmastra_task_attempts",
    _TABLES,
    sa.Column("position", _BIG, primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.Text, nullable=False, index=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text),
    sa.Column("ended_as", sa.Text),
)
TASK_EVENTS = sa.Table(
    "nbmastra_task_events",
    _TABLES,
    sa.Column("position", _BIG, primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.Text, nullable=False, index=True),
    sa.Column("origin", sa.Text, nullable=False),  # who wrote it
    sa.Column("body", sa.Text, nullable=False),  # a background-task chunk, output chunks among them
    sqlite_autoincrement=True,
)


def _add_tasks(connection: sa.Connection) -> None:
    _TABLES.create_all(connection, [TASKS, TASK_ATTEMPTS, TASK_EVENTS])


MIGRATIONS: list[Callable[[sa.Connection], None]] = [_add_tasks]
"""Each brings the tables of an older store one version further, the first from 1 to 2; those above are the newest."""


@dataclass(frozen=True)
class DatabaseAddress:
    """A database: `url` with its secrets, `shown` without."""

    url: sa.URL = field(repr=False)
    shown: str

    @classmethod
    def of(cls, where: str | Path | None = None) -> DatabaseAddress:
        """What the user gave, then NBMASTRA_STORE, then a file of this user. Raises SettingsError."""
        where = where or os.environ.get(STORE_VARIABLE) or platformdirs.user_data_path("nbmastra") / "memory.db"
        if isinstance(where, Path) or "://" not in where:
            return cls._file(Path(where))
        try:
            url = sa.make_url(where)
        except (ArgumentError, ValueError):  # the URL isn't repeated: it may hold a password
            raise SettingsError(f"the store's address is not a URL: write {_EXPECTED}") from None
        match url.get_backend_name():
            case "sqlite" if url.host or url.username or url.query:
                raise SettingsError("a SQLite store is sqlite:///relative/path, sqlite:////absolute/path or sqlite://")
            case "sqlite" if url.database in (None, "", ":memory:"):
                return cls(sa.URL.create("sqlite+pysqlite"), "sqlite://")
            case "sqlite":
                return cls._file(Path(unquote(url.database or "")))
            case "postgresql" | "postgres":
                place = f"{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"
                return cls(url.set(drivername="postgresql+psycopg"), f"postgresql://{place}")
            case _:
                raise SettingsError(f"a store is a SQLite or a PostgreSQL database: write {_EXPECTED}")

    @classmethod
    def _file(cls, path: Path) -> DatabaseAddress:
        # Absolute: a kernel may change its directory later.
        path = path.expanduser().absolute()
        return cls(sa.URL.create("sqlite+pysqlite", database=str(path)), str(path))

    @property
    def in_memory(self) -> bool:
        """True for a database that ends with its store."""
        return self.is_sqlite and self.url.database is None

    @property
    def is_sqlite(self) -> bool:
        """True for SQLite, False for PostgreSQL."""
        return self.url.get_backend_name() == "sqlite"

    def hide(self, text: str) -> str:
        """The text without this address's secrets."""
        secrets = [str(self.url.password or ""), *(str(value) for value in self.url.query.values())]
        for secret in secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "***")
        return text


def open_database(address: DatabaseAddress) -> sa.Engine:
    """Connect, and make or migrate the tables. Raises StoreError, SettingsError."""
    engine = _sqlite(address) if address.is_sqlite else _postgres(address)
    try:
        with told(address):
            with transaction(engine, write=False) as connection:
                ready = _version(connection) == 1 + len(MIGRATIONS)
            if not ready:
                with transaction(engine, write=True) as connection:
                    _prepare_tables(connection, address)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _sqlite(address: DatabaseAddress) -> sa.Engine:
    if address.url.database is not None:
        try:
            Path(address.url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store's directory can't be made: {error}") from None
    # In memory there is but one connection, which the store's lock gives to one thread at a time.
    options: dict[str, Any] = {"check_same_thread": False, "timeout": _BUSY_S}
    pool: dict[str, Any] = (
        {"poolclass": StaticPool} if address.in_memory else {"poolclass": QueuePool, "max_overflow": -1}
    )
    engine = sa.create_engine(address.url, connect_args=options, hide_parameters=True, **pool)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin by `_begin_sqlite` alone
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            # Readers don't stop writers then. Kept in the file; a file system that can't do it stays as it is.
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError:  # two kernels make it at once; SQLite doesn't wait here by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once if another has written in between; one that
    # announces writing waits for its turn.
    writes = connection.get_execution_options().get("nbmastra_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgres(address: DatabaseAddress) -> sa.Engine:
    defaults = {"connect_timeout": 10, "keepalives_idle": 30}
    options = {name: value for name, value in defaults.items() if name not in address.url.query}
    try:
        engine = sa.create_engine(
            address.url, poolclass=QueuePool, pool_pre_ping=True, hide_parameters=True, connect_args=options
        )
    except ImportError:
        raise SettingsError("a PostgreSQL store needs psycopg: pip install 'nbmastra[postgres]'") from None
    event.listen(engine, "connect", _set_up_postgres)
    return engine


def _set_up_postgres(connection: Any, _: object) -> None:
    # A machine that vanishes in the middle of a transaction must not hold up the others until TCP gives it up.
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_BUSY_S:.0f}s'")
    connection.commit()


@contextmanager
def transaction(engine: sa.Engine, *, write: bool) -> Generator[sa.Connection]:
    """A transaction: committed at the block's end, rolled back by an exception."""
    pool = engine.pool
    with engine.connect().execution_options(nbmastra_write=write) as connection:
        try:
            with connection.begin():
                yield connection
        finally:
            if engine.pool is not pool:
                connection.invalidate()  # closed meanwhile: nobody else would close a connection that was in use


def _prepare_tables(connection: sa.Connection, address: DatabaseAddress) -> None:
    if not address.is_sqlite:  # SQLite's write transaction keeps others out already
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7236351)"))
    version, newest = _version(connection), 1 + len(MIGRATIONS)
    if version is None:
        _TABLES.create_all(connection)
        connection.execute(sa.insert(_SCHEMA).values(version=newest))
    elif version > newest:
        raise StoreError(
            f"the store {address.shown} was written by a newer nbmastra (its tables have version {version}, this one "
            f"knows {newest}): upgrade nbmastra, or use another store"
        )
    elif version < newest:
        for migrate in MIGRATIONS[version - 1 :]:
            migrate(connection)
        connection.execute(sa.update(_SCHEMA).values(version=newest))


def _version(connection: sa.Connection) -> int | None:
    """The version of the tables; None if there are none."""
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return None
    return connection.execute(sa.select(_SCHEMA.c.version)).scalar()


@contextmanager
def told(address: DatabaseAddress) -> Generator[None]:
    """What the database refuses within the block, as StoreError without secrets."""
    try:
        yield
    except SQLAlchemyError as error:
        cause: object = getattr(error, "orig", None)
        said = " ".join(str(cause or error).split())
        if "locked" in said and address.is_sqlite:
            said = f"another program has kept it locked for {_BUSY_S:.0f} s"
        raise StoreError(f"the store {address.shown} can't be used: {address.hide(said)[:300]}") from None
