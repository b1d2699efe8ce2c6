"""Asking a model something on the side: one call, no tools, its text as it comes. For judges and structuring models."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from nbmastra.runtime.model import Finish, Model, ModelEvent, ModelRequest, PartDelta

__all__ = ["ask_model"]


async def ask_model(model: Model, request: ModelRequest) -> AsyncGenerator[str]:
    """The pieces of the answer's text. Raises what the model raises, and RuntimeError if it stops with an error."""
    stream = cast("AsyncGenerator[ModelEvent]", model.stream(request))
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, PartDelta) and event.kind == "text" and event.text:
                yield event.text
            elif isinstance(event, Finish) and event.reason == "error":
                raise RuntimeError("the model stopped with an error and said no more")
