"""A structured object being written: a tree along its newest path, an array of records as a table; then a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nbmastra.fold import ObjectPart
from nbmastra.output import ObjectSchema, Verdict
from nbmastra.widgets import json_tree
from nbmastra.widgets.format import as_json, number, one_line
from nbmastra.widgets.icons import COPY, icon
from nbmastra.widgets.live import Act
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.stage import Stage

__all__ = ["MAX_COPY", "MAX_ROWS", "Elements", "ObjectView"]

MAX_ROWS = 100
"""So many rows of a finished array are shown; `out.elements_df()` has all."""
MAX_COPY = 1_000_000
_NEVER = object()


class Elements:
    """The elements of an array that are complete: those that fit their schema, in order, each judged once."""

    def __init__(self, schema: ObjectSchema | None) -> None:
        self._schema = schema
        self.seen = 0
        self.fitting: list[Any] = []
        self._records = True

    def take(self, value: list[Any], closed: int) -> None:
        """Look at those that were closed since the last time."""
        for element in value[self.seen : closed]:
            if self._fits(element):
                self.fitting.append(element)
                self._records = self._records and isinstance(element, dict) and bool(cast("Any", element))
        self.seen = max(self.seen, closed)

    @property
    def left_out(self) -> int:
        """How many didn't fit."""
        return self.seen - len(self.fitting)

    @property
    def records(self) -> list[dict[str, Any]] | None:
        """Those that fit, if a table suits them."""
        return self.fitting if self.fitting and self._records else None

    @property
    def columns(self) -> list[str] | None:
        """The columns that the schema names; None if it names none."""
        return list(self._schema.element_properties) or None if self._schema is not None else None

    def _fits(self, element: Any) -> bool:
        try:
            return self._schema is None or self._schema.accept_element(element)[0]
        except Exception:  # a validator of the user's own; whoever awaits the object hears of it
            return False


class ObjectView:
    """A structured object: it grows along its newest path, an array of records row by row; then its schema judges."""

    def __init__(self, stage: Stage, parent: str, part: ObjectPart, schema: ObjectSchema | None = None) -> None:
        doc = self._doc = stage.doc
        self._part = part
        self._schema = schema
        self._elements = Elements(schema)
        self._node = doc.add(parent, "div", "nbm-call", attrs={"role": "group", "hidden": ""})
        head = doc.add(self._node, "p", "nbm-h nbm-h--bar")
        named = f"Object, schema {name}" if schema is not None and (name := one_line(schema.name, 60)) else "Object"
        self._name = doc.add(head, "span", text=named)
        doc.add(head, "span", "nbm-spacer")
        self._path = doc.add(head, "span", "nbm-path", html="")
        self._verdict = doc.add(head, "span", html="")
        attrs = {"type": "button", "hidden": "", "aria-label": "Copy the object"}
        self._copy = doc.add(head, "button", "nbm-btn nbm-btn--plain", html=f"{COPY}Copy", attrs=attrs)
        stage.on(self._copy, self._send_copy)
        self._tree = doc.add(self._node, "div", "nbm-json--object", html="")
        self._drawn: Any = _NEVER
        self._bad: Mapping[str, str] = {}

    def update(self) -> None:
        """Show what is new."""
        doc, part = self._doc, self._part
        value, open = part.value, part.ended_at is None
        doc.set_attr(self._node, "hidden", "" if value is None and not part.done else None)
        doc.set_attr(self._node, "aria-label", "Object being written" if open else "Object")
        doc.set_attr(self._tree, "data-nbm-caret", "" if open else None)
        if open:
            doc.set_text(self._path, one_line(json_tree.path_words(part.path)))
            doc.set_html(self._tree, self._growing(value))
        elif part.rejected:
            doc.set_html(self._tree, '<p class="nbm-muted">Rejected by a processor.</p>')
        elif value is not self._drawn:
            self._drawn = value
            doc.set_text(self._path, "")
            doc.set_html(self._tree, self._whole(value))
            for name, set_to in (("hidden", None), ("data-nbm-act", "copy"), ("data-nbm-repeat", "")):
                doc.set_attr(self._copy, name, set_to)

    def judge(self, verdict: Verdict) -> None:
        """The schema's verdict: whether it fits, or where not and why."""
        self._bad, self._drawn = verdict.bad, _NEVER
        tone = verdict.status if verdict.status in ("completed", "failed", "truncated") else "cancelled"
        words = f"{icon(verdict.status)}<span>{escape(one_line(verdict.words))}</span>"
        self._doc.set_html(self._verdict, f'<span class="nbm-status nbm-status--{tone}">{words}</span>')
        self.update()

    def _growing(self, value: Any) -> str:
        part, elements = self._part, self._elements
        if not isinstance(value, list):
            return json_tree.growing_tree(value, part.path)
        items = cast("list[Any]", value)
        elements.take(items, part.closed_elements)
        records = elements.records
        if records is None:
            return json_tree.growing_tree(items, part.path)
        rest: dict[Any, Any] = dict(enumerate(items[elements.seen :], elements.seen))
        table = json_tree.growing_table(records, elements.columns, lit=not rest)
        left = f'<p class="nbm-muted nbm-line">{_left_out(elements.left_out)}</p>' if elements.left_out else ""
        return table + left + (json_tree.growing_tree(rest, part.path) if rest else "")

    def _whole(self, value: Any) -> str:
        if isinstance(value, list) and not self._bad:
            items = cast("list[Any]", value)
            elements = Elements(self._schema)  # anew: a processor may have changed what was streamed
            elements.take(items, len(items))
            records = elements.records
            if records is not None:
                count = len(records)
                words = [f"{number(MAX_ROWS)} of {number(count)} rows"] if count > MAX_ROWS else []
                words += [_left_out(elements.left_out)] if elements.left_out else []
                table = json_tree.records_table(records, "Elements", MAX_ROWS, elements.columns)
                return table + (f'<p class="nbm-muted nbm-line">{", ".join(words)}</p>' if words else "")
        return json_tree.tree(value, bad=self._bad)

    def _send_copy(self, _act: Act) -> None:
        whole = self._part.value
        text = whole if isinstance(whole, str) else as_json(whole, indent=2)
        self._doc.set_attr(self._copy, "data-nbm-copy", text[:MAX_COPY])


def _left_out(count: int) -> str:
    return f"{number(count)} element{'' if count == 1 else 's'} left out: not what the schema asks for"
