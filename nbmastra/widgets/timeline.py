"""`Timeline`: what happened when in a run, a lane for each turn, step, call, task and run inside, growing live."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio.to_thread

from nbmastra.engine import get_engine
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.data import Rows
from nbmastra.widgets.following import FollowingWidget
from nbmastra.widgets.lanes import Lane, Lanes
from nbmastra.widgets.shared import Act
from nbmastra.widgets.snapshot_timeline import timeline_snapshot, untimed

__all__ = ["Timeline"]

_log = logging.getLogger(__name__)


class Timeline(FollowingWidget):
    """The lanes of a run over time: zoom and pan, hover for times and tokens, select to find the row in a table.

    Works for a run that goes on, a finished one, a recording, a replay; what goes on after an answer is in it, too.
    """

    script = "timeline.js"
    styles = ("timeline.css",)
    repeats = frozenset({"select"})
    what = "Timeline"

    def __init__(self, out: MastraModelOutput) -> None:
        self._lanes = Lanes()
        self._old: set[str] = set()
        self._listeners: list[Callable[[str], object]] = []
        super().__init__(out)

    def on_select(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback(key)` when a lane is selected; gives a function that ends it.

        The key is the id of the tool call, workflow step or task, `turn:<turn>` or `step:<turn>.<n>` (from 0); of a
        step inside of a call, the call's key comes before it.
        """
        self._listeners.append(callback)
        with self.change() as rows:
            rows.facts(selectable=True)

        def end() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return end

    def select(self, key: str) -> None:
        """Mark a lane and bring it into sight; callbacks aren't called."""
        with self.change() as rows:
            rows.facts(selected=key)

    @property
    def selected(self) -> str | None:
        """Key of the lane that is selected."""
        return self.rows.fact("selected")

    @classmethod
    def scripts(cls) -> tuple[str, ...]:
        """The store of rows, the picture, and what is done with it."""
        return ("data.js", "timeline_picture.js", "timeline.js")

    # --- drawing ----------------------------------------------------------------------------------------------------

    def restart(self, rows: Rows) -> None:
        """Lanes of a run that begins anew."""
        self._lanes = Lanes()
        self._old = set(rows.keys())  # most of them come again at once

    def leg(self, out: MastraModelOutput, offset: float) -> None:
        """A run begins."""
        self._lanes.begin(out.state, offset)

    def draw(self, rows: Rows) -> None:
        """The lanes that changed."""
        lanes = self._lanes
        if untimed(self.first):
            rows.facts(untimed=True)
            return
        for lane, after in lanes.update():
            rows.put(lane.key, _row(lane), after=after)
        for key in self._old:
            if key not in lanes.by_key:
                rows.drop(key)
        self._old.clear()
        rows.facts(turns=lanes.turns, first=self.first.state.time_to_first_token_s, gap=_time(lanes.longest_gap))

    def snapshot_of(self, outs: list[MastraModelOutput]) -> dict[str, str]:
        """The timeline as plain output: a table of lanes, its bars drawn beside their times."""
        return timeline_snapshot(outs)

    def final(self) -> dict[str, str]:
        """The same of the lanes as they were drawn last."""
        return timeline_snapshot(self.outs, list(self._lanes))

    # --- acts -------------------------------------------------------------------------------------------------------

    def on_act(self, act: Act) -> None:
        """Hand a selection over."""
        if act.name == "select":
            get_engine().start(self._select, act.node)

    async def _select(self, key: str) -> None:
        with self.change() as rows:
            rows.facts(selected=key)
        for callback in list(self._listeners):
            try:
                await anyio.to_thread.run_sync(callback, key)  # it may take its time; runs must not wait for it
            except Exception:  # a user's function
                _log.exception("a callback of on_select failed")

    def close(self) -> None:
        """Remove it from every display and stop drawing; the run goes on."""
        self._listeners.clear()
        super().close()


def _row(lane: Lane) -> dict[str, Any]:
    return {
        "kind": lane.kind,
        "name": lane.name,
        "depth": lane.depth,
        "status": lane.status,
        "spans": [[kind, _time(start), _time(end)] for kind, start, end in lane.stretches if kind != "wait"],
        "first": _time(lane.first),
        "in": lane.usage.input_tokens,
        "out": lane.usage.output_tokens,
        "speed": None if lane.speed is None else round(lane.speed, 1),
        "model": lane.model,
        "note": lane.note,
        "turn": lane.turn,
    }


def _time(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
