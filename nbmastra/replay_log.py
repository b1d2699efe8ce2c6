"""`ReplayLog`: an append-only list that any number of readers follow, late or early, on any loop or thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["ReplayLog"]

T = TypeVar("T")


class ReplayLog(Generic[T]):
    """Items in the order they came. A reader holds an index; one that has read all leaves a waker and is called once.

    So the writer pays per wait and not per item, a slow or gone reader costs it nothing, closing one disturbs nobody.
    Appending and closing are the writer's alone; reading works from anywhere.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self.closed = False
        self._wakers: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def extend(self, items: Iterable[T]) -> None:
        """Append items and wake who waits."""
        self.items.extend(items)
        if self._wakers:
            self.wake()

    def close(self) -> None:
        """No more items will come: readers end when they have read all."""
        self.closed = True
        self.wake()

    def wake(self) -> None:
        """Call every waker once."""
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def park(self, waker: Callable[[], None], seen: int) -> bool:
        """Have `waker` called at the next news; False if there is news after `seen` items already."""
        with self._lock:
            self._wakers.append(waker)
        # Looked at after registering, so that nothing can come between unnoticed.
        return len(self.items) == seen and not self.closed

    def unpark(self, waker: Callable[[], None]) -> None:
        """Forget a waker whose reader has gone."""
        with self._lock:
            if waker in self._wakers:
                self._wakers.remove(waker)

    async def wait(self, seen: int) -> None:
        """Return when there are more than `seen` items, or the log is closed; gives the loop a turn in any case."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        def waker() -> None:
            with suppress(RuntimeError):  # the reader's loop is closed: nobody to wake
                loop.call_soon_threadsafe(settle)

        try:
            if self.park(waker, seen):
                await future
            else:
                await asyncio.sleep(0)
        finally:
            self.unpark(waker)

    def wait_blocking(self, seen: int, timeout: float | None = None) -> bool:
        """Block until there are more than `seen` items, or the log is closed; False after `timeout` seconds."""
        event = threading.Event()
        try:
            return event.wait(timeout) if self.park(event.set, seen) else True
        finally:
            self.unpark(event.set)

    async def batches(self, start: int = 0) -> AsyncIterator[list[T]]:
        """What is new since the last look, as lists: for readers that take many items at once."""
        index = start
        while True:
            closed = self.closed  # before the length: what is appended before close() must not be missed
            count = len(self.items)
            if index < count:
                yield self.items[index:count]
                index = count
                await asyncio.sleep(0)  # ready items must not starve the reader's loop
            elif closed:
                return
            else:
                await self.wait(index)

    async def __aiter__(self) -> AsyncIterator[T]:
        async for batch in self.batches():
            for item in batch:
                yield item

    def __iter__(self) -> Iterator[T]:
        index = 0
        while True:
            closed = self.closed
            count = len(self.items)
            if index < count:
                yield from self.items[index:count]
                index = count
            elif closed:
                return
            else:
                self.wait_blocking(index)

    def __len__(self) -> int:
        return len(self.items)
