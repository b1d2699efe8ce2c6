"""The object family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "object"
PAYLOADS: dict[str, type[Payload]] = {}
