"""`BackgroundTaskManager`: what its users, and agents, ask of it."""

from __future__ import annotations

import asyncio
import builtins
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from nbmastra.engine import Engine, Job, get_engine
from nbmastra.errors import AlreadyResumed, ControlError, NotSuspended, SettingsError
from nbmastra.fold.reading import as_dict
from nbmastra.output import Bounds, MastraModelOutput, make_limits
from nbmastra.runtime.background.attempt import TaskHooks
from nbmastra.runtime.background.eligible import lasting_settings
from nbmastra.runtime.background.executor import Executor, LocalExecutor
from nbmastra.runtime.background.record import BackgroundTask, TaskList, now_text
from nbmastra.runtime.background.runner import TaskRunner
from nbmastra.runtime.background.settings import (
    Backpressure,
    Cleanup,
    Retries,
    TaskFilter,
    column_filter,
    read_settings,
)
from nbmastra.runtime.background.task_changes import Add
from nbmastra.runtime.background.task_source import TaskSource
from nbmastra.runtime.extend import RunMemory
from nbmastra.runtime.kept import json_only
from nbmastra.runtime.store import Store, shared_store
from nbmastra.runtime.stored import iso_time
from nbmastra.tools import Tool, as_tool, to_json

__all__ = ["BackgroundTaskManager", "QueueFull", "managers"]


class QueueFull(ControlError):
    """No more tasks may run, and the manager was told not to queue them."""


