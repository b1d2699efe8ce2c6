"""What an agent is told before anybody speaks: a text, several, or a function that gives them."""

from __future__ import annotations

import inspect
from typing import Any

from nbmastra.runtime.model import Message

__all__ = ["system_messages"]


async def system_messages(instructions: Any, request_context: dict[str, Any]) -> list[Message]:
    """The instructions as system messages; empty ones are left out. Raises what a function raises."""
    if callable(instructions):
        instructions = instructions(request_context)
        if inspect.isawaitable(instructions):
            instructions = await instructions
    texts: list[Any] = [instructions] if isinstance(instructions, str | dict) else list(instructions or ())
    return [text if isinstance(text, dict) else {"role": "system", "content": str(text)} for text in texts if text]
