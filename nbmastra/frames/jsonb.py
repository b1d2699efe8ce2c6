"""SQLite's binary JSON, in which LibSQL stores keep a part of their columns.

Decoded here, since SQLite itself reads it only from 3.45 on (many Pythons have an older one), and one broken value
would fail a whole query. Source: sqlite.org/jsonb.html.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["decode_jsonb"]

_CONSTANTS = {0: None, 1: True, 2: False}
_ARRAY, _OBJECT = 11, 12


def decode_jsonb(data: bytes) -> Any:
    """The value. Raises ValueError."""
    try:
        value, end = _value(data, 0, len(data))
    except (IndexError, RecursionError) as error:
        raise ValueError(f"broken binary JSON ({type(error).__name__})") from None
    if end != len(data):
        raise ValueError("broken binary JSON: something follows the value")
    return value


def _value(data: bytes, start: int, limit: int) -> tuple[Any, int]:
    """The value that begins at `start`, and where it ends."""
    kind, body, end = _head(data, start)
    if end > limit:
        raise ValueError("broken binary JSON: a value is longer than what holds it")
    if kind == _ARRAY:
        return list(_items(data, body, end)), end
    if kind == _OBJECT:
        found = _items(data, body, end)
        if len(found) % 2 or not all(isinstance(key, str) for key in found[::2]):
            raise ValueError("broken binary JSON: an object without names")
        return dict(zip(found[::2], found[1::2], strict=True)), end
    return _scalar(kind, data[body:end]), end


def _head(data: bytes, start: int) -> tuple[int, int, int]:
    """Type of an element, where its body begins and where it ends."""
    kind, size = data[start] & 0x0F, data[start] >> 4
    body = start + 1
    if size > 11:  # the size follows, in 1, 2, 4 or 8 bytes
        count = 1 << (size - 12)
        size, body = int.from_bytes(data[body : body + count], "big"), body + count
    return kind, body, body + size


def _items(data: bytes, start: int, end: int) -> list[Any]:
    found: list[Any] = []
    while start < end:
        item, start = _value(data, start, end)
        found.append(item)
    return found


def _scalar(kind: int, body: bytes) -> Any:
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    text = body.decode("utf-8", "surrogatepass")
    match kind:
        case 3 | 5:  # numbers as JSON writes them
            return json.loads(text)
        case 4:  # as JSON5 does: hexadecimal
            return int(text, 16 if "x" in text.lower() else 10)
        case 6:  # as JSON5 does: 5. or .5
            return float(text)
        case 7 | 10:  # text without escapes
            return text
        case 8 | 9:
            return json.loads(f'"{text}"')
        case _:
            raise ValueError(f"broken binary JSON: no type {kind}")
