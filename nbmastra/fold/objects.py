"""The growing object of a structured answer, read from the text deltas."""

from __future__ import annotations

from typing import Any, cast

from nbmastra.partial_json import PartialJson, PartialJsonError

__all__ = ["ObjectText"]


class ObjectText:
    """A step's text read as JSON while it comes; array answers are unwrapped from `{"elements": […]}`."""

    __slots__ = ("_json", "failed", "wrapped")

    def __init__(self, *, wrapped: bool = False) -> None:
        self._json = PartialJson()
        self.failed = False
        self.wrapped = wrapped

    def feed(self, piece: str) -> None:
        """Read on; text that is no JSON (prose, a code fence) sets `failed`, and the object must come another way."""
        if not self.failed:
            try:
                self._json.feed(piece)
            except PartialJsonError:
                self.failed = True

    @property
    def value(self) -> Any:
        """The value so far, immune to later feeds; None if it failed."""
        if self.failed:
            return None
        value = self._json.snapshot()
        if self.wrapped and isinstance(value, dict):
            return cast("dict[str, Any]", value).get("elements")
        return value

    @property
    def started(self) -> bool:
        """True if there is a value; of a wrapped array, if it has begun."""
        value = self._json.value
        return self._json.started and not (self.wrapped and isinstance(value, dict) and "elements" not in value)

    @property
    def complete(self) -> bool:
        """True if the JSON value is closed."""
        return not self.failed and self._json.complete

    @property
    def path(self) -> tuple[str | int, ...]:
        """Where the newest value stands in `value`."""
        path = self._json.path
        return path[1:] if self.wrapped and path[:1] == ("elements",) else path

    @property
    def closed_elements(self) -> int:
        """How many elements of the array are complete."""
        wrapped = self.wrapped and isinstance(self._json.value, dict)
        return self._json.closed_items(("elements",) if wrapped else ())
