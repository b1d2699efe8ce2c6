"""What happens to tasks, as the source of an output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from nbmastra.chunks import Chunk
from nbmastra.output import Batch
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.settings import TaskFilter

if TYPE_CHECKING:
    from nbmastra.runtime.background.runner import TaskRunner

__all__ = ["TaskSource"]


class TaskSource:
    """The tasks that live now, then all that happens to those of a filter; without an end."""

    def __init__(self, manager: TaskRunner, wanted: TaskFilter) -> None:
        self.done = False
        self._manager = manager
        self._wanted = wanted
        self._chunks: list[Chunk] = []
        self._news = asyncio.Event()

    async def batches(self) -> AsyncIterator[Batch]:
        """Chunks as they come."""
        forget = await self._manager.listen(self._take)
        try:
            live = await self._manager.live_chunks(self._wanted)
            if live:
                yield None, live
            while True:
                await self._news.wait()
                self._news.clear()
                chunks, self._chunks = self._chunks, []
                yield None, chunks
        finally:
            forget()

    def _take(self, task: BackgroundTask, chunk: Chunk) -> None:
        if self._wanted.fits(task):
            self._chunks.append(chunk)
            self._news.set()

    async def aclose(self) -> None:
        """Nothing is left to close."""
