"""What writer and reader of a recording agree on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from nbmastra.chunks import Chunk

__all__ = ["KEPT_CONTEXT", "VERSION", "is_json", "json_line"]

VERSION = 1
KEPT_CONTEXT = ("url", "thread", "resource", "times")
_SURROGATE = re.compile("[\ud800-\udfff]")
_validate: Callable[[bytes], Any] = msgspec.json.Decoder(msgspec.Raw).decode


def json_line(chunk: Chunk) -> bytes | None:
    """The chunk as one line of JSON (without line end): its bytes; None if they aren't JSON."""
    line = chunk.to_json()
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON they only stand between values
    return line if is_json(line) else _escaped(line)


def is_json(line: bytes) -> bool:
    """True if the bytes are one JSON text in UTF-8."""
    try:
        if not line.isascii():
            line.decode()
        _validate(line)
    except (ValueError, RecursionError):
        try:
            json.loads(line.decode())  # an escaped half of an emoji, and NaN, which the fast check refuses
        except (ValueError, RecursionError):
            return False
    return True


def _escaped(line: bytes) -> bytes | None:
    """JSON that holds halves of emoji as bytes, which is no UTF-8, with them escaped; None for all else."""
    try:
        text = line.decode("utf-8", "surrogatepass")
    except ValueError:
        return None
    escaped = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()
    return escaped if escaped != line and is_json(escaped) else None
