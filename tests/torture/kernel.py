"""A kernel that does the schedule until it is killed, by others or by itself at a statement to its database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import distributed  # for all who are forked from here
import psycopg
import sqlalchemy as sa

from nbmastra.chunks import Chunk
from nbmastra.errors import ControlError
from nbmastra.runtime.background.dask_executor import DaskExecutor
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.states import LIVE
from tests.torture.schedule import AGENT, TOOLS, kind_of, number

assert distributed
assert psycopg


class Kernel:
    """One life: queues what isn't known to be queued, resumes what waits, cancels what is endless."""

    def __init__(self, url: str, cluster: str | None, folder: Path, ids: list[str]) -> None:
        executor = DaskExecutor(cluster) if cluster else None
        self.folder, self.ids = folder, ids
        self.seen = os.open(folder / f"seen-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.known = os.open(folder / "known", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        options: dict[str, Any] = {"poll_s": 0.1, "lease_s": 5.0, "retries": {"delay_s": 0.01, "max_delay_s": 0.05}}
        self.manager = BackgroundTaskManager(
            url, executor=executor, global_concurrency=20, per_agent_concurrency=20, **options
        )
        self._acting: set[asyncio.Task[None]] = set()

    def live(self, ready: Connection) -> None:
        """Do the schedule until nothing is left."""
        manager = self.manager
        manager.engine.start(manager.listen, self._hear).result(60)
        manager.register(AGENT, TOOLS)
        ready.send("ready")
        known = set((self.folder / "known").read_text().split())
        new = [task_id for task_id in self.ids if task_id not in known]
        jobs = [(task_id, self._queue(task_id)) for task_id in new]
        for task_id, job in jobs:
            job.result(60)
            os.write(self.known, f"{task_id}\n".encode())  # from now on it must not be lost
        for task in manager.list(status="suspended").result(60):
            manager.engine.start(self._act, task.id, "resume").result(60)
        while live := manager.list(status=LIVE, per_page=1).result(60):
            manager.wait_for_next(live[0].id).result(120)
        manager.shutdown().result(60)
        if isinstance(manager.executor, DaskExecutor):
            manager.executor.close()

    def _queue(self, task_id: str) -> Any:
        kind = kind_of(task_id)
        args = {"n": number(task_id)} | ({"folder": str(self.folder)} if kind.tool.name == "flaky" else {})
        about: dict[str, Any] = {"task_id": task_id, "tool_call_id": task_id, "max_retries": kind.retries}
        return self.manager.enqueue(kind.tool.name, args, agent=AGENT, **about)

    def _hear(self, task: BackgroundTask, chunk: Chunk) -> None:
        """On the engine's loop: what a listener sees must be true, even if nothing of it is kept."""
        os.write(self.seen, json.dumps([task.id, chunk.to_wire()]).encode() + b"\n")
        last = chunk.type == "background-task-output" and chunk.raw_payload()["payload"]["payload"]["output"]["i"] == 2
        if chunk.type == "background-task-suspended":
            self._begin(task.id, "resume")
        elif last and kind_of(task.id).end == "cancelled":
            self._begin(task.id, "cancel")

    def _begin(self, task_id: str, what: str) -> None:
        acting = asyncio.create_task(self._act(task_id, what))
        self._acting.add(acting)
        acting.add_done_callback(self._acting.discard)

    async def _act(self, task_id: str, what: str) -> None:
        if what == "cancel":
            await self.manager.cancel(task_id)
            return
        try:
            await self.manager.resume(task_id, number(task_id))
        except ControlError:  # somebody else has
            return


def live(url: str, cluster: str | None, folder: Path, ids: list[str], kill_at: int | None, ready: Connection) -> None:
    """A process' main function; kill_at: the number of the statement, or commit, before which it kills itself."""
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(sa.Engine, name, step)
    Kernel(url, cluster, folder, ids).live(ready)
