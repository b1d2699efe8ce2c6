"""The signal that tells a tool to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from nbmastra.errors import ToolAborted

__all__ = ["AbortSignal"]


class AbortSignal:
    """Whether the work is to stop; read, awaited and set from any thread. One with a `parent` is set with it."""

    def __init__(self, parent: AbortSignal | None = None) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._reason = ""
        self._forget: Callable[[], None] = lambda: None
        if parent is not None:
            self._forget = parent.on_abort(lambda: self.abort(parent.reason))

    @property
    def aborted(self) -> bool:
        """True once it is set."""
        return self._event.is_set()

    @property
    def reason(self) -> str:
        """Why; empty if nobody said."""
        return self._reason

    def raise_if_aborted(self) -> None:
        """Raises ToolAborted once it is set."""
        if self.aborted:
            raise ToolAborted(self._reason or "the run was cancelled")

    async def wait(self) -> str:
        """Wait until it is set; gives the reason. On any asyncio loop."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the waiting loop is closed
                loop.call_soon_threadsafe(ended.set)

        forget = self.on_abort(wake)
        try:
            await ended.wait()
        finally:
            forget()
        return self._reason

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until it is set, at most `timeout` seconds; True if it is."""
        return self._event.wait(timeout)

    def abort(self, reason: str = "") -> None:
        """Set it; only the first reason counts. Called by whoever runs the tool."""
        with self._lock:
            if self._event.is_set():
                return
            self._reason = reason
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_abort(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when it is set, on whatever thread that is, or here and now; gives what takes it back."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._remove(callback)
        callback()
        return lambda: None

    def _remove(self, callback: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):
            self._callbacks.remove(callback)

    def detach(self) -> None:
        """No longer follow the parent: the work is over."""
        self._forget()

    def __repr__(self) -> str:
        return f"<AbortSignal {'aborted' if self.aborted else 'not aborted'}>"
