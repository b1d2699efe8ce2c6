"""A run's chunks from an HTTP stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio

from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder, RecordDecoder
from nbmastra.client.http import ByteStream
from nbmastra.errors import StreamTruncated
from nbmastra.output import Batch

__all__ = ["HttpSource"]

_DRAIN_S = 0.25


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    return await anext(batches, None)


class HttpSource:
    """Decodes a body as it comes; one network read is one batch."""

    def __init__(self, stream: ByteStream, decoder: ChunkDecoder | RecordDecoder) -> None:
        self._stream = stream
        self._pieces = aiter(stream)
        self._decoder = decoder
        self.done = False
        """True if the stream's end mark came."""
        self._decoded = self._decode()
        self._first: asyncio.Task[Batch | None] | None = None

    async def peek(self, seconds: float) -> list[Chunk]:
        """The chunks that come first, if they come in time; `batches` gives them all the same."""
        if self._first is None:
            self._first = asyncio.create_task(_next(self._decoded))
        try:
            done, _ = await asyncio.wait({self._first}, timeout=seconds)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        failed = not done or self._first.exception() is not None
        batch = None if failed else self._first.result()
        return batch[1] if batch is not None else []

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated if the connection broke, EventTooLarge."""
        if self._first is not None:
            first = await self._first
            self._first = None
            if first is None:
                return
            yield first
        async for batch in self._decoded:
            yield batch

    async def _decode(self) -> AsyncIterator[Batch]:
        decoder = self._decoder
        while (data := await anext(self._pieces, None)) is not None:
            chunks = decoder.feed(data)
            self.done = decoder.done
            if chunks:
                yield None, chunks
            if self.done:
                return
        decoder.close()
        if self._stream.broken:
            raise StreamTruncated(f"the connection broke: {self._stream.broken}")
        if decoder.pending:
            raise StreamTruncated("the last event is incomplete")

    async def aclose(self) -> None:
        """Close the connection; after a stream's end mark it is kept for the next request."""
        if self._first is not None:
            self._first.cancel()
            await asyncio.wait({self._first})
        if self.done:
            with anyio.move_on_after(_DRAIN_S):
                while await anext(self._pieces, None) is not None:
                    pass
        await self._stream.aclose()
