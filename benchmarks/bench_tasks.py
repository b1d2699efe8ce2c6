"""Background tasks against their executor alone, in the same minutes: what the store, the slots and the events cost.

    python benchmarks/bench_tasks.py [TASKS]

10,000 no-op tasks in a SQLite file, from the first `enqueue` to the last end, 100 at a time: at most 3 times what the
executor takes for the same calls, 100 at a time, and memory flat: what remains for a task once it has ended. Then a
page of 1,000 suspended tasks, and 100 listeners of one manager. CPU time is compared beside time, since others may use
this machine too.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from nbmastra.engine import get_engine
from nbmastra.runtime.background.executor import LocalExecutor
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.tools import Tool, ToolContext, as_tool

AT_ONCE = 100


def in_a_thread(n: int) -> int:
    """Do nothing."""
    return n


async def on_the_loop(n: int) -> int:
    """Do nothing."""
    return n


def ask(n: int, context: ToolContext) -> None:
    """Wait for data."""
    context.suspend({"n": n})


class Clock:
    """Seconds, of the clock and of the processor."""

    def __enter__(self) -> Clock:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def alone(tool: Tool, tasks: int) -> Clock:
    """The calls, by the executor."""
    executor = LocalExecutor()

    async def run() -> None:
        numbers = iter(range(tasks))

        async def slot() -> None:
            for n in numbers:
                await executor.run(tool, {"n": n}, ToolContext(tool_name=tool.name))

        await asyncio.gather(*(slot() for _ in range(AT_ONCE)))

    with Clock() as clock:
        get_engine().start(run).result()
    return clock


def as_tasks(tool: Tool, tasks: int, folder: Path) -> tuple[Clock, float]:
    """The calls, as tasks; and KB of memory that remain for each."""
    ended = threading.Semaphore(0)
    manager = new_manager(folder / f"{tool.name}.db", on_complete=lambda _: ended.release())
    process = psutil.Process()

    def some(count: int) -> None:
        for n in range(count):
            manager.enqueue(tool, {"n": n})
        for _ in range(count):
            ended.acquire()

    some(tasks // 10)
    gc.collect()
    before = process.memory_info().rss
    with Clock() as clock:
        some(tasks)
    gc.collect()
    kept = (process.memory_info().rss - before) / 1024 / tasks
    assert manager.list(status="completed", per_page=1).result().total == tasks + tasks // 10
    manager.shutdown().result()
    return clock, kept


def new_manager(path: Path, on_complete: Callable[[BackgroundTask], Any] | None = None) -> BackgroundTaskManager:
    """A manager with a file of its own."""
    options: dict[str, Any] = {"global_concurrency": AT_ONCE, "per_agent_concurrency": AT_ONCE}
    return BackgroundTaskManager(path, on_complete=on_complete, **options)


def suspended(folder: Path, tasks: int) -> None:
    """A page of suspended tasks."""
    manager = new_manager(folder / "suspended.db")
    jobs = [manager.enqueue(ask, {"n": n}) for n in range(tasks)]
    for job in jobs:
        manager.wait_for_next(job.result().id).result()
    with Clock() as clock:
        page = manager.list(status="suspended", per_page=tasks).result()
    print(f"a page of {len(page):,} suspended tasks: {1000 * clock.seconds:,.0f} ms")
    manager.shutdown().result()


def listeners(folder: Path, count: int, tasks: int) -> None:
    """Listeners of one manager, each of which gets every chunk."""
    clocks: dict[int, Clock] = {}
    for number in (1, count):
        manager = new_manager(folder / f"listeners-{number}.db")
        outs = [manager.stream().result() for _ in range(number)]

        async def read(out: Any) -> int:
            seen = 0
            async for chunk in out.full_stream:
                seen += chunk.type == "background-task-completed"
                if seen == tasks:
                    break
            return seen

        with Clock() as clock:
            readers = [get_engine().start(read, out) for out in outs]
            for n in range(tasks):
                manager.enqueue(on_the_loop, {"n": n})
            assert {reader.result() for reader in readers} == {tasks}
        clocks[number] = clock
        for out in outs:
            out.cancel()
        manager.shutdown().result()
    chunks = 2 * tasks * (count - 1)
    more = (clocks[count].cpu - clocks[1].cpu) / chunks
    took = f"{clocks[count].seconds:.1f} s, {1e6 * more:.0f} µs CPU a chunk and listener"
    print(f"{count} listeners of {tasks} tasks: {took}")


def main(tasks: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for tool in (as_tool(in_a_thread), as_tool(on_the_loop)):
            alone(tool, tasks // 10)
            before, (mine, kept), after = alone(tool, tasks), as_tasks(tool, tasks, folder), alone(tool, tasks)
            seconds, cpu = (before.seconds + after.seconds) / 2, (before.cpu + after.cpu) / 2
            print(
                f"{tool.name:<12}{tasks:>8,} tasks: {1e6 * mine.seconds / tasks:,.0f} µs a task (CPU "
                f"{1e6 * mine.cpu / tasks:,.0f}), executor alone {1e6 * seconds / tasks:,.0f} (CPU "
                f"{1e6 * cpu / tasks:,.0f}): {mine.seconds / seconds:.1f}x, {mine.cpu / cpu:.1f}x by CPU time, "
                f"{kept:.2f} KB a task"
            )
        suspended(folder, 1000)
        listeners(folder, 100, 200)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