class BackgroundTaskManager(TaskRunner):
    """Runs tool calls beside the conversation: `Agent(background_tasks=BackgroundTaskManager())`, or by itself.

    store: as `Memory` takes it. executor: where tools run, in this process by default. global_concurrency,
    per_agent_concurrency: how many at a time in this process. backpressure: what happens to one more: queue, reject
    (QueueFull), or fallback-sync (the agent runs it at once). default_timeout_s: for each attempt. retries, cleanup:
    dicts of `Retries`, `Cleanup`. progress_throttle_s: least time between two output chunks of a task. on_complete: a
    function of each task that has ended. lease_s, poll_s: how long a kernel of another machine may be silent before its
    tasks are taken over, and how often others' doings are looked up. Raises SettingsError, and StoreError later.
    """

    can = frozenset({"cancel", "resume", "restart"})
    """What can be done to its tasks."""

    def __init__(
        self,
        store: Store | str | Path | None = None,
        *,
        executor: Executor | None = None,
        global_concurrency: int = 10,
        per_agent_concurrency: int = 5,
        backpressure: Backpressure = "queue",
        default_timeout_s: float = 300.0,
        retries: Retries | Mapping[str, Any] | int | None = None,
        cleanup: Cleanup | Mapping[str, Any] | None = None,
        progress_throttle_s: float | None = None,
        wait_timeout_s: float | None = None,
        on_complete: Callable[[BackgroundTask], Any] | None = None,
        lease_s: float = 30.0,
        poll_s: float = 1.0,
        engine: Engine | None = None,
    ) -> None:
        if backpressure not in ("queue", "reject", "fallback-sync"):
            raise SettingsError(f"backpressure= is queue, reject or fallback-sync, not {backpressure!r:.40}")
        for name, value in (
            ("global_concurrency", global_concurrency),
            ("per_agent_concurrency", per_agent_concurrency),
        ):
            if type(value) is not int or value < 1:
                raise SettingsError(f"{name}= takes a whole number above 0, not {value!r:.40}")
        engine = engine or (store.engine if isinstance(store, Store) else get_engine())
        super().__init__(
            store if isinstance(store, Store) else shared_store(store, engine=engine),
            executor or LocalExecutor(),
            engine,
            limits=(global_concurrency, per_agent_concurrency),
            retries=read_settings(Retries, retries, "retries"),
            cleanup=read_settings(Cleanup, cleanup, "cleanup"),
            progress_throttle_s=progress_throttle_s,
            on_complete=on_complete,
            lease_s=lease_s,
            poll_s=poll_s,
        )
        self.wait_timeout_s = wait_timeout_s
        self.default_timeout_s = default_timeout_s
        self._backpressure = backpressure
        managers.add(self)

    # --- what can run ----------------------------------------------------------------------------------------------

    def register(
        self,
        agent: str,
        tools: Mapping[str, Tool],
        *,
        memory: RunMemory | None = None,
        concurrency: int | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Say what an agent's tools are: tasks of theirs that an earlier kernel left are taken over now.

        settings: by tool, else those of `@tool(background=…)`: executor, on_complete.
        """
        for name, tool in tools.items():
            self._know(agent, name, tool, settings)
        self._memories[agent] = memory
        if concurrency is not None:
            self._agent_limits[agent] = concurrency
        self._closed = False

        async def look() -> None:
            self._spawn(self._look())

        self.engine.start(look)

    def _know(self, agent: str, name: str, tool: Tool, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._tools[agent, name] = tool
        known = lasting_settings(name, tool.background, {}) if settings is None else settings.get(name, {})
        self._settings[agent, name] = known

    # --- tasks -----------------------------------------------------------------------------------------------------

    def enqueue(self, tool: Any, args: Mapping[str, Any] | None = None, **about: Any) -> Job[BackgroundTask]:
        """Queue a call of a tool (a function, a `@tool`, or the name of a registered one); gives its task.

        about: agent, thread, resource, run_id, tool_call_id, task_id, timeout_s, max_retries, request_context. A
        task_id that is known gives the task that has it, and runs nothing. Raises SettingsError, QueueFull.
        """

        async def add() -> BackgroundTask:
            task = await self.add(tool, dict(args or {}), **about)
            if task is None:
                raise QueueFull("as many tasks run as may: run the function yourself, or wait for one of them")
            self.kick()
            return task

        return self.engine.start(add)

    async def add(
        self,
        tool: Any,
        args: dict[str, Any],
        *,
        agent: str = "",
        thread: str | None = None,
        resource: str | None = None,
        run_id: str = "",
        tool_call_id: str | None = None,
        task_id: str | None = None,
        timeout_s: float | None = None,
        max_retries: int | None = None,
        request_context: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        hooks: TaskHooks | None = None,
    ) -> BackgroundTask | None:
        """Keep a new task, to be run from `kick` on; None for fallback-sync. On the engine's loop only."""
        if isinstance(tool, str):
            known = self._tools.get((agent, tool))
            if known is None:
                names = ", ".join(sorted(name for owner, name in self._tools if owner == agent)) or "none"
                raise SettingsError(f"no tool {tool!r:.40} is registered for agent {agent!r:.40}; there is {names}")
        else:
            known = as_tool(tool)
            if self._tools.get((agent, known.name)) is not known:
                self._know(agent, known.name, known, None if settings is None else {known.name: settings})
        self.executor_of(agent, known.name).check(known)
        if self._backpressure != "queue" and self._full(agent):
            if self._backpressure == "reject":
                raise QueueFull(f"as many tasks run as may: {len(self._attempts)}")
            return None
        task = BackgroundTask(
            id=task_id or str(uuid.uuid4()),
            status="pending",
            tool_name=known.name,
            tool_call_id=tool_call_id or "",
            args=to_json(args),
            agent_id=agent,
            thread_id=thread,
            resource_id=resource,
            run_id=run_id,
            created_at=now_text(),
            max_retries=self.retries.max_retries if max_retries is None else max_retries,
            timeout_ms=1000 * (self.default_timeout_s if timeout_s is None else timeout_s),
            request_context=json_only(request_context or {}) or None,
        )
        self._closed = False
        await self._catch_up()
        if task.id not in self._hooks:
            self._hooks[task.id] = hooks
            kept: BackgroundTask | None = None
            try:
                kept = await self.queue.do(Add(task))
            finally:
                if kept is None or (task_id is not None and kept != task):  # not kept, or known before
                    self._hooks.pop(task.id, None)
            return kept
        return await self.queue.do(Add(task))  # which gives the one that is queued already

    def get(self, task_id: str) -> Job[BackgroundTask | None]:
        """A task; None if there is none of that id."""
        return self.engine.start(self._call, self.tasks.get, task_id)

    def outputs(self, task_id: str) -> Job[builtins.list[Any]]:
        """What a task's tool has written so far, as far as it is kept."""

        async def ask() -> builtins.list[Any]:
            told = await self._call(self.tasks.chunks, task_id)
            kept = [chunk["payload"]["payload"] for chunk in told if chunk["type"] == "background-task-output"]
            return [as_dict(chunk.get("payload")).get("output") for chunk in kept]

        return self.engine.start(ask)

    def list(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
        run_id: str | None = None,
        tool: str | None = None,
        tool_call_id: str | None = None,
        date_by: str = "created_at",
        from_date: Any = None,
        to_date: Any = None,
        order_by: str = "created_at",
        descending: bool = True,
        page: int = 0,
        per_page: int | None = None,
    ) -> Job[TaskList]:
        """A page of tasks, with `total`; newest first. Dates are datetimes or the wire's texts, `to_date` not included.

        date_by, order_by: created_at, started_at, suspended_at or completed_at.
        """
        for column in (date_by, order_by):
            if column not in ("created_at", "started_at", "suspended_at", "completed_at"):
                raise SettingsError(
                    f"tasks have no date {column!r:.40}: created_at, started_at, suspended_at, completed_at"
                )
        wanted = TaskFilter(agent, thread, resource, run_id, tool, tool_call_id)
        statuses = (status,) if isinstance(status, str) else tuple(status or ())
        more: dict[str, Any] = {"order_by": order_by, "descending": descending, "date_column": date_by}
        more |= {"from_date": _date(from_date), "to_date": _date(to_date), "page": page, "per_page": per_page}

        async def ask() -> TaskList:
            return await self._call(self.tasks.find, column_filter(wanted), statuses, **more)

        return self.engine.start(ask)

    def cancel(self, task_id: str) -> Job[BackgroundTask]:
        """Stop a task that hasn't ended, in whatever kernel; one that has ended stays as it is. Raises ControlError."""

        async def stop() -> BackgroundTask:
            moved = await self._move(task_id, "cancel", "cancelled")
            return moved or await self._known(task_id)

        return self.engine.start(stop)

    def resume(self, task_id: str, data: Any = None) -> Job[BackgroundTask]:
        """Let a suspended task run again, from its tool's beginning, with `data`: here, or where its tool is known.

        Raises AlreadyResumed, NotSuspended.
        """
        given = to_json(data, what="the data")

        async def go_on() -> BackgroundTask:
            more: dict[str, Any] = {"resume_data": given, "resumed": True, "suspend_payload": None}
            moved = await self._move(task_id, "resume", "pending", **more)
            if moved is None:
                task = await self._known(task_id)
                error = AlreadyResumed if task.resumed or task.resume_data is not None else NotSuspended
                raise error(f"task {task_id[:60]} waits for no data: it is {task.status}")
            self.kick()
            return moved

        return self.engine.start(go_on)

    def restart(self, task_id: str) -> Job[BackgroundTask]:
        """Run a task that has ended once more, as a new one. Raises ControlError, SettingsError without its tool."""

        async def again() -> BackgroundTask:
            old = await self._known(task_id)
            if not old.ended:
                raise ControlError(f"task {task_id[:60]} is {old.status}: cancel it, or wait for its end")
            about: dict[str, Any] = {"agent": old.agent_id, "thread": old.thread_id, "resource": old.resource_id}
            about |= {"request_context": old.request_context, "run_id": old.run_id}
            about |= {"tool_call_id": old.tool_call_id, "max_retries": old.max_retries}
            made = await self.add(old.tool_name, old.args, timeout_s=(old.timeout_ms or 0) / 1000 or None, **about)
            if made is None:
                raise QueueFull("as many tasks run as may")
            self.kick()
            return made

        return self.engine.start(again)

    def wait_for_next(self, task_ids: str | Collection[str], timeout_s: float | None = None) -> Job[BackgroundTask]:
        """The first of these tasks that ends or is suspended, at once if one has. Raises TimeoutError, ControlError."""
        ids = (task_ids,) if isinstance(task_ids, str) else tuple(task_ids)
        return self.engine.start(self.next_of, ids, timeout_s)

    async def next_of(self, ids: Collection[str], timeout_s: float | None = None) -> BackgroundTask:
        """The same on the engine's loop."""
        waiter: asyncio.Future[BackgroundTask] = asyncio.get_running_loop().create_future()
        for task_id in ids:
            self._waiters.setdefault(task_id, set()).add(waiter)
        try:
            await self._catch_up()
            for task_id in ids:
                task = await self._known(task_id)
                if task.ended or task.status == "suspended":
                    await self._hear()  # its run knows it before those who wait
                    return task
            self._watch()
            async with asyncio.timeout(timeout_s):
                return await waiter
        finally:
            for task_id in set(ids):
                self._waiters[task_id].discard(waiter)
                if not self._waiters[task_id]:
                    del self._waiters[task_id]

    def stream(
        self,
        *,
        agent: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
        **bounds: Unpack[Bounds],
    ) -> Job[MastraModelOutput]:
        """What happens to tasks: those that live now, then what comes; it never ends by itself: cancel it."""
        wanted = TaskFilter(agent, thread, resource, run_id, task_id=task_id)
        limits = make_limits(bounds)

        async def begin() -> MastraModelOutput:
            out = MastraModelOutput(agent=agent, until_idle=True, endless=True, limits=limits, engine=self.engine)
            return out.start(TaskSource(self, wanted))

        return self.engine.start(begin)

    def shutdown(self, deadline_s: float = 5.0) -> Job[None]:
        """Let running tasks end within the deadline; the others are left to the next kernel. Nothing new begins."""

        async def close() -> None:
            self._closed = True
            if self._work:  # attempts, and what follows their ends
                await asyncio.wait(set(self._work), timeout=deadline_s)
            for attempt in list(self._attempts.values()):
                attempt.leave()
            rest = {task for task in (self._poller, *self._work) if task is not None and not task.done()}
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest)
            await self.queue.idle()
            if self.store.is_open:  # at last: a claim that was under way has become this manager's meanwhile
                await self._call(self.tasks.give_up)
            for waiter in {waiter for waiters in self._waiters.values() for waiter in waiters}:
                waiter.cancel()

        return self.engine.start(close)

    def __repr__(self) -> str:
        return (
            f"<BackgroundTaskManager in {self.store.address.shown}: .list(), .get(id), .cancel(id), .resume(id, data)>"
        )


managers: weakref.WeakSet[BackgroundTaskManager] = weakref.WeakSet()
"""Those of this process, for `%mastra tasks`."""


def _date(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    with suppress(AttributeError):
        return iso_time(int(value.timestamp() * 1000))
    raise SettingsError(f"a date is a datetime or a text like 2026-01-31T12:00:00.000Z, not {type(value).__name__}")
