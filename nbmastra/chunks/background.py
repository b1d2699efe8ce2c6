"""The background task family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "background task"
PAYLOADS: dict[str, type[Payload]] = {}
