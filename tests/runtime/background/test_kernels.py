"""Tasks and several kernels: real processes that are killed, and a store that they share."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from nbmastra.errors import SettingsError
from nbmastra.runtime.background.executor import ProcessExecutor
from nbmastra.runtime.background.owner import make_owner, surely_alive, surely_dead
from nbmastra.runtime.store import Store
from nbmastra.testing import say
from nbmastra.tools import ToolContext, tool
from tests.runtime.background.conftest import Make
from tests.runtime.background.kernel import TOOLS, burn, count, review, surveyor

Kernel = Callable[[str, str, Path], subprocess.Popen[str]]


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """Starts a kernel, and waits until it has done what it was told."""
    begun: list[subprocess.Popen[str]] = []

    def start(url: str, what: str, folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.runtime.background.kernel", url, what, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_a_killed_kernels_tasks_are_taken_over_by_the_next(make: Make, kernel: Kernel, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    (tmp_path / "sub").mkdir()
    kill(kernel(url, "slow", tmp_path))
    manager = make(url)
    manager.register("a", TOOLS)
    again = manager.wait_for_next("again", 20).result(25)
    lost = manager.wait_for_next("lost", 20).result(25)
    assert (again.status, again.result, again.retry_count) == ("completed", "attempt-1", 1)
    assert lost.status == "failed"
    assert lost.error is not None
    assert lost.error["message"] == "the kernel that ran it ended before the task did"
    assert [one["ended_as"] for one in manager.tasks.attempts("again")] == ["left behind", "completed"]
    asked = manager.get("asked").result(10)
    assert asked is not None
    assert (asked.status, asked.suspend_payload) == ("suspended", {"q": "ok?"})
    manager.resume("asked", "yes").result(10)
    while (now := manager.get("asked").result(10)) is not None and not now.ended:
        pass
    assert now is not None
    assert now.result == "said yes"


def test_a_run_that_died_with_its_kernel_left_its_call_in_the_thread_and_the_result_comes_there(
    make: Make, kernel: Kernel, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    kill(kernel(url, "run", tmp_path))
    local = surveyor(url, [[say("So it is.")]])
    assert local.background is not None
    manager = local.background.manager
    [task] = manager.list().result(10)
    done = manager.wait_for_next(task.id, 30).result(35)
    assert (done.status, done.result) == (
        "completed",
        {"user_said": ["Survey it."], "request_context": {"tenant": "acme"}},
    )
    manager.shutdown().result(10)
    out = local.stream("And?", memory={"thread": "t1", "resource": "u1"}).result(10).wait(20)
    assert out.total.text == "So it is."
    asked = local.model.requests[0]  # type: ignore[attr-defined]
    given = [part["output"]["value"] for one in asked.messages if one["role"] == "tool" for part in one["content"]]
    assert given == [done.result]


def test_two_live_kernels_run_no_task_twice_and_each_hears_of_the_other(
    make: Make, kernel: Kernel, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    manager = make(url, lease_s=0.01)  # over at once: the other is known to live, so nothing is taken from it
    manager.register("a", TOOLS)
    out = manager.stream().result(10)
    kernel(url, "count", tmp_path)
    for n in range(20):
        assert manager.wait_for_next(f"n{n}", 20).result(25).result == n
    assert sorted(map(int, (tmp_path / "runs").read_text().split())) == list(range(20))
    assert all(len(manager.tasks.attempts(f"n{n}")) == 1 for n in range(20))
    while sum(task.status == "completed" for task in out.total.tasks) < 20:
        pass
    out.cancel()


def test_another_process_resumes_a_task_and_the_kernel_that_has_its_tool_runs_it(
    make: Make, kernel: Kernel, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    owner = make(url)
    owner.register("a", {"review": review})
    task = owner.enqueue("review", agent="a").result(10)
    assert owner.wait_for_next(task.id, 20).result(25).status == "suspended"
    from_elsewhere = (
        "import sys; from nbmastra.runtime.background.manager import BackgroundTaskManager as M;"
        "print(M(sys.argv[1]).resume(sys.argv[2], 'no').result(20).status)"
    )
    command = [sys.executable, "-c", from_elsewhere, url, task.id]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "pending\n"
    while (now := owner.get(task.id).result(10)) is not None and not now.ended:
        pass
    assert now is not None
    assert now.result == "said no"


def test_a_cancellation_from_another_manager_reaches_the_tool(make: Make, tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path}/tasks.db", threading.Event()

    def patient(context: ToolContext) -> None:
        """Wait for the signal."""
        context.writer.write("begun")
        if context.abort.wait_blocking(20):
            told.set()

    here, elsewhere = make(url), make(url)
    out = here.stream().result(10)
    task = here.enqueue(patient).result(10)
    for chunk in out.full_stream:
        if chunk.type == "background-task-output":
            assert elsewhere.cancel(task.id).result(10).status == "cancelled"
        if chunk.type == "background-task-cancelled":
            break
    assert told.wait(20)
    out.cancel()
    out.wait(10)


@pytest.mark.server
def test_tasks_are_kept_in_postgresql_as_well(make: Make, postgres_url: str) -> None:
    schema = f"tasks_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
    url = f"{postgres_url}?options=-csearch_path%3D{schema}"
    one, two = make(Store(url)), make(Store(url))
    for manager in (one, two):
        manager.register("a", TOOLS)
    ids = [one.enqueue("review", agent="a", thread="t\0\ud83d").result(20).id for _ in range(6)]
    for task_id in ids:
        assert two.wait_for_next(task_id, 20).result(25).status == "suspended"
        assert len(one.tasks.attempts(task_id)) == 1
    page = two.list(status="suspended", per_page=4).result(10)
    assert (len(page), page.total) == (4, 6)
    one.resume(ids[0], {"ok": 1}).result(10)
    while (now := two.get(ids[0]).result(10)) is not None and not now.ended:
        pass
    assert now is not None
    assert now.result == "said {'ok': 1}"
    assert two.cancel(ids[1]).result(10).status == "cancelled"
    for manager in (one, two):
        manager.shutdown().result(10)
        manager.store.close()


def test_a_kernel_knows_whether_another_of_this_machine_lives(kernel: Kernel, tmp_path: Path) -> None:
    owner = make_owner()
    assert (surely_alive(owner), surely_dead(owner)) == (True, False)
    machine, pid, began, name = owner.split(":")
    reused = f"{machine}:{pid}:{int(began) - 1}:{name}"
    assert (surely_alive(reused), surely_dead(reused)) == (False, True)
    elsewhere = f"other:{pid}:{began}:{name}"
    assert (surely_alive(elsewhere), surely_dead(elsewhere)) == (False, False)


def test_a_cpu_bound_tool_runs_in_a_process_that_ends_with_its_task(make: Make) -> None:
    manager = make(executor=ProcessExecutor(), global_concurrency=1)
    done = manager.wait_for_next(manager.enqueue(burn, {"seconds": 0}).result(10).id, 30).result(30)
    assert done.status == "completed", done.error
    kinds = [chunk["type"] for chunk in manager.tasks.chunks(done.id)]
    assert kinds == ["background-task-running", "background-task-output", "background-task-completed"]
    out = manager.stream().result(10)
    endless = manager.enqueue(burn, {"seconds": 1000}).result(10)
    for chunk in out.full_stream:
        if chunk.type == "background-task-output":
            manager.cancel(endless.id).result(10)
            break
    out.cancel()
    asked = manager.wait_for_next(manager.enqueue(review).result(10).id, 30).result(30)
    assert (asked.status, asked.suspend_payload) == ("suspended", {"q": "ok?"})
    slow = manager.wait_for_next(manager.enqueue(burn, {"seconds": 1000}, timeout_s=0.1).result(10).id, 30)
    assert slow.result(30).status == "timed_out"


def test_what_cant_be_sent_to_a_process_is_refused_when_it_is_queued(make: Make) -> None:
    manager, lock = make(executor=ProcessExecutor()), threading.Lock()

    @tool
    def holds_a_lock() -> None:
        """Has something that can't be pickled."""
        lock.acquire()

    with pytest.raises(SettingsError, match="can't be sent to another process"):
        manager.enqueue(holds_a_lock).result(10)
    assert count.name == "count"
