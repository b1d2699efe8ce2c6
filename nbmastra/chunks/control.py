"""The control family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "control"
PAYLOADS: dict[str, type[Payload]] = {}
