"""`LiveWidget`: the kernel half of every live view, one document kept equal in the kernel and in all its displays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from nbmastra.widgets.document import Document
from nbmastra.widgets.shared import Act, SharedWidget

__all__ = ["Act", "LiveWidget"]


class LiveWidget(SharedWidget):
    """Base of the live views: subclasses change `doc` inside `frame()` and override `on_act`.

    Each button acts once. One with `data-nbm-repeat` may act again and again; others again after their `disabled` was
    removed.
    """

    def __init__(self, **traits: Any) -> None:
        self.doc = Document()
        self.begin(self.doc)
        super().__init__(**traits)

    def begin(self, doc: Document) -> None:
        """Override it to make the document that the widget opens with."""

    @contextmanager
    def frame(self) -> Generator[Document]:
        """Change the document; what changed is sent as one message at the end, also when the body raises."""
        with self._lock:
            try:
                yield self.doc
            finally:
                self._flush()

    @classmethod
    def scripts(cls) -> tuple[str, ...]:
        """The one module."""
        return ("live.js",)

    def whole(self) -> dict[str, Any]:
        """The document."""
        return {"rate": self.doc.rate, "nodes": self.doc.state()}

    def news(self) -> list[Any]:
        """Its changes."""
        return self.doc.take()

    def accept(self, act: Act) -> bool:
        """True for a control that is there and not disabled; a button is, from its first act on.

        The browser disables it at its first click; a second page, or a click on its way, must not act twice.
        """
        node = act.node
        with self.frame() as doc:
            if node not in doc or doc.get_attr(node, "disabled") is not None:
                return False
            if doc.tag(node) == "button" and doc.get_attr(node, "data-nbm-repeat") is None:
                doc.set_attr(node, "disabled", "")
            return True
