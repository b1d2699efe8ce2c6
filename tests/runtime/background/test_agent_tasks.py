"""Calls of an agent as background tasks: who is eligible, what the model sees, and what stays in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.runtime import Agent, BackgroundTaskManager, Memory
from nbmastra.runtime.background.eligible import make_plan
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import ToolContext, tool
from tests.runtime.background.conftest import Make

THREAD = {"thread": "t1", "resource": "u1"}


@tool(background=True)
async def research(topic: str, context: ToolContext) -> dict[str, str]:
    """Look it up."""
    context.writer.write({"pct": 50})
    if topic == "fail":
        raise RuntimeError("source offline")
    return {"summary": f"notes on {topic}"}


@tool(background=True)
async def review(draft: str, context: ToolContext) -> dict[str, Any]:
    """Ask somebody."""
    if context.resume_data is None:
        context.suspend({"awaiting": "approval", "draft": draft})
    return {"said": context.resume_data}


def results(messages: Any) -> list[Any]:
    return [part["output"]["value"] for message in messages if message["role"] == "tool" for part in message["content"]]


def types(out: Any) -> list[str]:
    return [chunk.type for chunk in out.log.items]


@pytest.mark.parametrize(
    ("of_tool", "of_agent", "asked", "disposition"),
    [
        (True, {}, None, "deferred"),
        (None, {}, None, "foreground"),
        (None, {}, {"disposition": "deferred"}, "foreground"),  # the model never makes a tool eligible
        (None, "all", None, "deferred"),
        (True, {"x": {"enabled": False}}, {"enabled": True}, "foreground"),  # the agent's word counts
        (None, {"x": {"enabled": True, "default_disposition": "foreground"}}, None, "foreground"),
        (None, {"x": {"enabled": True, "default_disposition": "foreground"}}, {"enabled": True}, "deferred"),
        (True, {}, {"enabled": False}, "foreground"),
        (True, {}, {"disposition": "awaited", "enabled": False}, "awaited"),
        (True, {}, {"disposition": "sideways"}, "deferred"),
        (True, {}, "now", "deferred"),
    ],
)
def test_a_call_runs_as_the_model_asks_then_the_agent_then_the_tool(
    of_tool: Any, of_agent: Any, asked: Any, disposition: str
) -> None:
    assert make_plan("x", of_tool, of_agent, asked).disposition == disposition


def test_times_and_retries_come_from_the_model_then_the_agent_then_the_tool() -> None:
    of_tool = {"timeout_s": 9, "max_retries": 1}
    plan = make_plan("agent-x", of_tool, {"x": {"enabled": True, "timeout_s": 8}}, {"maxRetries": 10**9})
    assert (plan.timeout_s, plan.max_retries) == (8, 10)
    assert make_plan("x", of_tool, {}, {"timeoutMs": 1500}).timeout_s == 1.5
    assert make_plan("x", of_tool, {}, {"timeoutMs": "soon", "maxRetries": -1}).timeout_s == 9


def test_wrong_settings_are_refused_when_the_agent_is_made(make: Make) -> None:
    model = ScriptedModel([[say("x")]])
    with pytest.raises(SettingsError, match="background_tools"):
        Agent("a", model=model, background_tasks=make(), background_tools=7)
    with pytest.raises(SettingsError, match="has no 'colour'"):
        Agent("a", model=model, background_tasks=make(), background_tools={"x": {"colour": 1}})
    with pytest.raises(SettingsError, match="background_tasks= takes"):
        Agent("a", model=model, background_tasks="yes")


async def test_the_model_first_sees_the_placeholder_and_the_result_replaces_it_in_memory(make: Make) -> None:
    model = ScriptedModel([[call("research", "b1", topic="x", _background={"maxRetries": 2})], [say("Started.")]])
    manager, memory = make(), Memory("sqlite://")
    local = Agent("a", model=model, tools=[research], memory=memory, background_tasks=manager)
    out = await local.stream("go", memory=THREAD)
    assert await out.text == "Started."
    [task] = (await manager.list()).tasks
    done = await manager.wait_for_next(task.id, 10)
    await out.settled()
    assert (done.result, done.args, done.max_retries) == ({"summary": "notes on x"}, {"topic": "x"}, 2)
    assert (done.thread_id, done.resource_id, done.tool_call_id) == ("t1", "u1", "b1")
    [placeholder] = results(model.requests[1].messages)
    assert placeholder == (
        f'Background task started. Task ID: {task.id}. The tool "research" is running in the background. You will be '
        "notified when it completes."
    )
    await manager.shutdown()
    recalled = await memory.recall("t1", "u1")
    assert results(recalled) == [{"summary": "notes on x"}]
    [shown] = [part for part in recalled[1]["content"] if part["type"] == "tool-call"]
    note = {"taskId": task.id, "status": "completed"}
    assert shown["providerOptions"]["mastra"]["backgroundTask"] == note


async def test_the_model_is_told_which_tools_can_run_in_the_background(make: Make) -> None:
    model = ScriptedModel([[say("hi")]])

    @tool
    def plain() -> int:
        """Nothing special."""
        return 1

    local = Agent("a", model=model, tools=[research, plain], instructions="Be brief.", background_tasks=make())
    await (await local.stream("go")).text
    [request] = model.requests
    assert [message["role"] for message in request.messages] == ["system", "system", "user"]
    assert "- research (default: background)" in request.messages[1]["content"]
    assert "plain" not in request.messages[1]["content"]
    extra = {spec.name: "_background" in spec.parameters["properties"] for spec in request.tools}
    assert extra == {"research": True, "plain": False}


async def test_an_awaited_call_gives_its_result_to_the_model_at_once(make: Make) -> None:
    asked: dict[str, Any] = {"_background": {"disposition": "awaited"}}
    calls = [call("research", "b1", topic="x", **asked), call("research", "b2", topic="fail", **asked)]
    model = ScriptedModel([calls, [say("Done.")]])
    manager = make()
    out = await Agent("a", model=model, tools=[research], background_tasks=manager).stream("go")
    assert await out.text == "Done."
    assert results(model.requests[1].messages) == [{"summary": "notes on x"}, "source offline"]
    assert types(out).count("tool-result") == 1
    assert types(out).count("tool-error") == 1
    assert {task.status for task in (await manager.list()).tasks} == {"completed", "failed"}


async def test_a_foreground_call_runs_as_if_there_were_no_tasks_without_its_background_argument(make: Make) -> None:
    asked = {"disposition": "foreground"}
    model = ScriptedModel([[call("research", "b1", topic="x", _background=asked)], [say("Done.")]])
    manager = make()
    out = await Agent("a", model=model, tools=[research], background_tasks=manager).stream("go")
    assert await out.text == "Done."
    assert results(model.requests[1].messages) == [{"summary": "notes on x"}]
    assert (await manager.list()).total == 0


async def test_a_run_that_waits_goes_on_with_the_next_result_and_tells_its_progress(make: Make) -> None:
    gate, manager = asyncio.Event(), make()

    @tool(background=True)
    async def slow() -> str:
        """Wait until the run waits."""
        await gate.wait()
        return "real"

    model = ScriptedModel([[call("slow", "b1")], [say("Waiting.")], [say("It is real.")]])
    local = Agent("a", model=model, tools=[slow], background_tasks=manager, wait_timeout_s=20)
    out = await local.stream("go")
    async for chunk in out.full_stream:
        if chunk.type == "background-task-progress":
            payload = chunk.raw_payload()
            assert (payload["runningCount"], len(payload["taskIds"]), payload["elapsedMs"]) == (1, 1, 0)
            manager.engine.call_soon(gate.set)
    assert await out.text == "Waiting.It is real."
    assert results(model.requests[2].messages) == ["real"]
    assert types(out).count("background-task-progress") == 1


async def test_fallback_sync_runs_the_call_in_the_run(make: Make) -> None:
    manager = make(global_concurrency=1, backpressure="fallback-sync")
    gate = asyncio.Event()

    @tool
    async def holds() -> None:
        """Hold the slot."""
        await gate.wait()

    held = await manager.enqueue(holds)
    watch = await manager.stream()
    async for chunk in watch.full_stream:
        assert chunk.type == "background-task-running"
        break
    await watch.aclose()
    model = ScriptedModel([[call("research", "b1", topic="x")], [say("Done.")]])
    out = await Agent("a", model=model, tools=[research], background_tasks=manager).stream("go")
    assert await out.text == "Done."
    assert results(model.requests[1].messages) == [{"summary": "notes on x"}]
    await manager.cancel(held.id)


async def test_a_sub_agent_runs_as_a_task_with_its_chunks_and_its_own_calls_are_none(make: Make) -> None:
    inner = ScriptedModel([[call("research", "i1", topic="deep")], [say("Found it.")]])
    manager = make()
    sub = Agent("sub", model=inner, tools=[research], background_tasks=manager)
    outer = ScriptedModel([[call("agent-sub", "d1", prompt="look")], [say("Started.")]])
    boss = Agent("boss", model=outer, agents={"sub": sub}, background_tasks=manager, background_tools={"sub": True})
    await (await boss.stream("go")).text
    [task] = (await manager.list()).tasks
    done = await manager.wait_for_next(task.id, 10)
    assert (done.tool_name, done.result) == ("agent-sub", {"text": "Found it."})
    assert (await manager.list()).total == 1
    wrote = [one["payload"]["payload"]["payload"]["output"] for one in manager.tasks.chunks(task.id)[1:-1]]
    assert [wrote[0]["type"], wrote[-1]["type"]] == ["start", "finish"]


async def test_a_suspended_tasks_result_enters_the_thread_for_the_next_turn_even_in_another_kernel(
    make: Make, tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    first = make(url)
    script = ScriptedModel([[call("review", "s1", draft="v1")], [say("Waiting for review.")]])
    local = Agent("a", model=script, tools=[review], memory=Memory(url), background_tasks=first)
    await (await local.stream("go", memory=THREAD)).text
    [task] = (await first.list()).tasks
    assert (await first.wait_for_next(task.id, 10)).status == "suspended"
    await first.shutdown()
    model = ScriptedModel([[say("Approved, then.")]])
    second = make(url)
    other = Agent("a", model=model, tools=[review], memory=Memory(url), background_tasks=second)
    out = await second.stream()
    await second.resume(task.id, "yes")
    async for chunk in out.full_stream:
        if chunk.type == "background-task-completed":
            break
    await out.aclose()
    await (await other.stream("And?", memory=THREAD)).text
    assert results(model.requests[0].messages) == [{"said": "yes"}]


def test_settings_make_a_manager_in_the_memorys_store() -> None:
    memory = Memory("sqlite://")
    local = Agent("a", model=ScriptedModel([[say("x")]]), memory=memory, background_tasks={"global_concurrency": 2})
    assert local.background is not None
    assert isinstance(local.background.manager, BackgroundTaskManager)
    assert local.background.manager.store is memory.store
    local.background.manager.shutdown().result(10)
    with pytest.raises(SettingsError, match="colour"):
        Agent("a", model=ScriptedModel([[say("x")]]), background_tasks={"colour": 2})
    disabled = Agent("a", model=ScriptedModel([[say("x")]]), background_tasks={"disabled": True})
    assert disabled.background is None
