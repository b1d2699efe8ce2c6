"""Changes of tasks on their way into the store: those that come while a transaction is under way make the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nbmastra.errors import StoreError
from nbmastra.runtime.background.task_store import Change, Claim, TaskStore

__all__ = ["TaskQueue"]

_MOST = 1000


class TaskQueue:
    """Writes changes together, in the order in which they came. On the engine's loop only."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks
        self._waiting: list[tuple[Change, asyncio.Future[Any]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def do(self, change: Change) -> Any:
        """Make a change, and give what it gives; made even if the caller is cancelled meanwhile. Raises StoreError."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await done

    async def idle(self) -> None:
        """Return when nothing is under way."""
        while self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            try:
                self._give(batch, await self._apply(batch))
            except StoreError as error:
                self._refuse(batch, error)
            except Exception:  # a value that can't be kept: the others have nothing to do with it
                for one in batch:
                    try:
                        self._give([one], await self._apply([one]))
                    except Exception as error:
                        self._refuse([one], error)

    async def _apply(self, batch: Sequence[tuple[Change, asyncio.Future[Any]]]) -> list[Any]:
        return await self._tasks.store.run(self._tasks.apply, [change for change, _ in batch])

    def _give(self, batch: Sequence[tuple[Change, asyncio.Future[Any]]], given: list[Any]) -> None:
        # Claims last, as they were made: who waits for a change of a task hears of it before it is claimed.
        for (_, done), value in sorted(zip(batch, given, strict=True), key=lambda one: isinstance(one[0][0], Claim)):
            if not done.done():
                done.set_result(value)

    def _refuse(self, batch: Sequence[tuple[Change, asyncio.Future[Any]]], error: Exception) -> None:
        for _, done in batch:
            if not done.done():
                done.set_exception(error)
