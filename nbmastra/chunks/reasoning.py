"""The reasoning family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "reasoning"
PAYLOADS: dict[str, type[Payload]] = {}
