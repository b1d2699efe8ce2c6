"""Calls of an agent as background tasks: who is eligible, what the model sees, and what stays in memory."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.runtime import Agent, BackgroundTaskManager, Memory
from nbmastra.runtime.background import turn as background_turn
from nbmastra.runtime.background.eligible import make_plan
from nbmastra.runtime.background.executor import LocalExecutor
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


@tool(require_approval=True)
def deploy(target: str) -> str:
    """Needs approval."""
    return f"deployed {target}"


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


async def test_a_run_that_waits_tells_its_progress_every_3_s_and_goes_on_with_the_next_result(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, manager = asyncio.Event(), make()
    assert background_turn._PROGRESS_S == 3
    monkeypatch.setattr(background_turn, "_PROGRESS_S", 0.02)

    @tool(background=True)
    async def slow() -> str:
        """Wait until the run has told three times that it waits."""
        await gate.wait()
        return "real"

    model = ScriptedModel([[call("slow", "b1")], [say("Waiting.")], [say("It is real.")]])
    local = Agent("a", model=model, tools=[slow], background_tasks=manager, wait_timeout_s=60)
    out = await local.stream("go")
    elapsed: list[int] = []
    async for chunk in out.full_stream:
        if chunk.type == "background-task-progress":
            payload = chunk.raw_payload()
            assert (payload["runningCount"], len(payload["taskIds"])) == (1, 1)
            assert (chunk.run_id, chunk.from_) == (out.run_id, "AGENT")
            elapsed.append(payload["elapsedMs"])
            if len(elapsed) == 3:
                manager.engine.call_soon(gate.set)
    assert await out.text == "Waiting.It is real."
    assert results(model.requests[2].messages) == ["real"]
    assert elapsed[0] == 0
    assert all(later >= 15 + sooner for sooner, later in itertools.pairwise(elapsed[:3]))


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


async def test_a_sub_agent_with_background_tools_runs_as_a_task_in_a_thread_of_its_own(make: Make) -> None:
    inner = ScriptedModel([[call("research", "i1", topic="deep")], [say("Found it.")]])
    manager = make()
    sub = Agent("sub", model=inner, tools=[research], background_tasks=manager)
    outer = ScriptedModel([[call("agent-sub", "d1", prompt="look")], [say("Started.")]])
    memory = Memory("sqlite://")
    boss = Agent("boss", model=outer, agents={"sub": sub}, memory=memory, background_tasks=manager)
    await (await boss.stream("go", memory=THREAD)).text
    [task] = (await manager.list()).tasks
    done = await manager.wait_for_next(task.id, 10)
    assert (done.tool_name, done.result["text"]) == ("agent-sub", "Found it.")
    assert [one["result"] for one in done.result["subAgentToolResults"]] == [{"summary": "notes on deep"}]
    assert (await manager.list()).total == 1  # its own calls are none
    thread, resource = done.result["subAgentThreadId"], done.result["subAgentResourceId"]
    assert (thread[:3], resource) == ("t1-", "u1-sub")  # as on a server
    kept = await memory.recall(thread, resource)
    assert results(kept) == [{"summary": "notes on deep"}]
    assert [message["content"][0]["text"] for message in inner.requests[0].messages] == ["go", "look"]
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


@pytest.mark.parametrize(
    ("inner_call", "asked", "said", "result"),
    [
        ("review", {"awaiting": "approval", "draft": "v1"}, "yes", {"said": "yes"}),
        (
            "deploy",
            {"requireToolApproval": {"toolCallId": "i1", "toolName": "deploy", "args": {"target": "x"}}},
            True,
            "deployed x",
        ),
        ("deploy", None, {"approved": False, "reason": "too late"}, None),
    ],
)
async def test_a_sub_agent_that_waits_suspends_its_task_and_goes_on_in_another_kernel(
    make: Make, tmp_path: Path, inner_call: str, asked: Any, said: Any, result: Any
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    arguments = {"draft": "v1"} if inner_call == "review" else {"target": "x"}

    def boss(inner: ScriptedModel, outer: ScriptedModel) -> tuple[BackgroundTaskManager, Agent]:
        manager, memory = make(url), Memory(url)
        sub = Agent("sub", model=inner, tools=[review, deploy])
        more: dict[str, Any] = {"memory": memory, "background_tasks": manager}
        return manager, Agent("boss", model=outer, agents={"sub": sub}, **more)

    inner = ScriptedModel([[call(inner_call, "i1", **arguments)], [say("Unused.")]])
    manager, agent = boss(inner, ScriptedModel([[call("agent-sub", "d1", prompt="look")], [say("Started.")]]))
    await (await agent.stream("go", memory=THREAD)).text
    [task] = (await manager.list()).tasks
    waiting = await manager.wait_for_next(task.id, 20)
    assert (waiting.status, waiting.suspend_payload) == ("suspended", asked or waiting.suspend_payload)
    await manager.shutdown()

    inner = ScriptedModel([[say("So it is.")]])
    later, agent = boss(inner, ScriptedModel([[say("Fine.")]]))
    out = await later.stream()
    await later.resume(task.id, said)
    async for chunk in out.full_stream:
        if chunk.type == "background-task-completed":
            break
    await out.aclose()
    [given] = results(inner.requests[0].messages)
    assert given == (result if result is not None else "too late")
    done = await later.get(task.id)
    assert done is not None
    assert (done.result["text"], done.run_state) == ("So it is.", None)


async def test_the_thread_has_the_call_as_soon_as_its_task_runs(make: Make) -> None:
    manager, memory, seen = make(), Memory("sqlite://"), []

    @tool(background=True)
    async def look(context: ToolContext) -> str:
        """Look at the thread."""
        seen.extend(await memory.recall("t1", "u1"))
        return "looked"

    model = ScriptedModel([[call("look", "b1"), call("look", "b2")], [say("Started.")]])
    out = await Agent("a", model=model, tools=[look], memory=memory, background_tasks=manager).stream(
        "go", memory=THREAD
    )
    await out.text
    tasks = (await manager.list()).tasks
    for task in tasks:
        await manager.wait_for_next(task.id, 20)
    assert all(said.startswith("Background task started.") for said in results(seen))
    await manager.shutdown()
    assert results(await memory.recall("t1", "u1")) == ["looked", "looked"]


async def test_a_result_goes_to_its_own_call_though_others_have_the_same_id(make: Make) -> None:
    manager, memory, gate = make(), Memory("sqlite://"), asyncio.Event()

    @tool(background=True)
    async def slow() -> str:
        """Wait."""
        await gate.wait()
        return "real"

    @tool
    def plain() -> str:
        """At once."""
        return "plain"

    local = Agent("a", tools=[slow, plain], memory=memory, background_tasks=manager)
    for name in ("slow", "plain"):
        model = ScriptedModel([[call(name, "call_0")], [say("Done.")]])
        await (await local.stream("go", memory=THREAD, model=model)).settled()
    manager.engine.call_soon(gate.set)
    [task] = (await manager.list()).tasks
    await manager.wait_for_next(task.id, 20)
    await manager.shutdown()
    assert results(await memory.recall("t1", "u1")) == ["real", "plain"]


async def test_a_tools_settings_name_where_it_runs_and_who_is_told_of_its_end(make: Make) -> None:
    ran: list[str] = []
    told: list[str] = []

    class Noted(LocalExecutor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def run(self, tool: Any, arguments: dict[str, Any], context: ToolContext) -> Any:
            ran.append(f"{tool.name} in {self.name}")
            return await super().run(tool, arguments, context)

    def tell(who: str) -> Any:
        return lambda task: told.append(f"{who}: {task.tool_name}")

    @tool(background={"executor": Noted("its own"), "on_complete": tell("tool")})
    def one() -> int:
        """One."""
        return 1

    @tool(background={"executor": Noted("its own")})
    def two() -> int:
        """Two."""
        return 2

    manager = make(executor=Noted("the manager's"), on_complete=tell("manager"))
    model = ScriptedModel(
        [[call("one", "b1"), call("two", "b2"), call("research", "b3", topic="x")], [say("Started.")]]
    )
    local = Agent(
        "a",
        model=model,
        tools=[one, two, research],
        background_tasks=manager,
        background_tools={"two": {"executor": Noted("the agent's")}},
        on_task_complete=tell("agent"),
    )
    await (await local.stream("go")).text
    for task in (await manager.list()).tasks:
        await manager.wait_for_next(task.id, 20)
    done = await manager.enqueue(one)
    await manager.wait_for_next(done.id, 20)
    await manager.shutdown()
    assert sorted(ran) == ["one in its own", "one in its own", "research in the manager's", "two in the agent's"]
    assert sorted(told) == [
        "agent: research",
        "agent: two",
        *["manager: one"] * 2,
        "manager: research",
        "manager: two",
        *["tool: one"] * 2,
    ]
    with pytest.raises(SettingsError, match="executor is a"):
        Agent("a", model=model, background_tasks=manager, background_tools={"x": {"executor": 1}})


@pytest.mark.parametrize("until_idle", [True, False])
async def test_what_is_missing_for_the_background_is_said(make: Make, until_idle: bool) -> None:
    model = [[call("research", "b1", topic="x")], [say("Done.")]]
    out = await Agent("a", model=ScriptedModel(model), tools=[research]).stream("go", until_idle=until_idle)
    assert await out.text == "Done."
    [notice] = out.state.notices
    assert (notice.code, notice.text) == (
        "background",
        "the agent has no background_tasks= (a BackgroundTaskManager, or True)",
    )
    local = Agent("a", model=ScriptedModel(model), tools=[research], background_tasks=make())
    out = await local.stream("go", until_idle=until_idle)
    await out.settled()
    assert ["thread" in notice.text for notice in out.state.notices] == [True] * until_idle
    out = await Agent("a", model=ScriptedModel(model), tools=[research], background_tasks=False).stream("go")
    await out.settled()
    assert out.state.notices == []
