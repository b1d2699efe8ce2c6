"""Clicks that reach the kernel while a cell blocks it.

Front ends with kernel subshells (JupyterLab >= 4.4) send a widget's messages to a subshell, answered on a thread of
its own. But ipykernel (7.4) passes a message on to the shell that last published on that comm: for a widget made or
updated by a running cell, that is the blocked one, and the click waits until the cell ends.
"""

from __future__ import annotations

from typing import Any

__all__ = ["keep_front_end_shell"]


def keep_front_end_shell(comm: Any) -> None:
    """Let a comm's messages be served where the front end sent them; does nothing on kernels that do so anyway.

    Source: `ipykernel.comm.comm.BaseComm._reply_subshell_for`, called by `Kernel.shell_channel_thread_main`.
    """
    if callable(getattr(comm, "_reply_subshell_for", None)):
        comm._reply_subshell_for = _as_sent


def _as_sent(_data: Any, sent_to: str | None) -> str | None:
    return sent_to
