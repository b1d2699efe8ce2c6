"""The special family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "special"
PAYLOADS: dict[str, type[Payload]] = {}
