"""The text family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "text"
PAYLOADS: dict[str, type[Payload]] = {}
