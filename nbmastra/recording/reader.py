"""Reading a recording: the run finished, or once more at a pace."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import anyio

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import ChunkError, RecordingError, SettingsError
from nbmastra.output import Batch, Ended, MastraModelOutput, StreamEnded
from nbmastra.recording.files import read_lines
from nbmastra.recording.lines import KEPT_CONTEXT, VERSION, is_json

__all__ = ["load_recording", "read_header", "replay"]

_CUT = "the recording stops before the run ended"
_LINE = re.compile(rb'\{"t":([0-9.e+-]{1,32}),"chunk":(\{.*\})\}', re.DOTALL)


def load_recording(path: str | Path, *, schema: Any = None) -> MastraModelOutput:
    """The recorded run, finished: same state, times and ending as it had.

    `schema` checks the object in place of the recorded JSON schema (to get a pydantic model, for example). A broken
    line becomes a `decode-error` chunk, counted in `state.decode_errors`. Raises RecordingError.
    """
    recording = _read(Path(path))
    out = recording.output(schema)
    for at, chunks in recording.batches:
        out.feed(chunks, at)
    out.finish(recording.ended)
    return out


def replay(path: str | Path, speed: float | None = 1.0, *, schema: Any = None) -> MastraModelOutput:
    """The recorded run once more, live, at `speed` times its pace; None gives it finished. Raises RecordingError."""
    if speed is None:
        return load_recording(path, schema=schema)
    if not speed > 0:
        raise SettingsError(f"speed={speed!r}: give a number above 0, or None for all at once")
    recording = _read(Path(path))
    return recording.output(schema).start(_PacedSource(recording, speed))


class _PacedSource:
    """A recording's chunks at their times, then its ending."""

    def __init__(self, recording: _Recording, speed: float) -> None:
        self._recording = recording
        self._speed = speed
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they once came; raises StreamEnded."""
        recording, started = self._recording, anyio.current_time()

        async def wait_for(at: float) -> None:
            await anyio.sleep(max(started + at / self._speed - anyio.current_time(), 0))

        for at, chunks in recording.batches:
            await wait_for(at)
            yield at, chunks
        await wait_for(recording.ended.at or 0)
        raise StreamEnded(recording.ended)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class _Recording:
    """A recording as read: chunks that came together are one batch."""

    path: Path
    header: dict[str, Any]
    batches: list[tuple[float, list[Chunk]]]
    ended: Ended

    def output(self, schema: Any) -> MastraModelOutput:
        """A run that says what the recorded one said of itself."""
        header = self.header
        context = header.get("context")
        known = cast("dict[str, Any]", context) if isinstance(context, dict) else {}
        answered = header.get("answered")
        try:
            out = MastraModelOutput(
                schema=schema if schema is not None else header.get("schema"),
                agent=_text(header.get("agent")),
                prompt=_text(header.get("prompt")),
                until_idle=bool(header.get("until_idle")),
                answered=cast("list[str]", answered) if isinstance(answered, list) else (),
                context={key: known[key] for key in KEPT_CONTEXT if isinstance(known.get(key), str)}
                | {"recording": self.path.name},
            )
        except SettingsError as error:
            raise RecordingError(f"{self.path.name}: its schema can't be used: {error}") from None
        out.stream_id = _text(header.get("stream_id")) or out.stream_id
        with contextlib.suppress(ValueError):
            out.created_at = datetime.fromisoformat(_text(header.get("created")) or "")
        return out


def _read(path: Path) -> _Recording:
    path = path.expanduser()
    lines = read_lines(path)
    header = _check_header(path, next(lines, b""))
    batches: list[tuple[float, list[Chunk]]] = []
    ended: Ended | None = None
    now = 0.0
    for event, line in enumerate(lines):
        if line.startswith(b'{"end"') and (ended := _read_end(line)) is not None:
            break
        at, chunk = _read_line(line, now, event)
        if batches and at == now:
            batches[-1][1].append(chunk)
        else:
            batches.append((at, [chunk]))
        now = at
    return _Recording(path, header, batches, ended or Ended(failure=_CUT, at=now))


def read_header(path: Path) -> dict[str, Any]:
    """What a recording says of itself. Raises RecordingError."""
    return _check_header(path, next(read_lines(path), b""))


def _check_header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    version: Any = cast("dict[str, Any]", value).get("nbmastra") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise RecordingError(f"{path.name} is no recording: its first line should be like {{'nbmastra': {VERSION}, …}}")
    if version > VERSION:
        raise RecordingError(
            f"{path.name} was written by a newer nbmastra (format {version}, this one reads {VERSION}): update nbmastra"
        )
    return cast("dict[str, Any]", value)


def _read_line(line: bytes, now: float, event: int) -> tuple[float, Chunk]:
    """When a chunk came, and the chunk; a broken line is a `decode-error` chunk."""
    try:
        plain = _LINE.fullmatch(line)
        if plain is not None and is_json(line):
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
            cancelled=_text(end.get("cancelled")) or "",
            code=_text(end.get("code")) or "",
            failure=_text(end.get("failure")) or "",
            at=float(end.get("t") or 0.0),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
