"""`DataWidget`: keyed rows and facts that the kernel decides and the browser draws (tables, timelines, usage).

`Rows` holds them; `static/data.js` has the same as `Store`. Operations are JSON arrays:

    ["-", key]
    ["+", key, after | null, {fields}] a new row behind another one; null is at the start
    ["=", key, {fields}]               the fields that differ
    ["~", key, field, keep, add]       a long text is now its first `keep` UTF-16 units, then `add`
    ["f", {facts}]

A number named `since` or `…_since` is time that passes: the kernel says how many seconds ago it began, the browser
counts on from there, `facts.rate` times as fast as its own clock. A row's `taken` names the acts that were done on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from nbmastra.widgets.document import common_length, utf16_units, whole_text
from nbmastra.widgets.shared import Act, SharedWidget

__all__ = ["DataWidget", "Rows"]

_LONG = 200
"""Texts from this length on are sent by what is new at their end."""
_SAME_S = 0.2
"""A start that moved by less than this hasn't moved: each frame computes it anew."""

Row = dict[str, Any]


class Rows:
    """Rows by key, in order, and facts of the whole; not thread-safe (`DataWidget.change` holds the lock).

    Values are JSON; other objects are written as their `str`, numbers that JSON doesn't know too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._order: list[str] = []
        self._facts: Row = {"rate": 1.0}
        self._gone: dict[str, None] = {}
        self._new: set[str] = set()
        self._changed: dict[str, Row] = {}  # by key, then by field, what the browser has
        self._new_facts: dict[str, None] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> list[str]:
        """Keys of the rows, in order."""
        return list(self._order)

    def get(self, key: str, name: str) -> Any:
        """A field of a row, None if there is no such row or field; of time that passes, the seconds so far."""
        return self._shown(name, self._rows.get(key, {}).get(name))

    def fact(self, name: str) -> Any:
        """A fact of the whole; None if there is no such fact."""
        return self._shown(name, self._facts.get(name))

    def put(self, key: str, fields: Mapping[str, Any], *, after: str | None = None) -> None:
        """A new row, at the end or behind another one; of a row that is there, only the fields that differ are sent."""
        row = self._rows.get(key)
        if row is not None:
            old = {name: row.get(name) for name in fields}
            names = self._update(row, fields)
            if names and key not in self._new:
                known = self._changed.setdefault(key, {})
                for name in names:
                    known.setdefault(name, old[name])
            return
        known = after in self._rows
        row = self._rows[key] = {}
        self._update(row, fields)
        if after is not None and known and after != self._order[-1]:
            self._order.insert(self._order.index(after) + 1, key)
        else:
            self._order.append(key)
        self._new.add(key)

    def drop(self, key: str) -> None:
        """Remove a row, if it is there."""
        if self._rows.pop(key, None) is not None:
            self._order.remove(key)
            self._changed.pop(key, None)
            if key in self._new:
                self._new.remove(key)
            else:
                self._gone[key] = None

    def facts(self, **facts: Any) -> None:
        """Values of the whole; only those that differ are sent."""
        self._new_facts |= dict.fromkeys(self._update(self._facts, facts))

    def pace(self, rate: float, clock: Callable[[], float] | None = None) -> None:
        """Time passes at another rate from now on (0: it stands still), or has jumped, or is told by another clock."""
        moved = 0.0 if clock is None else clock() - self._clock()
        self._clock = clock or self._clock
        self.facts(rate=rate)
        for key, row in self._rows.items():
            for name in _passing(row):
                row[name] += moved
                if key not in self._new:
                    self._changed.setdefault(key, {})[name] = None
        for name in _passing(self._facts):
            self._facts[name] += moved
            self._new_facts[name] = None

    def _update(self, row: Row, fields: Mapping[str, Any]) -> list[str]:
        """Take the fields in; gives the names of those that differ."""
        names: list[str] = []
        for name, given in fields.items():
            value, old = _plain(given), row.get(name)
            if _passes(name) and isinstance(value, int | float):
                value = self._clock() - value
                if isinstance(old, int | float) and abs(value - old) < _SAME_S:
                    continue
            elif type(old) is type(value) and old == value:
                continue
            row[name] = value
            names.append(name)
        return names

    def take(self) -> list[list[Any]]:
        """The changes since the last call; several to one row are one."""
        ops: list[list[Any]] = [["-", key] for key in self._gone]
        ops += reversed(list(self._added()))
        for key, old in self._changed.items():
            row, fields = self._rows[key], Row()
            for name, before in old.items():
                value = row.get(name)
                grown = _grown(before, value)
                if grown is None:
                    fields[name] = self._shown(name, value)
                else:
                    ops.append(["~", key, name, *grown])
            if fields:
                ops.append(["=", key, fields])
        if self._new_facts:
            ops.append(["f", {name: self.fact(name) for name in self._new_facts}])
        self._gone, self._new, self._changed, self._new_facts = {}, set(), {}, {}
        return ops

    def _added(self) -> Iterator[list[Any]]:
        """The new rows, from the last to the first: most of them are at the end."""
        left = len(self._new)
        for place in range(len(self._order) - 1, -1, -1):
            if not left:
                return
            key = self._order[place]
            if key in self._new:
                left -= 1
                yield ["+", key, self._order[place - 1] if place else None, self._row(key)]

    def state(self) -> dict[str, Any]:
        """The whole: `facts`, and `rows` as pairs of key and fields."""
        return {
            "facts": {name: self.fact(name) for name in self._facts},
            "rows": [[key, self._row(key)] for key in self._order],
        }

    def _row(self, key: str) -> Row:
        return {name: self._shown(name, value) for name, value in self._rows[key].items()}

    def _shown(self, name: str, value: Any) -> Any:
        passes = _passes(name) and isinstance(value, int | float)
        return round(self._clock() - value, 2) if passes else value


def _grown(old: Any, new: Any) -> tuple[int, str] | None:
    """How much of a long text stays, in UTF-16 units, and what follows; None for what is better sent as a whole."""
    if not isinstance(old, str) or not isinstance(new, str) or min(len(old), len(new)) < _LONG:
        return None
    same = common_length(old, new)
    return (utf16_units(new[:same]), new[same:]) if same > len(new) // 2 else None


def _passing(row: Row) -> list[str]:
    return [name for name, value in row.items() if _passes(name) and isinstance(value, int | float)]


def _passes(name: str) -> bool:
    return name == "since" or name.endswith("_since")


def _plain(value: Any) -> Any:
    """The value as JSON that any message can carry."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return whole_text(value)[0]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {whole_text(str(name))[0]: _plain(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in cast("Iterable[Any]", value)]
    return whole_text(str(value))[0]


