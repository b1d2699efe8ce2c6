"""The object family: structured output. These chunks have no payload; `chunk.object` is the (partial) object."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

__all__ = ["PartialObject", "WholeObject"]


class PartialObject(Payload):
    """The object as far as it is known, at the top of the chunk (`chunk.object`); each replaces the one before."""


class WholeObject(Payload):
    """The finished object, which fits its schema, at the top of the chunk (`chunk.object`)."""
