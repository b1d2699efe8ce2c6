"""Places that the upper layers fill, so that an output can show itself though imports point down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Hooks", "hooks"]


class Hooks:
    """`display(out)` shows an output in a notebook; `frame(name, out, options)` gives a DataFrame of it.

    `widget(name, out, options)` gives a live view of a part of it; `started(out)` is called with each run that begins
    to read its source, and so is each of `listeners`.
    """

    display: Callable[[Any], None] | None = None
    frame: Callable[[str, Any, dict[str, Any]], Any] | None = None
    widget: Callable[[str, Any, dict[str, Any]], Any] | None = None
    started: Callable[[Any], None] | None = None

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any], None]] = []


hooks = Hooks()
