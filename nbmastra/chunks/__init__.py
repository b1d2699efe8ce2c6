"""Chunks: what a Mastra stream consists of."""

from __future__ import annotations

from nbmastra.chunks.envelope import Chunk, DataChunk, Heads, UnknownChunk, make_chunk, parse_chunk
from nbmastra.chunks.nested import nested_chunk
from nbmastra.chunks.registry import CHUNK_TYPES, family, payload_model

__all__ = [
    "CHUNK_TYPES",
    "Chunk",
    "DataChunk",
    "Heads",
    "UnknownChunk",
    "family",
    "make_chunk",
    "nested_chunk",
    "parse_chunk",
    "payload_model",
]
