"""The network family."""

from __future__ import annotations

from nbmastra.chunks.payload import Payload

FAMILY = "network"
PAYLOADS: dict[str, type[Payload]] = {}


def model_by_pattern(kind: str) -> type[Payload] | None:
    return None
