"""Where a run's chunks come from: a protocol, and the adapter for plain and async iterables."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import anyio.to_thread

from nbmastra.chunks import Chunk, parse_chunk

__all__ = ["Batch", "Ended", "IterableSource", "Source", "StreamEnded"]

Batch = tuple[float | None, list[Chunk]]
"""Chunks that came together, and when: seconds since the stream's start, None for now."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stream stopped, as its reader saw it; what that means is the fold's to decide (`RunState.close`).

    `at`: seconds since the stream's start, None for now.
    """

    done: bool = False
    cancelled: str = ""
    code: str = ""
    failure: str = ""
    at: float | None = None


class StreamEnded(Exception):
    """Raised by a source that knows how its stream ended: a recording of it."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.failure or ended.cancelled)
        self.ended = ended


class Source(Protocol):
    """A run's chunks, read once, on the engine's loop."""

    done: bool
    """True if the stream's own end mark came (`[DONE]`)."""

    def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. What it raises ends the run as truncated, with the error as the reason."""
        ...

    async def aclose(self) -> None:
        """Close what lies beneath, a socket for example; called once, also after an error or a cancellation."""
        ...


ChunkLike = Chunk | dict[str, Any] | bytes | str


class IterableSource:
    """Chunks (or their dicts, JSON texts) from any iterable; a plain one is read in a thread, since it may block."""

    def __init__(self, chunks: Iterable[ChunkLike] | AsyncIterable[ChunkLike]) -> None:
        self._chunks = chunks
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks, in batches for plain iterables."""
        count = 0
        if isinstance(self._chunks, AsyncIterable):
            async for item in self._chunks:
                yield None, [_chunk(item, count)]
                count += 1
        else:
            iterator = iter(self._chunks)
            while batch := await self._read(iterator, count):
                count += len(batch)
                yield None, batch

    async def _read(self, iterator: Iterator[ChunkLike], count: int) -> list[Chunk]:
        if isinstance(self._chunks, list | tuple):
            return _take(iterator, count)
        return await anyio.to_thread.run_sync(_take, iterator, count, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Close the iterator, if it can be closed."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


def _take(iterator: Iterator[ChunkLike], count: int) -> list[Chunk]:
    batch: list[Chunk] = []
    until = time.perf_counter() + 0.02
    for item in iterator:
        batch.append(_chunk(item, count + len(batch)))
        if len(batch) >= 500 or time.perf_counter() > until:
            break
    return batch


def _chunk(item: ChunkLike, event: int) -> Chunk:
    if isinstance(item, Chunk):
        if item.event < 0:
            item.event = event
        return item
    return parse_chunk(item, event=event)
