"""Where a run's chunks come from: a protocol, and the adapter for plain and async iterables."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import ChunkError
from nbmastra.replay_log import ReplayLog

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
    """A run's chunks, read once, on the engine's loop.

    One that makes its run itself may have a method `parting()`: the last chunks of a run that is stopped.
    """

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
    """Chunks (or their dicts, JSON texts) from any iterable; a plain one is read in a thread, since it may block.

    What is no chunk becomes a `decode-error` chunk, as on the wire.
    """

    def __init__(self, chunks: Iterable[ChunkLike] | AsyncIterable[ChunkLike]) -> None:
        self._chunks = chunks
        self._iterator: AsyncIterator[ChunkLike] | None = None
        self._closed = False
        self._error: Exception | None = None
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks: in batches from a plain iterable, one by one from an async one."""
        if isinstance(self._chunks, AsyncIterable):
            self._iterator = aiter(self._chunks)
            event = 0
            async for item in self._iterator:
                yield None, [_chunk(item, event)]
                event += 1
        elif isinstance(self._chunks, list | tuple):
            for start in range(0, len(self._chunks), _BATCH):
                batch = self._chunks[start : start + _BATCH]
                yield None, [_chunk(item, event) for event, item in enumerate(batch, start)]
        else:
            async for chunks in self._from_thread(self._chunks).batches():
                yield None, chunks
            if self._error is not None:
                raise self._error

    def _from_thread(self, chunks: Iterable[ChunkLike]) -> ReplayLog[Chunk]:
        log: ReplayLog[Chunk] = ReplayLog()

        def read() -> None:
            try:
                for event, item in enumerate(chunks):
                    if self._closed:
                        break
                    log.extend((_chunk(item, event),))
                if isinstance(chunks, Generator):
                    chunks.close()
            except BaseException as error:
                self._error = error if isinstance(error, Exception) else RuntimeError(repr(error))
            finally:
                log.close()

        # Our own thread and not a pool's: one that waits for ever must not hold up the end of the process.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(read,), name="nbmastra-chunks", daemon=True).start()
        return log

    async def aclose(self) -> None:
        """Close the iterator, if it can be closed."""
        self._closed = True
        close = getattr(self._iterator, "aclose", None) or getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


_BATCH = 500


def _chunk(item: ChunkLike, event: int) -> Chunk:
    if isinstance(item, Chunk):
        if item.event < 0:
            item.event = event
        return item
    try:
        if not isinstance(item, dict | bytes | str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may err
            raise ChunkError(f"not a chunk ({type(item).__name__})")
        return parse_chunk(item, event=event)
    except ChunkError as error:
        raw = item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)
        payload = {"raw": raw, "error": str(error)[:200], "event": event}
        return parse_chunk({"type": "decode-error", "payload": payload}, event=event)
