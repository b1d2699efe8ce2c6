"""How an output shows itself: a live view in a notebook, text in plain IPython."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from nbmastra.output import MastraModelOutput
from nbmastra.run_printer import RunPrinter, look_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nbmastra.widgets.approvals import WaitingRun

__all__ = ["in_notebook", "show", "show_approvals", "show_dashboard"]


def in_notebook() -> bool:
    """True where a front end shows widgets: in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show(out: MastraModelOutput) -> threading.Event:
    """Show an output in the current cell; a running one goes on growing there, but not in plain IPython.

    The event is set when nothing more will change in the cell for now: the run is over and its view replaced.
    """
    if in_notebook():
        # Loaded here, because plain IPython does without widgets.
        from nbmastra.widgets.placement import show_bundle
        from nbmastra.widgets.run_view import RunView
        from nbmastra.widgets.snapshot import snapshot

        if not out.done or out.waiting:
            view = RunView(out)
            cast("Any", import_module("IPython.display")).display(view)
            return view.ended
        show_bundle(snapshot(out))
    elif out.done:
        RunPrinter(out, look_for(sys.stdout)).close()
    else:
        print(repr(out))
    done = threading.Event()
    done.set()
    return done


def show_approvals(runs: Sequence[WaitingRun]) -> None:
    """Show runs that wait for somebody, with the buttons that answer them."""
    from nbmastra.widgets.approvals import ApprovalsView

    cast("Any", import_module("IPython.display")).display(ApprovalsView(runs))


def show_dashboard(source: Any, runs: Iterable[MastraModelOutput] = ()) -> None:
    """Show the dashboard of a source, with these runs in it."""
    from nbmastra.widgets.dashboard import Dashboard

    dashboard = Dashboard(source)
    for out in runs:
        dashboard.add(out)
    cast("Any", import_module("IPython.display")).display(dashboard)
