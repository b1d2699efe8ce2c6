"""The tool family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "tool"
PAYLOADS: dict[str, type[Payload]] = {}
