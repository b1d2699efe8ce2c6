"""Where a view stands in the notebook, and how plain output takes its place when the run is over."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any, cast

import IPython.core.display_functions

from nbmastra.widgets.document import whole_text

__all__ = ["Placement", "show_bundle"]

_ipython = cast("Any", IPython.core.display_functions)  # has no types
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def show_bundle(bundle: Mapping[str, Any], display_id: str = "") -> None:
    """Put a mime bundle into the current cell."""
    _ipython.display(_carried(bundle), raw=True, display_id=display_id or uuid.uuid4().hex)


def _carried(bundle: Mapping[str, Any]) -> dict[str, Any]:
    """The bundle without half characters: with one of them, no part of it would reach the page."""
    return {mime: whole_text(data)[0] if isinstance(data, str) else data for mime, data in bundle.items()}


class Placement:
    """The cells that show one view; each is an output with an id, so that it can be replaced from anywhere, later."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._final: dict[str, Any] | None = None
        # A short run ends while its view is being shown: what is shown and what replaces it must not cross.
        self._lock = threading.Lock()

    def add(self, view: Mapping[str, Any], words: str) -> bool:
        """Show the view in the current cell, or what has replaced it by now; True if it is the view."""
        with self._lock:
            display_id = uuid.uuid4().hex
            show_bundle(self._final or {**view, "text/plain": words}, display_id)
            self._ids.append(display_id)
            return self._final is None

    @property
    def shown(self) -> bool:
        """True if it stands anywhere."""
        return bool(self._ids)

    def replace(self, bundle: Mapping[str, Any], view: Mapping[str, Any] | None = None) -> bool:
        """Put plain output in the view's place (beside it where `view` is given); True if it stood anywhere.

        JupyterLab does so for what it displayed itself; after a page reload it keeps the view (NOTEBOOK, "Reopened").
        """
        with self._lock:
            self._final = _carried({**(view or {}), **bundle})
            for display_id in self._ids:
                _ipython.update_display(self._final, raw=True, display_id=display_id)
            return bool(self._ids)

    def go_on(self) -> None:
        """The view lives on: what comes next is shown as a view again."""
        with self._lock:
            self._final = None


def widget_view(widget: object) -> dict[str, Any]:
    """The part of a widget's mime bundle that makes a front end show it; {} if it was closed."""
    bundle: Any = cast("Any", widget)._repr_mimebundle_()
    data = cast("dict[str, Any] | None", bundle[0] if isinstance(bundle, tuple) else bundle)
    return {_WIDGET_VIEW: data[_WIDGET_VIEW]} if data and _WIDGET_VIEW in data else {}
