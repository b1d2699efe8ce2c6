"""Chunks that are made here and not read from a stream: their bytes are written when somebody asks for them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from nbmastra.chunks.envelope import Chunk, Head

__all__ = ["BuiltChunk", "build_chunk", "encode_json"]


def encode_json(value: Any) -> bytes:
    """Plain JSON values as JSON text; half an emoji is escaped, as JavaScript does."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError):
        return json.dumps(value, separators=(",", ":")).encode()


class BuiltChunk(Chunk, eq=False):
    """A chunk around a wire dict that it shares with others: a long history isn't copied into each of its chunks.

    So the dict must not be changed any more.
    """

    @property
    def body(self) -> bytes:  # pyright: ignore[reportIncompatibleVariableOverride]  # written at need, never set
        """The whole chunk as JSON, made anew each time."""
        return encode_json(self.head.whole)


def build_chunk(wire: dict[str, Any]) -> Chunk:
    """The chunk that a wire dict of plain JSON values says, without a copy of it."""
    head = Head(wire, b"", wire)
    # Chunks of data know more than others; they are small, so they may have their bytes.
    if head.make is not Chunk:
        return head.make(head.type, head, encode_json(wire))
    return BuiltChunk(head.type, head, b"")
