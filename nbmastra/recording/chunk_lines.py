"""The chunks of a recording's lines, a block of lines at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.chunks.envelope import Head
from nbmastra.errors import ChunkError
from nbmastra.output import Ended
from nbmastra.recording.lines import is_json

__all__ = ["ChunkLines"]

_CUT = "the recording stops before the run ended"
_LINE = re.compile(rb'\{"t":([0-9.e+-]{1,32}),"chunk":(\{.*\})\}', re.DOTALL)
_MARK = b',"chunk":'
_validate_lines: Callable[[bytes], list[Any]] = msgspec.json.Decoder(msgspec.Raw).decode_lines
_NO_HEAD = Head({}, b"\n")  # no line begins with it


class ChunkLines:
    """Iterates over the times (seconds since the stream's start) and chunks of each block of lines, in their order.

    `ended` is how the run ended, once all is read. A broken line is a `decode-error` chunk; times never go back.
    """

    def __init__(self, blocks: Iterable[list[bytes]]) -> None:
        self._blocks = iter(blocks)
        self._now = 0.0
        self._event = 0
        self._head = _NO_HEAD
        self._end: Ended | None = None

    @property
    def ended(self) -> Ended:
        """How the stream stopped; a recording without an end line was cut."""
        return self._end or Ended(failure=_CUT, at=self._now)

    def __iter__(self) -> Iterator[tuple[list[float], list[Chunk]]]:
        for lines in self._blocks:
            times: list[float] = []
            chunks: list[Chunk] = []
            if _all_json(lines):
                self._sound(lines, times, chunks)
            else:
                for line in lines:
                    if not self._any(line, times, chunks):
                        break
            if self._end is not None and self._goes_on(lines):
                problem = {"raw": "", "error": "what follows the run's end isn't read", "event": self._event}
                times.append(self._now)
                chunks.append(parse_chunk({"type": "decode-error", "payload": problem}, event=self._event))
            if chunks:
                yield times, chunks
            if self._end is not None:
                return

    def _goes_on(self, lines: list[bytes]) -> bool:
        """True if more than blank lines follow the end, which is in these: recordings that somebody joined."""
        left = chain(lines, chain.from_iterable(self._blocks))
        next(line for line in left if line.startswith(b'{"end"') and _read_end(line) is not None)
        return any(map(bytes.strip, left))

    def _sound(self, lines: list[bytes], times: list[float], chunks: list[Chunk]) -> None:
        """Lines that are JSON: 98 of 100 have the envelope of the one before, so that is all there is to look at."""
        head, now, event = self._head, self._now, self._event
        known, make, kind = head.prefix, head.make, head.type
        add, add_time = chunks.append, times.append
        for line in lines:
            mark = line.find(_MARK, 5, 64)
            start = mark + 9
            if mark > 0 and line.startswith(b'{"t":') and line.endswith(b"}}"):
                try:
                    at = float(line[5:mark])
                    if line.startswith(known, start):
                        chunk = make(kind, head, line[start + len(known) : -2], event)
                    else:
                        chunk = parse_chunk(line[start:-1], event=event)
                        if chunk.head.complete and chunk.head.whole is None:
                            head = self._head = chunk.head
                            known, make, kind = head.prefix, head.make, head.type
                except ValueError:  # a ChunkError too: told below
                    pass
                else:
                    now = at if at > now else now
                    add_time(now)
                    add(chunk)
                    event += 1
                    continue
            self._now, self._event = now, event
            if not self._any(line, times, chunks, sound=True):
                return
            now, event = self._now, self._event
        self._now, self._event = now, event

    def _any(self, line: bytes, times: list[float], chunks: list[Chunk], *, sound: bool = False) -> bool:
        """Any line, `sound` if it is known to be JSON; False if it is the last one that counts."""
        if not line.strip():
            return True
        if line.startswith(b'{"end"'):
            self._end = _read_end(line)
            if self._end is not None:
                return False
        at, chunk = _read_line(line, self._now, self._event, sound)
        times.append(at)
        chunks.append(chunk)
        self._now = at
        self._event += 1
        return True


def _all_json(lines: list[bytes]) -> bool:
    """True if each line is one JSON text in UTF-8; blank ones, and what only a slower parser reads, make it False."""
    block = b"\n".join(lines)
    try:
        if not block.isascii():
            block.decode()
        return len(_validate_lines(block)) == len(lines) and b"\r" not in block
    except (ValueError, RecursionError):
        return False


def _read_line(line: bytes, now: float, event: int, sound: bool) -> tuple[float, Chunk]:
    """When a chunk came, and the chunk; a broken line is a `decode-error` chunk."""
    try:
        plain = _LINE.fullmatch(line)
        if plain is not None and (sound or is_json(line)):
            return max(float(plain[1]), now), parse_chunk(plain[2], event=event)
        value = json.loads(line)  # "raw", or written by somebody else
        at = max(float(value["t"]), now)
        if "raw" in value:
            return at, parse_chunk(value["raw"].encode("utf-8", "surrogateescape"), event=event)
        return at, parse_chunk(value["chunk"], event=event)
    except (ChunkError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        problem = {"raw": line.decode("utf-8", "replace"), "error": f"broken line: {error}"[:200], "event": event}
        return now, parse_chunk({"type": "decode-error", "payload": problem}, event=event)


def _read_end(line: bytes) -> Ended | None:
    try:
        end = json.loads(line)["end"]
        return Ended(
            done=end.get("done") is True,
            cancelled=_text(end.get("cancelled")),
            code=_text(end.get("code")),
            failure=_text(end.get("failure")),
            at=float(end.get("t") or 0.0),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
