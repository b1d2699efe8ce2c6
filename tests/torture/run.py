"""Kill kernels at random points, let one end the schedule, and count what is lost, doubled, stuck, or untrue."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import LocalCluster

from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.task_store import TaskStore
from nbmastra.runtime.store import Store
from tests.torture.kernel import live
from tests.torture.schedule import kind_of, number

__all__ = ["Count", "local_cluster", "torture"]

_ENDS = {f"background-task-{end}" for end in ("completed", "failed", "cancelled")}
_BEGINS = {"background-task-running", "background-task-resumed"}
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.torture.kernel"])


@dataclass
class Count:
    """What was found."""

    tasks: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    untrue: int = 0
    retries: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """True if nothing is wrong."""
        return not (self.lost or self.doubled or self.stuck or self.untrue)

    def found(self, what: str, why: str) -> None:
        """Note one."""
        setattr(self, what, getattr(self, what) + 1)
        self.findings.append(f"{what}: {why}")


def torture(
    url: str, cluster: str | None, folder: Path, *, tasks: int, kills: int, seed: int, last_s: float = 300
) -> Count:
    """Rounds of `tasks` tasks, until there were `kills` kills; each round is ended by a kernel that isn't killed."""
    rng, count, began = random.Random(seed), Count(), time.monotonic()
    for number_of_round in range(1000):
        ids = [f"round{number_of_round}-{n}" for n in range(tasks)]
        here = folder / f"round{number_of_round}"
        here.mkdir(parents=True)
        (here / "known").touch()
        left = kills - count.kills
        if left > 0:
            count.kills += _kill(url, cluster, here, ids, left, rng)
        ended = _last(url, cluster, here, ids, last_s)
        _check(url, here, ids, ended, count)
        if count.kills >= kills:
            break
    count.seconds = time.monotonic() - began
    return count


def _kill(url: str, cluster: str | None, folder: Path, ids: list[str], most: int, rng: random.Random) -> int:
    """Kill one kernel after the other; gives how many, fewer if the schedule was at its end before."""
    for kills in range(most):
        itself = rng.random() < 0.6
        at, wait_s = rng.randint(5, 80), rng.uniform(0.0, 0.5)
        here, there = _FORKS.Pipe(duplex=False)
        process = _FORKS.Process(target=live, args=(url, cluster, folder, ids, at if itself else None, there))
        process.start()
        there.close()
        if not itself and here.poll(60):  # it may have ended itself before it was ready
            process.join(wait_s)
            process.kill()
        process.join(60)
        here.close()
        if process.exitcode == 0:
            return kills
        if process.exitcode != -9:
            raise RuntimeError(f"a kernel ended with {process.exitcode}")
    return most


def _last(url: str, cluster: str | None, folder: Path, ids: list[str], last_s: float) -> bool:
    here, there = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=live, args=(url, cluster, folder, ids, None, there))
    process.start()
    there.close()
    process.join(last_s)
    ended = process.exitcode == 0
    process.kill()
    process.join()
    here.close()
    return ended


def _check(url: str, folder: Path, ids: list[str], ended: bool, count: Count) -> None:
    with Store(url) as store:
        tasks = TaskStore(store, "checker")
        for task_id in ids:
            count.tasks += 1
            task = tasks.get(task_id)
            if task is None:
                count.found("lost", f"{task_id} is not in the store")
                continue
            _check_task(task, tasks.chunks(task_id), tasks.attempts(task_id), count)
        if not ended:
            count.findings.append("the last kernel didn't end by itself")
        kept = {task_id: tasks.chunks(task_id) for task_id in ids}
    for file in folder.glob("seen-*"):
        _check_seen(file, kept, count)


def _check_task(
    task: BackgroundTask, chunks: list[dict[str, Any]], attempts: list[dict[str, Any]], count: Count
) -> None:
    kind, kinds = kind_of(task.id), [chunk["type"] for chunk in chunks]
    count.retries += max(len(attempts) - 1, 0)
    if not task.ended:
        count.found("stuck", f"{task.id} is {task.status}: {kinds}")
        return
    right = {"completed": number(task.id)}.get(kind.end)
    if (task.status, task.result) != (kind.end, right):
        count.found("lost", f"{task.id} ended as {task.status} with {task.result}, {task.error}")
    ends = [attempt for attempt in attempts if attempt["ended_as"] in ("completed", "failed", "cancelled")]
    if sum(one in _ENDS for one in kinds) != 1 or kinds[-1] not in _ENDS or len(ends) > 1:
        count.found("doubled", f"{task.id}: {kinds} {[attempt['ended_as'] for attempt in attempts]}")
    if any(attempt["ended_at"] is None for attempt in attempts):
        count.found("stuck", f"an attempt at {task.id} has no end")
    _check_stream(task.id, chunks, count, "kept")


def _check_stream(task_id: str, chunks: list[dict[str, Any]], count: Count, where: str) -> None:
    """Each attempt's outputs are the first ones of the true stream: all of them if it completed."""
    whole, got = kind_of(task_id).outputs, []
    for chunk in chunks:
        if chunk["type"] in _BEGINS:
            got = []
        elif chunk["type"] == "background-task-output":
            got.append(chunk["payload"]["payload"]["payload"]["output"]["i"])
            if got != list(range(len(got))) or len(got) > whole:
                count.found("untrue", f"{where} of {task_id}: {got}")
                return
        elif chunk["type"] == "background-task-completed" and len(got) != whole:
            count.found("untrue", f"{where} of {task_id}: {got} in an attempt that completed")
            return


def _check_seen(file: Path, kept: dict[str, list[dict[str, Any]]], count: Count) -> None:
    """What a listener heard of its own kernel's tasks: true as far as it goes, and every end is kept."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for line in file.read_text().splitlines():
        task_id, chunk = json.loads(line)
        seen.setdefault(task_id, []).append(chunk)
    for task_id, chunks in seen.items():
        if task_id not in kept:
            continue
        begun = next((n for n, chunk in enumerate(chunks) if chunk["type"] in _BEGINS), len(chunks))
        _check_stream(task_id, chunks[begun:], count, file.name)
        for chunk in chunks:
            if chunk["type"] != "background-task-output" and chunk not in kept[task_id]:
                count.found("untrue", f"{file.name} heard {chunk['type']} of {task_id}, which isn't kept")


@contextmanager
def local_cluster(workers: int = 2, threads: int = 4) -> Iterator[str]:
    """A Dask cluster of processes of this machine; gives its address."""
    cluster: Any = LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        silence_logs=60,  # that clients are gone is no news
    )
    try:
        yield cluster.scheduler_address
    finally:
        with suppress(TimeoutError):  # a busy machine: the workers are killed then
            cluster.close()
