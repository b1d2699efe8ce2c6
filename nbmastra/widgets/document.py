"""The document of a live widget: a tree of nodes that the kernel decides and the browser copies.

The kernel changes its own copy through the methods of `Document`; `take()` gives the changes since the last call as
small operations, `state()` the whole. `static/live.js` applies both. Operations are JSON arrays, empty ends left out:

    ["+", id, parent, before | 0, tag, class, {attributes}, html | null]   a new node; before 0 is at the end
    ["=", id, keep, add]               its html is now its first `keep` UTF-16 units, then `add`
    ["c", id, class]
    ["a", id, {name: value | null}]    null removes
    ["s", id, seconds | null]          the browser shows the seconds, counting on from here; null stops
    ["-", id]                          the node and all below it
    ["r", id, {old id: new id}]        nodes below it have other ids now
    ["t", "", rate]                    shown seconds pass so many times as fast; 0 is not at all
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ROOT", "Document", "Op", "common_length", "text_html", "utf16_units", "whole_text"]

Op = list[Any]
ROOT = ""

_TAG = re.compile(
    "a|b|button|caption|code|dd|details|div|dl|dt|em|fieldset|figcaption|figure|form|h[1-6]|hr|i|img|input|label|legend|li"
    "|ol|optgroup|option|p|pre|progress|section|select|small|span|strong|summary|table|tbody|td|textarea|tfoot|th|thead"
    "|tr|ul"
)
_ATTRIBUTE = re.compile(
    "aria-[a-z]+|data-nbm-[a-z]+|alt|autocomplete|checked|colspan|dir|disabled|for|height|hidden|href|id|inputmode|lang|list"
    "|max|maxlength|min|multiple|name|open|pattern|placeholder|readonly|required|role|rows|rowspan|scope|selected|size"
    "|spellcheck|src|step|style|tabindex|title|type|value|width"
)
_VALUE = {
    "href": re.compile(r"(https?:|mailto:).*", re.IGNORECASE | re.DOTALL),
    "src": re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*"),
    "style": re.compile(r"(--[a-z-]+: ?[0-9.]+(%|px|em)?;? ?)*"),  # numbers for the stylesheet, nothing else
}


def text_html(text: str) -> str:
    """Plain text as HTML that shows it."""
    return html.escape(text, quote=False)


@dataclass(slots=True)
class _Node:
    parent: str
    tag: str
    cls: str
    attrs: dict[str, str]
    html: str | None
    wide: bool  # html holds characters of two UTF-16 units, so units aren't indices
    since: float | None = None  # on the document's clock
    kids: list[str] = field(default_factory=list[str])


class Document:
    """Nodes by id, in order; not thread-safe (`LiveWidget.frame` holds the lock).

    A node has either html or children. `html` must be safe already: the document checks tags and attributes only. All
    methods raise KeyError for a missing node and ValueError for a tag, attribute or value that isn't allowed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.rate = 1.0
        """How many times as fast as the browser's time the clock runs."""
        self._nodes = {ROOT: _Node(ROOT, "div", "", {}, None, False)}
        self._made = 0
        self._ready: list[Op] = []
        self._queue: list[Op] = []
        self._queued: dict[tuple[str, str], Op] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._nodes

    def add(
        self,
        parent: str = ROOT,
        tag: str = "div",
        cls: str = "",
        *,
        attrs: Mapping[str, str] | None = None,
        html: str | None = None,
        text: str | None = None,
        before: str | None = None,
    ) -> str:
        """A new node, last in its parent or before a sibling; returns its id."""
        if _TAG.fullmatch(tag) is None:
            raise ValueError(f"the tag {tag!r} is not allowed")
        above = self._nodes[parent]
        if above.html:
            raise ValueError("a node with html has no children")
        own = {name: _checked(name, value) for name, value in (attrs or {}).items()}
        place = len(above.kids) if before is None else above.kids.index(before)
        node = _Node(parent, tag, cls, own, None, False)
        if html is not None or text is not None:
            node.html, units = whole_text(html if html is not None else text_html(text or ""))
            node.wide = units != len(node.html)
        self._made += 1
        id = _base36(self._made)
        self._nodes[id] = node
        above.kids.insert(place, id)
        self._put("+", id, [parent, before or 0, tag, "", {}, None])
        return id

    def patch(self, id: str, keep: int, add: str) -> None:
        """Keep the first `keep` UTF-16 units of the node's html, then add; costs what is new."""
        node = self._nodes[id]
        if node.kids:
            raise ValueError("a node with children has no html")
        add, units = whole_text(add)
        node.html = _head(node, keep) + add
        node.wide = node.wide or units != len(add)
        op = self._queued.get(("=", id))
        if op is not None:
            op[2] = min(op[2], keep)
        elif ("+", id) not in self._queued:
            self._put("=", id, [keep, ""])

    def set_html(self, id: str, html: str) -> None:
        """The node's new html; only what differs behind the common beginning is sent."""
        node = self._nodes[id]
        old = node.html or ""
        if html == node.html:
            return
        same = common_length(old, html)
        self.patch(id, utf16_units(old[:same]) if node.wide else same, html[same:])

    def set_text(self, id: str, text: str) -> None:
        """The node's new content as plain text."""
        self.set_html(id, text_html(text))

    def set_cls(self, id: str, cls: str) -> None:
        """The node's new classes."""
        node = self._nodes[id]
        if node.cls != cls:
            node.cls = cls
            if ("+", id) not in self._queued:
                self._put("c", id, [cls])

    def set_attr(self, id: str, name: str, value: str | None) -> None:
        """Set an attribute ("" for one without value), or remove it (None)."""
        node = self._nodes[id]
        if node.attrs.get(name) == value:
            return
        if value is None:
            del node.attrs[name]
        else:
            value = node.attrs[name] = _checked(name, value)
        if ("+", id) not in self._queued:
            self._put("a", id, [{}])[2][name] = value

    def since(self, id: str, seconds: float | None) -> None:
        """Let the browser show time as it passes, from `seconds` on; None stops it (set the final text then)."""
        node = self._nodes[id]
        if seconds is None and node.since is None:
            return
        node.since = None if seconds is None else self._clock() - seconds
        self._put("s", id, [None])

    def pace(self, rate: float, clock: Callable[[], float] | None = None) -> None:
        """The clock runs at another rate from now on (0: it stands still), or has jumped; or it is another clock."""
        self._clock = clock or self._clock
        if rate != self.rate:
            self.rate = rate
            self._put("t", ROOT, [None])
        for id, node in self._nodes.items():
            if node.since is not None:
                self._put("s", id, [None])

    def remove(self, id: str) -> None:
        """Remove a node and everything below it."""
        node = self._nodes[id]
        self._nodes[node.parent].kids.remove(id)
        self._cut([id])
        self._put("-", id, [])

    @contextmanager
    def rebuilt(self, id: str) -> Generator[None]:
        """What the block builds below a node takes the place of what was there.

        Nodes alike in both stay the same elements in the browser, with what a reader opened, selected or scrolled, and
        only what differs is sent.
        """
        self._ready += self._resolved()
        root = self._nodes[id]
        before, root.kids = root.kids, []
        old = self._cut(before)
        known = set(self._nodes)
        try:
            yield
        finally:
            new = dict(self._below(root.kids))
            known |= self._nodes.keys() - new.keys()  # what was made and removed in the block, nobody needs to know of
            self._ready += [op for op in self._resolved() if op[1] in known]
            self._ready += _Rebuild(old, new, self._elapsed).ops(id, before, root.kids)

    def _cut(self, ids: list[str]) -> dict[str, _Node]:
        below = dict(self._below(ids))
        for gone in below:
            del self._nodes[gone]
        return below

    def _below(self, ids: list[str]) -> Iterator[tuple[str, _Node]]:
        waiting = list(ids)
        while waiting:
            id = waiting.pop()
            node = self._nodes[id]
            waiting += node.kids
            yield id, node

    def html(self, id: str) -> str:
        """The node's html; "" if it has none."""
        return self._nodes[id].html or ""

    def tag(self, id: str) -> str:
        """The node's tag."""
        return self._nodes[id].tag

    def ticks(self, id: str) -> bool:
        """True while the browser shows time passing there."""
        return self._nodes[id].since is not None

    def end(self, id: str) -> int:
        """Length of the node's html in UTF-16 units: where a patch adds to it."""
        node = self._nodes[id]
        return utf16_units(node.html or "") if node.wide else len(node.html or "")

    def get_attr(self, id: str, name: str) -> str | None:
        """The attribute's value; None if it isn't set."""
        return self._nodes[id].attrs.get(name)

    def kids(self, id: str = ROOT) -> list[str]:
        """Ids of the node's children, in order."""
        return list(self._nodes[id].kids)

    def take(self) -> list[Op]:
        """The changes since the last call; several to the same part of one node are one."""
        ops, self._ready = [*self._ready, *self._resolved()], []
        return ops

    def _resolved(self) -> list[Op]:
        ops: list[Op] = []
        for op in self._queue:
            node = self._nodes.get(op[1])
            kind = op[0]
            if kind == "+":
                if node is not None:
                    op[5:] = node.cls, dict(node.attrs), node.html
            elif kind == "-":
                pass
            elif node is None:
                continue
            elif kind == "=":
                op[3] = _tail(node, op[2])
            elif kind == "c":
                op[2] = node.cls
            elif kind == "s":
                op[2] = self._elapsed(node)
            elif kind == "t":
                op[2] = self.rate
            ops.append(_short(op))
        self._queue, self._queued = [], {}
        return ops

    def state(self) -> dict[str, Any]:
        """The whole document: id → p(arent), t(ag), c(lass), a(ttributes), h(tml), k(ids), s(econds so far)."""
        return {
            id: {
                "p": node.parent,
                "t": node.tag,
                "c": node.cls,
                "a": dict(node.attrs),
                "h": node.html,
                "k": list(node.kids),
                "s": self._elapsed(node),
            }
            for id, node in self._nodes.items()
        }

    def _elapsed(self, node: _Node) -> float | None:
        return None if node.since is None else round(self._clock() - node.since, 2)

    def _put(self, kind: str, id: str, rest: list[Any]) -> Op:
        op = self._queued.get((kind, id))
        if op is None:
            op = self._queued[kind, id] = [kind, id, *rest]
            self._queue.append(op)
        return op


