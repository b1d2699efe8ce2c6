"""Until idle: the first turn, its tasks, and the turns that follow, in one stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nbmastra.chunks.built import build_chunk
from nbmastra.errors import SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.background.idle import IdleSource
from nbmastra.runtime.background.record import BackgroundTask, task_chunk
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import tool
from tests.runtime.background.conftest import Make
from tests.runtime.background.test_agent_tasks import THREAD, research, results, review, types

STARTED = [call("research", "b1", topic="solana"), call("research", "b2", topic="fail")]


class Slow:
    """A tool whose calls end when they are let go, by name; on the engine's loop."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}

        @tool(background=True)
        async def slow(name: str) -> str:
            """Wait."""
            await self.gates.setdefault(name, asyncio.Event()).wait()
            return f"{name} is done"

        self.tool = slow

    def let_go(self, manager: Any, name: str) -> None:
        manager.engine.call_soon(lambda: self.gates.setdefault(name, asyncio.Event()).set())


def agent(make: Make, script: list[Any], tools: list[Any], **options: Any) -> tuple[Agent, ScriptedModel, Any]:
    manager, model = make(), ScriptedModel(script)
    local = Agent("a", model=model, tools=tools, memory=Memory("sqlite://"), background_tasks=manager, **options)
    return local, model, manager


async def test_one_stream_has_the_first_turn_the_tasks_and_one_continuation_with_all_results_b35(make: Make) -> None:
    local, model, _ = agent(make, [STARTED, [say("Started.")], [say("One of two.")]], [research])
    out = await local.stream("go", memory=THREAD, until_idle=True)
    assert await out.text == "Started."
    await out.settled()
    out.wait(10)
    told = [kind for kind in types(out) if kind.startswith("background") or kind in ("start", "finish")]
    assert told[0] == "start"
    assert (told[-2:], told.count("start"), told.count("finish")) == (["start", "finish"], 2, 2)
    assert sorted(kind for kind in told if kind.startswith("background")) == [
        "background-task-completed",
        "background-task-failed",
        "background-task-output",
        "background-task-output",
        "background-task-running",
        "background-task-running",
        "background-task-started",
        "background-task-started",
    ]
    assert (out.state.status, len(out.turns), out.total.text) == ("success", 2, "Started.One of two.")
    assert len({turn.run_id for turn in out.turns}) == 2
    [system] = [m["content"] for m in model.requests[2].messages if m["role"] == "system" and "b1" in m["content"]]
    assert "completed: b1 (research" in system
    assert "failed: b2 (research" in system
    assert results(model.requests[2].messages) == [
        {"summary": "notes on solana"},
        "Background task failed: source offline",
    ]
    assert len(model.requests) == 3


async def test_the_continuation_waits_until_nothing_runs_any_more_and_has_all_results_b36(make: Make) -> None:
    slow = Slow()
    calls = [call("slow", "b1", name="one"), call("slow", "b2", name="two")]
    local, model, manager = agent(make, [calls, [say("Started.")], [say("Both.")]], [slow.tool])
    out = await local.stream("go", memory=THREAD, until_idle=True)
    slow.let_go(manager, "one")
    async for chunk in out.full_stream:
        if chunk.type == "background-task-completed" and chunk.raw_payload()["toolCallId"] == "b1":
            slow.let_go(manager, "two")
    assert results(model.requests[2].messages) == ["one is done", "two is done"]
    assert (len(model.requests), len(out.turns)) == (3, 2)


class Told:
    """A turn that says what it is given, after `before` has run."""

    def __init__(self, *chunks: dict[str, Any], before: Any = None) -> None:
        self.done = False
        self._chunks = [build_chunk(chunk) for chunk in chunks]
        self._before = before

    async def batches(self) -> Any:
        if self._before is not None:
            self._before()
        yield None, self._chunks
        self.done = True

    def parting(self) -> list[Any]:
        return []

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_a_start_that_is_told_after_the_end_is_not_waited_for_b36(make: Make) -> None:
    manager = make()
    ended = BackgroundTask("t1", "completed", "slow", "b1", agent_id="a", thread_id="t", resource_id="u", result=1)
    end = task_chunk(ended)
    assert end is not None
    started = {"type": "background-task-started", "payload": {"taskId": "t1", "toolName": "slow", "toolCallId": "b1"}}
    first: Any = Told(started, before=lambda: manager.tell(ended, [end]))
    turns: list[str] = []

    def go_on(directive: str) -> Any:
        turns.append(directive)
        return Told()

    out = MastraModelOutput(until_idle=True, endless=True)
    out.start(IdleSource(manager, out, first, go_on, scope=("a", "t", "u"), streams={}, max_idle_s=60))
    out.wait(10)
    assert len(turns) == 1
    assert types(out) == ["background-task-completed", "background-task-started"]


async def test_a_cancelled_task_counts_as_ended_and_brings_a_turn_about_b36(make: Make) -> None:
    slow = Slow()
    local, model, manager = agent(make, [[call("slow", "b1", name="x")], [say("Started.")], [say("Ok.")]], [slow.tool])
    out = await local.stream("go", memory=THREAD, until_idle=True)
    async for chunk in out.full_stream:
        if chunk.type == "finish" and len(out.turns) == 1:
            [task] = (await manager.list()).tasks
            await manager.cancel(task.id)
    assert types(out).count("background-task-cancelled") == 1
    assert results(model.requests[2].messages) == ["Background task was cancelled."]


