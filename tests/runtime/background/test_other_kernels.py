"""A run whose tasks are cancelled, or run, by another kernel on the same store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import ToolContext, tool
from tests.runtime.background.conftest import Make
from tests.runtime.background.test_agent_tasks import THREAD, research, results, review, types


@tool(background=True)
async def endless(name: str) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return name


class Kernel:
    """An agent with tasks on a store; `ended` has the tasks that `on_complete` was called with."""

    def __init__(self, make: Make, url: str, script: list[Any], *tools: Any, **options: Any) -> None:
        self.ended: list[BackgroundTask] = []
        self.manager: BackgroundTaskManager = make(url, on_complete=self.ended.append)
        self.memory = Memory(url)
        self.model = ScriptedModel(script)
        more: dict[str, Any] = {"memory": self.memory, "background_tasks": self.manager, **options}
        self.agent = Agent("a", model=self.model, tools=list(tools), **more)


async def test_a_run_goes_on_when_another_kernel_cancels_its_task(make: Make, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    script = [[call("endless", "b1", name="x")], [say("Started.")], [say("It was cancelled.")]]
    here, elsewhere = Kernel(make, url, script, endless), make(url)
    out = await here.agent.stream("go", memory=THREAD, until_idle=True)
    async for chunk in out.full_stream:
        if chunk.type == "finish" and len(out.turns) == 1:
            [task] = (await elsewhere.list()).tasks
            assert (await elsewhere.cancel(task.id)).status == "cancelled"
    assert types(out).count("background-task-cancelled") == 1
    assert results(here.model.requests[2].messages) == ["Background task was cancelled."]
    assert results(await here.memory.recall("t1", "u1")) == ["Background task was cancelled."]
    assert [task.status for task in here.ended] == ["cancelled"]
    assert here.manager._hooks == {}


@pytest.mark.parametrize("waits", [True, False])
async def test_a_run_has_the_result_of_a_task_that_another_kernel_ran(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    script = [[call("research", "b1", topic="x")], [say("Started.")], [say("So it is.")]]
    here = Kernel(make, url, script, research, wait_timeout_s=60)
    monkeypatch.setattr(here.manager, "kick", lambda: None)
    there = Kernel(make, url, [[say("-")]], research)
    watch = await there.manager.stream()
    out = await here.agent.stream("go", memory=THREAD, until_idle=not waits)
    await out.settled()
    out.wait(20)
    await watch.aclose()
    assert results(here.model.requests[2].messages) == [{"summary": "notes on x"}]
    [task] = out.total.tasks
    assert {"pct": 50} in (out.state.tool_calls[0] if waits else task).outputs
    for kernel in (here, there):
        assert [task.result for task in kernel.ended] == [{"summary": "notes on x"}]
        assert results(await kernel.memory.recall("t1", "u1")) == [{"summary": "notes on x"}]
        assert kernel.manager._hooks == {}


async def test_a_suspension_in_another_kernel_is_the_run_s_too(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    here = Kernel(make, url, [[call("review", "s1", draft="v1")], [say("Waiting.")]], review, wait_timeout_s=60)
    monkeypatch.setattr(here.manager, "kick", lambda: None)
    watch = await Kernel(make, url, [[say("-")]], review).manager.stream()
    out = await here.agent.stream("go", memory=THREAD)
    assert await out.text == "Waiting."
    await watch.aclose()
    assert types(out).count("tool-call-suspended") == 1


async def test_who_only_waits_for_data_looks_seldom_and_still_hears_of_work_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, pauses, seldom = make(poll_s=0.01), [], asyncio.Event()
    loop, wait_for = asyncio.get_running_loop(), asyncio.wait_for

    async def noted(awaitable: Any, pause: float) -> Any:
        pauses.append(pause)
        if pause == 0.1:
            manager._poll_s = 3600  # the next pause is long
            loop.call_soon_threadsafe(seldom.set)
        return await wait_for(awaitable, pause)

    @tool
    def ask(context: ToolContext) -> str:
        """Ask."""
        if context.resume_data is None:
            context.suspend("?")
        return "done"

    task = await manager.enqueue(ask)
    await manager.wait_for_next(task.id, 20)
    monkeypatch.setattr("nbmastra.runtime.background.runner.asyncio.wait_for", noted)
    await seldom.wait()
    out = await manager.stream()
    assert pauses == sorted(pauses)
    await manager.resume(task.id, 1)
    async for chunk in out.full_stream:
        if chunk.type == "background-task-completed":
            break
    await out.aclose()
