"""The engine: one background event loop that owns every run.

So runs go on while cells run, block, fail or are interrupted.

a cell, a thread, another loop                     the engine's thread
──────────────────────────────                     ────────────────────
engine.start(coroutine function) ─────────────▶    a task, in a copy of the caller's context
job.cancel()  (from anywhere)    ─────────────▶    its cancel scope
await job / job.result()         ◀─────────────    result or exception
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Generic, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

__all__ = ["Engine", "Interrupted", "Job", "get_engine", "interrupted_at_end", "interruptible"]

T = TypeVar("T")


class Job(Generic[T]):
    """Work on the engine's loop: `await job` on any loop, `job.result()` from any thread, `job.cancel()` from anywhere.

    An exception that nobody asks for is dropped silently; one that is asked for is raised each time.
    """

    def __init__(self, future: Future[T], engine: Engine) -> None:
        self._future = future
        self._engine = engine

    def cancel(self) -> None:
        """Stop the work; returns at once."""
        self._future.cancel()

    @property
    def done(self) -> bool:
        """True if it has ended, in whatever way."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, at most `timeout` seconds (TimeoutError). Not on the engine's own loop: RuntimeError."""
        self._engine.refuse_own_thread()
        return self._future.result(timeout)

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it has ended: on the engine's thread, or here and now if it has already."""
        self._future.add_done_callback(lambda _: callback())

    def __await__(self) -> Generator[Any, None, T]:
        return _wait(self._future).__await__()

    def __repr__(self) -> str:
        return f"<Job {'done' if self.done else 'running: await it, or call .result()'}>"


async def _wait(future: Future[T]) -> T:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the waiting loop is closed
            loop.call_soon_threadsafe(settle)

    future.add_done_callback(wake)
    await ended
    try:
        return future.result()
    except CancelledError:
        raise asyncio.CancelledError from None


