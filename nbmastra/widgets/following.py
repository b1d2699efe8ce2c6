"""`FollowingWidget`: a data widget that follows a run, what goes on from it after an answer, and a replay's moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

from nbmastra.engine import Job, get_engine
from nbmastra.output import MastraModelOutput
from nbmastra.recording import ReplayedOutput
from nbmastra.widgets.data import DataWidget, Rows
from nbmastra.widgets.header import agent_name, status_of
from nbmastra.widgets.icons import look
from nbmastra.widgets.pacing import draw_run
from nbmastra.widgets.placed import GivesWay, folded
from nbmastra.widgets.placement import Placement, widget_view
from nbmastra.widgets.shared import while_open

__all__ = ["FollowingWidget"]

_log = logging.getLogger(__name__)
_UNSAVED = "The page was loaded again during this run: show this in a cell to keep it in the notebook."


class FollowingWidget(GivesWay, DataWidget):
    """Subclasses override `restart`, `leg` and `draw`, which are called on one thread at a time, and `snapshot_of`.

    Shown in a cell while the run goes on, it is replaced by plain output at its end, and freed; of a run that is over
    or is a replay it stays, and the plain output stands below, folded.
    """

    interval_s = 0.05
    """How often it is drawn at most."""
    what = "Timeline"
    _job: Job[None] | None = None  # also where there is no more of it, since its arguments were refused

    def __init__(self, out: MastraModelOutput) -> None:
        self.out = self.first = out
        self.ended = threading.Event()
        """Set when a run of the chain is over and drawn."""
        self._offset = 0.0
        self._placement = Placement()
        self._below = Placement()
        self._fold = Placement()
        self._listens: list[Callable[[], None]] = []
        """What ends its listening to the run, for when it is closed before the run is over."""
        whole = out.done
        super().__init__()
        if isinstance(out, ReplayedOutput):
            self._playback = out.playback
            self._listens.append(out.playback.on_change(while_open(self._move)))
        if whole:
            with self.change() as rows:
                self._draw(rows)
            self.ended.set()
            self._watch_next()
        else:
            self._watch()

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def restart(self, rows: Rows) -> None:
        """Forget what was drawn: the run begins anew."""
        raise NotImplementedError

    def leg(self, out: MastraModelOutput, offset: float) -> None:
        """A run begins, `offset` seconds after the first one of its chain."""
        raise NotImplementedError

    def draw(self, rows: Rows) -> None:
        """Put what is new into the rows."""
        raise NotImplementedError

    def snapshot_of(self, outs: list[MastraModelOutput]) -> dict[str, str]:
        """Outputs that followed each other, as plain output."""
        raise NotImplementedError

    def snapshot(self) -> dict[str, str]:
        """The run as it is, as plain output: text/html, text/markdown, text/plain."""
        return self.snapshot_of(self.outs)

    def final(self) -> dict[str, str]:
        """The same right after the last draw, on the engine's loop: it should be quick."""
        return self.snapshot()

    @property
    def outs(self) -> list[MastraModelOutput]:
        """The outputs that it follows, from the first to the newest."""
        return self.out.chain(self.first)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first run's start."""
        return self._offset + self.out.elapsed_s

    # --- drawing ----------------------------------------------------------------------------------------------------

    def begin(self, rows: Rows) -> None:
        """What it opens with; a finished run is drawn right after."""
        out = self.out
        if isinstance(out, ReplayedOutput):
            rows.pace(out.playback.rate, lambda: out.playback.position_s)
        self.restart(rows)
        self.leg(out, 0.0)
        self._facts(rows)

    def _facts(self, rows: Rows) -> None:
        out, going = self.out, not self.out.done
        status = status_of(out)
        rows.facts(
            title=agent_name(out),
            status=status,
            now_since=self.elapsed_s if going else None,
            end=None if going else round(self.elapsed_s, 4),
            news="" if going else f"Run of {agent_name(out)} {look(status).word.lower()}",
        )

    def _draw(self, rows: Rows) -> None:
        try:
            self.draw(rows)
        except Exception:  # a view that can't draw something must not take the run with it
            _log.exception("a part of the run could not be drawn")
        self._facts(rows)

    def _watch(self) -> None:
        self._job = get_engine().start(self._pump)

    async def _pump(self) -> None:
        await draw_run(self.out, self._frame, interval=self.interval_s)
        self._watch_next()

    def _frame(self) -> None:
        with self.change() as rows:
            self._draw(rows)
        if self.out.done:
            self._end()

    def _end(self) -> None:
        try:
            if isinstance(self.out, ReplayedOutput):
                return  # the end is a place like any other: one may go back
            if not self._placement.shown:
                return  # whoever asks for it later wants to look into it
            waits = bool(self.out.waiting and self.out.control.can)
            self._placement.replace(self.final(), widget_view(self) if waits else None)
            if not waits:
                self.give_way()
        except Exception:  # nobody may wait for its end in vain
            _log.exception("the view could not be replaced by its snapshot")
        finally:
            self.ended.set()

    def remark_unsaved(self) -> None:
        """Say so below the run."""
        with self.change() as rows:
            rows.facts(remark=_UNSAVED)

    # --- the chain --------------------------------------------------------------------------------------------------

    def _watch_next(self) -> None:
        if self.out.next is not None:
            self._follow(self.out.next)
            return
        if self.out.status != "suspended":
            return
        self._listens.append(self.out.on_next(while_open(self._follow)))  # it may wait long, the view need not

    def _follow(self, out: MastraModelOutput) -> None:
        with self.change():
            since = (out.created_at - self.first.created_at).total_seconds()
            self._offset = max(self.elapsed_s, since)
            self.out = out
            self.leg(out, self._offset)
            self.ended.clear()
            self._placement.go_on()
        self._watch()

    # --- a replay ---------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """The replay is in another place, or has another pace; on the engine's loop."""
        out = self._playback.out
        back = out is not self.out
        with self.change() as rows:
            if back:
                if self._job is not None:
                    self._job.cancel()
                self.out = self.first = out
                self.restart(rows)
                self.leg(out, 0.0)
            rows.pace(self._playback.rate)
            self._draw(rows)
        if back:
            self.ended.clear()
            self._watch()

    # --- shown ------------------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        stays = self.out.done or isinstance(self.out, ReplayedOutput)
        if stays:
            self._below.add(widget_view(self), repr(self))
            self._fold.add(self._folded(), repr(self))
        elif not self._placement.add(widget_view(self), repr(self)):
            self.give_way()  # the run ended in between: its plain output is shown already

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The live view, and beside it plain output for those who have no kernel."""
        made = cast("Any", super())._repr_mimebundle_(**options)
        view = cast("dict[str, Any]", (made[0] if isinstance(made, tuple) else made) or {})
        return {**view, **self.snapshot()}, {}

    def _folded(self) -> dict[str, str]:
        out = self.out
        bundle = self.snapshot_of([out.playback.whole()] if isinstance(out, ReplayedOutput) else self.outs)
        return folded(self.what, bundle)

    def close(self) -> None:
        """Leave plain output in its place, and free it; the run goes on."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        listens = getattr(self, "_listens", [])  # there are none if its making was refused
        while listens:
            listens.pop()()
        if self.comm is not None and not self.replaced:
            for placement in (self._placement, self._below):
                if placement.shown:
                    placement.replace(self.snapshot())
            if self._fold.shown:
                self._fold.replace({"text/html": "", "text/plain": ""})
        super().close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {agent_name(self.out)}, {look(status_of(self.out)).word.lower()}>"
