"""`LiveWidget`: the kernel half of every live view, one document kept equal in the kernel and in all its displays.

kernel                                    browser (static/live.js)
with widget.frame() as doc: …  ──{seq, ops}──▶  places the changes in every display
get_state()["_boot"]           ──whole, seq──▶  a reload, a second display, a late one start from here;
                                                messages up to that seq are ignored, a gap asks for it again,
                                                and a page says once what it starts from ("seen")
on_act(Act)                    ◀──{act, …}────  a click or a form
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, cast

import anywidget
import traitlets

from nbmastra.widgets.comms import keep_front_end_shell
from nbmastra.widgets.document import Document

__all__ = ["Act", "LiveWidget"]


@dataclass(frozen=True, slots=True)
class Act:
    """What a user did: the control's `data-nbm-act` and `-arg`, the values of its form by field name, its node."""

    name: str
    arg: str = ""
    values: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])
    node: str = ""


@cache
def _static(name: str) -> str:
    return (files("nbmastra.widgets") / "static" / name).read_text("utf-8")


def _boot_json(_value: None, widget: LiveWidget) -> dict[str, Any]:
    widget._boots += 1  # pyright: ignore[reportPrivateUsage]  # a part of the class, outside of it for traitlets
    return widget.boot()


class LiveWidget(anywidget.AnyWidget):
    """Base of the live views: subclasses change `doc` inside `frame()` and override `on_act`.

    Thread-safe: frames may come from any thread, one after another. After `close()` nothing is sent any more.
    """

    # Text and not a Path: anywidget 0.11 connects a Path's change signal to a closure that keeps every widget alive.
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    _boot = traitlets.Any(None).tag(sync=True, to_json=_boot_json)

    def __init__(self, **traits: Any) -> None:
        self.doc = Document()
        self._seq = 0
        self._boots = 0
        self._id = uuid.uuid4().hex[:12]
        self._lock = threading.RLock()
        self.begin(self.doc)
        super().__init__(**traits)
        keep_front_end_shell(self.comm)

    def begin(self, doc: Document) -> None:
        """Override it to make the document that the widget opens with."""

    @traitlets.default("_esm")
    def _default_esm(self) -> str:
        return _static("live.js")

    @traitlets.default("_css")
    def _default_css(self) -> str:
        return _static("nbmastra.css")

    @contextmanager
    def frame(self) -> Generator[Document]:
        """Change the document; what changed is sent as one message at the end, also when the body raises."""
        with self._lock:
            try:
                yield self.doc
            finally:
                self._flush()

    def close(self) -> None:
        """Remove it from every display and free it; its layout is a widget of its own, and no one else's."""
        if self.comm is not None:
            with self._lock:  # not in the middle of another thread's frame
                super().close()
            self.layout.close()  # pyright: ignore[reportUnknownMemberType]

    def boot(self) -> dict[str, Any]:
        """The whole document as of the last message, from which a display starts."""
        with self._lock:
            self._flush()
            return {"id": self._id, "seq": self._seq, "rate": self.doc.rate, "nodes": self.doc.state()}

    @property
    def reloaded(self) -> bool:
        """True if a page asked for the whole document after the widget was made: it was loaded again, or late."""
        return self._boots > 1

    def _flush(self) -> None:
        ops = self.doc.take()
        if ops:
            self._seq += 1
            self.send({"seq": self._seq, "ops": ops})  # pyright: ignore[reportUnknownMemberType]  # ipywidgets has no types

    def on_act(self, act: Act) -> None:
        """A user's act, on a kernel thread that must not wait: hand it over and return. Each button acts once.

        A button with `data-nbm-repeat` may act again and again; others again after their `disabled` was removed.
        """

    def on_gone(self) -> None:
        """The last display of it in a page was removed; on a kernel thread that must not wait."""

    def _handle_custom_msg(self, content: Any, buffers: Any) -> None:
        super()._handle_custom_msg(content, buffers)  # pyright: ignore[reportUnknownMemberType]
        if not isinstance(content, dict):
            return
        message = cast("dict[str, Any]", content)
        name, node = message.get("act"), message.get("node")
        if name == "sync" or (name == "seen" and message.get("seq") != self._seq):
            self._boots -= 1  # a page that missed something, not a new one
            self.send_state("_boot")  # pyright: ignore[reportUnknownMemberType]
        elif name == "gone":
            self.on_gone()
        elif isinstance(name, str) and isinstance(node, str) and self._accept(node):
            arg, values = message.get("arg"), message.get("values")
            self.on_act(Act(name, arg if isinstance(arg, str) else "", _values(values), node))

    def _accept(self, node: str) -> bool:
        # The browser disables a button at its first click; a second page, or a click on its way, must not act twice.
        with self.frame() as doc:
            if node not in doc or doc.get_attr(node, "disabled") is not None:
                return False
            if doc.tag(node) == "button" and doc.get_attr(node, "data-nbm-repeat") is None:
                doc.set_attr(node, "disabled", "")
            return True


def _values(fields: Any) -> dict[str, str | bool]:
    if not isinstance(fields, dict):
        return {}
    return {
        name: value
        for name, value in cast("dict[Any, Any]", fields).items()
        if isinstance(name, str) and isinstance(value, str | bool)
    }
