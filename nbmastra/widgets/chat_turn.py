"""The messages of a chat: a turn (what the user said, and its answer), and what the thread held before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from nbmastra.fold.reading import as_dict, as_text
from nbmastra.messages import MessageRecord
from nbmastra.widgets.attachments import Attachment
from nbmastra.widgets.chat_model import ChatTurn
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import iso, one_line, plain, seconds, signature
from nbmastra.widgets.header import status_of
from nbmastra.widgets.icons import CHEVRON, CLIP, CROSS, PEN, icon, status_html
from nbmastra.widgets.inline_run import Host, InlineRun
from nbmastra.widgets.live import Act
from nbmastra.widgets.markdown import render_markdown

__all__ = ["EarlierView", "TurnView", "chips"]

_MAX_TEXT = 20_000
_EARLIER = 50
"""So many of the latest messages of a thread are shown."""


def chips(host: Host, parent: str, attachments: Sequence[Attachment], remove: Callable[[str], None] | None) -> None:
    """A list of attachments, with a button each that takes it away."""
    doc = host.doc
    shown = [doc.get_attr(item, "data-nbm-arg") for item in doc.kids(parent)]
    if shown == [one.name for one in attachments]:
        return
    for item in doc.kids(parent):
        doc.remove(item)
    doc.set_attr(parent, "hidden", None if attachments else "")
    for one in attachments:
        name = one_line(one.name, 80)
        item = doc.add(parent, "li", "nbm-chip", attrs={"data-nbm-arg": one.name})
        doc.add(item, "span", "nbm-mark", html=CLIP)
        doc.add(item, "span", "nbm-ellipsis", text=name)
        doc.add(item, "span", "nbm-muted", text=one_line(one.about, 60))
        if remove is not None:
            attrs = {"type": "button", "data-nbm-act": "detach", "aria-label": f"Remove attachment {name}"}
            button = doc.add(item, "button", "nbm-btn nbm-btn--plain nbm-btn--icon", html=CROSS, attrs=attrs)
            host.on(button, lambda _, gone=one.name: remove(gone))


class TurnView:
    """What the user said and the run that answers it."""

    def __init__(self, host: Host, parent: str, turn: ChatTurn, who: str, again: Callable[[str], None]) -> None:
        self.turn = turn
        self._host, self._again, self._name = host, again, who
        doc = self._doc = host.doc
        attrs = {"role": "article", "aria-label": "You"}
        self._asked = doc.add(parent, "div", "nbm-msg nbm-msg--user", attrs=attrs)
        _said_by(doc, self._asked, "You", iso(turn.at))
        right = self._right = doc.add(self._asked, "div")
        self._body = doc.add(right, "div", "nbm-msg__body")
        doc.add(self._body, "div", "nbm-msg__text", text=plain(turn.text[:_MAX_TEXT]))
        if turn.attachments:
            chips(
                host,
                doc.add(self._body, "ul", "nbm-chips", attrs={"aria-label": "Attachments"}),
                turn.attachments,
                None,
            )
        self._acts = doc.add(right, "div", "nbm-msg__acts", attrs={"hidden": ""})
        self._button(
            self._acts, "edit", f"{PEN}Edit and run again", "Edit your last message and run it again", self._edit
        )
        self._form: str | None = None
        self._answer = doc.add(parent, "div", "nbm-msg", attrs={"role": "article", "aria-label": who})
        self._time = _said_by(doc, self._answer, who, None)
        body = doc.add(doc.add(self._answer, "div"), "div", "nbm-msg__body")
        self._status = doc.add(body, "span", "nbm-mark", html=status_html("running", dot=True))
        self._parts = doc.add(body, "div", "nbm-msg__parts")
        self._run: InlineRun | None = None
        self._problem: str | None = None

    def _button(self, parent: str, act: str, html: str, label: str, do: Callable[[Act], None], cls: str = "") -> str:
        attrs = {"type": "button", "data-nbm-act": act, "data-nbm-repeat": "", "aria-label": label}
        button = self._doc.add(parent, "button", f"nbm-btn {cls or 'nbm-btn--plain'}", html=html, attrs=attrs)
        self._host.on(button, do)
        return button

    def draw(self) -> None:
        """Show what is new of the answer."""
        turn, doc = self.turn, self._doc
        if turn.problem and self._problem is None:
            self._problem = doc.add(self._parts, "div", "nbm-notice nbm-notice--err", attrs={"role": "alert"})
            doc.add(self._problem, "span", "nbm-notice__icon", html=icon("failed"))
            doc.add(self._problem, "p", "nbm-notice__title", text="The message was not answered")
            doc.add(self._problem, "p", "nbm-notice__text", text=one_line(turn.problem, 500))
        if turn.problem:
            doc.set_html(self._status, "")
        if turn.out is None:
            return
        if self._run is None:
            self._run = InlineRun(self._host, self._parts, turn.out)
        self._run.update()
        out = self._run.out
        status = status_of(out)
        doc.set_html(self._status, "" if status == "success" else status_html(status, dot=True))
        if out.done:
            doc.since(self._time, None)
            doc.set_text(self._time, seconds(sum(one.elapsed_s for one in turn.outs)))
        elif not doc.ticks(self._time):
            doc.since(self._time, out.elapsed_s)

    def update(self, *, last: bool, running: bool) -> None:
        """Show whether it can be edited, and its answer."""
        self.draw()
        self._doc.set_attr(self._acts, "hidden", None if last and not running and self._form is None else "")
        if running:
            self._leave()

    def _edit(self, _act: Act) -> None:
        doc = self._doc
        if self._form is not None:
            return
        self._form = doc.add(self._right, "form", "nbm-edit", attrs={"aria-label": "Edit your message"})
        attrs = {"name": "text", "rows": "3", "aria-label": "Your message", "data-nbm-enter": "rerun"}
        attrs |= {"data-nbm-escape": "cancel", "data-nbm-focus": ""}
        doc.add(self._form, "textarea", "nbm-input", text=self.turn.text[:_MAX_TEXT], attrs=attrs)
        row = doc.add(self._form, "div", "nbm-actions")
        self._button(row, "rerun", "Run again", "Run the message again", self._rerun, "nbm-btn--primary")
        self._button(row, "cancel", "Cancel", "Leave the message as it was", lambda _: self._leave())
        for node in (self._body, self._acts):
            doc.set_attr(node, "hidden", "")

    def _rerun(self, act: Act) -> None:
        self._leave()
        self._again(str(act.values.get("text") or ""))

    def _leave(self) -> None:
        if self._form is not None:
            self._doc.remove(self._form)
            self._form = None
            for node in (self._body, self._acts):
                self._doc.set_attr(node, "hidden", None)

    def remove(self) -> None:
        """It was taken back."""
        for node in (self._asked, self._answer):
            self._doc.remove(node)


class EarlierView:
    """What the thread held before, folded."""

    def __init__(self, host: Host, parent: str, records: list[MessageRecord], who: str) -> None:
        self.records = records
        self._doc = host.doc
        self._node: str | None = None
        shown = [one for one in records if one.role in ("user", "assistant")][-_EARLIER:]
        if not shown:
            return
        doc = self._doc
        first = doc.kids(parent)
        self._node = doc.add(parent, "details", "nbm-fold nbm-chat__earlier", before=first[0] if first else None)
        count = f"{len(shown)} earlier message{'' if len(shown) == 1 else 's'}"
        left = f" of {len(records)}" if len(records) > len(shown) else ""
        summary = doc.add(self._node, "summary")
        doc.add(summary, "span", "nbm-mark", html=CHEVRON)
        doc.add(summary, "span", text=f"{count}{left}")
        inner = doc.add(self._node, "div", "nbm-chat__log")
        for record in shown:
            self._message(inner, record, who)

    def _message(self, parent: str, record: MessageRecord, who: str) -> None:
        doc = self._doc
        mine = record.role == "user"
        name, at = "You" if mine else who, _time(record.created_at)
        cls = "nbm-msg nbm-msg--user" if mine else "nbm-msg"
        node = doc.add(parent, "div", cls, attrs={"role": "article", "aria-label": name})
        _said_by(doc, node, name, at)
        body = doc.add(doc.add(node, "div"), "div", "nbm-msg__body")
        for part in record.parts:
            kind = as_text(part.get("type"))
            if kind == "text" and mine:
                doc.add(body, "div", "nbm-msg__text", text=plain(as_text(part.get("text"))[:_MAX_TEXT]))
            elif kind == "text":
                doc.add(body, "div", "nbm-md", html=render_markdown(as_text(part.get("text"))[:_MAX_TEXT]))
            elif kind == "file":
                named = part.get("filename") or part.get("mediaType") or part.get("mimeType") or "file"
                doc.add(body, "p", "nbm-muted nbm-line", text=f"File, {one_line(str(named), 80)}")
            elif kind.startswith("tool-"):
                called = as_dict(part.get("toolInvocation")) or part
                call, rest = signature(
                    as_text(called.get("toolName")) or kind[5:], called.get("args", called.get("input"))
                )
                doc.add(body, "p", "nbm-mono nbm-muted nbm-line", text=one_line(f"{call}{rest}", 200))

    def remove(self) -> None:
        """It is another thread now."""
        if self._node is not None:
            self._doc.remove(self._node)


def _said_by(doc: Document, parent: str, name: str, at: str | None) -> str:
    """Who said it, and when (ISO): the browser tells it by the reader's clock. Returns the node of the time."""
    who = doc.add(parent, "div", "nbm-msg__who")
    doc.add(who, "b", text=name)
    return doc.add(who, "span", attrs={"data-nbm-at": at}) if at else doc.add(who, "span", text="")


def _time(created: Any) -> str | None:
    """When a message of memory was written, as ISO; None if that isn't known."""
    try:
        if isinstance(created, int | float):
            return iso(datetime.fromtimestamp(created / 1000, UTC))
        return iso(datetime.fromisoformat(cast("str", created)))
    except (TypeError, ValueError, OSError, OverflowError):
        return None
