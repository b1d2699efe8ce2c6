"""Streams that other programs wrote to a file: arrays or lines of chunks as client-js gives them, saved SSE text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import ChunkError, RecordingError
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording.files import read_bytes

__all__ = ["from_client_js"]

_DONE = b"[DONE]"
_CUT = "the file stops before the run ended"


def from_client_js(path: str | Path, *, schema: Any = None) -> MastraModelOutput:
    """The run that a file of chunks tells, finished: a JSON array, one chunk a line, or the text of an event stream.

    When chunks came isn't in such a file, so tables leave out all times. What can't be read becomes a `decode-error`
    chunk, counted in `state.decode_errors`. `schema` is that of the run's object. Raises RecordingError.
    """
    path = Path(path).expanduser()
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    pieces = list(_array(data) if data.lstrip()[:1] == b"[" else _lines(data))
    done = bool(pieces) and pieces[-1] == _DONE
    chunks = [_chunk(piece, event) for event, piece in enumerate(piece for piece in pieces if piece != _DONE)]
    if not any(chunk.type != "decode-error" for chunk in chunks):
        raise RecordingError(f"{path.name} holds no chunks: expected a JSON array of them, lines, or an event stream")
    out = MastraModelOutput(schema=schema, context={"recording": path.name, "times": "unknown"})
    out.feed(chunks, 0.0)
    turn = out.state.turn
    finished = done or out.state.settling or (turn is not None and turn.ended_at is not None)
    out.finish(Ended(done=finished, failure="" if finished else _CUT, at=0.0))
    return out


def _array(data: bytes) -> Iterator[bytes | object]:
    """The elements of an array; what follows a broken one is one piece that can't be read."""
    text = data.decode("utf-8", "replace")
    try:
        yield from json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while at < len(text):
        while text[at : at + 1] in (" ", "\n", "\r", "\t", ","):
            at += 1
        if text[at : at + 1] in ("]", ""):
            return
        try:
            element, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield text[at:].encode()
            return
        yield element


def _lines(data: bytes) -> Iterator[bytes]:
    """Lines of JSON; of an event stream, the data of each event."""
    held: list[bytes] = []
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            held.append(line[5:].strip())
            continue
        if held:
            yield b"\n".join(held)
            held = []
        if line.strip() and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            yield line.strip()
    if held:
        yield b"\n".join(held)


def _chunk(piece: bytes | object, event: int) -> Chunk:
    source = piece if isinstance(piece, bytes) else json.dumps(piece).encode()
    try:
        return parse_chunk(source, event=event)
    except (ChunkError, RecursionError) as error:
        problem = {"raw": source.decode("utf-8", "replace"), "error": f"no chunk: {error}"[:200], "event": event}
        return parse_chunk({"type": "decode-error", "payload": problem}, event=event)
