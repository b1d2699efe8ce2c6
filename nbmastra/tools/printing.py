"""What a tool prints goes to its run: `sys.stdout` and `sys.stderr` tell, by a context variable, who prints.

They are replaced only while a tool runs, and pass on everything that no tool prints.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["printing_to"]

_MAX_CHARS = 200_000
_FLUSH_CHARS = 4_096
_NAMES = ("stdout", "stderr")

_printer: ContextVar[_Printer | None] = ContextVar("nbmastra_printer", default=None)
_lock = threading.Lock()
_running = 0


class _Printer:
    """Gathers what one call prints, and hands it on by lines."""

    def __init__(self, sink: Callable[[str], object]) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._held = ""
        self._left = _MAX_CHARS
        self.closed = False

    def write(self, text: str) -> None:
        with self._lock:
            if self._left <= 0:
                return
            kept = text[: self._left]
            self._left -= len(kept)
            self._held += kept if self._left > 0 else f"{kept}\n… (it printed more than {_MAX_CHARS:,} characters)\n"
            end = len(self._held) if len(self._held) > _FLUSH_CHARS or self._left <= 0 else self._held.rfind("\n") + 1
            self._hand_on(end)

    def flush(self) -> None:
        with self._lock:
            self._hand_on(len(self._held))

    def _hand_on(self, end: int) -> None:
        ready, self._held = self._held[:end], self._held[end:]
        if ready:
            self._sink(ready)

    def close(self) -> None:
        self.flush()
        self.closed = True


class _Stream:
    """Stands in for a stream: what a tool writes goes to its printer, everything else to the stream itself."""

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "target", target)

    def write(self, text: str, /) -> int:
        printer = _printer.get()
        if printer is None or printer.closed:
            return self.target.write(text)
        printer.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        printer = _printer.get()
        if printer is None or printer.closed:
            self.target.flush()
        else:
            printer.flush()

    # What isn't about writing is the stream's own: encoding, fileno, parent_header …
    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "target"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Who wraps our `write` (IPython does for each cell) calls ours from it: at the stream's it would call itself.
        if name in ("write", "writelines", "flush"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.target, name, value)


@contextmanager
def printing_to(sink: Callable[[str], object]) -> Generator[None]:
    """While the block runs, what this context and its copies print goes to `sink`, by lines, from any thread."""
    printer = _Printer(sink)
    _replace()
    token = _printer.set(printer)
    try:
        yield
    finally:
        _printer.reset(token)
        printer.close()
        _restore()


# CPython's print() looks `sys.stdout` up once and holds no reference: a stand-in that ended with the last tool, while
# another thread prints, would crash the process.
_stand_ins: deque[_Stream] = deque(maxlen=64)


def _stand_in(stream: Any) -> _Stream:
    for known in _stand_ins:
        if known.target is stream:
            return known
    made = _Stream(stream)
    _stand_ins.append(made)
    return made


def _replace() -> None:
    global _running
    with _lock:
        _running += 1
        for name in _NAMES:
            stream: Any = getattr(sys, name)
            if stream is not None and not isinstance(stream, _Stream):
                setattr(sys, name, _stand_in(stream))


def _restore() -> None:
    global _running
    with _lock:
        _running -= 1
        if _running:
            return
        for name in _NAMES:
            stream: Any = getattr(sys, name)
            # Somebody may have replaced it meanwhile, who will put ours back: it then just passes on.
            if isinstance(stream, _Stream):
                setattr(sys, name, stream.target)
