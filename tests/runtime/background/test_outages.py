"""Stores that can't be used for a while, and clocks that differ: runs go on afterwards, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from nbmastra.errors import StoreError
from nbmastra.runtime.background import task_store
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.task_changes import Add, TakeOver
from nbmastra.runtime.background.task_store import Claim, TaskStore
from nbmastra.runtime.store import Store
from nbmastra.tools import ToolContext
from tests.runtime.background.conftest import Make
from tests.support.postgres import new_schema, postgres_server

GATE = threading.Event()


async def work(n: int, context: ToolContext) -> dict[str, Any]:
    """Write, wait to be let go, write, and give something large."""
    context.writer.write({"n": 0})
    await asyncio.to_thread(GATE.wait, 120)
    context.writer.write({"n": 1})
    return {"n": n, "large": "x" * 100_000}


def quick(n: int, context: ToolContext) -> int:
    """Write three times."""
    for i in range(3):
        context.writer.write({"n": i})
    return n


def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        pass


def outputs(manager: BackgroundTaskManager, task_id: str) -> list[int]:
    chunks = [chunk for chunk in manager.tasks.chunks(task_id) if chunk["type"] == "background-task-output"]
    return [chunk["payload"]["payload"]["payload"]["output"]["n"] for chunk in chunks]


@contextmanager
def full_disk(store: Store) -> Iterator[Any]:
    """The store's database can't grow within the inner block."""
    most = 2**30

    def limit(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count={most}").close()

    pool = store._opened().pool
    sa.event.listen(pool, "checkout", limit)

    @contextmanager
    def outage() -> Iterator[None]:
        nonlocal most
        most = 1  # it is as large as it is already
        yield
        most = 2**30

    yield outage
    sa.event.remove(pool, "checkout", limit)


@contextmanager
def stopped_server(folder: Path) -> Iterator[tuple[str, Any]]:
    """A server of the test's own, which doesn't run within the inner block."""
    with postgres_server(folder / "postgres.log") as server:

        @contextmanager
        def outage() -> Iterator[None]:
            server.stop()
            yield
            server.start()

        yield server.url, outage


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["disk full", pytest.param("server restarted", marks=pytest.mark.server)])
def test_what_ends_while_the_store_cant_be_used_is_kept_when_it_can_and_the_reason_is_told(
    kind: str, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    GATE.clear()
    if kind == "disk full":
        manager = make(f"sqlite:///{tmp_path}/tasks.db")
        with full_disk(manager.store) as outage:
            _through_an_outage(manager, outage, caplog)
            manager.shutdown().result(60)
        manager.store.close()
        return
    with stopped_server(tmp_path) as (url, outage):
        manager = make(Store(url))
        _through_an_outage(manager, outage, caplog)
        manager.shutdown().result(60)
        manager.store.close()


def _through_an_outage(manager: BackgroundTaskManager, outage: Any, caplog: pytest.LogCaptureFixture) -> None:
    ids = [manager.enqueue(work, {"n": n}, task_id=f"t{n}").result(60).id for n in range(5)]
    until(lambda: all(outputs(manager, task_id) == [0] for task_id in ids))
    with caplog.at_level(logging.WARNING, "nbmastra"), outage():
        GATE.set()
        until(lambda: "what has ended meanwhile is kept here" in caplog.text)
        assert "can't be used" in caplog.text
        with pytest.raises(StoreError, match="can't be used"):
            manager.enqueue(work, {"n": 9}, task_id="x" * 100_000).result(60)
    for n, task_id in enumerate(ids):
        done = manager.wait_for_next(task_id, 100).result(110)
        assert (done.status, done.result["n"]) == ("completed", n)
        assert outputs(manager, task_id) == [0, 1]
        assert [attempt["ended_as"] for attempt in manager.tasks.attempts(task_id)] == ["completed"]


@pytest.mark.server
@pytest.mark.timeout(300)
def test_connections_that_are_cut_again_and_again_lose_and_double_nothing(make: Make, postgres_url: str) -> None:
    url = new_schema(postgres_url)
    manager = make(Store(url), retries={"delay_s": 0.01})
    ended: set[str] = set()
    over = threading.Event()

    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            while not over.wait(0.1):
                connection.execute(f"{others} AND pid <> pg_backend_pid()".encode())

    cutter = threading.Thread(target=cut)
    cutter.start()
    for n in range(25):
        while f"t{n}" not in ended:  # whoever queues a task is told at once, and may do it again
            try:
                manager.enqueue(quick, {"n": n}, task_id=f"t{n}").result(60)
                ended.add(f"t{n}")
            except StoreError:
                continue
    over.set()
    cutter.join()
    for n in range(25):
        done = manager.wait_for_next(f"t{n}", 100).result(110)
        assert (done.status, done.result) == ("completed", n)
        assert outputs(manager, f"t{n}") == [0, 1, 2]
        ends = [attempt["ended_as"] for attempt in manager.tasks.attempts(f"t{n}")]
        assert ends.count("completed") == 1
        assert set(ends) <= {"completed", "left behind"}


def test_leases_go_by_the_databases_clock_and_one_that_is_over_is_taken_over_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(url) as store:
        elsewhere, here, third = (TaskStore(store, f"machine{n}:1:1:x") for n in range(3))
        known = {("a", "t")}
        for n in range(2):
            elsewhere.apply([Add(BackgroundTask(f"t{n}", "pending", "t", agent_id="a", max_retries=1))])
        [[(living, _)]] = elsewhere.apply([Claim(known, 1, {}, 1, 30.0)])
        assert here.left_behind() == []
        if not store.address.is_sqlite:  # whose clock is this machine's
            ahead = SimpleNamespace(time=lambda: time.time() + 3600)
            with monkeypatch.context() as other_clock:
                other_clock.setattr(task_store, "time", ahead)
                assert here.left_behind() == []
        [[(silent, _)]] = elsewhere.apply([Claim(known, 1, {}, 1, -1.0)])
        [seen], [seen_too] = here.left_behind(), third.left_behind()
        assert (seen.id, seen_too.id) == (silent.id, silent.id)
        taken, too_late = here.apply([TakeOver(seen)]), third.apply([TakeOver(seen_too)])
        assert (taken[0][0].status, too_late) == ("pending", [None])
        assert {task.id for task in elsewhere.renew(30.0)} == {living.id}


def test_readers_dont_block_a_run_nor_a_run_readers(make: Make, tmp_path: Path) -> None:
    manager = make(f"sqlite:///{tmp_path}/tasks.db")
    manager.wait_for_next(manager.enqueue(quick, {"n": 0}).result(60).id, 60).result(60)
    with manager.store.transaction(write=False) as reading:
        assert reading.execute(sa.text("SELECT count(*) FROM nbmastra_tasks")).scalar() == 1
        done = manager.wait_for_next(manager.enqueue(quick, {"n": 1}).result(60).id, 60).result(60)
        assert done.status == "completed"
        assert reading.execute(sa.text("SELECT count(*) FROM nbmastra_tasks")).scalar() == 1
    with manager.store.transaction(write=True):
        assert manager.list().result(60).total == 2