class _Rebuild:
    """The operations that make what is in the browser below a node another tree; nodes are alike by tag and class."""

    def __init__(self, old: dict[str, _Node], new: dict[str, _Node], elapsed: Callable[[_Node], float | None]) -> None:
        self._old, self._new, self._elapsed = old, new, elapsed
        self._gone: list[Op] = []
        self._names: dict[str, str] = {}
        self._changes: list[Op] = []

    def ops(self, root: str, before: list[str], after: list[str]) -> list[Op]:
        """They, in their order."""
        self._compare(root, before, after)
        return [*self._gone, *([["r", root, self._names]] if self._names else []), *map(_short, self._changes)]

    def _compare(self, parent: str, before: list[str], after: list[str]) -> None:
        kept: dict[str, str] = {}
        at = 0
        for id in after:
            alike = _likeness(self._new[id])
            place = next((i for i in range(at, len(before)) if _likeness(self._old[before[i]]) == alike), None)
            if place is not None:
                kept[id] = before[place]
                at = place + 1
        left = set(kept.values())
        self._gone += [["-", id] for id in before if id not in left]
        self._names.update({was: id for id, was in kept.items()})
        next_kept: str | int = 0
        places: dict[str, str | int] = {}
        for id in reversed(after):
            places[id] = next_kept
            next_kept = id if id in kept else next_kept
        for id in after:
            if id in kept:
                self._change(id, self._old[kept[id]], self._new[id])
            else:
                self._add(id, parent, places[id])

    def _change(self, id: str, was: _Node, node: _Node) -> None:
        if was.cls != node.cls:
            self._changes.append(["c", id, node.cls])
        attrs: dict[str, str | None] = {name: None for name in was.attrs if name not in node.attrs}
        attrs |= {name: value for name, value in node.attrs.items() if was.attrs.get(name) != value}
        if attrs:
            self._changes.append(["a", id, attrs])
        if was.html != node.html:
            same = common_length(was.html or "", node.html or "")
            keep = utf16_units((node.html or "")[:same])
            self._changes.append(["=", id, keep, _tail(node, keep)])
        if was.since is not None or node.since is not None:
            self._changes.append(["s", id, self._elapsed(node)])
        self._compare(id, was.kids, node.kids)

    def _add(self, id: str, parent: str, before: str | int) -> None:
        node = self._new[id]
        self._changes.append(["+", id, parent, before, node.tag, node.cls, dict(node.attrs), node.html])
        if node.since is not None:
            self._changes.append(["s", id, self._elapsed(node)])
        for kid in node.kids:
            self._add(kid, id, 0)