class DataWidget(SharedWidget):
    """Base of the tables, timelines and usage: subclasses change rows inside `change()` and override `on_act`.

    An act on a row is taken once, until `again`; acts that are in `repeats`, or of the whole (no row), as often as
    they come. `script`: a file below static/ with the function `makeView(store, model, el)`.
    """

    script: ClassVar[str] = "table.js"
    styles: ClassVar[tuple[str, ...]] = ("tables.css",)
    repeats: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **traits: Any) -> None:
        self.rows = Rows()
        self.begin(self.rows)
        super().__init__(**traits)

    def begin(self, rows: Rows) -> None:
        """Override it to make what the widget opens with."""

    @contextmanager
    def change(self) -> Generator[Rows]:
        """Change rows and facts; what changed is sent as one message at the end, also when the body raises."""
        with self._lock:
            try:
                yield self.rows
            finally:
                self._flush()

    @classmethod
    def scripts(cls) -> tuple[str, ...]:
        """The store of rows, and what draws them."""
        return ("data.js", cls.script)

    def whole(self) -> dict[str, Any]:
        """Rows and facts."""
        return {**self.rows.state(), "repeats": sorted(self.repeats)}

    def news(self) -> list[Any]:
        """Their changes."""
        return self.rows.take()

    def accept(self, act: Act) -> bool:
        """True for an act of the whole, or on a row that is there, if it wasn't taken before.

        The browser takes it at the first click; a second page, or a click on its way, must not act twice.
        """
        if not act.node or act.name in self.repeats:
            return not act.node or act.node in self.rows
        with self.change() as rows:
            taken: list[str] = rows.get(act.node, "taken") or []
            if act.node not in rows or act.name in taken:
                return False
            rows.put(act.node, {"taken": [*taken, act.name]})
            return True

    def again(self, key: str, *names: str) -> None:
        """Let acts on a row be done again; all of them if none is named."""
        with self.change() as rows:
            taken: list[str] = rows.get(key, "taken") or []
            if taken:
                rows.put(key, {"taken": [name for name in taken if names and name not in names]})
