"""A source that the test feeds, from its own thread, while the run reads it; and a look at what runs leave behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.engine import get_engine
from nbmastra.output import Batch, MastraModelOutput
from nbmastra.replay_log import ReplayLog
from tests.support.runs import Wire

__all__ = ["Feed", "engine_tasks"]


class Feed:
    """`push` chunks, then `end`; `closed` is set when the run has closed it, `closings` counts that."""

    def __init__(self, *chunks: Wire) -> None:
        self.done = False
        self.closed = threading.Event()
        self.closings = 0
        self._log: ReplayLog[Chunk] = ReplayLog()
        self._failure: Exception | None = None
        self._out: MastraModelOutput | None = None
        self.push(*chunks)

    def push(self, *chunks: Wire) -> None:
        """More chunks, as one batch."""
        first = len(self._log)
        self._log.extend([parse_chunk(item, event=event) for event, item in enumerate(chunks, first)])
        if self._out is not None:
            while len(self._out.log) < len(self._log):
                self._out.log.wait_blocking(len(self._out.log), 5)

    def end(self, failure: Exception | None = None, *, done: bool = False) -> None:
        """The stream ends: cleanly, with its end mark, or broken."""
        self.done, self._failure = done, failure
        self._log.close()

    def run(self, **about: Any) -> MastraModelOutput:
        """The run that reads it; from now on `push` returns when the run has taken in its chunks."""
        self._out = MastraModelOutput(**about).start(self)
        self.push()
        return self._out

    async def batches(self) -> AsyncIterator[Batch]:
        async for batch in self._log.batches():
            yield None, batch
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        self.closings += 1
        self.closed.set()


def engine_tasks(settle_s: float = 0.0) -> dict[str, str]:
    """What runs on the engine's loop, this question aside, and doesn't end by itself: names, and where each stands."""

    async def names() -> dict[str, str]:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me and "run_portal" not in repr(task)]
        if tasks and settle_s:
            await asyncio.wait(tasks, timeout=settle_s)
        return {task.get_name(): repr(task) for task in tasks if not task.done()}

    return get_engine().start(names).result(settle_s + 5)


@pytest.fixture
def nothing_stays_behind() -> Iterator[None]:
    """After each test: no task of a run, no reader's thread; what an earlier test left has failed that test."""
    before = engine_tasks()
    yield
    assert [where for name, where in engine_tasks(3.0).items() if name not in before] == []
