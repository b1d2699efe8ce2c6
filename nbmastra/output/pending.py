"""`Pending`: a value of a run that will be there when the run has come far enough."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

__all__ = ["Pending", "PendingList"]

T = TypeVar("T")


class _Run(Protocol):
    @property
    def is_settled(self) -> bool: ...
    async def settled(self) -> None: ...
    def settled_blocking(self, timeout: float | None = None) -> None: ...


class Pending(Generic[T]):
    """`await out.text` on any asyncio loop, `out.text.result()` in plain code; may be awaited often, or never."""

    def __init__(self, out: _Run, name: str, read: Callable[[], T]) -> None:
        self._out = out
        self._name = name
        self._read = read

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        await self._out.settled()
        return self._read()

    def result(self, timeout: float | None = None) -> T:
        """The value, waiting for it at most `timeout` seconds (TimeoutError)."""
        self._out.settled_blocking(timeout)
        return self._read()

    @property
    def done(self) -> bool:
        """True if awaiting it wouldn't wait."""
        return self._out.is_settled

    def __repr__(self) -> str:
        return f"<{self._name}: {'ready, ' if self.done else ''}await it, or call .result()>"


class PendingList(Pending[list[T]], Sequence[T]):
    """A list that grows: awaiting gives the whole, indexing and iterating what is there by now."""

    def __init__(self, out: _Run, name: str, read: Callable[[], list[T]], now: Callable[[], list[T]]) -> None:
        super().__init__(out, name, read)
        self._now = now

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._now()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
