"""How an output shows itself: a live view in a notebook, text in plain IPython."""

from __future__ import annotations

import sys
from typing import Any

from nbmastra.output import MastraModelOutput
from nbmastra.run_printer import RunPrinter, look_for

__all__ = ["in_notebook", "show"]


def in_notebook() -> bool:
    """True where a front end shows widgets: in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show(out: MastraModelOutput) -> None:
    """Show an output in the current cell; a running one goes on growing there, but not in plain IPython."""
    if out.done:
        RunPrinter(out, look_for(sys.stdout)).close()
    else:
        print(repr(out))
