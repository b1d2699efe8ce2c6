"""The workflow family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "workflow"
PAYLOADS: dict[str, type[Payload]] = {}
