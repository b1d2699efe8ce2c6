"""A run's chunks from an HTTP stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from nbmastra.client.decode import ChunkDecoder, RecordDecoder
from nbmastra.client.http import ByteStream
from nbmastra.errors import StreamTruncated
from nbmastra.output import Batch

__all__ = ["HttpSource"]

_DRAIN_S = 0.25


class HttpSource:
    """Decodes a body as it comes; one network read is one batch."""

    def __init__(self, stream: ByteStream, decoder: ChunkDecoder | RecordDecoder) -> None:
        self._stream = stream
        self._pieces = aiter(stream)
        self._decoder = decoder
        self.done = False
        """True if the stream's end mark came."""

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated if the connection broke, EventTooLarge."""
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
        if self.done:
            with anyio.move_on_after(_DRAIN_S):
                while await anext(self._pieces, None) is not None:
                    pass
        await self._stream.aclose()
