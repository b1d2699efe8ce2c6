"""The reasoning family: what a model thinks before it answers."""

from __future__ import annotations

from typing import Any

from nbmastra.chunks.payload import ProviderPayload
from nbmastra.chunks.source_file import FileData

__all__ = [
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningFile",
    "ReasoningSignature",
    "ReasoningStart",
    "RedactedReasoning",
]


class ReasoningStart(ProviderPayload):
    """A piece of reasoning begins (models that reason only)."""

    id: str
    """Id of the reasoning, unique within its step only."""
    signature: str | None = None
    """The provider's signature, if it has one already."""


class ReasoningDelta(ProviderPayload):
    """The next piece of a reasoning's text."""

    id: str
    """Id of the reasoning, unique within its step only."""
    text: str
    """The piece."""


class ReasoningEnd(ProviderPayload):
    """A piece of reasoning is complete."""

    id: str
    """Id of the reasoning, unique within its step only."""
    signature: str | None = None
    """The provider's final signature, if it has one."""


class ReasoningSignature(ProviderPayload):
    """How a model reasoned (effort, approach), without what it thought."""

    id: str
    """Id of the reasoning session."""
    signature: str
    """The provider's opaque signature; sent back, it lets the model go on from its reasoning."""


class RedactedReasoning(ProviderPayload):
    """Reasoning that the provider keeps to itself."""

    id: str
    """Id of the reasoning, unique within its step only."""
    data: Any = None
    """The encrypted reasoning, for the provider only."""


class ReasoningFile(FileData):
    """A file that belongs to the reasoning, not to the answer."""
