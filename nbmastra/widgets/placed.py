"""`PlacedWidget`: a live view that stands in cells until plain output takes its place, and is freed then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from nbmastra.engine import get_engine
from nbmastra.widgets.live import Act, LiveWidget
from nbmastra.widgets.placement import Placement, widget_view

__all__ = ["PlacedWidget"]

_MAX_LEAVING = 20
_leaving: deque[PlacedWidget] = deque()
"""Views that plain output has replaced, oldest first; where no page says that they are gone, they are bounded."""


class PlacedWidget(LiveWidget):
    """Base of views whose controls do what `on` says: on the engine's loop, inside of a frame."""

    def __init__(self) -> None:
        self._placement = Placement()
        self._acts: dict[str, Callable[[Act], None]] = {}
        self._replaced = False
        super().__init__()

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does."""
        self._acts[node] = act

    def on_act(self, act: Act) -> None:
        """Hand it over to the engine's loop."""
        get_engine().start(self._perform, act)

    async def _perform(self, act: Act) -> None:
        perform = self._acts.get(act.node)
        if perform is not None:
            with self.frame():
                perform(act)

    def place(self, words: str) -> None:
        """Show it in the current cell, or what has replaced it by now."""
        if not self._placement.add(widget_view(self), words):
            self._give_way()

    def replace(self, bundle: Mapping[str, str], *, stays: bool = False) -> None:
        """Put plain output in its place, or beside it where it stays, because one may still act on it."""
        if self._placement.replace(bundle, widget_view(self) if stays else None) and not stays:
            self._give_way()

    def _give_way(self) -> None:
        """Close when the page says that it is gone: one that was closed or loaded again may still need it."""
        self._replaced = True
        _leaving.append(self)
        if len(_leaving) > _MAX_LEAVING:
            _leaving.popleft().close()

    def on_gone(self) -> None:
        """The page removed it; if plain output stands in its place, it is no longer needed."""
        if self._replaced:
            get_engine().start(self._leave)

    async def _leave(self) -> None:
        if self in _leaving:
            _leaving.remove(self)
        self.close()

    def close(self) -> None:
        """Remove it from every display and free it."""
        self._acts.clear()
        super().close()
