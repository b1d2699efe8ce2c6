"""`DashboardView`: one display of a dashboard, in boxes of ipywidgets; what it shows is made when it is looked at."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import anyio

from nbmastra.engine import Job, get_engine
from nbmastra.errors import NbMastraError
from nbmastra.widgets.approvals import ApprovalsView
from nbmastra.widgets.dashboard_parts import DashBar, DashList, DashTabs, Item
from nbmastra.widgets.format import one_line
from nbmastra.widgets.placed import Standing
from nbmastra.widgets.run_list import Listed
from nbmastra.widgets.run_view import RunView
from nbmastra.widgets.tasks_table import TasksTable
from nbmastra.widgets.timeline import Timeline
from nbmastra.widgets.tool_calls_table import ToolCallsTable
from nbmastra.widgets.usage_view import UsageView

if TYPE_CHECKING:
    from nbmastra.widgets.dashboard import Dashboard

__all__ = ["DashboardView"]

_log = logging.getLogger(__name__)
_boxes: Any = import_module("ipywidgets")  # has no types
_TICK_S = 0.5
"""How often the list is drawn while something runs; runs that begin and end are drawn at once."""
TABS: dict[str, tuple[str, Callable[[Listed], Any]]] = {
    "view": ("View", lambda listed: RunView(listed.first)),
    "calls": ("Tool calls", lambda listed: ToolCallsTable(listed.first)),
    "tasks": ("Tasks", lambda listed: TasksTable(listed.first)),
    "timeline": ("Timeline", lambda listed: Timeline(listed.first)),
    "usage": ("Usage", lambda listed: UsageView(listed.first)),
}
WAITING_S = 10.0
"""How often a server is asked for the runs that wait there: nothing tells of them."""
ALL_TASKS, WAITING = "Tasks of all runs", "Waiting for an answer"


class DashboardView:
    """Its own parts are there at once; views, tables and charts of the selected run as soon as their tab is chosen.

    Selecting a run closes what was made for the one before.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.standing = Standing("Dashboard", dashboard.snapshot, self.close)
        self.selected: Item | None = None
        self.tab = "view"
        self.closed = False
        self._lock = threading.Lock()  # what is made on the engine's loop must not be missed by `close`
        self._made: dict[str, Any] = {}
        self._key = ""
        self._filter = ("all", "")
        self._ended = 0
        attach = self._attach if dashboard.client is not None else None
        self._bar = DashBar(dashboard.title, self._filtered, attach, self.standing.gone, self.standing.back)
        self._list = DashList(self._own(), self._select)
        self._tabs = DashTabs({name: words for name, (words, _) in TABS.items()}, self._choose)
        self._panel = _boxes.Box([], layout=_boxes.Layout(width="100%", min_width="0", flex_flow="column"))
        wide = _boxes.Layout(flex="1000 1 420px", min_width="0")
        self._main = _boxes.VBox([self._tabs, self._panel], layout=wide)
        cast("Any", self._list).layout.flex = "1 1 248px"
        self._columns = _boxes.Box([self._list, self._main], layout=_boxes.Layout(flex_flow="row wrap"))
        self.box: Any = _boxes.VBox([self._bar, self._columns])
        self.box.add_class("nbm-dash")
        for box, name in ((self._columns, "columns"), (self._main, "main"), (self._panel, "panel")):
            box.add_class(f"nbm-dash__{name}")
        self._wake = anyio.Event()
        here = weakref.ref(self)

        def told() -> None:
            view = here()
            if view is not None:
                get_engine().start(view._woken)

        self._unwatch = dashboard.runs.watch(told)
        self._jobs: list[Job[None]] = [get_engine().start(self._pump)]
        if dashboard.client is not None:
            self._jobs.append(get_engine().start(self._ask_who_waits))

    def _own(self) -> dict[str, str]:
        """The views that are no run's: what the source has for all of them."""
        if self.dashboard.client is not None:
            return {WAITING: "runs of the server", ALL_TASKS: "of the server"}
        return {ALL_TASKS: "of earlier kernels too"} if self.dashboard.manager is not None else {}

    # --- drawing, on the engine's loop ------------------------------------------------------------------------------

    async def _woken(self) -> None:
        self._wake.set()

    async def _pump(self) -> None:
        runs = self.dashboard.runs.runs
        while True:
            self._wake = anyio.Event()
            try:
                self._draw()
            except Exception:  # what comes next may be drawn again
                _log.exception("a dashboard could not be drawn")
            ended = sum(listed.out.done for listed in runs)
            if ended != self._ended:
                self._ended = ended
                self.standing.renew()
            with anyio.move_on_after(_TICK_S if ended < len(runs) else None):
                await self._wake.wait()

    def _draw(self) -> None:
        runs = self.dashboard.runs.runs
        if self.selected is None and (runs or self._own()):
            self._select(runs[-1] if runs else next(iter(self._own())))
            return
        self._bar.count(runs)
        self._list.show(runs, self.selected, *self._filter)
        self._tabs.show(self.selected, self.tab, self._counts())

    def _counts(self) -> dict[str, int]:
        if not isinstance(self.selected, Listed):
            return {}
        calls = {call.tool_call_id for out in self.selected.outs for call in out.state.tool_calls}
        return {"calls": len(calls), "tasks": sum(len(out.state.tasks) for out in self.selected.outs)}

    def _filtered(self, kind: str, search: str) -> None:
        self._filter = kind, search
        self._draw()

    # --- what is looked at ------------------------------------------------------------------------------------------

    def select(self, number: int) -> None:
        """Select a run by its place in `dashboard.outs`."""
        listed = self.dashboard.runs.runs[number]

        async def choose() -> None:
            self._select(listed)

        get_engine().start(choose)

    def _select(self, item: Item) -> None:
        if self.closed:
            return
        if item is not self.selected or item == WAITING:
            self._panel.children = ()
            self._close_made()
            self.selected, self._key = item, ""
            self._open()
        self._draw()

    def _choose(self, tab: str) -> None:
        if tab in TABS and isinstance(self.selected, Listed):
            self.tab = tab
            self._open()
            self._draw()

    def _open(self) -> None:
        """Show what is selected; it is made at the first time."""
        item = self.selected
        if isinstance(item, Listed):
            self._show(self.tab, lambda: TABS[self.tab][1](item))
        elif item == ALL_TASKS:
            self._show(ALL_TASKS, lambda: TasksTable(self.dashboard.manager or self.dashboard.client))
        elif item == WAITING:
            get_engine().start(self._show_waiting)

    def _show(self, name: str, make: Callable[[], Any]) -> None:
        with self._lock:
            if self.closed:
                return
            if name not in self._made:
                self._made[name] = make()
                self._link(self._made[name])
            self._panel.children = (self._made[name],)

    def _link(self, made: Any) -> None:
        """What is selected in the timeline is in the tables, and the other way round."""
        if callable(getattr(made, "on_select", None)):

            def selected(key: str) -> None:
                self._selected_key(key, made)

            made.on_select(selected)
            if self._key:
                made.select(self._key)

    def _selected_key(self, key: str, source: Any) -> None:
        self._key = key
        for made in list(self._made.values()):
            if made is not source and callable(getattr(made, "on_select", None)):
                made.select(key)

    async def _ask_who_waits(self) -> None:
        while True:
            await anyio.sleep(WAITING_S)
            await self._show_waiting()

    async def _show_waiting(self) -> None:
        try:
            runs = await self.dashboard.client.suspended_runs()
        except NbMastraError as error:
            self._list.about(WAITING, one_line(str(error), 120))
            self._bar.say(one_line(str(error), 300))
        else:
            count = len(runs)
            self._list.about(WAITING, f"{count} run{'' if count == 1 else 's'} of the server")
            if self.selected == WAITING:
                made = self._made.get(WAITING)
                if isinstance(made, ApprovalsView):  # a form that is being filled in stays
                    made.update(runs)
                else:
                    self._show(WAITING, lambda: ApprovalsView(runs))
        self._draw()

    def _close_made(self) -> None:
        with self._lock:
            made, self._made = self._made, {}
        for widget in made.values():
            widget.close()

    # --- attaching --------------------------------------------------------------------------------------------------

    def _attach(self, act: str, values: Mapping[str, str | bool]) -> None:
        given = {name: str(value).strip() for name, value in values.items()}
        missing = [
            name
            for name in ("run", "agent", "thread", "resource")
            if given.get(name) == "" and (act, name) not in _FREE
        ]
        if missing:
            self._bar.say(f"Give the {' and the '.join(missing)}.")
            return
        get_engine().start(self._attach_now, act, given)

    async def _attach_now(self, act: str, given: Mapping[str, str]) -> None:
        board = self.dashboard
        self._bar.say("Attaching …")
        try:
            if act == "observe":
                out = await board.observe(given["run"], given["agent"])
            else:
                out = await board.subscribe(given["thread"], given["resource"], given.get("agent") or None)
        except NbMastraError as error:
            self._bar.say(one_line(str(error), 300))
            return
        self._bar.close_form()
        self._bar.say("Attached.")
        listed = next((one for one in board.runs.runs if out in one.outs), None)
        if listed is not None:
            self._select(listed)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove it from every display, free all that it made, and leave plain output in its place."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._unwatch()
        for job in self._jobs:
            job.cancel()
        self.dashboard.forget(self)
        self._close_made()
        for part in (self._bar, self._list, self._tabs):
            part.close()
        for box in (self._panel, self._main, self._columns, self.box):
            layout = box.layout
            box.close()
            layout.close()
        self.standing.end()


_FREE = {("subscribe", "agent")}
