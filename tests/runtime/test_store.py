"""The store: threads, messages, suspended runs; on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from nbmastra.engine import Engine, get_engine
from nbmastra.errors import AlreadyResumed, NotSuspended, SettingsError, StoreError
from nbmastra.runtime import database
from nbmastra.runtime.memory import Memory
from nbmastra.runtime.store import Store, shared_store

POSTGRES = pytest.param("postgres", marks=pytest.mark.server)
MakeUrl = Callable[[str], str]


@pytest.fixture
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """A function that gives the URL of an empty store of a kind."""

    def make(kind: str) -> str:
        if kind == "memory":
            return "sqlite://"
        if kind == "file":
            return f"sqlite:///{tmp_path / 'some' / 'memory.db'}"
        url = str(request.getfixturevalue("postgres_url"))
        schema = f"store_{uuid.uuid4().hex}"  # a database of its own would take a second
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        return f"{url}?options=-csearch_path%3D{schema}"

    return make


@pytest.fixture(params=["memory", "file", POSTGRES])
def store(request: pytest.FixtureRequest, make_url: MakeUrl) -> Iterator[Store]:
    with Store(make_url(request.param)) as store:
        yield store


def record(text: str, id: str | None = None, at: str = "2026-01-01T00:00:00.000Z") -> dict[str, Any]:
    content = {"format": 2, "parts": [{"type": "text", "text": text}], "content": text}
    return {"id": id or str(uuid.uuid4()), "role": "user", "createdAt": at, "content": content}


def write(store: Store, thread: str, *records: dict[str, Any], resource: str = "u") -> None:
    store.remember(thread, resource, lambda _: list(records))


def texts(store: Store, thread: str, **options: Any) -> list[str]:
    return [message["content"]["content"] for message in store.messages(thread, **options)]


def test_messages_are_read_in_the_order_in_which_they_were_written(store: Store) -> None:
    write(store, "t", record("one"), record("two", at="2020-01-01T00:00:00.000Z"))
    write(store, "other", record("elsewhere"))
    write(store, "t", record("three"))
    assert texts(store, "t") == ["one", "two", "three"]
    assert texts(store, "t", last=2) == ["two", "three"]
    assert texts(store, "t", last=0) == []
    assert texts(store, "no such thread") == []
    [first, *_] = store.messages("t")
    assert (first["threadId"], first["resourceId"]) == ("t", "u")


def test_a_message_of_a_known_id_replaces_it_in_its_place(store: Store) -> None:
    write(store, "t", record("begun", "a"), record("next", "b"))
    write(store, "t", record("begun and ended", "a", at="2027-07-07T00:00:00.000Z"))
    assert texts(store, "t") == ["begun and ended", "next"]
    assert store.messages("t")[0]["createdAt"] == "2026-01-01T00:00:00.000Z"
    write(store, "t2", record("the same id elsewhere", "a"))
    assert texts(store, "t") == ["begun and ended", "next"]


def test_a_thread_belongs_to_one_resource(store: Store) -> None:
    write(store, "t", record("mine"), resource="ada")
    refused = "thread 't' belongs to another resource than 'eve'"
    for attempt in (
        lambda: write(store, "t", record("not yours"), resource="eve"),
        lambda: store.messages("t", resource="eve"),
        lambda: store.delete_thread("t", resource="eve"),
        lambda: store.save_thread("t", "eve", title="mine now"),
    ):
        with pytest.raises(SettingsError, match=refused):
            attempt()
    assert texts(store, "t", resource="ada") == ["mine"]
    assert store.threads(resource="eve") == []


def test_threads_are_listed_newest_first_by_pages(store: Store) -> None:
    for number in range(5):
        store.save_thread(f"t{number}", "ada" if number % 2 else "eve", title=f"T{number}", metadata={"n": number})
    threads = store.threads()
    assert {thread["id"] for thread in threads} == {f"t{number}" for number in range(5)}
    assert [thread["updatedAt"] for thread in threads] == sorted((t["updatedAt"] for t in threads), reverse=True)
    assert {thread["title"] for thread in store.threads(resource="ada")} == {"T1", "T3"}
    pages = [thread["id"] for page in range(3) for thread in store.threads(page=page, per_page=2)]
    assert pages == [thread["id"] for thread in threads]
    found = store.thread("t3")
    assert found is not None
    assert (found["resourceId"], found["metadata"]) == ("ada", {"n": 3})
    store.save_thread("t3", "ada", title="new")
    assert (store.thread("t3") or {})["metadata"] == {"n": 3}
    assert store.thread("nope") is None


def test_a_deleted_thread_takes_its_messages_with_it(store: Store) -> None:
    write(store, "t", record("one"))
    write(store, "kept", record("two"))
    assert store.delete_thread("t") is True
    assert store.delete_thread("t") is False
    assert (texts(store, "t"), texts(store, "kept")) == ([], ["two"])
    write(store, "t", record("anew"), resource="somebody else")
    assert texts(store, "t") == ["anew"]


def test_what_cant_be_built_leaves_nothing_behind(store: Store) -> None:
    def fail(_: object) -> list[dict[str, Any]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.remember("t", "u", fail)
    with pytest.raises(SettingsError, match="must be JSON"):
        write(store, "t", record("fine"), record("bad") | {"content": {"parts": [object()]}})
    assert store.thread("t") is None
    write(store, "t", record("works"))
    assert texts(store, "t") == ["works"]


@pytest.mark.parametrize(
    "text", ["\0", "\ud83d", "é漢字🎉", "'); DROP TABLE nbmastra_threads; --", "\x1b[31m", "x" * 10**6]
)
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    write(store, "t", record(text))
    store.save_thread("t", "u", title=text, metadata={text: text})
    assert texts(store, "t") == [text]
    assert (store.thread("t") or {})["title"] == text


@pytest.mark.parametrize("bad", ["", "a\0b", "\ud83d", None, 7])
def test_an_id_that_names_nothing_is_refused(store: Store, bad: Any) -> None:
    for attempt in (
        lambda: write(store, bad, record("x")),
        lambda: write(store, "t", record("x"), resource=bad),
        lambda: store.messages(bad),
        lambda: store.delete_thread(bad),
        lambda: store.take_suspended(bad),
    ):
        with pytest.raises(SettingsError, match="is a text that names it"):
            attempt()


def test_a_suspended_run_is_taken_once(store: Store) -> None:
    state = {"step": 2, "calls": ["\0", "é"]}
    store.save_suspended("run-1", state, agent="ask", thread="t", resource="u")
    store.save_suspended("run-2", [], agent="other")
    [waiting] = store.suspended_runs(agent="ask")
    assert (waiting["runId"], waiting["threadId"], waiting["state"]) == ("run-1", "t", state)
    assert store.take_suspended("run-1") == state
    with pytest.raises(AlreadyResumed, match="run-1"):
        store.take_suspended("run-1")
    with pytest.raises(NotSuspended, match="run-3"):
        store.take_suspended("run-3")
    assert [run["runId"] for run in store.suspended_runs()] == ["run-2"]
    store.save_suspended("run-1", "again")
    assert store.take_suspended("run-1") == "again"


def test_threads_of_a_process_lose_no_message(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write(store, f"t{number % 2}", record(str(number))), range(80)))
    assert sorted(int(text) for thread in ("t0", "t1") for text in texts(store, thread)) == list(range(80))


WRITER = """
import sys
from nbmastra.runtime.store import Store
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        record = {"id": f"{name}-{number}", "role": "user", "createdAt": "", "content": {"format": 2, "parts": []}}
        store.remember("shared", "u", lambda _: [record])
    try:
        print("took", store.take_suspended("run"), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("kind", ["file", POSTGRES])
def test_kernels_that_share_a_store_lose_no_message_and_resume_a_run_once(make_url: MakeUrl, kind: str) -> None:
    url, names = make_url(kind), ["a", "b", "c"]
    command = [sys.executable, "-W", "error", "-c", WRITER, url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([*command, name, "20"], text=True, **pipes) for name in names]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    with Store(url) as store:
        store.save_suspended("run", "state")
        said = [process.communicate("go\n", timeout=60) for process in processes]
        assert [errors for _, errors in said] == ["", "", ""]
        assert sorted(output.strip() for output, _ in said) == ["AlreadyResumed", "AlreadyResumed", "took state"]
        ids = [message["id"] for message in store.messages("shared")]
    assert len(ids) == len(set(ids)) == 60
    for name in names:  # each kernel's own are in its order
        assert [id for id in ids if id.startswith(name)] == [f"{name}-{number}" for number in range(20)]


@pytest.mark.parametrize("kind", ["file", POSTGRES])
def test_a_store_outlives_the_process(make_url: MakeUrl, kind: str) -> None:
    url = make_url(kind)
    with Store(url) as store:
        write(store, "t", record("kept"))
        store.save_suspended("run", {"a": 1})
    with Store(url) as store:
        assert texts(store, "t") == ["kept"]
        assert store.take_suspended("run") == {"a": 1}


@pytest.mark.parametrize("kind", ["file", POSTGRES])
def test_a_newer_stores_tables_are_refused_and_an_older_ones_are_migrated(
    make_url: MakeUrl, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(kind)
    with Store(url) as store:
        write(store, "t", record("old"))

    def add_column(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE nbmastra_threads ADD COLUMN colour TEXT"))

    with monkeypatch.context() as newer:
        newer.setattr(database, "MIGRATIONS", [*database.MIGRATIONS, add_column])
        for _ in range(2):  # the second time there is nothing to do
            with Store(url) as store:
                assert texts(store, "t") == ["old"]
    with Store(url) as store, pytest.raises(StoreError, match=r"newer nbmastra .*version 3, this one knows 2"):
        store.threads()


def test_a_migration_that_fails_leaves_the_old_version(make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    url = make_url("file")
    with Store(url) as store:
        write(store, "t", record("old"))

    def break_off(connection: sa.Connection) -> None:
        connection.execute(sa.text("DROP TABLE nbmastra_messages"))
        raise ZeroDivisionError

    with monkeypatch.context() as newer:
        newer.setattr(database, "MIGRATIONS", [*database.MIGRATIONS, break_off])
        with Store(url) as store, pytest.raises(ZeroDivisionError):
            store.threads()
    with Store(url) as store:
        assert texts(store, "t") == ["old"]


def test_sqlite_writes_ahead_so_that_readers_dont_wait_for_writers(make_url: MakeUrl) -> None:
    url = make_url("file")
    with Store(url) as store:
        write(store, "t", record("before"))
    with Store(url) as other, closing(sqlite3.connect(other.address.url.database or "")) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        raw.execute("BEGIN IMMEDIATE")
        assert texts(other, "t") == ["before"]


def test_a_file_that_stays_locked_is_said_so(make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_S", 0.05)
    with Store(make_url("file")) as store:
        write(store, "t", record("one"))
        with closing(sqlite3.connect(store.address.url.database or "")) as raw:
            raw.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another program has kept it locked"):
                write(store, "t", record("two"))
        write(store, "t", record("three"))
        assert texts(store, "t") == ["one", "three"]


async def test_the_loop_goes_on_while_the_store_waits(make_url: MakeUrl) -> None:
    memory = Memory(make_url("file"))
    await memory.remember("t", "u", [{"role": "user", "content": "one"}])
    with closing(sqlite3.connect(memory.store.address.url.database or "", check_same_thread=False)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        job = memory.create_thread("waits", resource="u")
        # The engine's own loop answers although a write is stuck there.
        assert await memory.store.engine.start(_nothing) is None
        assert not job.done
        raw.rollback()
        assert (await job)["title"] == "waits"
    memory.store.close()


async def _nothing() -> None:
    return None


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database at all, but long enough to look at" * 20)
    with Store(path) as store, pytest.raises(StoreError, match="file is not a database"):
        store.threads()
    assert path.read_text().startswith("no database")
    with Store(tmp_path / "notes.txt" / "x.db") as store, pytest.raises(StoreError, match="directory can't be made"):
        store.threads()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:letmein@127.0.0.1:1/x?sslpassword=letmein2&connect_timeout=1",
        "postgres://ada:letmein@127.0.0.1:1/x",
        "postgresql+psycopg2://ada:letmein@127.0.0.1:1/x",
    ],
)
def test_no_secret_of_a_url_is_shown(url: str) -> None:
    store = Store(url)
    shown = [repr(store), repr(store.address), repr(Memory(store)), str(store.address)]
    with pytest.raises(StoreError) as caught:
        store.threads()
    error: BaseException | None = caught.value
    while error is not None:
        shown.append(str(error))
        error = error.__cause__
    assert not [text for text in shown if "letmein" in text]
    assert repr(store) == "<Store postgresql://127.0.0.1:1/x>"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:letmein@host/db",
        "sqlite://letmein@host/x.db",
        "post gres://:letmein",
        "sqlite:///x.db?key=letmein",
        "://letmein",
    ],
)
def test_an_address_that_is_no_store_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Store(url)
    assert "letmein" not in str(caught.value)
    assert "sqlite" in str(caught.value)


def test_where_nothing_is_said_the_users_own_file_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv(database.STORE_VARIABLE, raising=False)
    with Store() as store:
        write(store, "t", record("private"))
    path = tmp_path / "nbmastra" / "memory.db"
    assert path.is_file()
    assert path.parent.stat().st_mode & 0o077 == 0
    monkeypatch.setenv(database.STORE_VARIABLE, str(tmp_path / "mine.db"))
    assert repr(Store()) == f"<Store {tmp_path / 'mine.db'}>"
    monkeypatch.setenv(database.STORE_VARIABLE, "sqlite://")
    assert Store().address.in_memory
    monkeypatch.chdir(tmp_path)
    assert Store("sqlite:///here.db").address.shown == str(tmp_path / "here.db")


def test_agents_of_a_process_share_a_store_but_not_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert shared_store(path) is shared_store(f"sqlite:///{path}")
    assert shared_store("sqlite://") is not shared_store("sqlite://")


@pytest.mark.parametrize("kind", ["file", POSTGRES])
def test_a_store_is_closed_when_the_engine_ends_and_opens_again(make_url: MakeUrl, kind: str) -> None:
    engine = Engine("nbmastra-test-engine")
    memory = Memory(Store(make_url(kind), engine=engine))
    memory.create_thread("one", resource="u").result(10)
    assert memory.store.is_open
    engine.close()
    assert not memory.store.is_open
    memory.create_thread("two", resource="u").result(10)
    assert {thread["title"] for thread in memory.threads().result(10)} == {"one", "two"}
    engine.close()
    assert not memory.store.is_open


def test_a_store_that_nobody_holds_closes_its_file(make_url: MakeUrl, tmp_path: Path) -> None:
    store = Store(make_url("file"))
    write(store, "t", record("x"))
    opened = [
        os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and _is(link, tmp_path)
    ]
    assert opened
    del store
    gc.collect()
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and _is(link, tmp_path)]


def _is(link: Path, directory: Path) -> bool:
    try:
        return os.readlink(link).startswith(str(directory))
    except FileNotFoundError:  # closed meanwhile
        return False


def test_a_forked_child_opens_the_store_anew(make_url: MakeUrl) -> None:
    with Store(make_url("file")) as store:
        write(store, "t", record("parent"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process that has threads
            child = os.fork()
        if child == 0:
            try:
                write(store, "t", record("child"))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        write(store, "t", record("parent again"))
        assert texts(store, "t") == ["parent", "child", "parent again"]


def test_an_interrupted_wait_leaves_the_store_usable(make_url: MakeUrl) -> None:
    memory = Memory(make_url("file"))
    job = memory.create_thread("x", resource="u")
    job.cancel()
    written = threading.Event()
    memory.create_thread("y", resource="u").on_done(written.set)
    assert written.wait(10)
    assert "y" in {thread["title"] for thread in memory.threads().result(10)}
    memory.store.close()


@pytest.mark.server
def test_a_connection_that_is_in_use_while_the_store_is_closed_is_closed_afterwards(make_url: MakeUrl) -> None:
    store = Store(make_url("postgres"))
    with store.transaction(write=False) as connection:
        driver: Any = connection.connection.driver_connection
        store.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        driver.execute("SELECT 1")


def test_who_cancels_a_call_goes_on_when_the_call_has_ended() -> None:
    engine, begun, go_on, ended = get_engine(), threading.Event(), threading.Event(), threading.Event()

    def method() -> None:
        begun.set()
        go_on.wait(10)
        ended.set()

    async def cancel_it() -> bool:
        call = asyncio.ensure_future(store.run(method))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            call.cancel()
            await asyncio.wait({call}, timeout=0.01)
            assert not call.done()
        go_on.set()
        await asyncio.wait({call})
        return call.cancelled() and ended.is_set()

    with Store("sqlite://") as store:
        assert engine.start(cancel_it).result(10)
