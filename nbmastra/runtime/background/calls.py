"""An agent's calls that become background tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from nbmastra.engine import Engine
from nbmastra.errors import SettingsError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.background.eligible import (
    AgentTools,
    check_tools,
    lasting_settings,
    make_plan,
    may_run_in_background,
)
from nbmastra.runtime.background.results import task_note
from nbmastra.runtime.background.turn import BackgroundTurn, CallHooks
from nbmastra.runtime.extend import RunMemory, RunTool
from nbmastra.tools import Tool

if TYPE_CHECKING:
    from nbmastra.runtime.background.manager import BackgroundTaskManager
    from nbmastra.runtime.background.record import BackgroundTask
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.step import StepCall

__all__ = ["BackgroundCalls", "TaskEndedError", "read_background"]

_PLACEHOLDER = (
    'Background task started. Task ID: {}. The tool "{}" is running in the background. You will be notified when it '
    "completes."
)
_SUSPENDED = "Background task suspended. Task ID: {}. It waits for data, which the user gives."


class TaskEndedError(Exception):
    """A task that its run waited for hasn't completed."""


class BackgroundCalls:
    """Decides for each call of an agent whether it is a task, and hands it to the manager."""

    def __init__(
        self,
        agent: str,
        manager: BackgroundTaskManager,
        tools: Any = None,
        *,
        memory: RunMemory | None = None,
        concurrency: int | None = None,
        wait_timeout_s: float | None = None,
        on_complete: Callable[[BackgroundTask], Any] | None = None,
    ) -> None:
        self.agent = agent
        self.manager = manager
        self.memory = memory
        self.wait_timeout_s = manager.wait_timeout_s if wait_timeout_s is None else wait_timeout_s
        self._tools: AgentTools = check_tools(tools)
        self._concurrency = concurrency
        self._on_complete = on_complete

    def register(self, tools: Mapping[str, Tool]) -> None:
        """Tell the manager the agent's tools. Raises SettingsError for settings that can't be right."""
        settings = {name: self._settings(tool) for name, tool in tools.items()}
        self.manager.register(self.agent, tools, memory=self.memory, concurrency=self._concurrency, settings=settings)

    def _settings(self, tool: Tool) -> dict[str, Any]:
        own: dict[str, Any] = {} if self._on_complete is None else {"on_complete": self._on_complete}
        return own | lasting_settings(tool.name, tool.background, self._tools)

    def default(self, tool: Tool) -> str | None:
        """How a tool's calls run if the model says nothing; None for one that can't run in the background."""
        if not may_run_in_background(tool.name, tool.background, self._tools):
            return None
        return make_plan(tool.name, tool.background, self._tools, None).disposition

    async def dispatch(self, run: AgentRun, call: StepCall, tool: Tool, run_tool: RunTool) -> Any:
        """Run a call, or queue it and give its placeholder. Raises TaskEndedError for one that is awaited and fails."""
        plan = make_plan(tool.name, tool.background, self._tools, call.background)
        turn = next((one for one in run.extensions if isinstance(one, BackgroundTurn)), None)
        if plan.disposition == "foreground" or turn is None:
            return await run_tool(None)
        args = {key: value for key, value in as_dict(call.args).items() if key != "_background"}
        task = await self.manager.add(
            tool,
            args,
            agent=self.agent,
            thread=run.thread,
            resource=run.resource,
            run_id=run.run_id,
            tool_call_id=call.id,
            timeout_s=plan.timeout_s,
            max_retries=plan.max_retries,
            request_context=run.options.request_context,
            settings=self._settings(tool),
            hooks=CallHooks(run, call, turn, awaited=plan.disposition == "awaited"),
        )
        if task is None:
            return await run_tool(None)
        turn.begin(run, task.id)
        about = {"taskId": task.id, "toolName": tool.name, "toolCallId": call.id}
        run.write(run.writer.write("background-task-started", about))
        call.metadata = task_note(task.id, "running")
        waits = plan.disposition == "awaited"
        placeholder = _PLACEHOLDER.format(task.id, tool.name)
        await turn.keep(run, call, None if waits else placeholder)
        self.manager.kick()
        if waits:
            ended = await self.manager.next_of([task.id])
            call.metadata = task_note(task.id, ended.status)
            if ended.status == "suspended":
                return _SUSPENDED.format(task.id)
            if ended.status != "completed":
                raise TaskEndedError((ended.error or {}).get("message", f"Background task {ended.status}: {task.id}"))
            return ended.result
        return placeholder


def read_background(
    agent: str,
    given: Any,
    tools: Any,
    *,
    memory: RunMemory | None,
    concurrency: int | None,
    wait_timeout_s: float | None,
    on_complete: Callable[[BackgroundTask], Any] | None,
    engine: Engine,
) -> BackgroundCalls | None:
    """An agent's `background_tasks=`: a manager, settings for one of its own, True, or None. Raises SettingsError."""
    if given is None or given is False:
        return None
    if given is True or isinstance(given, Mapping):
        options = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
        if options.pop("disabled", False):
            return None
        options.setdefault("store", getattr(memory, "store", None))
        # Not at once: it brings the database's library.
        manager = import_module("nbmastra.runtime.background.manager").BackgroundTaskManager
        try:
            given = manager(engine=engine, **options)
        except TypeError as error:
            raise SettingsError(f"background_tasks=: {str(error).rpartition('__init__() ')[2]}") from None
    elif not hasattr(given, "next_of"):
        raise SettingsError("background_tasks= takes a BackgroundTaskManager, its settings as a dict, or True")
    return BackgroundCalls(
        agent,
        given,
        tools,
        memory=memory,
        concurrency=concurrency,
        wait_timeout_s=wait_timeout_s,
        on_complete=on_complete,
    )
