"""Readers of a run: each property gives a new one, which begins at the first chunk and disturbs nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

from nbmastra.engine import get_engine, interruptible
from nbmastra.fold import ObjectPart, RunState
from nbmastra.replay_log import ReplayLog

__all__ = ["Follower", "ItemReader", "Stream"]

T = TypeVar("T")


BATCH = 1000
"""Items that a reader takes at once: what is all there must not keep its loop from everything else."""


class Stream(Generic[T]):
    """`async for` on any asyncio loop, plain `for` in any thread; `aclose()` ends this reader only.

    Each loop begins at the first item, but after `anext(stream)`: then it goes on from there.
    The kernel's interrupt, while one waits here, cancels the run.
    """

    def __init__(self, log: ReplayLog[Any], new_reader: Callable[[], Follower[T]], cancel: Callable[[], None]) -> None:
        self._log = log
        self._new_reader = new_reader
        self._cancel = cancel
        self._running: AsyncIterator[T] | None = None
        self._closed = False

    async def _follow(self) -> AsyncIterator[T]:
        reader, log = self._new_reader(), self._log
        while True:
            closed = log.closed  # read before the items: what came before the end must not be missed
            seen = len(log.items)
            for item in reader.read():
                yield item
            if reader.behind:
                await asyncio.sleep(0)
            elif closed:
                return
            else:
                with interruptible(self._cancel) as interrupt:
                    await log.wait(seen)
                await interrupt.passed_on()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._follow() if self._running is None and not self._closed else self

    async def __anext__(self) -> T:
        if self._closed:
            raise StopAsyncIteration
        if self._running is None:
            self._running = self._follow()
        return await anext(self._running)

    async def aclose(self) -> None:
        """End this reader; the run and other readers go on."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[T]:
        get_engine().refuse_own_thread()
        reader, log = self._new_reader(), self._log
        while True:
            closed = log.closed
            seen = len(log.items)
            yield from reader.read()
            if reader.behind:
                continue
            if closed:
                return
            with interruptible(self._cancel, blocking=True):
                log.wait_blocking(seen)

    def __repr__(self) -> str:
        return "<stream: `async for` it, or `for` in plain code>"


class Follower(Generic[T]):
    """What a reader has yet to give; `read` returns what is new since the last call, at most a batch of it."""

    def read(self) -> list[T]:
        """New items; [] if there are none yet."""
        raise NotImplementedError

    @property
    def behind(self) -> bool:
        """True if there may be more to read already."""
        raise NotImplementedError


class ItemReader(Follower[T]):
    """Follows a list that only grows."""

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self.index = 0

    def read(self) -> list[T]:
        """New items; [] if there are none yet."""
        new = self._items[self.index : self.index + BATCH]
        self.index += len(new)
        return new

    @property
    def behind(self) -> bool:
        """True if there is more to read already."""
        return self.index < len(self._items)


class ObjectReader(Follower[Any]):
    """Folds the run again, so that a late reader sees the object grow as an early one did; repeats are left out."""

    def __init__(self, log: ReplayLog[Any], state: RunState) -> None:
        self._chunks = ItemReader(log.items)
        self._fold = RunState(expect_object=state.expect_object, array_object=state.array_object)
        self._last: Any = None
        self._part: ObjectPart | None = None

    def read(self) -> list[Any]:
        """The object's next states."""
        new: list[Any] = []
        for chunk in self._chunks.read():
            self._fold.apply(chunk, 0.0)
            part = self._fold.object
            if part is not None:
                self._look(part, new)
        return new

    @property
    def behind(self) -> bool:
        """True if there are chunks that weren't looked at."""
        return self._chunks.behind

    def _look(self, part: ObjectPart, new: list[Any]) -> None:
        if part is not self._part:
            self._part, self._last = part, None
        value = part.value
        if value is not None and value is not self._last and value != self._last:
            self._last = value
            new.append(value)


class ElementReader(ObjectReader):
    """The elements of an array, each once, when it is closed and fits its schema."""

    def __init__(self, log: ReplayLog[Any], state: RunState, accept: Callable[[Any], tuple[bool, Any]]) -> None:
        super().__init__(log, state)
        self._accept = accept
        self._given = 0

    def _look(self, part: ObjectPart, new: list[Any]) -> None:
        if part is not self._part:
            self._part, self._given = part, 0
        closed = part.closed_elements  # asked first: the value would be a copy for each chunk
        if closed <= self._given:
            return
        for element in part.value[self._given : closed]:
            fits, value = self._accept(element)
            if fits:
                new.append(value)
        self._given = closed
