"""Token usage: one shape for all spellings; what a provider didn't report stays missing (None), never 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, cast

__all__ = ["Usage", "parse_usage", "sum_usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a step, turn or run. Cached input is part of input, reasoning part of output. Source: WIRE, "Usage"."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    @property
    def reported(self) -> bool:
        """True if any number was reported."""
        return any(getattr(self, name) is not None for name in FIELDS)

    @property
    def nonzero(self) -> bool:
        """True if any number above 0 was reported."""
        return any(getattr(self, name) for name in FIELDS)

    def __add__(self, other: Usage) -> Usage:
        """The sum by field; a number that only one side has is kept, one that neither has stays missing."""
        return Usage(*(_add(getattr(self, name), getattr(other, name)) for name in FIELDS))

    def minus(self, other: Usage) -> Usage:
        """The difference by field, never below 0; a number missing here stays missing."""
        mine, others = self.to_dict(), other.to_dict()
        return Usage(**{name: max(value - others.get(name, 0), 0) for name, value in mine.items()})

    def difference(self, other: Usage) -> Usage:
        """What must be added to `other` to get this one, by field; missing where there is none."""
        mine, others = self.to_dict(), other.to_dict()
        gaps = {name: mine.get(name, 0) - others.get(name, 0) for name in FIELDS}
        return Usage(**{name: gap for name, gap in gaps.items() if gap})

    def or_else(self, other: Usage) -> Usage:
        """This usage, its missing numbers taken from `other`."""
        mine, others = self.to_dict(), other.to_dict()
        return Usage(**(others | mine))

    def to_dict(self) -> dict[str, int]:
        """The reported numbers by their snake_case names."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        return f"Usage({', '.join(f'{name}={value:,}' for name, value in self.to_dict().items()) or 'not reported'})"


FIELDS = tuple(field.name for field in fields(Usage))


def _add(a: int | None, b: int | None) -> int | None:
    return a + b if a is not None and b is not None else a if b is None else b


def sum_usage(parts: Iterable[Usage]) -> Usage:
    """The sum of several usages, missing where none reported a number."""
    total = Usage()
    for part in parts:
        total += part
    return total


def parse_usage(value: object) -> Usage:
    """A wire usage as `Usage`: flat or nested by `total`; unknown shapes give an empty one.

    A missing total is input + output where both are there; a provider's own total is kept, since it may count more.
    """
    wire = _dict(value)
    if not wire:
        return Usage()
    input_ = wire.get("inputTokens", wire.get("promptTokens"))
    output = wire.get("outputTokens", wire.get("completionTokens"))
    input_parts, output_parts = _dict(input_), _dict(output)
    input_tokens = _count(input_parts.get("total") if input_parts else input_)
    output_tokens = _count(output_parts.get("total") if output_parts else output)
    total = _count(wire.get("totalTokens"))
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    return Usage(
        input_tokens,
        output_tokens,
        total,
        _first(wire.get("reasoningTokens"), output_parts.get("reasoning")),
        _first(wire.get("cachedInputTokens"), input_parts.get("cacheRead")),
        _first(wire.get("cacheCreationInputTokens"), input_parts.get("cacheWrite")),
    )


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _first(flat: object, nested: object) -> int | None:
    count = _count(flat)
    return count if count is not None else _count(nested)


def _count(value: object) -> int | None:
    if type(value) is int:  # no bool, which is a subclass
        return value
    return int(value) if isinstance(value, float) and isfinite(value) else None
