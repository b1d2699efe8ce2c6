"""Which step and which call of one run answers to which of another, and where JSON values differ."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeVar, cast

from nbmastra.fold import Step, ToolCall, WorkflowStep

__all__ = ["JsonChange", "align", "align_calls", "json_changes", "step_likeness"]

T = TypeVar("T")
Pair = tuple[T | None, T | None]
Call = ToolCall | WorkflowStep

_MAX_CELLS = 60_000
"""Sequences are compared each with each up to so many pairs; longer ones are parted first where their kinds agree."""
_MAX_CHANGES = 500
_MAX_DEPTH = 40
_GIST = 2_000
"""Characters of a text by which steps are compared."""


# --- sequences -------------------------------------------------------------------------------------------------------


def align(
    a: Sequence[T], b: Sequence[T], likeness: Callable[[T, T], float], kind: Callable[[T], Hashable]
) -> list[Pair[T]]:
    """Items that answer to each other, in order; None where one has an item more. `likeness`: above 0 up to 1.

    Pairs are chosen so that their likeness is highest in sum, none crossing another.
    """
    if len(a) * len(b) <= _MAX_CELLS:
        return _best(a, b, likeness)
    pairs: list[Pair[T]] = []
    at_a = at_b = 0
    matcher = SequenceMatcher(None, [kind(item) for item in a], [kind(item) for item in b], autojunk=False)
    for i, k, size in matcher.get_matching_blocks():
        left, right = a[at_a:i], b[at_b:k]
        pairs += _best(left, right, likeness) if len(left) * len(right) <= _MAX_CELLS else _side_by_side(left, right)
        pairs += zip(a[i : i + size], b[k : k + size], strict=True)
        at_a, at_b = i + size, k + size
    return pairs


def _best(a: Sequence[T], b: Sequence[T], likeness: Callable[[T, T], float]) -> list[Pair[T]]:
    scores = [[likeness(left, right) for right in b] for left in a]
    sums = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        for k in range(len(b) - 1, -1, -1):
            sums[i][k] = max(sums[i + 1][k + 1] + scores[i][k], sums[i + 1][k], sums[i][k + 1])
    pairs: list[Pair[T]] = []
    i = k = 0
    while i < len(a) and k < len(b):
        if sums[i][k] == sums[i + 1][k + 1] + scores[i][k]:
            pairs.append((a[i], b[k]))
            i, k = i + 1, k + 1
        elif sums[i][k] == sums[i + 1][k]:
            pairs.append((a[i], None))
            i += 1
        else:
            pairs.append((None, b[k]))
            k += 1
    return [*pairs, *((item, None) for item in a[i:]), *((None, item) for item in b[k:])]


def _side_by_side(a: Sequence[T], b: Sequence[T]) -> list[Pair[T]]:
    shared = min(len(a), len(b))
    pairs: list[Pair[T]] = list(zip(a[:shared], b[:shared], strict=True))
    return [*pairs, *((item, None) for item in a[shared:]), *((None, item) for item in b[shared:])]


# --- steps and calls -------------------------------------------------------------------------------------------------


def step_likeness() -> Callable[[Step, Step], float]:
    """How alike two steps are, by the tools they call, with what, and what they say; never 0, so that steps at the
    same place answer to each other even if all is different."""
    known: dict[int, tuple[Counter[str], Counter[str], frozenset[str]]] = {}

    def gist(step: Step) -> tuple[Counter[str], Counter[str], frozenset[str]]:
        found = known.get(id(step))
        if found is None:
            calls = step.tool_calls
            names = Counter(call.tool_name for call in calls)
            whole = Counter(f"{call.tool_name} {_key(call.args)}" for call in calls)
            found = known[id(step)] = names, whole, frozenset(step.text[:_GIST].split())
        return found

    def likeness(a: Step, b: Step) -> float:
        (names_a, whole_a, words_a), (names_b, whole_b, words_b) = gist(a), gist(b)
        count = names_a.total() + names_b.total()
        names = 2 * (names_a & names_b).total() / count if count else 1.0
        whole = 2 * (whole_a & whole_b).total() / count if count else 1.0
        return 0.1 + 0.3 * names + 0.3 * whole + 0.3 * _overlap(words_a, words_b)

    return likeness


def align_calls(a: Sequence[Call], b: Sequence[Call]) -> list[Pair[Call]]:
    """Calls of the same tool, those with the likest arguments first, whatever their order; then what is left over."""
    partner: dict[int, Call] = {}
    taken: set[int] = set()
    for name in dict.fromkeys(call.tool_name for call in a):
        left = [call for call in a if call.tool_name == name]
        right = [call for call in b if call.tool_name == name]
        for first, second in _likest(left, right):
            partner[id(first)] = second
            taken.add(id(second))
    pairs: list[Pair[Call]] = [(call, partner.get(id(call))) for call in a]
    return [*pairs, *((None, call) for call in b if id(call) not in taken)]


def _likest(a: list[Call], b: list[Call]) -> Iterator[tuple[Call, Call]]:
    if len(a) * len(b) > _MAX_CELLS:
        yield from zip(a, b, strict=False)
        return
    leaves_a, leaves_b = [_leaves(call.args) for call in a], [_leaves(call.args) for call in b]
    ranked = sorted(
        (-_overlap(leaves_a[i], leaves_b[k]), abs(i - k), i, k) for i in range(len(a)) for k in range(len(b))
    )
    used_a, used_b = set[int](), set[int]()
    for _, _, i, k in ranked:
        if i not in used_a and k not in used_b:
            used_a.add(i)
            used_b.add(k)
            yield a[i], b[k]


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def _leaves(value: Any) -> frozenset[str]:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return frozenset(f"{key}={_key(item)}" for key, item in items)
    return frozenset([_key(value)])


def _key(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)[:_GIST]
    except (ValueError, TypeError, RecursionError):
        return "?"


# --- JSON ------------------------------------------------------------------------------------------------------------


class JsonChange(NamedTuple):
    """A place where two JSON values differ: `legs[2].km`, "" for the whole. `change`: changed, added, removed."""

    path: str
    change: str
    a: Any
    b: Any


def json_changes(a: Any, b: Any) -> list[JsonChange]:
    """Where two values differ, by path, in the order of the first; after 500 places the rest is one, called `…`."""
    changes: list[JsonChange] = []
    more = 0
    for change in _changes(a, b, "", 0):
        if len(changes) < _MAX_CHANGES:
            changes.append(change)
        else:
            more += 1
    if more:
        changes.append(JsonChange("…", "changed", None, f"{more} more"))
    return changes


def _changes(a: Any, b: Any, path: str, depth: int) -> Iterator[JsonChange]:
    if depth < _MAX_DEPTH and isinstance(a, dict) and isinstance(b, dict):
        left, right = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
        for key in [*left, *(key for key in right if key not in left)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in right:
                yield JsonChange(inner, "removed", left[key], None)
            elif key not in left:
                yield JsonChange(inner, "added", None, right[key])
            else:
                yield from _changes(left[key], right[key], inner, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(a, list) and isinstance(b, list):
        yield from _list_changes(cast("list[Any]", a), cast("list[Any]", b), path, depth)
    elif not _same(a, b):
        yield JsonChange(path, "changed", a, b)


def _list_changes(a: list[Any], b: list[Any], path: str, depth: int) -> Iterator[JsonChange]:
    """Items by their place, counted in the first list; what both begin and end with holds them together."""
    start, most = 0, min(len(a), len(b))
    while start < most and _same(a[start], b[start]):
        start += 1
    end = 0
    while end < most - start and _same(a[len(a) - 1 - end], b[len(b) - 1 - end]):
        end += 1
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    for place, (first, second) in enumerate(zip(left, right, strict=False), start):
        yield from _changes(first, second, f"{path}[{place}]", depth + 1)
    shared = min(len(left), len(right))
    for place, item in enumerate(left[shared:], start + shared):
        yield JsonChange(f"{path}[{place}]", "removed", item, None)
    for place, item in enumerate(right[shared:], start + shared):
        yield JsonChange(f"{path}[{place}]", "added", None, item)


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true aren't."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    try:
        if isinstance(a, dict | list) and isinstance(b, dict | list):
            return isinstance(a, dict) is isinstance(b, dict) and _key_whole(cast("Any", a)) == _key_whole(
                cast("Any", b)
            )
        return bool(a == b)
    except RecursionError:
        return a is b


def _key_whole(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except (ValueError, TypeError):
        return str(id(value))
