"""The same tasks here, in processes, and on a cluster give the same chunks; what only a cluster can lose."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from nbmastra.errors import SettingsError
from nbmastra.runtime.background.dask_executor import ADDRESS_VARIABLE, DaskExecutor
from nbmastra.runtime.background.executor import LocalExecutor, ProcessExecutor
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.tools import ToolContext
from tests.runtime.background.conftest import Make
from tests.runtime.background.sent_tools import TOOLS

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]  # two processes that import everything, on a busy machine


@pytest.fixture(scope="module")
def client(cluster: str) -> Iterator[Any]:
    with Client(cluster, set_as_default=False) as client:
        yield client


def end_of(manager: BackgroundTaskManager, task_id: str) -> BackgroundTask:
    return manager.wait_for_next(task_id, 100).result(110)


def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        pass


def scenario(manager: BackgroundTaskManager) -> dict[str, list[dict[str, Any]]]:
    """What tasks tell, without the times and the numbers of objects that no two runs share."""
    manager.register("a", TOOLS)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("chatty", {"name": "x"}),
        ("broken", {}),
        ("review", {}),
        ("gives_itself_up", {}),
        ("chatty", {"nam": 1}),
    ]
    for number, (name, args) in enumerate(calls):
        about: dict[str, Any] = {"max_retries": 1} if name == "broken" else {}
        manager.enqueue(name, args, agent="a", run_id="r", task_id=f"t{number}", **about).result(20)
    assert end_of(manager, "t2").status == "suspended"
    manager.resume("t2", "yes").result(20)
    until(lambda: all(one.ended for one in manager.list().result(20)))
    return {f"t{n}": [_without_times(chunk) for chunk in manager.tasks.chunks(f"t{n}")] for n in range(len(calls))}


def _without_times(chunk: dict[str, Any]) -> dict[str, Any]:
    return chunk | {"payload": {key: value for key, value in chunk["payload"].items() if not key.endswith("At")}}


def test_the_same_tasks_give_identical_chunks_in_whatever_executor(make: Make, client: Any) -> None:
    here, process, cluster = (
        scenario(make(executor=executor, retries={"delay_s": 0.01}))
        for executor in (LocalExecutor(), ProcessExecutor(), DaskExecutor(client))
    )
    kinds = {key: [chunk["type"].removeprefix("background-task-") for chunk in value] for key, value in here.items()}
    assert kinds == {
        "t0": ["running", *["output"] * 4, "completed"],
        "t1": ["running", "output", "running", "output", "failed"],
        "t2": ["running", "suspended", "resumed", "output", "completed"],
        "t3": ["running", "failed"],
        "t4": ["running", "failed"],
    }
    assert process == here
    assert cluster == here


def test_a_task_whose_worker_is_killed_is_tried_again_or_fails_and_is_never_run_twice_by_the_cluster(
    make: Make, client: Any, tmp_path: Path
) -> None:
    manager = make(executor=DaskExecutor(client), retries={"delay_s": 0.01})
    manager.register("a", TOOLS)
    for retries, status, kinds, runs in (
        (1, "completed", ["running", "output", "running", "output", "completed"], 2),
        (0, "failed", ["running", "output", "failed"], 1),
    ):
        folder, task_id = tmp_path / str(retries), f"lost-{retries}"
        folder.mkdir()
        out = manager.stream(task_id=task_id).result(20)
        manager.enqueue("stays", {"folder": str(folder)}, agent="a", task_id=task_id, max_retries=retries).result(20)
        for chunk in out.full_stream:
            if chunk.type == "background-task-output":
                os.kill(chunk.raw_payload()["payload"]["payload"]["output"]["pid"], signal.SIGKILL)
                break
        done = end_of(manager, task_id)
        out.cancel()
        assert (done.status, done.retry_count) == (status, retries)
        assert len(list(folder.glob("begun-*"))) == runs
        told = [chunk["type"].removeprefix("background-task-") for chunk in manager.tasks.chunks(task_id)]
        assert told == kinds
        if status == "failed":
            assert done.error is not None
            assert done.error["message"] == "the cluster's worker that ran the task was lost"


def test_cancellation_and_time_outs_reach_a_tool_on_the_cluster(make: Make, client: Any, tmp_path: Path) -> None:
    manager = make(executor=DaskExecutor(client))
    manager.register("a", TOOLS)
    for how in ("cancelled", "timed_out"):
        folder = tmp_path / how
        folder.mkdir()
        out = manager.stream(task_id=how).result(20)
        about: dict[str, Any] = {"timeout_s": 3.0} if how == "timed_out" else {}
        manager.enqueue("stays", {"folder": str(folder)}, agent="a", task_id=how, **about).result(20)
        if how == "cancelled":
            assert next(chunk for chunk in out.full_stream if chunk.type == "background-task-output")
            manager.cancel(how).result(20)
        done = end_of(manager, how)
        assert done.status == how
        if (folder / "begun-0").exists():  # on a machine that is slow enough, its time was over before
            until((folder / "told").exists)
        out.cancel()


def test_what_cant_be_sent_or_reached_is_refused_with_a_clear_error(
    make: Make, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, lock = make(executor=DaskExecutor(client)), threading.Lock()

    def holds_a_lock() -> None:
        """Has something that can't be pickled."""
        lock.acquire()

    with pytest.raises(SettingsError, match="can't be sent to another process"):
        manager.enqueue(holds_a_lock).result(20)
    assert manager.list().result(20).total == 0
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    with pytest.raises(SettingsError, match=ADDRESS_VARIABLE):
        DaskExecutor()
    address = client.scheduler.address
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    own = DaskExecutor()
    assert address not in repr(own)
    elsewhere = make(executor=own)

    def sent_by_value(n: int, context: ToolContext) -> int:
        """A function of no module that a worker knows."""
        context.writer.write(os.getpid())
        return n + 1

    task = elsewhere.enqueue(sent_by_value, {"n": 1}).result(20)
    done = end_of(elsewhere, task.id)
    assert (done.status, done.result) == ("completed", 2), done.error
    assert elsewhere.tasks.chunks(task.id)[1]["payload"]["payload"]["payload"]["output"] != os.getpid()
    own.close()

    async def wrong() -> None:
        async with Client(address, asynchronous=True, set_as_default=False) as other:
            DaskExecutor(other)

    with pytest.raises(SettingsError, match="asynchronous"):
        asyncio.run(wrong())
