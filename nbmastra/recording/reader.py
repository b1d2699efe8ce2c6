"""Reading a recording: the run finished, or once more at a pace."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from nbmastra.chunks import Chunk
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.recording.chunk_lines import ChunkLines
from nbmastra.recording.files import read_lines
from nbmastra.recording.lines import KEPT_CONTEXT, VERSION
from nbmastra.recording.playback import Playback, ReplayedOutput

__all__ = ["Recording", "load_recording", "open_playback", "open_recording", "read_header", "replay"]

_LARGE = 8 << 20
"""Files below this size are loaded before anybody asks how long it takes."""

Out = TypeVar("Out", bound=MastraModelOutput)


def load_recording(path: str | Path, *, schema: Any = None) -> MastraModelOutput:
    """The recorded run, finished: same state, times and ending as it had.

    `schema` checks the object in place of the recorded JSON schema (to get a pydantic model, for example). A broken
    line becomes a `decode-error` chunk, counted in `state.decode_errors`. Raises RecordingError.
    """
    recording = open_recording(path)
    out = recording.output(schema)
    for at, chunks in recording.batches():
        out.feed(chunks, at)
    out.finish(recording.lines.ended)
    return out


def replay(
    path: str | Path,
    speed: float | None = 1.0,
    *,
    start: float = 0.0,
    paused: bool = False,
    schema: Any = None,
) -> ReplayedOutput:
    """The recorded run once more, live, at `speed` times its pace; None gives it finished.

    What came in the first `start` seconds is there at once. `out.playback` pauses it, moves it, and sets its speed.
    Raises RecordingError, SettingsError.
    """
    return open_playback(path, speed, start=start, paused=paused, schema=schema).out


def open_playback(
    path: str | Path, speed: float | None = 1.0, *, start: float = 0.0, paused: bool = False, schema: Any = None
) -> Playback:
    """A recording that plays; `replay` gives its output. Raises RecordingError, SettingsError."""
    recording = open_recording(path)
    all_times, all_chunks = list[float](), list[Chunk]()
    for times, chunks in recording.shown():  # now: the engine's loop reads no files
        all_times += times
        all_chunks += chunks

    def make(player: Playback) -> ReplayedOutput:
        return recording.output(schema, partial(ReplayedOutput, player))

    return Playback(make, all_times, all_chunks, recording.lines.ended, speed=speed, start=start, paused=paused)


@dataclass
class Recording:
    """A recording that is being read, once: its header, then its chunks."""

    path: Path
    header: dict[str, Any]
    lines: ChunkLines

    def shown(self) -> Iterator[tuple[list[float], list[Chunk]]]:
        """The batches of `lines`; a bar shows how far it is if that takes longer than a second."""
        try:
            size = self.path.stat().st_size
        except OSError:
            size = 0
        if size < _LARGE:
            yield from self.lines
            return
        from tqdm.auto import tqdm  # slow to load, and only a large file takes long

        with tqdm(desc=self.path.name, unit="chunk", unit_scale=True, delay=1, leave=False) as bar:
            for times, chunks in self.lines:
                bar.update(len(chunks))
                yield times, chunks

    def batches(self) -> Iterator[tuple[float, list[Chunk]]]:
        """When chunks came, and those that came together."""
        last, together = 0.0, list[Chunk]()
        for times, chunks in self.shown():
            for at, chunk in zip(times, chunks, strict=True):
                if at != last and together:
                    yield last, together
                    together = []
                last = at
                together.append(chunk)
        if together:
            yield last, together

    def output(self, schema: Any, make: Callable[..., Out] = MastraModelOutput) -> Out:
        """A run that says what the recorded one said of itself."""
        header = self.header
        context = header.get("context")
        known = cast("dict[str, Any]", context) if isinstance(context, dict) else {}
        answered = header.get("answered") if isinstance(header.get("answered"), list) else None
        try:
            out = make(
                schema=schema if schema is not None else header.get("schema"),
                agent=_text(header.get("agent")),
                prompt=_text(header.get("prompt")),
                until_idle=bool(header.get("until_idle")),
                answered=[call for call in cast("list[Any]", answered or []) if isinstance(call, str)],
                context={key: known[key] for key in KEPT_CONTEXT if isinstance(known.get(key), str)}
                | {"recording": self.path.name},
            )
        except SettingsError as error:
            raise RecordingError(f"{self.path.name}: its schema can't be used: {error}") from None
        out.stream_id = _text(header.get("stream_id")) or out.stream_id
        with contextlib.suppress(ValueError):
            out.created_at = datetime.fromisoformat(_text(header.get("created")) or "")
        return out


def open_recording(path: str | Path) -> Recording:
    """A recording whose header is read, its chunks not yet. Raises RecordingError."""
    path = Path(path).expanduser()
    blocks = read_lines(path)
    first = next((lines for block in blocks if (lines := [line for line in block if line.strip()])), [b""])
    header = _check_header(path, first[0])
    return Recording(path, header, ChunkLines(chain([first[1:]], blocks)))


def read_header(path: Path) -> dict[str, Any]:
    """What a recording says of itself. Raises RecordingError."""
    return open_recording(path).header


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


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
