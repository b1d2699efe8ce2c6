"""How an output shows itself: a live view in a notebook, text in plain IPython."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from IPython.display import display

from nbmastra.output import MastraModelOutput
from nbmastra.run_printer import RunPrinter, look_for

__all__ = ["in_notebook", "show"]

_LAST_FRAME_S = 10.0


def in_notebook() -> bool:
    """True where a front end shows widgets: in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show(out: MastraModelOutput) -> Callable[[], object]:
    """Show an output in the current cell, a running one live; gives what waits until it is shown to its end."""
    if in_notebook():
        from nbmastra.widgets.run_view import RunView

        view = RunView(out)
        display(view)
        return lambda: view.ended.wait(_LAST_FRAME_S)
    if out.done:
        RunPrinter(out, look_for(sys.stdout)).close()
    else:
        print(repr(out))
    return lambda: None
