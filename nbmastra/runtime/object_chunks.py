"""`object` chunks of a growing object: each knows how much of the answer it stands for, and reads that when asked.

A chunk holds the whole object so far, so an object of n pieces would cost n² to keep; this way it costs n.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import BuiltChunk
from nbmastra.chunks.envelope import Head
from nbmastra.runtime.answer_object import AnswerObject

__all__ = ["ObjectGrowth"]

_CURSORS = 4
"""Readers of one run that go forward at their own pace: a view, a recording, a late `async for` …"""


class ObjectGrowth:
    """The answer of one step: feed it its text; gives an `object` chunk whenever what shows of the object has changed.

    envelope: the chunk's keys besides type and object. make: a new reader of such an answer.
    """

    def __init__(self, envelope: dict[str, Any], make: Callable[[], AnswerObject]) -> None:
        self.answer = make()
        self._envelope = envelope
        self._make = make
        self._pieces: list[str] = []
        self._cursors: list[AnswerObject] = []
        self._lock = threading.Lock()
        self._last: tuple[int, dict[str, Any]] = (-1, {})

    def feed(self, piece: str) -> Chunk | None:
        """More of the answer."""
        self._pieces.append(piece)
        if not self.answer.feed(piece):
            return None
        head = _GrowingHead(self, len(self._pieces))
        return BuiltChunk(head.type, head, b"")

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._pieces)

    def wire(self, count: int) -> dict[str, Any]:
        """The chunk of when `count` pieces were there; on any thread."""
        with self._lock:
            if self._last[0] != count:
                cursor = self._cursor(count)
                for piece in self._pieces[cursor.pieces : count]:
                    cursor.feed(piece)
                envelope = {key: value for key, value in self._envelope.items() if key != "metadata"}
                rest = {key: value for key, value in self._envelope.items() if key == "metadata"}
                self._last = count, {**envelope, "type": "object", "object": cursor.value, **rest}
            return self._last[1]

    def _cursor(self, count: int) -> AnswerObject:
        """The reader that has come farthest without having passed this place."""
        best = max((one for one in self._cursors if one.pieces <= count), key=lambda one: one.pieces, default=None)
        if best is None:
            best = self._make()
        else:
            self._cursors.remove(best)
        self._cursors = [*self._cursors[-_CURSORS + 1 :], best]
        return best


class _GrowingHead(Head):
    """The head of an `object` chunk; `whole` is made when it is asked for."""

    __slots__ = ("_count", "_growth")

    def __init__(self, growth: ObjectGrowth, count: int) -> None:
        self._growth, self._count = growth, count
        super().__init__({**growth._envelope, "type": "object"}, b"")  # pyright: ignore[reportPrivateUsage]  # its own

    @property
    def whole(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]  # read, never set
        return self._growth.wire(self._count)

    @whole.setter
    def whole(self, value: dict[str, Any] | None) -> None:
        """The base class has none to set."""
