"""Where two texts differ, word by word, in time that grows with their length and not with its square.

common beginning and end ─▶ lines that occur once in both part the rest ─▶ words within what is left, to a limit
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Piece", "similarity", "word_diff"]

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_EDITS = 400
"""Stretches that differ by more words than that are replaced as a whole."""
_DIRECTLY = 400
"""Stretches of at most so many words are compared without looking for lines first."""


class Piece(NamedTuple):
    """A stretch of text: in both, in the first only (removed), or in the second only (added)."""

    kind: Literal["same", "removed", "added"]
    text: str


_Span = tuple[int, int, int, int]  # a[i:j] became b[k:l]


def word_diff(a: str, b: str) -> list[Piece]:
    """The pieces that both texts are made of, in order; without "added" they join to `a`, without "removed" to `b`."""
    if a == b:
        return [Piece("same", a)] if a else []
    left, right = _WORDS.findall(a), _WORDS.findall(b)
    pieces: list[Piece] = []
    at = 0
    for i, j, k, end in _joined(_changes(left, right), left):
        _put(pieces, "same", left[at:i])
        _put(pieces, "removed", left[i:j])
        _put(pieces, "added", right[k:end])
        at = j
    _put(pieces, "same", left[at:])
    return pieces


def similarity(pieces: Sequence[Piece]) -> float:
    """How much of both texts is the same: 0 to 1."""
    same = sum(len(piece.text) for piece in pieces if piece.kind == "same")
    whole = same + sum(len(piece.text) for piece in pieces)
    return 2 * same / whole if whole else 1.0


def _put(pieces: list[Piece], kind: Literal["same", "removed", "added"], words: list[str]) -> None:
    if words:
        pieces.append(Piece(kind, "".join(words)))


def _joined(spans: list[_Span], left: list[str]) -> list[_Span]:
    """Changes with nothing but a space between them are one: that reads better."""
    joined: list[_Span] = []
    for span in spans:
        if joined:
            i, j, k, _ = joined[-1]
            between = left[j : span[0]]
            if len(between) == 1 and between[0].isspace() and "\n" not in between[0]:
                joined[-1] = (i, span[1], k, span[3])
                continue
        joined.append(span)
    return joined


def _changes(a: list[str], b: list[str]) -> list[_Span]:
    start, end_a, end_b = _trimmed(a, b)
    if start in (end_a, end_b):
        return [(start, end_a, start, end_b)] if start < max(end_a, end_b) else []
    left, right = a[start:end_a], b[start:end_b]
    spans = _by_lines(left, right) if len(left) + len(right) > _DIRECTLY else _by_words(left, right)
    return [(i + start, j + start, k + start, end + start) for i, j, k, end in spans]


def _trimmed(a: Sequence[str], b: Sequence[str]) -> tuple[int, int, int]:
    """Length of the common beginning, and where the common end begins in each."""
    start, most = 0, min(len(a), len(b))
    while start < most and a[start] == b[start]:
        start += 1
    end_a, end_b = len(a), len(b)
    while end_a > start and end_b > start and a[end_a - 1] == b[end_b - 1]:
        end_a -= 1
        end_b -= 1
    return start, end_a, end_b


def _by_lines(a: list[str], b: list[str]) -> list[_Span]:
    """Lines and sentences that occur once in both hold the texts together; what lies between is compared by words."""
    lines_a, lines_b = _lines(a), _lines(b)
    once_a, once_b = _once(lines_a), _once(lines_b)
    pairs = sorted((place, once_b[text]) for text, place in once_a.items() if text in once_b)
    spans: list[_Span] = []
    at_a = at_b = 0
    for first, second in [*_rising(pairs), (None, None)]:
        to_a = lines_a[first][1] if first is not None else len(a)
        to_b = lines_b[second][1] if second is not None else len(b)
        if at_a < to_a or at_b < to_b:
            spans += [(i + at_a, j + at_a, k + at_b, e + at_b) for i, j, k, e in _gap(a[at_a:to_a], b[at_b:to_b])]
        if first is not None and second is not None:
            at_a, at_b = lines_a[first][2], lines_b[second][2]
    return spans


def _gap(a: list[str], b: list[str]) -> list[_Span]:
    start, end_a, end_b = _trimmed(a, b)
    spans = _by_words(a[start:end_a], b[start:end_b])
    return [(i + start, j + start, k + start, end + start) for i, j, k, end in spans]


def _lines(words: list[str]) -> list[tuple[str, int, int]]:
    """Lines and sentences, with the words they reach from and to."""
    lines: list[tuple[str, int, int]] = []
    first = 0
    for place, word in enumerate(words, 1):
        if "\n" in word or word in ".!?" or place == len(words):
            lines.append(("".join(words[first:place]).strip(), first, place))
            first = place
    return lines


def _once(lines: list[tuple[str, int, int]]) -> dict[str, int]:
    counts = Counter(line[0] for line in lines)
    return {line[0]: place for place, line in enumerate(lines) if counts[line[0]] == 1 and len(line[0]) > 3}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest choice of pairs in which both numbers rise."""
    tails: list[int] = []
    chosen: list[int] = []
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        place = bisect_left(tails, second)
        before.append(chosen[place - 1] if place else -1)
        if place == len(tails):
            tails.append(second)
            chosen.append(number)
        else:
            tails[place], chosen[place] = second, number
    rising: list[tuple[int, int]] = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        rising.append(pairs[number])
        number = before[number]
    return rising[::-1]


def _by_words(a: list[str], b: list[str]) -> list[_Span]:
    """The shortest list of changes (Myers' greedy algorithm), or one of everything beyond the limit."""
    if not a or not b:
        return [(0, len(a), 0, len(b))] if a or b else []
    rounds = _rounds(a, b)
    if rounds is None:
        return [(0, len(a), 0, len(b))]
    spans: list[_Span] = []
    x, y = len(a), len(b)
    for edits in range(len(rounds) - 1, 0, -1):
        reach = rounds[edits - 1]
        k = x - y
        down = k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        k += 1 if down else -1
        from_x = reach[k]
        from_y = from_x - k
        to_x, to_y = (from_x, from_y + 1) if down else (from_x + 1, from_y)
        _prepend(spans, from_x, to_x, from_y, to_y)
        x, y = from_x, from_y
    return spans[::-1]


def _prepend(spans: list[_Span], i: int, j: int, k: int, end: int) -> None:
    """A change before those found so far, which are in reverse; one that touches the next is a part of it."""
    if spans and (spans[-1][0], spans[-1][2]) == (j, end):
        spans[-1] = (i, spans[-1][1], k, spans[-1][3])
    else:
        spans.append((i, j, k, end))


def _rounds(a: list[str], b: list[str]) -> list[dict[int, int]] | None:
    """How far each diagonal reaches after so many edits, up to those that reach the end."""
    n, m = len(a), len(b)
    if abs(n - m) > _MAX_EDITS:
        return None
    rounds: list[dict[int, int]] = []
    reach: dict[int, int] = {}
    for edits in range(min(n + m, _MAX_EDITS) + 1):
        found: dict[int, int] = {}
        for k in range(-edits, edits + 1, 2):
            if edits == 0:
                x = 0
            elif k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1)):
                x = reach.get(k + 1, -1)
            else:
                x = reach.get(k - 1, -1) + 1
            y = x - k
            if x < 0 or x > n or y < 0 or y > m:
                continue
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            found[k] = x
            if x == n and y == m:
                return [*rounds, found]
        rounds.append(found)
        reach = found
    return None
