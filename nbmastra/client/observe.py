"""Observing a durable run: envelopes taken off, each event once, and going on after a cut.

Source: WIRE, "Transport", row "observing a durable run"; @mastra/core 1.71, cached events of a durable agent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
import msgspec

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.client.agent_routes import AgentRoutes
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.http import ByteStream
from nbmastra.client.source import HttpSource
from nbmastra.errors import ChunkError, ClientError, RunNotFound, StreamTruncated
from nbmastra.fold.reading import as_dict
from nbmastra.output import Batch, Ended, Source, StreamEnded

__all__ = ["FIRST_EVENT_S", "ObserveSource", "ReconnectingSource", "open_observed", "unwrap"]

FIRST_EVENT_S = 10.0
"""An unknown run answers with silence: where an event has to come, this is how long it may take."""
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Before each try to reach the server again; a try that brings something new begins them anew."""
_LAST_WORDS = ("finish", "error", "tripwire", "abort")
"""After one of these nothing is asked for again, though the end mark may be missing."""
_LEFT = "the connection was cut and the server aborted the run, because its client was gone"


class _Envelope(msgspec.Struct, gc=False, rename="camel"):
    type: str
    data: msgspec.Raw
    index: int
    run_id: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_NOTES = ("iteration-complete", "suspended")
"""A durable run's own notes, which repeat what chunks said: plain streams don't have them, so they are no chunks."""


def unwrap(chunk: Chunk) -> tuple[int, Chunk | None]:
    """Index and chunk of an envelope; None if it holds nothing for a reader. A chunk without envelope: index -1."""
    try:
        envelope = _ENVELOPE.decode(chunk.to_json())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1, chunk
    if envelope.type in _NOTES:
        return envelope.index, None
    data = bytes(envelope.data)
    try:
        inner = parse_chunk(data, event=envelope.index)
        if envelope.type in ("chunk", inner.type):
            return envelope.index, inner
    except ChunkError:
        pass  # an envelope whose data is the payload alone
    try:
        payload = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return -1, chunk
    told = {"type": envelope.type, "runId": envelope.run_id, "from": "AGENT", "payload": payload}
    return envelope.index, parse_chunk(told, event=envelope.index)


