"""The machinery of the task manager: claims tasks, runs them, tells listeners, and watches other kernels.

enqueue ─▶ queue ─▶ store (pending) ─▶ claim ─▶ attempt ─▶ queue ─▶ store (its end) ─▶ listeners
                      ▲ other kernels' tasks: poll, take over
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk
from nbmastra.engine import Engine
from nbmastra.errors import ControlError, StoreError
from nbmastra.runtime.background.attempt import Attempt, TaskHooks
from nbmastra.runtime.background.executor import Executor
from nbmastra.runtime.background.owner import make_owner
from nbmastra.runtime.background.record import STOPS, BackgroundTask, task_chunk
from nbmastra.runtime.background.results import keep_result
from nbmastra.runtime.background.settings import Cleanup, Retries, TaskFilter, column_filter
from nbmastra.runtime.background.states import LIVE, TaskStatus
from nbmastra.runtime.background.task_changes import Move, Moved, TakeOver
from nbmastra.runtime.background.task_queue import TaskQueue
from nbmastra.runtime.background.task_store import Claim, TaskStore
from nbmastra.runtime.chunks_out import error_json
from nbmastra.runtime.extend import RunMemory
from nbmastra.runtime.store import Store
from nbmastra.runtime.stored import iso_time
from nbmastra.tools import Tool

__all__ = ["Listener", "TaskRunner"]

Listener = Callable[[BackgroundTask, Chunk], None]

_SELDOM = 10
"""How many times the usual pause the longest is."""

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
        self.queue = TaskQueue(self.tasks)
        self.retries = retries
        self.progress_throttle_s = progress_throttle_s
        self._limits = limits
        self._agent_limits: dict[str, int] = {}
        self._cleanup = cleanup
        self._on_complete = on_complete
        self._lease_s, self._poll_s = lease_s, poll_s
        self._tools: dict[tuple[str, str], Tool] = {}
        self._settings: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._memories: dict[str, RunMemory | None] = {}
        self._hooks: dict[str, TaskHooks | None] = {}
        """Tasks that were queued here, until their end is known; None for those of no agent's run."""
        self.resume_schemas: dict[str, dict[str, Any]] = {}
        """What the answers to tasks that were suspended here must look like: JSON Schemas by task id."""
        self._attempts: dict[str, Attempt] = {}
        self._listeners: set[Listener] = set()
        self._waiters: dict[str, set[asyncio.Future[BackgroundTask]]] = {}
        self._orphans: set[tuple[str, str | None]] = set()
        self._unreachable = False
        self._pumping = self._again = self._closed = self._looking = False
        self._poller: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._catching, self._hearing = asyncio.Lock(), asyncio.Lock()
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
        if any(chunk.type in STOPS for chunk in chunks):  # of another kernel, the task may be further than its chunk
            for waiter in self._waiters.get(task.id, ()):
                if not waiter.done():
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
                claim = Claim(set(self._tools), room, limits, self._limits[1], self._lease_s)
                for task, chunks in await self.queue.do(claim):
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
        except Exception as error:  # of ours: what tools raise has been dealt with
            _logger.exception("background tasks: the attempt at %s failed", attempt.task.id)
            await self.settle(attempt.task, "end", "failed", error=error_json(error), resumed=False)
        finally:
            if self._attempts.get(attempt.task.id) is attempt:
                del self._attempts[attempt.task.id]
            self.kick()

    async def settle(
        self,
        attempt: BackgroundTask,
        act: str,
        to: TaskStatus,
        *,
        ready_in_s: float = 0.0,
        output: Sequence[dict[str, Any]] = (),
        kept: int | None = None,
        **values: Any,
    ) -> bool:
        """An attempt has ended; False if it isn't the task's any more, so that nothing has changed.

        As long as the store can't be reached, the result is held here, and its slot taken.
        """
        move = Move(attempt.id, act, to, of=attempt, ready_in_s=ready_in_s, output=output, kept=kept, values=values)
        moved: Moved | None = None
        doubtful = False
        while moved is None:
            try:
                moved = await self.queue.do(move)
                if moved is None and doubtful:
                    moved = await self._kept_before(attempt, to, values.get("retry_count", attempt.retry_count))
                if moved is None:
                    return False
            except StoreError as error:
                doubtful = True
                self._lost_sight(error)
                await asyncio.sleep(self._poll_s)
        task, chunks = moved
        await self._moved(task, chunks)
        if ready_in_s:
            asyncio.get_running_loop().call_later(ready_in_s, self.kick)
        return True

    async def _kept_before(self, attempt: BackgroundTask, to: TaskStatus, retry_count: int) -> Moved | None:
        """The end of an attempt, if it was written by a try whose answer was lost."""
        now = await self._call(self.tasks.get, attempt.id)
        if now is None or (now.status, now.started_at, now.retry_count) != (to, attempt.started_at, retry_count):
            return None
        chunk = task_chunk(now)
        return now, [] if chunk is None else [chunk]

    async def _move(self, task_id: str, act: str, to: TaskStatus, **values: Any) -> BackgroundTask | None:
        moved: Moved | None = await self.queue.do(Move(task_id, act, to, values=values))
        if moved is None:
            return None
        task, chunks = moved
        await self._moved(task, chunks)
        return task

    async def _moved(self, task: BackgroundTask, chunks: list[Chunk]) -> None:
        attempt = self._attempts.get(task.id)
        if task.status != "running" and attempt is not None and attempt.task.started_at == task.started_at:
            del self._attempts[task.id]  # and not the next attempt, which may have begun meanwhile
            if task.status == "cancelled":
                attempt.stop("the task was cancelled")
                self.kick()
        await self._before_telling(task)
        self.tell(task, chunks)
        await self._after_telling(task)

    async def _heard(self, task: BackgroundTask, chunk: Chunk) -> None:
        """Another kernel did something. If the task was queued here, its run is told too, and `on_complete`."""
        hooks, mine = self._hooks.get(task.id), task.id in self._hooks
        if chunk.type == "background-task-output" and hooks is not None:
            hooks.wrote(build_chunk(chunk.raw_payload()["payload"]))
        mine = mine and chunk.type in STOPS and (task.ended or task.status == "suspended")
        if mine:
            await self._before_telling(task)
        self.tell(task, [chunk])
        if mine:  # not awaited: it may ask for other tasks, and wait for the next news
            self._spawn(self._after_telling(task))

    async def _before_telling(self, task: BackgroundTask) -> None:
        hooks = self._hooks.get(task.id)
        if task.ended:
            self._hooks.pop(task.id, None)
            self.resume_schemas.pop(task.id, None)
            await keep_result(self._memories.get(task.agent_id), task)
        if hooks is not None and (task.ended or task.status == "suspended"):
            await _guarded(hooks.ended, task)

    async def _after_telling(self, task: BackgroundTask) -> None:
        if not task.ended:
            return
        of_tool = self._settings.get((task.agent_id, task.tool_name), {}).get("on_complete")
        for function in (of_tool, self._on_complete):
            if function is not None:
                await _guarded(function, task)

    def executor_of(self, agent: str, tool: str) -> Executor:
        """Where a tool's tasks run."""
        return self._settings.get((agent, tool), {}).get("executor") or self.executor

    def memory_of(self, agent: str) -> RunMemory | None:
        """An agent's memory."""
        return self._memories.get(agent)

    def _full(self, agent: str) -> bool:
        mine = sum(attempt.task.agent_id == agent for attempt in self._attempts.values())
        limit = self._agent_limits.get(agent, self._limits[1])
        return len(self._attempts) >= self._limits[0] or mine >= limit

    # --- other kernels ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._woken.set()
        if not self._closed and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """While there is anything to watch: renew leases, hear of other kernels' doings, take over from dead ones.

        Less and less often while all that there is are tasks that wait for data: that may take days.
        """
        pause = self._poll_s
        while not self._closed:
            self._woken.clear()
            try:
                await self._look()
                self._unreachable = False
                live = await self._call(self.tasks.live, set(self._tools))
                here = self._listeners or self._waiters or self._attempts
                if not (live or here or self._hooks):
                    self._position = None  # what happens now is history to those who listen later
                    return
                waits = live == {"suspended"} and not here
                pause = min(2 * pause, _SELDOM * self._poll_s) if waits else self._poll_s
            except StoreError as error:  # it may be back the next time
                self._lost_sight(error)
            except Exception:  # the watch goes on: other tasks hang on it
                _logger.exception("background tasks: looking around failed")
            if pause == self._poll_s:
                await asyncio.sleep(pause)  # whatever begins or ends meanwhile: looking costs transactions
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    async def _catch_up(self) -> None:
        """From here on other kernels' doings are news: a first look that comes later would take them for history.

        Who calls this together goes on in the order of the calls.
        """
        async with self._catching:
            if self._position is None:
                self._position, _ = await self._call(self.tasks.news, None)

    async def _hear(self) -> None:
        """Take in what other kernels did: at the return, all that the store had at the call is known here."""
        await self._catch_up()
        async with self._hearing:
            before = None
            while self._position != before:
                before = self._position
                self._position, news = await self._call(self.tasks.news, before)
                await self._take_news(news)

    async def _take_news(self, news: Collection[tuple[str, dict[str, Any]]]) -> None:
        tasks: dict[str, BackgroundTask] = {}
        if news:
            tasks = await self._call(self.tasks.get_many, {task_id for task_id, _ in news})
        for task_id, wire in news:
            if task_id in tasks:
                await self._heard(tasks[task_id], build_chunk(wire))

    async def _look(self) -> None:
        if self._looking:
            return
        self._looking = True
        try:
            await self._look_around()
        finally:
            self._looking = False

    async def _look_around(self) -> None:
        before = dict(self._attempts)
        mine = {task.id: task for task in await self._call(self.tasks.renew, self._lease_s)}
        await self._adopt(mine)
        for task_id, attempt in before.items():
            now = mine.get(task_id)
            lost = now is None or now.started_at != attempt.task.started_at
            if lost and self._attempts.get(task_id) is attempt:
                del self._attempts[task_id]
                attempt.stop("the task was cancelled or taken over by another kernel")
        left = await self._call(self.tasks.left_behind)
        taken: list[Moved | None] = await asyncio.gather(*(self.queue.do(TakeOver(task)) for task in left))
        for task, chunks in filter(None, taken):
            await self._moved(task, chunks)
        await self._hear()
        if time.monotonic() - self._cleaned > self._cleanup.every_s:
            self._cleaned = time.monotonic()
            await self.clean()
        if self._tools:
            self.kick()

    async def _adopt(self, mine: Mapping[str, BackgroundTask]) -> None:
        """Give back what is this manager's by the store alone: the answer to a claim was lost with a connection."""
        before, self._orphans = self._orphans, set()
        for task in mine.values():
            if task.id in self._attempts or self._pumping:
                continue
            if (task.id, task.started_at) not in before:  # it may be about to begin, or to end
                self._orphans.add((task.id, task.started_at))
                continue
            taken = await self.queue.do(TakeOver(task, never_ran=True))
            if taken is not None:
                await self._moved(*taken)

    def _lost_sight(self, error: StoreError) -> None:
        """Say once that the store can't be used; it is tried again and again."""
        if not self._unreachable:
            self._unreachable = True
            _logger.warning("background tasks: %s; what has ended meanwhile is kept here until it can", error)

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
    except Exception:  # a user's function
        _logger.warning("a callback of task %s failed", task.id, exc_info=True)
