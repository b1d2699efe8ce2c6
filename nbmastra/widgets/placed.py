"""Live views in cells: `GivesWay` and `PlacedWidget` leave for plain output, `Standing` keeps what stays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.widgets.live import Act, LiveWidget
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.placement import Placement, widget_view
from nbmastra.widgets.shared import SharedWidget

__all__ = ["ActingWidget", "GivesWay", "PlacedWidget", "Standing", "folded"]

_MAX_LEAVING = 20
_leaving: deque[GivesWay] = deque()
"""Views that plain output has replaced, oldest first; where no page says that they are gone, they are bounded."""


class GivesWay(SharedWidget):
    """A view that is freed when plain output has taken its place and the page says that it is gone."""

    replaced = False

    def give_way(self) -> None:
        """Plain output has taken its place: one that was closed or loaded again may still need it, for a while."""
        self.replaced = True
        if self.reloaded:
            self.remark_unsaved()
        _leaving.append(self)
        if len(_leaving) > _MAX_LEAVING:
            _leaving.popleft().close()

    def remark_unsaved(self) -> None:
        """Say in it that the notebook won't keep its result: JupyterLab replaces nothing that it has loaded again."""

    def on_gone(self) -> None:
        """The page removed it; if plain output stands in its place, it is no longer needed."""
        if self.replaced:
            get_engine().start(self.leave)

    async def leave(self) -> None:
        """Close it, wherever it waits for that."""
        if self in _leaving:
            _leaving.remove(self)
        self.close()


class ActingWidget(LiveWidget):
    """Base of views whose controls do what `on` says: on the engine's loop, inside of a frame."""

    def __init__(self) -> None:
        self._acts: dict[str, Callable[[Act], None]] = {}
        self._sweep_at = 100
        super().__init__()

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does."""
        if len(self._acts) >= self._sweep_at:  # those of controls that were removed aren't kept
            self._acts = {id: known for id, known in self._acts.items() if id in self.doc}
            self._sweep_at = max(100, 2 * len(self._acts))
        self._acts[node] = act

    def on_act(self, act: Act) -> None:
        """Hand it over to the engine's loop."""
        get_engine().start(self._perform, act)

    async def _perform(self, act: Act) -> None:
        perform = self._acts.get(act.node)
        if perform is not None:
            with self.frame():
                perform(act)

    def close(self) -> None:
        """Remove it from every display and free it."""
        self._acts.clear()
        super().close()


class PlacedWidget(GivesWay, ActingWidget):
    """A view that plain output replaces when all is over."""

    def __init__(self) -> None:
        self._placement = Placement()
        super().__init__()

    def place(self, words: str) -> None:
        """Show it in the current cell, or what has replaced it by now."""
        if not self._placement.add(widget_view(self), words):
            self.give_way()

    def replace(self, bundle: Mapping[str, str], *, stays: bool = False) -> None:
        """Put plain output in its place, or beside it where it stays, because one may still act on it."""
        if self._placement.replace(bundle, widget_view(self) if stays else None) and not stays:
            self.give_way()


def folded(what: str, bundle: Mapping[str, str], facts: str = "") -> dict[str, str]:
    """Plain output below a live view, folded: what a notebook without its kernel still shows."""
    beside = f' <span style="opacity:.8">{escape(facts)}</span>' if facts else ""
    summary = f'<summary style="cursor:pointer;padding:4px 0">{escape(what)} as plain output{beside}</summary>'
    html = f'<details style="font-size:13px">{summary}{bundle["text/html"]}</details>'
    return {**bundle, "text/html": html}


class Standing:
    """Where something live stands that stays, its plain output folded below: what is there without a kernel.

    When the page has removed it, and doesn't show it again soon, as a moved cell does, `free` is called.
    """

    grace_s = 5.0

    def __init__(self, what: str, bundle: Callable[[], Mapping[str, str]], free: Callable[[], object]) -> None:
        self._what, self._bundle, self._free = what, bundle, free
        self._view = Placement()
        self._fold = Placement()
        self._going: Job[None] | None = None

    def place(self, widget: object, words: str) -> None:
        """Show it in the current cell."""
        self._view.add(widget_view(widget), words)
        self._fold.add(self._folded(), words)

    def renew(self) -> None:
        """What it shows has changed for good: so does the plain output."""
        if self._fold.shown:
            self._fold.replace(self._folded())

    def _folded(self) -> dict[str, str]:
        return folded(self._what, self._bundle())

    def gone(self) -> None:
        """The page has removed it."""
        self.back()
        self._going = get_engine().start(self._leave)

    def back(self) -> None:
        """The page shows it again."""
        if self._going is not None:
            self._going.cancel()
            self._going = None

    async def _leave(self) -> None:
        await anyio.sleep(self.grace_s)
        self._going = None  # it isn't to be stopped by what it does
        self._free()

    def end(self) -> None:
        """It is closed: plain output takes its place."""
        self.back()
        if self._view.shown:
            self._view.replace(self._bundle())
            self._fold.replace({"text/html": "", "text/plain": ""})
