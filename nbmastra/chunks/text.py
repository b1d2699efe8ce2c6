"""The text family: an answer's words, piece by piece."""

from __future__ import annotations

from nbmastra.chunks.payload import ProviderPayload

__all__ = ["TextDelta", "TextEnd", "TextStart"]


class TextStart(ProviderPayload):
    """A text begins."""

    id: str
    """Id of the text, unique within its step only."""


class TextDelta(ProviderPayload):
    """The next piece of a text; all pieces of one id in their order are the text."""

    id: str
    """Id of the text, unique within its step only."""
    text: str
    """The piece; it may end in the middle of a word or of an emoji."""


class TextEnd(ProviderPayload):
    """A text is complete."""

    id: str
    """Id of the text, unique within its step only."""
