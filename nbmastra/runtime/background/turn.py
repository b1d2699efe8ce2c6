"""What a run knows of its background tasks: the model is told of them, and results come to the conversation.

A model first reads the placeholder of a task, even if the task is done by then; the result stands there afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk
from nbmastra.errors import NbMastraError
from nbmastra.runtime.background.eligible import BACKGROUND_SCHEMA, tool_prompt
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.background.results import keep_result, put_result, task_note
from nbmastra.runtime.conversation import result_output
from nbmastra.runtime.extend import Extension
from nbmastra.runtime.model import ToolSpec
from nbmastra.runtime.step import ModelStep, StepCall

if TYPE_CHECKING:
    from nbmastra.runtime.background.calls import BackgroundCalls
    from nbmastra.runtime.loop import AgentRun

__all__ = ["BackgroundTurn", "CallHooks"]

_PROGRESS_S = 3.0
"""Source: Mastra, `progressIntervalMs`."""

_logger = logging.getLogger("nbmastra")


class BackgroundTurn(Extension):
    """Takes part in a run of an agent that has background tasks."""

    def __init__(self, calls: BackgroundCalls, *, waits: bool) -> None:
        self.over = False
        self.run_task: asyncio.Task[Any] | None = None
        self._calls = calls
        self._waits = waits
        self._begun: dict[str, int] = {}
        """Tasks of this run, with the step that called them."""
        self._ended: dict[str, BackgroundTask] = {}
        self._keeping = asyncio.Lock()

    async def next_step(self, run: AgentRun) -> None:
        """Results of tasks that an earlier request has told of take their placeholders' place."""
        self.run_task = asyncio.current_task()
        self._put(run, before=len(run.results) - 1)

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """The model is told which tools can run in the background."""
        request = step.request
        defaults = {name: made for name in run.tool_names if (made := self._calls.default(run.tools[name])) is not None}
        if not defaults:
            return
        tools = [_with_background(spec) if spec.name in defaults else spec for spec in request.tools]
        place = next((n for n, one in enumerate(request.messages) if one["role"] != "system"), len(request.messages))
        messages = list(request.messages)
        messages.insert(place, {"role": "system", "content": tool_prompt(defaults)})
        step.request = replace(request, messages=messages, tools=tools)

    async def after_step(self, run: AgentRun, step: ModelStep) -> None:
        """Where a waiting time is set, the run waits for the next task that ends, and goes on with its result."""
        manager, wait_s = self._calls.manager, self._calls.wait_timeout_s
        ids = [id for id in self._begun if id not in self._ended]
        if ids:
            step.extra["backgroundTaskPending"] = True
        if step.continued or not self._waits or not wait_s or step.rejection is not None or step.error is not None:
            return
        if not ids:
            return
        began = time.monotonic()
        waiting = asyncio.create_task(manager.next_of(ids, wait_s))
        try:
            while not waiting.done():
                elapsed = time.monotonic() - began
                told = {"taskIds": ids, "runningCount": len(ids), "elapsedMs": round(1000 * elapsed)}
                await run.send(run.writer.write("background-task-progress", told), step)
                await asyncio.wait({waiting}, timeout=_PROGRESS_S)
            if waiting.exception() is not None:
                return  # it took too long: the task goes on, the run doesn't wait
        finally:
            waiting.cancel()
        ended = waiting.result()
        if ended.ended:
            step.continued = True

    async def finish(self, run: AgentRun) -> None:
        """All that has ended is in the conversation when the run is remembered."""
        self.run_task = asyncio.current_task()
        self.over = True
        self._put(run, before=len(run.results) + 1)

    def begin(self, run: AgentRun, task_id: str) -> None:
        """A call of the step that runs has become a task."""
        self._begun[task_id] = len(run.results)
        self.over = False  # a run that waited for somebody goes on

    async def keep(self, run: AgentRun, call: StepCall, said: str | None) -> None:
        """The thread has the call from now on, with what the model reads: for the kernel that takes the task over."""
        if said is not None:
            run.conversation.set_result(call.id, result_output(said), metadata=call.metadata)
        try:
            async with self._keeping:  # what is written later knows more
                await run.remember()
        except NbMastraError:
            _logger.warning("the call of a background task can't be kept in its thread", exc_info=True)

    async def take(self, run: AgentRun, task: BackgroundTask) -> None:
        """A task has ended."""
        self._ended[task.id] = task
        if not self.over:
            self._put(run, before=run.step.index if run.step is not None else 0)
            return
        put_result(run.conversation, task)
        if self.run_task is not None and not self.run_task.done():
            # The run is being remembered in this moment, maybe without this result.
            await asyncio.wait({self.run_task})
            await keep_result(self._calls.memory, task)

    def waits_for_data(self, task: BackgroundTask) -> None:
        """A task is suspended: the run doesn't wait for it."""
        self._begun.pop(task.id, None)

    def _put(self, run: AgentRun, *, before: int) -> None:
        for task_id, task in self._ended.items():
            if self._begun.get(task_id, -1) < before:
                put_result(run.conversation, task)


def _with_background(spec: ToolSpec) -> ToolSpec:
    properties = {**spec.parameters.get("properties", {}), "_background": BACKGROUND_SCHEMA}
    return replace(spec, parameters={**spec.parameters, "properties": properties})


class CallHooks:
    """What a task tells the run that made it, as long as that run goes on."""

    def __init__(self, run: AgentRun, call: StepCall, turn: BackgroundTurn, *, awaited: bool) -> None:
        self._awaited = awaited
        self._run = run
        self._call = call
        self._turn = turn
        self._about: dict[str, Any] = {
            "request_context": run.options.request_context,
            "messages": run.step.request.messages if run.step is not None else (),
        }

    @property
    def _hears(self) -> bool:
        run = self._run
        return not (self._turn.over or run.finished or run.failure is not None or run.abort.aborted)

    def about(self) -> dict[str, Any]:
        """What the tool's context has besides what the store keeps."""
        return self._about

    def wrote(self, chunk: Chunk) -> None:
        """What the tool wrote is a chunk of the run too."""
        if self._hears:
            self._run.write(chunk)

    async def ended(self, task: BackgroundTask) -> None:
        """The result is a chunk of the run, as if it came only now."""
        run, call = self._run, self._call
        if self._hears and not self._awaited:  # the call itself has the result then
            about = {"toolCallId": call.id, "toolName": call.name}
            write, note = run.writer.write, task_note(task.id, task.status)
            args = {"args": call.wire_args}
            match task.status:
                case "suspended":
                    chunk = write("tool-call-suspended", {**about, "suspendPayload": task.suspend_payload, **args})
                case "completed":
                    chunk = write("tool-result", {**about, **args, "result": task.result, "providerMetadata": note})
                case "cancelled":
                    chunk = None
                case _:
                    note = task_note(task.id, "failed")
                    chunk = write("tool-error", {**about, "error": task.error, **args, "providerMetadata": note})
            if chunk is not None:
                run.write(chunk)
        if task.ended:
            await self._turn.take(run, task)
        else:
            self._turn.waits_for_data(task)