async def test_a_suspended_task_is_not_waited_for_and_queues_no_turn_b36_b41(make: Make) -> None:
    local, model, manager = agent(make, [[call("review", "s1", draft="v1")], [say("Waiting.")]], [review])
    out = await local.stream("go", memory=THREAD, until_idle=True)
    out.wait(10)
    assert (out.state.status, len(out.turns), len(model.requests)) == ("success", 1, 2)
    assert types(out).count("background-task-suspended") == 1
    [suspended] = [c.raw_payload() for c in out.log.items if c.type == "background-task-suspended"]
    assert suspended["suspendData"] == {"awaiting": "approval", "draft": "v1"}
    [task] = (await manager.list()).tasks
    assert task.status == "suspended"


async def test_the_stream_closes_when_no_task_ends_for_too_long_says_so_and_leaves_the_task_alone_b36(
    make: Make,
) -> None:
    slow = Slow()
    local, _, manager = agent(make, [[call("slow", "b1", name="x")], [say("Started.")]], [slow.tool])
    with pytest.warns(DeprecationWarning, match="until_idle=True"):
        started = local.stream_until_idle("go", memory=THREAD, max_idle_ms=30)
    out = await started
    out.wait(10)
    assert [notice.code for notice in out.state.notices] == ["idle"]
    [task] = (await manager.list()).tasks
    assert not task.ended  # on a busy machine it may not even have begun
    slow.let_go(manager, "x")
    assert (await manager.wait_for_next(task.id, 10)).result == "x is done"


async def test_a_turn_may_be_silent_for_longer_than_the_time_between_turns(make: Make) -> None:
    over = asyncio.Event()

    class Thinks(ScriptedModel):
        """Says nothing in its second request until the task is over."""

        async def stream(self, request: Any) -> Any:
            if len(self.requests) == 1:
                await over.wait()
            async for event in super().stream(request):
                yield event

    manager = make(on_complete=lambda _: over.set())
    model = Thinks([[call("research", "b1", topic="x")], [say("Started.")], [say("Then.")]])
    local = Agent("a", model=model, tools=[research], memory=Memory("sqlite://"), background_tasks=manager)
    out = await local.stream("go", memory=THREAD, until_idle={"max_idle_ms": 1})
    out.wait(20)
    assert (out.total.text, out.state.notices) == ("Started.Then.", [])


async def test_a_new_call_for_the_same_thread_takes_over_and_has_the_continuation(make: Make) -> None:
    slow = Slow()
    script = [[call("slow", "b1", name="x")], [say("Started.")], [say("Second.")], [say("X is done.")]]
    local, _, manager = agent(make, script, [slow.tool])
    first = await local.stream("go", memory=THREAD, until_idle=True)
    await first.text
    second = await local.stream("and?", memory=THREAD, until_idle=True)
    first.wait(10)
    assert [notice.code for notice in first.state.notices] == ["superseded"]
    slow.let_go(manager, "x")
    second.wait(10)
    assert len(first.turns) == 1


async def test_without_memory_a_thread_or_a_manager_it_is_a_plain_stream(make: Make) -> None:
    for options in ({"background_tasks": make()}, {"memory": Memory("sqlite://")}):
        local = Agent("a", model=ScriptedModel([[say("hi")]]), tools=[research], **options)  # type: ignore[arg-type]
        out = await local.stream("go", until_idle=True)
        assert await out.text == "hi"
        out.wait(10)
        assert (out.until_idle, len(out.turns)) == (False, 1)


async def test_stopping_the_stream_leaves_its_tasks_alone(make: Make) -> None:
    slow = Slow()
    local, _, manager = agent(make, [[call("slow", "b1", name="x")], [say("Started.")]], [slow.tool])
    out = await local.stream("go", memory=THREAD, until_idle=True)
    await out.text
    await out.aclose()
    slow.let_go(manager, "x")
    [task] = (await manager.list()).tasks
    assert (await manager.wait_for_next(task.id, 10)).result == "x is done"


async def test_callbacks_are_called_for_every_turn_but_on_finish_for_the_first_only(make: Make) -> None:
    steps: list[str] = []
    finished: list[str] = []
    local, _, _ = agent(make, [STARTED, [say("Started.")], [say("Then.")]], [research])
    out = await local.stream(
        "go",
        memory=THREAD,
        until_idle=True,
        on_step_finish=lambda step: steps.append(step.text),
        on_finish=lambda full: finished.append(full.text),
    )
    out.wait(10)
    assert (steps, finished) == (["", "Started.", "Then."], ["Started."])


async def test_what_until_idle_cant_be_is_refused_at_once(make: Make) -> None:
    local, _, _ = agent(make, [[say("x")]], [research])
    for wrong in ({"max_idle_ms": 0}, {"ms": 5}, "yes"):
        with pytest.raises(SettingsError, match="until_idle="):
            local.stream("go", memory=THREAD, until_idle=wrong)  # type: ignore[arg-type]