class ObserveSource:
    """The events of a durable run from `offset` on; with `reconnect`, asked for again where a connection broke off.

    `begin` opens the first connection. Without an offset of the caller's the first event is waited for there.
    """

    def __init__(self, routes: AgentRoutes, run_id: str, offset: int | None, *, reconnect: bool = False) -> None:
        self._routes = routes
        self._run_id = run_id
        self._first = offset if offset is not None else 0
        self._must_come = offset is None
        self._reconnect = reconnect
        self._last: int | None = None
        self._source: HttpSource | None = None
        self._batches: AsyncIterator[Batch] | None = None
        self._early: Batch | None = None
        self._over = False  # the run's last word came
        self.done = False

    async def begin(self) -> None:
        """Connect. Raises RunNotFound, ClientError."""
        await self._connect(must_come=self._must_come)

    async def _connect(self, *, must_come: bool) -> None:
        # From the last event seen, not from the one after it: so that an event always comes, if the run is known.
        offset = self._first if self._last is None else self._last
        source = await open_observed(self._routes, self._run_id, offset)
        batches = source.batches()
        self._early = None
        if must_come:
            try:
                with anyio.fail_after(FIRST_EVENT_S):
                    self._early = await anext(batches, None)
            except TimeoutError:
                await source.aclose()
                raise self._unknown() from None
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await source.aclose()
                raise
            if self._early is None:
                await source.aclose()
                raise self._unknown()
        self._source, self._batches = source, batches

    def _unknown(self) -> RunNotFound:
        return RunNotFound(
            f"no durable run {self._run_id!r} of {self._routes.id}: nothing came within {FIRST_EVENT_S:g} s "
            "(runs of agents that aren't durable can't be observed; subscribe to their thread)",
            url=self._routes.http.address.url,
        )

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks, each once. Raises StreamTruncated if the connection broke and can't be had again."""
        pauses = iter(_PAUSES_S)
        while True:
            broken: StreamTruncated | None = None
            seen = self._last
            try:
                async for batch in self._read():
                    yield batch
            except StreamTruncated as error:
                broken = error
            if self.done or self._over or not self._reconnect:
                if broken is not None:
                    raise broken
                return
            if self._last != seen:
                pauses = iter(_PAUSES_S)
            await self._again(pauses, broken)

    async def _read(self) -> AsyncIterator[Batch]:
        assert self._source is not None
        assert self._batches is not None
        if self._early is not None:
            early, self._early = self._early, None
            chunks = self._new(early[1])
            self.done = self._source.done
            if chunks:
                yield early[0], chunks
        async for at, wrapped in self._batches:
            chunks = self._new(wrapped)
            self.done = self._source.done
            if chunks:
                yield at, chunks
        self.done = self._source.done

    def _new(self, wrapped: list[Chunk]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for item in wrapped:
            index, chunk = unwrap(item)
            if index >= 0:
                if self._last is not None and index <= self._last:
                    continue
                self._last = index
            if chunk is not None:
                self._over = self._over or chunk.type in _LAST_WORDS
                chunks.append(chunk)
        return chunks

    async def _again(self, pauses: Iterator[float], broken: StreamTruncated | None) -> None:
        """Connect once more. Raises StreamTruncated when all tries are used up."""
        error: Exception = broken or StreamTruncated("the connection ended before the run did")
        if self._source is not None:
            await self._source.aclose()
        for pause in pauses:
            await anyio.sleep(pause)
            try:
                await self._connect(must_come=True)
            except (ClientError, StreamTruncated) as failed:
                error = failed
            else:
                return
        raise StreamTruncated(f"the connection broke and the run couldn't be observed again: {error}") from None

    async def aclose(self) -> None:
        """Close the connection; the run goes on."""
        if self._source is not None:
            await self._source.aclose()


class ReconnectingSource:
    """The stream of a durable run that is observed on where its connection breaks off.

    A stream's events have no index, so the first time the run is observed from its start, and what is known is left
    out; plain streams and observed ones have the same chunks in the same order.
    """

    def __init__(self, routes: AgentRoutes, stream: ByteStream, run_id: str) -> None:
        self._routes = routes
        self._run_id = run_id
        self._source: Source = HttpSource(stream, ChunkDecoder(routes.http.max_event_bytes))
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated, StreamEnded."""
        seen, over = 0, False
        cut: StreamTruncated | None = None
        try:
            async for at, chunks in self._source.batches():
                seen += len(chunks)
                over = over or any(chunk.type in _LAST_WORDS for chunk in chunks)
                self.done = self._source.done
                yield at, chunks
            self.done = self._source.done
        except StreamTruncated as error:
            cut = error
        if self.done or over:
            return
        await self._source.aclose()
        observed = ObserveSource(self._routes, self._run_id, None, reconnect=True)
        try:
            await observed.begin()
        except ClientError as error:
            raise StreamTruncated(f"{cut or 'the connection ended'}; it can't be observed on: {error}") from None
        self._source = observed
        aborted = False
        async for at, chunks in observed.batches():
            new = chunks[seen:]
            seen = max(seen - len(chunks), 0)
            aborted = aborted or any(_tells_abort(chunk) for chunk in new)
            if new:
                yield at, new
        self.done = observed.done
        if aborted:
            raise StreamEnded(Ended(self.done, cancelled=_LEFT))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._source.aclose()


def _tells_abort(chunk: Chunk) -> bool:
    if chunk.type != "finish":
        return chunk.type == "abort"
    try:
        return as_dict(as_dict(chunk.raw_payload()).get("stepResult")).get("reason") == "abort"
    except ChunkError:
        return False


async def open_observed(routes: AgentRoutes, run_id: str, offset: int) -> HttpSource:
    """A connection that observes a run from an event on. Raises ClientError."""
    stream = await routes.stream("/observe", {"runId": run_id, "offset": offset})
    return HttpSource(stream, ChunkDecoder(routes.http.max_event_bytes))
