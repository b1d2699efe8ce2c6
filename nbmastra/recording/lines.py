"""What writer and reader of a recording agree on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from nbmastra.chunks import Chunk

__all__ = ["KEPT_CONTEXT", "VERSION", "is_json", "json_line"]

VERSION = 1
KEPT_CONTEXT = ("url", "thread", "resource")
_validate: Callable[[bytes], Any] = msgspec.json.Decoder(msgspec.Raw).decode


def json_line(chunk: Chunk) -> bytes | None:
    """The chunk as one line of JSON (without line end): its bytes; None if they aren't JSON."""
    line = chunk.to_json()
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON they only stand between values
    return line if is_json(line) else None


def is_json(line: bytes) -> bool:
    """True if the bytes are one JSON text in UTF-8."""
    try:
        if not line.isascii():
            line.decode()
        _validate(line)
    except (ValueError, RecursionError):
        try:
            json.loads(line)  # half an emoji and NaN, which the fast check refuses
        except (ValueError, RecursionError):
            return False
    return True
