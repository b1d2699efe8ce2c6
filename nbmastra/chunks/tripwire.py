"""The special family, its first half: a processor blocks what the model says."""

from __future__ import annotations

from typing import Any

from nbmastra.chunks.payload import Payload

__all__ = ["Tripwire"]


class Tripwire(Payload):
    """A processor ended the run because of its content; no `finish` follows."""

    reason: str
    """Why the content was blocked."""
    retry: bool | None = None
    """True if the processor asks for the step to be tried again, with the reason as feedback."""
    metadata: Any = None
    """What else the processor says (scores, categories); any JSON."""
    processor_id: str | None = None
    """Id of the processor."""
