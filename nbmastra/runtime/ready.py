"""What is there already, in the shape of what one has to wait for: local and remote agents are used alike."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

__all__ = ["Ready"]

T = TypeVar("T")


class Ready(Generic[T]):
    """`await it` on any loop, or `it.result()` in plain code: neither waits."""

    def __init__(self, value: T) -> None:
        self._value = value
        self.done = True

    def __await__(self) -> Generator[Any, None, T]:
        return self._value
        yield

    def result(self, timeout: float | None = None) -> T:
        """The value."""
        return self._value

    def __repr__(self) -> str:
        return "<ready: await it, or call .result()>"
