"""Bytes to chunks: server-sent events (agents) and records ended by 0x1E (workflows).

Plain objects without I/O: any cut of the bytes gives the same chunks. What Mastra sends (one compact `data: {…}` line
per event) takes a fast path; everything else takes the rules of the standard, with the same result.
Sources: https://html.spec.whatwg.org/multipage/server-sent-events.html, WIRE "Transport".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import repeat

from nbmastra.chunks.envelope import Chunk, Head, Heads, make_chunk, parse_chunk
from nbmastra.errors import EventTooLarge

__all__ = ["DEFAULT_MAX_EVENT_BYTES", "ChunkDecoder", "RecordDecoder"]

DEFAULT_MAX_EVENT_BYTES = 64 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_END_MARKER = b"\n\ndata: [DONE]"
_BETWEEN = b"}\n\ndata: "
_RECORD_END = b"\x1e"


class _Decoder(ABC):
    """What both framings share: the unfinished rest, the cap on one event, numbering, unreadable envelopes."""

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self.max_event_bytes = max_event_bytes
        self.events: int = 0
        """Events so far, `decode-error` chunks included."""
        self.done: bool = False
        """True after the end marker `[DONE]`; what follows it is ignored."""
        self._heads = Heads()
        # The unfinished line in the pieces that came: joining them once keeps a long line linear.
        self._rest: list[bytes] = []
        self._held = 0  # bytes of the unfinished event
        self._error: EventTooLarge | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished event; after `close`, not 0 means that the stream was cut in mid-event."""
        return self._held

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks of the events that these bytes finish.

        Raises EventTooLarge; chunks that stand before the large event are returned first, then the next call raises.
        """
        if self._error is None and data and not self.done:
            chunks: list[Chunk] = []
            self._read(data, chunks)
            if chunks or self._error is None:
                return chunks
        if self._error is not None:
            raise self._error
        return []

    def close(self) -> list[Chunk]:
        """The bytes have ended. Always empty: an unfinished event is never emitted. Raises EventTooLarge."""
        return self.feed(b"")

    @abstractmethod
    def _read(self, data: bytes, chunks: list[Chunk]) -> None: ...

    def _hold(self, data: bytes) -> None:
        self._held += len(data)
        self._rest.append(data)
        if self._held > self.max_event_bytes:
            self._fail()

    def _take(self, data: bytes) -> bytes:
        """The unfinished line with what came now."""
        if not self._rest:
            return data
        rest, self._rest = self._rest, []
        self._held -= sum(map(len, rest))
        return b"".join([*rest, data])

    def _fail(self) -> None:
        self._error = EventTooLarge(self.max_event_bytes)
        self._rest = []

    def _chunk(self, text: bytes) -> Chunk:
        event = self.events
        self.events += 1
        try:
            return make_chunk(text, self._heads, event)
        except (ValueError, RecursionError) as error:
            # backslashreplace: bytes that are no UTF-8 stay distinguishable.
            raw = text.decode("utf-8", "backslashreplace")
            payload = {"raw": raw, "error": str(error)[:200], "event": event}
            return parse_chunk({"type": "decode-error", "payload": payload}, event=event)


class ChunkDecoder(_Decoder):
    """Server-sent events to chunks.

    An event without a readable envelope (no JSON, no object, no type) becomes a `decode-error` chunk with the payload
    `raw`, `error`, `event`. An event of blank data is a keep-alive and ignored.
    """

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        super().__init__(max_event_bytes)
        self._first = True  # nothing read yet: a byte order mark may come
        self._after_cr = False  # a line feed that comes next belongs to the line end before it
        self._half_blank = False  # a line feed came behind the rest: the first half of a blank line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._head: Head | None = None  # envelope of the last plain chunk

    def _read(self, data: bytes, chunks: list[Chunk]) -> None:
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if not (self._half_blank or b"\n" in data or b"\r" in data):
            self._hold(data)
            return
        block = self._take(b"\n" + data if self._half_blank else data)
        self._half_blank = False
        if self._first:
            self._first = False
            block = block.removeprefix(_BOM)
        if not self._data:
            block = block[self._compact_events(block, chunks) :]
            # An unfinished line is kept as it is, also one cut within its blank line: the fast path goes on from there.
            if block.find(b"\n") in (-1, len(block) - 1) and b"\r" not in block:
                self._half_blank = block.endswith(b"\n")
                self._hold(block.removesuffix(b"\n"))
                return
        self._any_events(block, chunks)

    def _compact_events(self, block: bytes, chunks: list[Chunk]) -> int:
        """If all whole events in `block` are compact: appends their chunks, returns their bytes. Otherwise 0."""
        end = block.rfind(b"\n\n")
        if end < 0 or not block.startswith(b"data: {"):
            return 0
        text = block[:end]
        done = text.endswith(_END_MARKER)
        if done:
            text = text.removesuffix(_END_MARKER)
        if not text.endswith(b"}") or b"\r" in text:
            return 0
        breaks = text.count(b"\n")
        if not self._same_heads(text, breaks, chunks):
            lines = text[6:-1].split(_BETWEEN)
            if breaks != 2 * len(lines) - 2:
                return 0
            if len(text) > self.max_event_bytes and max(map(len, lines)) + len(b"data: }") > self.max_event_bytes:
                return 0
            self._plain_lines(lines, chunks)
        self.done = done
        return len(block) if done else end + 2

    def _same_heads(self, text: bytes, breaks: int, chunks: list[Chunk]) -> bool:
        """If all events have the envelope of the one before: appends their chunks. Long answers come so."""
        head = self._head
        if head is None or not text.startswith(head.prefix, 6) or len(text) > self.max_event_bytes:
            return False
        bodies = text[6 + len(head.prefix) : -1].split(_BETWEEN + head.prefix)
        if breaks != 2 * len(bodies) - 2:
            return False
        first = self.events
        self.events = first + len(bodies)
        chunks.extend(map(head.make, repeat(head.type), repeat(head), bodies, range(first, self.events)))
        return True

    def _plain_lines(self, lines: list[bytes], chunks: list[Chunk]) -> None:
        """Appends chunks of JSON texts that lack their last brace; 98 of 100 have the envelope of the one before."""
        add = chunks.append
        head = self._head or _NO_HEAD
        known, make, kind, size = head.prefix, head.make, head.type, len(head.prefix)
        first = self.events
        for event, line in enumerate(lines, first):
            if line.startswith(known):
                add(make(kind, head, line[size:], event))
                continue
            self.events = event
            chunk = self._chunk(line + b"}")
            add(chunk)
            if chunk.head.complete and chunk.head.whole is None:
                head = chunk.head
                known, make, kind, size = head.prefix, head.make, head.type, len(head.prefix)
        self.events = first + len(lines)
        self._head = head

    def _any_events(self, block: bytes, chunks: list[Chunk]) -> None:
        """The standard's rules, line by line."""
        lines = block.splitlines()  # of bytes: at LF, CR and CRLF only
        rest = b"" if block.endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = block.endswith(b"\r")
        for line in lines:
            if self._held + len(line) > self.max_event_bytes:
                self._fail()
                return
            if not line:
                self._dispatch(chunks)
                if self.done:
                    return
            elif line.startswith(b"data:") or line == b"data":
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._held += len(line)
            # Comments and the fields id, event and retry carry nothing for us.
        self._hold(rest)

    def _dispatch(self, chunks: list[Chunk]) -> None:
        data = b"\n".join(self._data)
        self._data = []
        self._held = 0
        if data == b"[DONE]":
            self.done = True
        elif data.strip():
            chunks.append(self._chunk(data))


_NO_HEAD = Head({}, b"\n")  # no line begins with it


class RecordDecoder(_Decoder):
    """JSON records, each ended by the byte 0x1E and by nothing else, to chunks; `done` stays False."""

    def _read(self, data: bytes, chunks: list[Chunk]) -> None:
        if _RECORD_END not in data:
            self._hold(data)
            return
        *records, rest = self._take(data).split(_RECORD_END)
        for record in records:
            if len(record) > self.max_event_bytes:
                self._fail()
                return
            if record.strip():
                chunks.append(self._chunk(record))
        self._hold(rest)
