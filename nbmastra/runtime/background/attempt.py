"""One attempt at a task: the tool runs until it ends, is stopped, or takes too long; then the store is told."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from nbmastra.chunks import Chunk
from nbmastra.errors import NbMastraError, StoreError, ToolInputError
from nbmastra.runtime.background.record import BackgroundTask, task_chunk
from nbmastra.runtime.background.task_changes import Output
from nbmastra.runtime.chunks_out import ChunkWriter, data_chunk, error_json
from nbmastra.tools import AbortSignal, Tool, ToolContext, ToolSuspended

if TYPE_CHECKING:
    from nbmastra.runtime.background.runner import TaskRunner

__all__ = ["Attempt", "TaskHooks"]

_FLUSH_S = 0.2

_logger = logging.getLogger("nbmastra")


class TaskHooks(Protocol):
    """What the agent's run that made a task wants to be told, as long as this process lives."""

    def about(self) -> dict[str, Any]:
        """What the tool's context has besides what the store keeps: request_context, messages."""
        ...

    def wrote(self, chunk: Chunk) -> None:
        """The tool wrote: its `tool-output` chunk, or a `data-…` one."""
        ...

    async def ended(self, task: BackgroundTask) -> None:
        """The task has ended or is suspended; listeners haven't heard of it yet."""
        ...


class Attempt:
    """A task that this manager runs. On the engine's loop only."""

    def __init__(self, manager: TaskRunner, task: BackgroundTask, tool: Tool, hooks: TaskHooks | None) -> None:
        self.task = task
        self.task_run: asyncio.Task[Any] | None = None
        self._manager = manager
        self._tool = tool
        self._hooks = hooks
        self._abort = AbortSignal()
        self._writer = ChunkWriter(task.run_id)
        self._unkept: list[dict[str, Any]] = []
        self._kept, self._doubtful = 0, False
        self._flushing: asyncio.Task[None] | None = None
        self._told_at = 0.0
        self._inner: asyncio.Task[Any] | None = None
        self._stopped = asyncio.Event()
        self._reason = ""

    async def run(self) -> None:
        """Run the tool, and settle the task. The slot is free at its return, whether the tool obeys or not."""
        task = self.task
        inner = self._inner = asyncio.create_task(self._call())
        stopped = asyncio.create_task(self._stopped.wait())
        timeout = task.timeout_ms / 1000 if task.timeout_ms is not None else None
        try:
            await asyncio.wait({inner, stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            too_long = not inner.done()
            if too_long:
                # Who ignores it goes on until it ends by itself: its result is nothing any more.
                self._abort.abort(self._reason or "the task took too long")
                inner.cancel()
                inner.add_done_callback(_forget)
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        if self._stopped.is_set():
            if inner.done():
                _forget(inner)
            return
        output, self._unkept = self._unkept, []
        await self._settle(inner, output, too_long=too_long)

    async def _settle(self, inner: asyncio.Task[Any], output: list[dict[str, Any]], *, too_long: bool) -> None:
        settle, task = partial(self._manager.settle, output=output, kept=self._surely_kept()), self.task
        if too_long:
            seconds = (task.timeout_ms or 0) / 1000
            error = {"message": f"the task took longer than {seconds:g} s", "stack": ""}
            await settle(task, "end", "timed_out", error=error, resumed=False)
            return
        error = RuntimeError("the tool cancelled itself") if inner.cancelled() else inner.exception()
        match error:
            case None:
                await settle(task, "end", "completed", result=inner.result(), resumed=False, run_state=None)
            case ToolSuspended():
                if error.resume_schema is not None:
                    self._manager.resume_schemas[task.id] = error.resume_schema
                data: dict[str, Any] = {"suspend_payload": error.data, "resumed": False, "resume_data": None}
                data["run_state"] = error.run_state
                await settle(task, "suspend", "suspended", **data)
            case _ if self._may_retry(error):
                retry: int = task.retry_count + 1
                delay: float = self._manager.retries.delay(retry)
                await settle(task, "retry", "pending", ready_in_s=delay, retry_count=retry)
            case _:
                told = error_json(error)
                told = {"message": told["message"], "stack": getattr(error, "stack", "") or told["stack"]}
                await settle(task, "end", "failed", error=told, resumed=False)

    def _may_retry(self, error: BaseException) -> bool:
        if self.task.retry_count >= self.task.max_retries or isinstance(error, ToolInputError):
            return False
        return self._manager.retries.again(error)

    async def _call(self) -> Any:
        task = self.task
        more = self._hooks.about() if self._hooks is not None else await self._about()
        context = ToolContext(
            tool_call_id=task.tool_call_id,
            tool_name=task.tool_name,
            run_id=task.run_id,
            agent_id=task.agent_id,
            thread_id=task.thread_id,
            resource_id=task.resource_id,
            resume_data=task.resume_data,
            abort=self._abort,
            write=self._write,
            custom=self._custom,
            printed=self._write,
            **more,
        )
        context.run_state = task.run_state
        return await self._manager.executor_of(task.agent_id, task.tool_name).run(self._tool, task.args or {}, context)

    async def _about(self) -> dict[str, Any]:
        """What the store has of the run that made the task, which was another kernel's."""
        task, memory = self.task, self._manager.memory_of(self.task.agent_id)
        about: dict[str, Any] = {"request_context": dict(task.request_context or {})}
        if memory is not None and task.thread_id is not None:
            try:
                about["messages"] = await memory.recall(task.thread_id, task.resource_id or "")
            except NbMastraError:
                _logger.warning("the thread of task %s can't be read", task.id, exc_info=True)
        return about

    # --- what the tool writes --------------------------------------------------------------------------------------

    def _write(self, value: Any) -> None:
        if self._stopped.is_set() or self._abort.aborted:
            return
        chunk = self._writer.tool_output(value, self.task.tool_call_id, self.task.tool_name)
        throttle, now = self._manager.progress_throttle_s, time.monotonic()
        if throttle is not None and self._told_at and now - self._told_at < throttle:
            return
        self._told_at = now
        wire = chunk.to_wire()
        self._unkept.append(wire)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        self._manager.tell(self.task, [task_chunk(self.task, wire)])
        if self._hooks is not None:
            self._hooks.wrote(chunk)

    def _custom(self, wire: dict[str, Any]) -> None:
        if self._hooks is not None and not self._abort.aborted:
            self._hooks.wrote(data_chunk(wire))

    async def _flush(self) -> None:
        """Written together: a tool that writes often doesn't cost a transaction each time."""
        assert self._inner is not None
        ends = {self._inner, asyncio.create_task(self._stopped.wait())}
        await asyncio.wait(ends, timeout=_FLUSH_S, return_when=asyncio.FIRST_COMPLETED)
        (ends - {self._inner}).pop().cancel()
        if not self._inner.done():
            output, self._unkept = self._unkept, []
            try:
                await self._manager.queue.do(Output(self.task, output, self._surely_kept()))
            except StoreError:  # with the next ones, or with the end
                self._unkept[:0] = output
                self._doubtful = True
            else:
                self._kept += len(output)
                self._doubtful = False

    def _surely_kept(self) -> int | None:
        return self._kept if self._doubtful else None

    # --- from outside ----------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """The task isn't this attempt's any more: stop the tool."""
        self._reason = reason
        self._abort.abort(reason)
        self._stopped.set()

    def leave(self) -> None:
        """This kernel ends: stop the tool, and leave the record as it is, for the next kernel."""
        self.stop("the kernel is shutting down")


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # asked for, or asyncio complains