def _likeness(node: _Node) -> tuple[str, str, bool]:
    return node.tag, node.cls.partition(" ")[0], node.html is None


def _checked(name: str, value: str) -> str:
    if _ATTRIBUTE.fullmatch(name) is None:
        raise ValueError(f"the attribute {name!r} is not allowed")
    rule = _VALUE.get(name)
    if rule is not None and rule.fullmatch(value) is None:
        raise ValueError(f"this value of {name!r} is not allowed")
    return whole_text(value)[0]


def whole_text(text: str) -> tuple[str, int]:
    """The text without half characters, which no message could carry, and its length in UTF-16 units."""
    try:
        return text, utf16_units(text)
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "replace").decode("utf-16-le")
        return text, utf16_units(text)


def utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _head(node: _Node, units: int) -> str:
    html = node.html or ""
    return html.encode("utf-16-le")[: 2 * units].decode("utf-16-le") if node.wide else html[:units]


def _tail(node: _Node, units: int) -> str:
    html = node.html or ""
    return html.encode("utf-16-le")[2 * units :].decode("utf-16-le") if node.wide else html[units:]


def common_length(a: str, b: str) -> int:
    """Length of the common beginning, never between the halves of a character."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _short(op: Op) -> Op:
    while len(op) > 2 and op[0] != "=" and op[-1] in (None, {}, ""):
        op.pop()
    return op


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits
