"""Every chunk of every recording, as it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nbmastra.chunks import Chunk, nested_chunk, parse_chunk

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(
    path
    for folder in ("streams", "chunks")
    for path in (DATA / folder).iterdir()
    if path.suffix in {".sse", ".records"}
)


@cache
def recorded_lines() -> tuple[tuple[str, str], ...]:
    """Recording and JSON text of each chunk; the envelopes around observed chunks are taken off."""
    return tuple((path.stem, line) for path in FILES for line in _lines(path))


def _lines(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".records":
        yield from (record for record in text.split("\x1e") if record.strip())
        return
    for line in text.split("\n"):
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        if "index" not in event:
            yield line.removeprefix("data: ")
        elif event["type"] == "chunk":
            yield json.dumps(event["data"], ensure_ascii=False, separators=(",", ":"))


@cache
def sample_lines() -> tuple[str, ...]:
    """Made-up chunks of the types that no recording has."""
    return tuple((DATA / "chunks" / "samples.jsonl").read_text(encoding="utf-8").splitlines())


def recorded_chunks() -> Iterator[tuple[str, Chunk]]:
    """Recording and chunk, chunks inside of chunks included."""
    for name, line in recorded_lines():
        chunk: Chunk | None = parse_chunk(line)
        while chunk is not None:
            yield name, chunk
            chunk = nested_chunk(chunk)
