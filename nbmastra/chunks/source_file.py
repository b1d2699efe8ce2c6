"""The source family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "source"
PAYLOADS: dict[str, type[Payload]] = {}
