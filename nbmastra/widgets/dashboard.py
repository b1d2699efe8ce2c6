"""`Dashboard`: several runs at once; of the selected one its view, tables, timeline and usage.

runs / manager / client ──▶ RunList ──▶ DashboardView: bar, list │ tabs, panel (ipywidgets boxes)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from nbmastra.engine import Job, get_engine
from nbmastra.errors import ControlError, SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.dashboard_snapshot import dashboard_snapshot
from nbmastra.widgets.dashboard_view import DashboardView
from nbmastra.widgets.run_list import RunList

__all__ = ["Dashboard"]


class Dashboard:
    """The runs of a source, live: a list with their status, and for the selected one what there is to see.

    source: outputs; a comparison or a chat; a `BackgroundTaskManager` (the runs that begin in this kernel, and the
    tasks of all runs, earlier kernels' too); a `MastraClient` (the runs that this kernel asks of it, those that it
    attaches to, the server's tasks and the runs that wait there); without it all runs that begin in this kernel.
    Raises SettingsError. `close` frees it and leaves plain output behind.
    """

    def __init__(self, source: Any = None) -> None:
        self.client: Any = source if _is_client(source) else None
        self.manager: Any = source if _is_manager(source) else None
        url = getattr(self.client, "url", None)
        self.title = "Runs"
        self._views: list[DashboardView] = []
        self._unwatch: Callable[[], None] | None = None
        if self.client is not None:
            self.runs = RunList(all_started=True, wanted=lambda out: out.context.get("url") == url)
        elif self.manager is not None or source is None:
            self.runs = RunList(all_started=True)
        else:
            self.runs = RunList(_outs(source))
            if callable(getattr(source, "watch", None)):
                self._unwatch = source.watch(self._take_from(source))

    def _take_from(self, source: Any) -> Callable[..., None]:
        runs = self.runs

        def take(*_told: object) -> None:
            for out in list(source.outs):
                runs.add(out)

        return take

    @property
    def outs(self) -> list[MastraModelOutput]:
        """The runs' newest outputs, in the order they were listed."""
        return [listed.out for listed in self.runs.runs]

    def add(self, out: MastraModelOutput) -> None:
        """List a run; one that is listed already isn't listed again."""
        self.runs.add(out)

    # --- runs that somebody else started ----------------------------------------------------------------------------

    def observe(self, run_id: str, agent: str) -> Job[MastraModelOutput]:
        """Watch a run of a durable agent of the server, from its first event on. Raises ControlError, ClientError."""
        client = self._server()
        return get_engine().start(self._attach, lambda: client.agent(agent).observe(run_id))

    def subscribe(self, thread: str, resource: str, agent: str | None = None) -> Job[MastraModelOutput]:
        """Watch the runs of a thread of the server, whoever starts them. Raises ControlError, ClientError."""
        client = self._server()
        return get_engine().start(self._attach, lambda: client.subscribe(thread, resource, agent=agent))

    def _server(self) -> Any:
        if self.client is None:
            raise ControlError("only the dashboard of a server attaches to runs: Dashboard(MastraClient())")
        return self.client

    async def _attach(self, begin: Callable[[], Any]) -> MastraModelOutput:
        out: MastraModelOutput = await begin()
        self.runs.add(out)
        return out

    # --- shown ------------------------------------------------------------------------------------------------------

    def view(self) -> DashboardView:
        """A view of it, for boxes of your own: `.box` is its widget; close it when it isn't needed any more."""
        view = DashboardView(self)
        self._views.append(view)
        return view

    def forget(self, view: DashboardView) -> None:
        """A view was closed."""
        if view in self._views:
            self._views.remove(view)

    def snapshot(self) -> dict[str, str]:
        """The runs as plain output: text/html, text/markdown, text/plain."""
        return dashboard_snapshot(self.runs.runs, self.title)

    def close(self) -> None:
        """Close its views, which leave plain output behind, and take no more runs in; the runs go on."""
        for view in list(self._views):
            view.close()
        self.runs.close()
        if self._unwatch is not None:
            self._unwatch()

    def _ipython_display_(self) -> None:
        view = self.view()
        view.standing.place(view.box, repr(self))

    def __repr__(self) -> str:
        runs = self.runs.runs
        going = sum(not listed.out.done for listed in runs)
        of = f" of {self.client.url}" if self.client is not None else ""
        return f"<Dashboard{of}: {len(runs)} runs, {going} running>"


def _is_client(source: Any) -> bool:
    return callable(getattr(source, "suspended_runs", None)) and hasattr(source, "background_tasks")


def _is_manager(source: Any) -> bool:
    return callable(getattr(source, "enqueue", None))


def _outs(source: Any) -> list[MastraModelOutput]:
    """The outputs of a source. Raises SettingsError."""
    if isinstance(source, MastraModelOutput):
        return [source]
    given = getattr(source, "outs", source)
    if isinstance(given, Mapping):
        given = list(cast("Mapping[Any, Any]", given).values())
    found = list(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else [given]
    for out in found:
        if not isinstance(out, MastraModelOutput):
            raise SettingsError(f"Dashboard takes runs, a task manager or a client, not {type(out).__name__}")
    return found
