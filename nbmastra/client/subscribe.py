"""A thread as its subscribers see it: the active run from its start, then every run that follows, whoever starts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.http import ByteStream
from nbmastra.client.source import HttpSource
from nbmastra.output import Batch

__all__ = ["SubscribeSource"]

_LAST_WORDS = ("finish", "error", "tripwire")


class SubscribeSource:
    """The chunks of a thread's runs. Never ends by itself; with `once`, at the end of the first run."""

    def __init__(self, stream: ByteStream, decoder: ChunkDecoder, *, once: bool) -> None:
        self._source = HttpSource(stream, decoder)
        self._once = once
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated."""
        async for at, chunks in self._source.batches():
            end = next((number for number, chunk in enumerate(chunks, 1) if _is_last(chunk)), 0) if self._once else 0
            if end:
                self.done = True
                yield at, chunks[:end]
                return
            yield at, chunks
        self.done = self._source.done

    async def aclose(self) -> None:
        """Close the connection; the runs go on."""
        await self._source.aclose()


def _is_last(chunk: Chunk) -> bool:
    return chunk.type in _LAST_WORDS