class Engine:
    """One daemon thread with one event loop, started at first use."""

    def __init__(self, name: str = "nbmastra-engine") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._stack: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int | None = None
        self._jobs: set[Future[Any]] = set()
        self.closing = False
        """True while `close` runs: what ends now ends because of it."""
        self.resources: dict[str, Any] = {}
        """What lives as long as the loop does, by name (an HTTP pool); `on_close` says how it ends."""
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def start(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Job[T]:
        """Run a coroutine function on the engine's loop, in a copy of the caller's context."""
        here = self.on_own_thread
        future = _start_here(function, *args) if here else self.portal().start_task_soon(function, *args)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return Job(future, self)

    def portal(self) -> BlockingPortal:
        """The portal to the loop; starts the thread if there is none."""
        with self._lock:
            if self._portal is None:
                self._stack = ExitStack()
                self._portal = self._stack.enter_context(start_blocking_portal("asyncio", name=self._name))
                self._thread_id = self._portal.call(threading.get_ident)
                self._loop = self._portal.call(asyncio.get_running_loop)
            return self._portal

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a plain function on the engine's loop, without waiting for it; dropped if the engine is closed."""
        if self.on_own_thread:
            function()
        elif self._loop is not None:
            with suppress(RuntimeError):  # closed in this moment
                self._loop.call_soon_threadsafe(function)

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have an async function called on the loop before it ends."""
        self._closers.append(closer)

    @property
    def on_own_thread(self) -> bool:
        """True on the engine's thread, where blocking would wait for itself for ever."""
        return threading.get_ident() == self._thread_id

    def refuse_own_thread(self) -> None:
        """Raises RuntimeError where blocking would never end."""
        if self.on_own_thread:
            raise RuntimeError("this would block the engine's own event loop: use await here")

    def close(self, deadline_s: float = 2.0) -> None:
        """Cancel every run, close what they share, and end the thread."""
        with self._lock:
            stack, portal = self._stack, self._portal
            self.closing = True
            closers, self._closers = self._closers, []
            self.resources.clear()
        if stack is None or portal is None:
            self.closing = False
            return
        for future in list(self._jobs):
            future.cancel()
        for closer in closers:
            closed = portal.start_task_soon(closer)
            try:
                closed.result(deadline_s)
            except Exception:  # at exit nothing more can be done about a pool that doesn't close
                closed.cancel()
        stack.close()
        self._stack = self._portal = self._loop = self._thread_id = None
        self.closing = False

    def forget(self) -> None:
        """In a forked child: the parent's thread isn't here, so begin anew."""
        _of_parents.append(self._stack)  # kept: when it goes, it would wait for that thread
        self.__init__(self._name)


def _start_here(function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Future[T]:
    """On the engine's own thread, where a portal refuses to be called: the same by a plain task."""
    future: Future[T] = Future()
    loop = asyncio.get_running_loop()
    task = loop.create_task(function(*args))
    _own_tasks.add(task)

    def ended(_: asyncio.Task[T]) -> None:
        _own_tasks.discard(task)
        error = None if task.cancelled() else task.exception()  # asked for in any case, or asyncio complains
        if future.cancelled():
            return
        if task.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def cancel(done: Future[T]) -> None:
        if done.cancelled():
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(ended)
    future.add_done_callback(cancel)
    return future


_own_tasks: set[asyncio.Task[Any]] = set()
_of_parents: list[ExitStack | None] = []

_engine = Engine()
atexit.register(_engine.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.forget)


def get_engine() -> Engine:
    """The engine that all runs of this process share."""
    return _engine


# The C functions under those of `signal`, which look every handler up among its enums first, in vain: that takes 50 µs,
# too much for each wait of a reader.
_signal: Any = sys.modules.get("_signal", signal)
_get_handler: Callable[[int], Any] = _signal.getsignal
_set_handler: Callable[[int, Any], Any] = _signal.signal


class _Interrupts:
    """Who is to be told of the kernel's interrupt (SIGINT): one handler for all, since they come and go in any order.

    Coroutines of one loop overlap, so each with a handler of its own would put back the wrong one.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[Callable[[], None], bool]] = {}
        self._before: Callable[[int, FrameType | None], Any] = signal.default_int_handler

    def add(self, key: object, cancel: Callable[[], None], blocking: bool) -> None:
        """Have `cancel` called at an interrupt, until `key` is removed."""
        now = _get_handler(signal.SIGINT)
        if now != self._handle and callable(now):
            self._before = now
            _set_handler(signal.SIGINT, self._handle)
        self._waiting[key] = cancel, blocking

    def remove(self, key: object) -> None:
        """Whoever has the key waits no more; after the last one the handler that was there before is back."""
        self._waiting.pop(key, None)
        if not self._waiting and _get_handler(signal.SIGINT) == self._handle:
            _set_handler(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        waiting = list(self._waiting.values())
        # A blocking wait is what the user looks at: coroutines of earlier cells go on.
        for cancel, blocking in waiting:
            if blocking or not waiting[-1][1]:
                cancel()
        self._before(number, frame)


_interrupts = _Interrupts()


class Interrupted(asyncio.CancelledError):
    """The kernel's interrupt stopped a run, and the cell that awaited it: one line in a notebook."""

    def __init__(self) -> None:
        super().__init__("the run was stopped by an interrupt")

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


class Interrupt:
    """Whether the kernel's interrupt came during a wait."""

    def __init__(self) -> None:
        self.came = False

    async def passed_on(self) -> None:
        """If it came, leave the loop the time to cancel whoever waits: it is told in its own way, which takes longer.

        Else a run that settles fast would let an interrupted cell end as if nothing had happened.
        """
        if self.came:
            try:
                await asyncio.sleep(_PASSED_ON_S)
            except asyncio.CancelledError:
                raise Interrupted from None


_PASSED_ON_S = 1.0


@contextmanager
def interruptible(cancel: Callable[[], None], *, blocking: bool = False) -> Generator[Interrupt]:
    """While the block waits in the main thread, the kernel's interrupt (SIGINT) also calls `cancel`.

    An awaiting cell is only cancelled as a task, which says nothing of why: so the signal itself is watched, and
    whatever handler was there still runs. `blocking`: the thread itself waits, so only this wait was meant.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def came() -> None:
        interrupt.came = True
        cancel()

    key = object()
    try:
        _interrupts.add(key, came, blocking)
        yield interrupt
    except asyncio.CancelledError:
        if interrupt.came:
            raise Interrupted from None
        raise
    finally:
        _interrupts.remove(key)


@contextmanager
def interrupted_at_end(cancel: Callable[[], object]) -> Generator[None]:
    """In the main thread, the first interrupt within the block calls `cancel` and is raised when the block has ended.

    So what prints or draws a run isn't torn: it ends by itself, as cancelling ends the run. A second interrupt is
    raised at once.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        cancel()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
