"""`Request`: a question to a server that ends with whoever waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from nbmastra.engine import Engine, Job

__all__ = ["Request"]

T = TypeVar("T")


class Request(Job[T]):
    """`await request` on any asyncio loop, `request.result()` in plain code; it is under way already.

    An interrupt while waiting cancels it. `abandon` ends what it had begun by then: no run goes on that nobody holds.
    """

    def __init__(
        self,
        engine: Engine,
        function: Callable[[], Coroutine[Any, Any, T]],
        *,
        abandon: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(engine.start(function)._future, engine)
        self._abandon = abandon

    def cancel(self) -> None:
        """Stop asking, and what was begun by it; returns at once."""
        super().cancel()
        if self._abandon is not None:
            self._engine.call_soon(self._abandon)

    def result(self, timeout: float | None = None) -> T:
        """The answer, waiting for it at most `timeout` seconds (TimeoutError). Raises ClientError."""
        try:
            return super().result(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def __await__(self) -> Generator[Any, None, T]:
        try:
            return (yield from super().__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise

    def __repr__(self) -> str:
        return f"<Request {'answered' if self.done else 'under way'}: await it, or call .result()>"
