"""What is open as long as the engine's loop runs: databases, connections to providers."""

from __future__ import annotations

import weakref
from typing import Protocol

from nbmastra.engine import Engine

__all__ = ["Closable", "close_with"]


class Closable(Protocol):
    """Something that is closed on the engine's loop."""

    async def aclose(self) -> None:
        """Close it; nothing if it is closed."""
        ...


def close_with(engine: Engine, thing: Closable) -> bool:
    """Have it closed before the engine's loop ends, without keeping it alive; False if that was arranged before."""
    held: weakref.WeakSet[Closable] = engine.resources.setdefault("held", weakref.WeakSet())
    if "closes_held" not in engine.resources:
        engine.resources["closes_held"] = True

        async def close_all() -> None:
            for open_thing in list(held):
                await open_thing.aclose()

        engine.on_close(close_all)
    if thing in held:
        return False
    held.add(thing)
    return True
