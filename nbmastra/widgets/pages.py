"""Which parts of a long run are in the page: the newest, and those that are still open; a line stands for the others.

A page with 5,000 cards needs half a minute to lay them out; `ToolCallsTable(out)` and the frames list all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from nbmastra.fold import ObjectPart, Part, Task, TextPart, ToolCall, WorkflowStep
from nbmastra.widgets.cards import facts_of
from nbmastra.widgets.format import number
from nbmastra.widgets.stage import Stage

__all__ = ["MAX_SHOWN", "PER_PAGE", "Pages", "is_settled"]

MAX_SHOWN = 100
"""So many parts are in the page, and what is still open."""
PER_PAGE = 25
"""So many are taken away, or shown again, at a time."""


def is_settled(part: Part) -> bool:
    """True if nothing more is expected of a part, and nobody is asked."""
    if isinstance(part, ToolCall | Task | WorkflowStep):
        return not facts_of(part).open
    if isinstance(part, TextPart):  # reasoning, too
        return part.ended_at is not None
    return not isinstance(part, ObjectPart)  # its verdict comes at the end


class _Page:
    """Parts in a row that are in the page."""

    def __init__(self, node: str, *, asked_for: bool = False) -> None:
        self.node = node
        self.parts: list[Part] = []
        self.asked_for = asked_for  # it stays


class _Folded:
    """Parts in a row that a line stands for, and how many of them are calls, and failed ones."""

    def __init__(self, node: str, words: str) -> None:
        self.node = node
        self.words = words
        self.parts: list[Part] = []
        self._calls = 0
        self._failed = 0

    def take(self, parts: list[Part]) -> None:
        """Stand for these, too."""
        self.parts += parts
        self._count(parts, 1)

    def give(self, count: int) -> list[Part]:
        """The newest ones; the line stands for them no longer."""
        parts = self.parts[-count:]
        del self.parts[-count:]
        self._count(parts, -1)
        return parts

    def _count(self, parts: list[Part], by: int) -> None:
        for part in parts:
            if isinstance(part, ToolCall):
                self._calls += by
                self._failed += by * (part.error is not None)

    def text(self) -> str:
        """What the line says."""
        count, calls = len(self.parts), self._calls
        words = f"{number(count)} earlier tool call{'' if count == 1 else 's'}"
        if calls < count:
            words = f"{number(count)} earlier part{'' if count == 1 else 's'}, {number(calls)} of them tool calls"
        return f"{words}, {number(self._failed)} failed" if self._failed else words


class _Between:
    """What else stands between the parts, and stays there."""


class Pages:
    """Gives each part its place. `draw` shows a part there, `drop` forgets how it was shown."""

    def __init__(self, stage: Stage, parent: str, draw: Callable[[Part], None], drop: Callable[[Part], None]) -> None:
        self._stage = stage
        self._parent = parent
        self._draw = draw
        self._drop = drop
        self._row: list[_Page | _Folded | _Between] = []
        self._target: _Page | None = None
        self._shown = 0
        self._folded: set[Part] = set()

    def __contains__(self, part: Part) -> bool:
        """True if a line stands for the part."""
        return part in self._folded

    def place(self, part: Part, before: str | None) -> str:
        """The node that a new part is added to; `before`: what stays below all parts."""
        self._folded.discard(part)
        page = self._target or (self._row[-1] if self._row else None)
        if not isinstance(page, _Page) or (
            page is not self._target and (len(page.parts) >= PER_PAGE or page.asked_for)
        ):
            page = _Page(self._stage.doc.add(self._parent, "div", "nbm-page", before=before))
            self._row.append(page)
        page.parts.append(part)
        self._shown += not page.asked_for
        return page.node

    def divide(self) -> None:
        """Something else is added below the parts so far."""
        self._row.append(_Between())

    def pass_by(self, part: Part, before: str | None) -> None:
        """A part that is far from the end already: it is never drawn."""
        line = self._row[-1] if self._row else None
        if not isinstance(line, _Folded):
            line = self._new_line(before)
            self._row.append(line)
        line.take([part])
        self._folded.add(part)

    def fold(self) -> None:
        """Let lines stand for the oldest settled pages, until few enough parts are shown."""
        if self._shown > MAX_SHOWN:
            for page in [page for page in self._row[:-1] if isinstance(page, _Page) and not page.asked_for]:
                if self._shown > MAX_SHOWN and all(map(is_settled, page.parts)):
                    self._fold(page)
        for line in self._row:
            if isinstance(line, _Folded):
                self._stage.doc.set_text(line.words, line.text())

    def _fold(self, page: _Page) -> None:
        doc, row = self._stage.doc, self._row
        self._shown -= len(page.parts)
        self._folded.update(page.parts)
        for part in page.parts:
            self._drop(part)
        at = row.index(page)
        above = row[at - 1] if at else None
        if isinstance(above, _Folded):
            above.take(page.parts)
            del row[at]
        else:
            line = row[at] = self._new_line(page.node)
            line.take(page.parts)
        doc.remove(page.node)
        for first, second in pairwise(row[max(0, at - 1) : at + 2]):
            if isinstance(first, _Folded) and isinstance(second, _Folded):
                first.take(second.parts)
                doc.remove(second.node)
                row.remove(second)
                break

    def _new_line(self, before: str | None) -> _Folded:
        doc = self._stage.doc
        node = doc.add(self._parent, "p", "nbm-muted nbm-line nbm-folded", before=before)
        line = _Folded(node, doc.add(node, "span", text=""))
        attrs = {"type": "button", "data-nbm-act": "more", "data-nbm-repeat": ""}
        attrs["aria-label"] = "Show more of the earlier parts"
        button = doc.add(node, "button", "nbm-btn", text="Show more", attrs=attrs)
        self._stage.on(button, lambda _: self._show(line))
        return line

    def _show(self, line: _Folded) -> None:
        """Show the newest ones that the line stands for, below it."""
        doc = self._stage.doc
        kids = doc.kids(self._parent)
        below = kids.index(line.node) + 1
        before = kids[below] if below < len(kids) else None
        page = _Page(doc.add(self._parent, "div", "nbm-page", before=before), asked_for=True)
        self._row.insert(self._row.index(line) + 1, page)
        self._target = page
        try:
            for part in line.give(PER_PAGE):
                if part in self._folded:  # else it has changed since, and stands where it did
                    self._draw(part)
        finally:
            self._target = None
        if line.parts:
            doc.set_text(line.words, line.text())
        else:
            doc.remove(line.node)
            self._row.remove(line)
