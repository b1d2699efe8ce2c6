"""The data family: `data-*` chunks, which an application, or a part of Mastra, defines for itself.

They have no payload: `chunk.data` is any JSON, `chunk.id` names the thing it belongs to, a `chunk.transient` one isn't
kept in the message history. Mastra's own `data-signal` has `type` (state or reactive), `tagName` and `contents`.
"""

from __future__ import annotations

__all__ = ["FAMILY", "is_data"]

FAMILY = "data"


def is_data(kind: str) -> bool:
    """True for the `data-*` types."""
    return kind.startswith("data-")
