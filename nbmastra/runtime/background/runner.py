"""The machinery of the task manager: claims tasks, runs them, tells listeners, and watches other kernels.

enqueue ─▶ store (pending) ─▶ claim ─▶ attempt ─▶ store (its end) ─▶ listeners
             ▲ other kernels' tasks: poll, take over
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk
from nbmastra.engine import Engine
from nbmastra.errors import ControlError
from nbmastra.runtime.background.attempt import Attempt, TaskHooks
from nbmastra.runtime.background.executor import Executor
from nbmastra.runtime.background.owner import make_owner
from nbmastra.runtime.background.record import BackgroundTask, task_chunk
from nbmastra.runtime.background.results import keep_result
from nbmastra.runtime.background.settings import Cleanup, Retries, TaskFilter, column_filter
from nbmastra.runtime.background.states import LIVE
from nbmastra.runtime.background.task_store import TaskStore
from nbmastra.runtime.extend import RunMemory
from nbmastra.runtime.store import Store
from nbmastra.runtime.stored import iso_time
from nbmastra.tools import Tool

__all__ = ["Listener", "TaskRunner"]

Listener = Callable[[BackgroundTask, Chunk], None]

_logger = logging.getLogger("nbmastra")


class TaskRunner:
    """Runs the tasks of a store whose tools it knows. Its methods are for the engine's loop only."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        engine: Engine,
        *,
        limits: tuple[int, int],
        retries: Retries,
        cleanup: Cleanup,
        progress_throttle_s: float | None,
        on_complete: Callable[[BackgroundTask], Any] | None,
        lease_s: float,
        poll_s: float,
    ) -> None:
        self.store = store
        self.executor = executor
        self.engine = engine
        self.owner = make_owner()
        self.tasks = TaskStore(store, self.owner)
        self.retries = retries
        self.progress_throttle_s = progress_throttle_s
        self._limits = limits
        self._agent_limits: dict[str, int] = {}
        self._cleanup = cleanup
        self._on_complete = on_complete
        self._lease_s, self._poll_s = lease_s, poll_s
        self._tools: dict[tuple[str, str], Tool] = {}
        self._memories: dict[str, RunMemory | None] = {}
        self._hooks: dict[str, TaskHooks] = {}
        self._attempts: dict[str, Attempt] = {}
        self._listeners: set[Listener] = set()
        self._waiters: dict[asyncio.Future[BackgroundTask], Collection[str]] = {}
        self._pumping = self._again = self._closed = self._looking = False
        self._poller: asyncio.Task[None] | None = None
        self._position: int | None = None
        self._cleaned = time.monotonic()
        self._work: set[asyncio.Task[Any]] = set()

    # --- listeners -------------------------------------------------------------------------------------------------

    async def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with each task and chunk from now on, on the engine's loop; gives what ends it."""
        await self._catch_up()
        self._listeners.add(listener)
        self._watch()
        return lambda: self._listeners.discard(listener)

    def tell(self, task: BackgroundTask, chunks: Collection[Chunk]) -> None:
        """Tell listeners."""
        for chunk in chunks:
            for listener in list(self._listeners):
                listener(task, chunk)
        if task.ended or task.status == "suspended":
            for waiter, ids in self._waiters.items():
                if task.id in ids and not waiter.done():
                    waiter.set_result(task)

    # --- running ---------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Run what may run now; on the engine's loop only."""
        self._again = True
        if not self._pumping and not self._closed:
            self._pumping = True
            self._spawn(self._pump())
        self._watch()

    async def _pump(self) -> None:
        try:
            while self._again and not self._closed:
                self._again = False
                room = self._limits[0] - len(self._attempts)
                if room <= 0:
                    return
                limits = {agent: self._agent_limits.get(agent, self._limits[1]) for agent, _ in self._tools}
                for attempt in self._attempts.values():
                    limits[attempt.task.agent_id] = limits.get(attempt.task.agent_id, self._limits[1]) - 1
                claim = self.tasks.claim
                taken = await self._call(claim, set(self._tools), room, limits, self._limits[1], self._lease_s)
                for task, chunks in taken:
                    self._begin(task, chunks)
        finally:
            self._pumping = False

    def _begin(self, task: BackgroundTask, chunks: list[Chunk]) -> None:
        tool = self._tools[task.agent_id, task.tool_name]
        attempt = self._attempts[task.id] = Attempt(self, task, tool, self._hooks.get(task.id))
        self.tell(task, chunks)
        attempt.task_run = self._spawn(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        finally:
            if self._attempts.get(attempt.task.id) is attempt:
                del self._attempts[attempt.task.id]
            self.kick()

    async def settle(self, task_id: str, act: str, to: Any, *, ready_in_s: float = 0.0, **changes: Any) -> bool:
        """An attempt has ended; False if its task isn't this manager's any more, so that nothing has changed."""
        moved = await self._move(task_id, act, to, mine=True, ready_at=time.time() + ready_in_s, **changes)
        if moved is not None and ready_in_s:
            asyncio.get_running_loop().call_later(ready_in_s, self.kick)
        return moved is not None

    async def _move(self, task_id: str, act: str, to: Any, **changes: Any) -> BackgroundTask | None:
        moved = await self._call(self.tasks.move, task_id, act, to, **changes)
        if moved is None:
            return None
        task, chunks = moved
        await self._moved(task, chunks)
        return task

    async def _moved(self, task: BackgroundTask, chunks: list[Chunk]) -> None:
        attempt = self._attempts.pop(task.id, None) if task.status != "running" else None
        if attempt is not None and task.status == "cancelled":
            attempt.stop("the task was cancelled")
            self.kick()
        hooks = self._hooks.get(task.id)
        if task.ended:
            self._hooks.pop(task.id, None)
            await keep_result(self._memories.get(task.agent_id), task)
        if hooks is not None and (task.ended or task.status == "suspended"):
            await _guarded(hooks.ended, task)
        self.tell(task, chunks)
        if task.ended and self._on_complete is not None:
            await _guarded(self._on_complete, task)

    def _full(self, agent: str) -> bool:
        mine = sum(attempt.task.agent_id == agent for attempt in self._attempts.values())
        limit = self._agent_limits.get(agent, self._limits[1])
        return len(self._attempts) >= self._limits[0] or mine >= limit

    # --- other kernels ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._closed and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """While there is anything to watch: renew leases, hear of other kernels' doings, take over from dead ones."""
        while not self._closed:
            try:
                await self._look()
                live = await self._call(self.tasks.live, set(self._tools))
                if not (live or self._listeners or self._waiters or self._attempts):
                    self._position = None  # what happens now is history to those who listen later
                    return
            except Exception:  # the store may be back the next time
                _logger.warning("background tasks: the store can't be used", exc_info=True)
            await asyncio.sleep(self._poll_s)

    async def _catch_up(self) -> None:
        """From here on other kernels' doings are news: a first look that comes later would take them for history."""
        if self._position is None:
            position, _ = await self._call(self.tasks.news, None)
            if self._position is None:
                self._position = position

    async def _look(self) -> None:
        if self._looking:
            return
        self._looking = True
        try:
            await self._look_around()
        finally:
            self._looking = False

    async def _look_around(self) -> None:
        before = set(self._attempts)
        mine = await self._call(self.tasks.renew, self._lease_s)
        for task_id in before - mine:
            attempt = self._attempts.pop(task_id, None)
            if attempt is not None:
                now = await self._call(self.tasks.get, task_id)
                if now is not None and now.owner == self.owner and now.status == "running":
                    self._attempts[task_id] = attempt
                    continue
                attempt.stop("the task was cancelled or taken over by another kernel")
        for task in await self._call(self.tasks.left_behind):
            taken = await self._call(self.tasks.take_over, task)
            if taken is not None:
                await self._moved(*taken)
        await self._catch_up()
        self._position, news = await self._call(self.tasks.news, self._position)
        for task_id, wire in news:
            task = await self._call(self.tasks.get, task_id)
            if task is not None:
                self.tell(task, [build_chunk(wire)])
        if time.monotonic() - self._cleaned > self._cleanup.every_s:
            self._cleaned = time.monotonic()
            await self.clean()
        if self._tools:
            self.kick()

    async def clean(self) -> int:
        """Forget tasks that ended long enough ago; gives how many."""
        now = time.time()
        before = (iso_time(int(1000 * (now - age))) for age in (self._cleanup.completed_s, self._cleanup.failed_s))
        return await self._call(self.tasks.clean, *before)

    # --- small things ----------------------------------------------------------------------------------------------

    async def live_chunks(self, wanted: TaskFilter) -> list[Chunk]:
        """What tells of the tasks that haven't ended."""
        tasks = await self._call(self.tasks.find, column_filter(wanted), LIVE)
        return [chunk for task in tasks if (chunk := task_chunk(task)) is not None]

    async def _known(self, task_id: str) -> BackgroundTask:
        task = await self._call(self.tasks.get, task_id)
        if task is None:
            raise ControlError(f"there is no task {task_id[:60]!r} in {self.store.address.shown}")
        return task

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.store.run(method, *args, **kwargs)

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("background tasks: %s", error, exc_info=error)


async def _guarded(function: Callable[[BackgroundTask], Any], task: BackgroundTask) -> None:
    """A user's function that fails must not take the task with it."""
    try:
        answer: Any = function(task)
        if inspect.isawaitable(answer):
            awaiting: Awaitable[Any] = answer
            await awaiting
    except Exception:
        _logger.warning("a callback of task %s failed", task.id, exc_info=True)
