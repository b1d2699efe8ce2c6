"""Which chunk types there are: family, payload model and, for deltas, where their text stands.

One module a family; each has `FAMILY`, its models, and `PAYLOADS` (type → model). Types by pattern (`data-*`,
`agent-execution-event-*`) are resolved here.
"""

from __future__ import annotations

from nbmastra.chunks import (
    background,
    control,
    data,
    goal,
    network,
    object_,
    reasoning,
    source_file,
    text,
    tool,
    tripwire,
    workflow,
)
from nbmastra.chunks.data import is_data
from nbmastra.chunks.payload import Payload

__all__ = ["CHUNK_TYPES", "delta_key", "family", "is_data", "payload_model"]

_MODULES = (text, reasoning, tool, source_file, object_, control, goal, tripwire, background, workflow, network)

CHUNK_TYPES: dict[str, type[Payload]] = {kind: model for module in _MODULES for kind, model in module.PAYLOADS.items()}
_FAMILIES: dict[str, str] = {kind: module.FAMILY for module in _MODULES for kind in module.PAYLOADS}
_DELTA_KEYS = {
    "text-delta": "text",
    "reasoning-delta": "text",
    "tool-call-delta": "argsTextDelta",
    "routing-agent-text-delta": "text",
}


def payload_model(kind: str) -> type[Payload] | None:
    """The payload model of a chunk type; None for types without one."""
    return CHUNK_TYPES.get(kind) or network.model_by_pattern(kind)


def family(kind: str) -> str:
    """The family of a chunk type, as WIRE's table names it; "unknown" if there is none."""
    if kind in _FAMILIES:
        return _FAMILIES[kind]
    return data.FAMILY if is_data(kind) else network.FAMILY if network.model_by_pattern(kind) else "unknown"


def delta_key(kind: str) -> str | None:
    """The payload key that holds a delta's text; None for types that are no deltas."""
    return _DELTA_KEYS.get(kind)
