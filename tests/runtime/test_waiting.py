"""Runs that wait for an approval or for data: kept, answered once, and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbmastra.errors import AlreadyResumed, NotSuspended, SettingsError
from nbmastra.runtime import Agent, Memory
from nbmastra.testing import ScriptedModel, call, say, usage
from nbmastra.tools import ToolContext, tool
from tests.runtime.agents import agent, ask, deploy, weather
from tests.runtime.wire import chunks, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


async def test_an_approved_call_runs_and_the_new_output_goes_on() -> None:
    out = await agent("approve").stream("Deploy")
    await out.settled()
    assert (out.status, await out.suspend_payload) == (
        "suspended",
        {"toolCallId": "a1", "toolName": "deploy", "args": {"target": "prod"}},
    )
    after = await out.approve("a1")
    assert after.previous is out
    assert out.next is after
    assert await after.text == "Deployed."
    assert after.tool_calls[0].result == {"deployed": "prod"}
    assert (await after.usage).input_tokens == 16
    with pytest.raises(AlreadyResumed):
        await out.approve("a1")


async def test_a_declined_call_doesn_t_run_and_the_model_is_told_the_reason() -> None:
    model = ScriptedModel([[call("deploy", "a1", target="prod")], [say("As you wish.")]])
    out = await Agent("a", model=model, tools=[deploy]).stream("Deploy")
    await out.settled()
    after = await out.decline(reason="not on Fridays")
    assert await after.text == "As you wish."
    assert model.requests[1].messages[-1]["content"][0]["output"] == {"type": "text", "value": "not on Fridays"}
    out = await Agent("a", model=model, tools=[deploy]).stream("Deploy")
    await out.settled()
    await (await out.decline()).settled()
    assert "declined" in model.requests[-1].messages[-1]["content"][0]["output"]["value"]


async def test_the_agent_answers_by_run_id_as_a_remote_one_does() -> None:
    local = agent("approve")
    for answer in ("approve", "decline", "resume"):
        out = await local.stream("Deploy")
        await out.settled()
        run_id = out.run_id or ""
        if answer == "approve":
            after = await local.approve_tool_call(run_id, "a1")
        elif answer == "decline":
            after = await local.decline_tool_call(run_id, "a1", reason="no")
        else:
            after = await local.resume_stream(run_id, {"approved": True})
        assert await after.text == "Deployed."
        with pytest.raises(AlreadyResumed):
            await local.approve_tool_call(run_id, "a1")
    with pytest.raises(NotSuspended):
        await local.approve_tool_call("no such run", "a1")
    assert local.generate("Deploy").result(5).status == "suspended"


async def test_a_call_s_own_check_may_ask_for_approval_and_so_may_the_run() -> None:
    @tool(require_approval=lambda arguments: arguments["amount"] > 100)
    def pay(amount: int) -> int:
        """Pays."""
        return amount

    script = [[call("pay", "p1", amount=5), call("pay", "p2", amount=500)], [say("paid")]]
    out = await Agent("a", model=ScriptedModel(script), tools=[pay]).stream("go")
    await out.settled()
    assert [one.tool_call_id for one in out.waiting] == ["p2"]
    assert out.tool_calls[0].result == 5
    assert await (await out.approve()).text == "paid"

    model = ScriptedModel([[call("weather", city="Paris")], [say("21")]])
    for wanted, status in (
        (True, "suspended"),
        (lambda name, arguments: name == "weather", "suspended"),
        (False, "success"),
    ):
        out = await Agent("a", model=model, tools=[weather]).stream("go", require_tool_approval=wanted)
        await out.settled()
        assert out.status == status


async def test_arguments_that_don_t_fit_aren_t_asked_about() -> None:
    model = ScriptedModel([[call("deploy", target=5)], [say("ok")]])
    out = await Agent("a", model=model, tools=[deploy]).stream("go")
    assert await out.text == "ok"


async def test_several_calls_that_need_approval_are_asked_one_after_another() -> None:
    script = [[call("deploy", "d1", target="a"), call("deploy", "d2", target="b")], [say("both")]]
    local = Agent("a", model=ScriptedModel(script), tools=[deploy])
    out = await local.stream("go")
    await out.settled()
    assert [one.tool_call_id for one in out.waiting] == ["d1"]
    second = await out.approve()
    await second.settled()
    assert second.status == "suspended"
    assert [one.tool_call_id for one in second.waiting] == ["d2"]
    third = await second.decline(reason="one is enough")
    assert await third.text == "both"
    outputs = [part["output"]["value"] for part in third.message_list[2]["content"]]
    assert outputs == [{"deployed": "a"}, "one is enough"]


async def test_several_calls_that_wait_for_data_are_answered_in_any_order() -> None:
    script = [[call("ask", "q1", question="where?"), call("ask", "q2", question="when?")], [say("noted")]]
    out = await Agent("a", model=ScriptedModel(script), tools=[ask]).stream("go")
    await out.settled()
    assert [one.tool_call_id for one in out.waiting] == ["q1", "q2"]
    with pytest.raises(NotSuspended, match="several calls wait"):
        await out.resume({"answer": "?"})
    second = await out.resume({"answer": "today"}, tool_call_id="q2")
    await second.settled()
    assert (second.status, [one.tool_call_id for one in second.waiting]) == ("suspended", ["q1"])
    third = await second.resume({"answer": "here"})
    assert await third.text == "noted"
    assert [part["output"]["value"]["answer"] for part in third.message_list[2]["content"]] == ["here", "today"]


async def test_a_tool_may_wait_again_and_an_approved_one_for_data() -> None:
    @tool(require_approval=True)
    def two_questions(context: ToolContext) -> str:
        """Asks twice."""
        if context.resume_data is None:
            context.suspend({"ask": "first"})
        if context.resume_data == "one":
            context.suspend({"ask": "second"})
        return context.resume_data

    out = await Agent("a", model=ScriptedModel([[call("two_questions")], [say("ok")]]), tools=[two_questions]).stream(
        "go"
    )
    await out.settled()
    out = await out.approve()
    await out.settled()
    assert await out.suspend_payload == {"ask": "first"}
    out = await out.resume("one")
    await out.settled()
    assert await out.suspend_payload == {"ask": "second"}
    out = await out.resume("two")
    assert await out.text == "ok"
    assert out.tool_calls[0].result == "two"


async def test_options_given_with_an_answer_hold_from_there_on() -> None:
    script = [[call("deploy", "d1", target="a")], [call("weather", city="Paris")]]
    out = await Agent("a", model=ScriptedModel(script), tools=[deploy, weather]).stream("go", max_steps=4)
    await out.settled()
    after = await out.control._agent.approve_tool_call(out.run_id, "d1", max_steps=2)  # type: ignore[attr-defined]
    await after.settled()
    assert [step.finish_reason for step in after.steps] == ["tool-calls", "tool-calls"]


async def test_tools_and_a_model_given_with_an_answer_hold_from_there_on() -> None:
    model = ScriptedModel([[say("-")], [say("another")]])
    local = Agent("a", model=ScriptedModel([[call("deploy", "d1", target="a")]]), tools=[deploy])
    out = await local.stream("go")
    await out.settled()
    with pytest.raises(SettingsError, match="instructions= is the run's from its start"):
        local.approve_tool_call(out.run_id or "", instructions="New.")  # type: ignore[call-arg]
    after = await local.approve_tool_call(out.run_id or "", tools=[weather], model=model)
    assert await after.text == "another"
    assert [spec.name for spec in model.requests[0].tools] == ["deploy", "weather"]


async def test_callbacks_and_bounds_hold_after_an_answer_too() -> None:
    told: list[str] = []
    out = await agent("approve").stream("go", on_finish=lambda full: told.append(full.text))
    await out.settled()
    assert told == []
    await (await out.approve()).settled()
    assert told == ["Deployed."]


# --- another kernel --------------------------------------------------------------------------------------------------


def parts(path: Path) -> Agent:
    """The agent as each kernel defines it."""
    model = ScriptedModel(
        [[say("Deploying."), call("deploy", "a1", target="prod"), usage(7, 3)], [say("Deployed."), usage(9, 2)]]
    )
    return Agent("ops", model=model, tools=[deploy], memory=Memory(f"sqlite:///{path}"))


async def test_another_kernel_with_the_same_store_answers_once(tmp_path: Path) -> None:
    first, second, third = (parts(tmp_path / "store.db") for _ in range(3))
    out = await first.stream("Deploy", memory={"thread": "t1", "resource": "u1"})
    await out.settled()
    after = await second.approve_tool_call(out.run_id or "", "a1")
    assert await after.text == "Deployed."
    assert after.tool_calls[0].result == {"deployed": "prod"}
    assert (await after.usage).input_tokens == 16
    assert after.run_id == out.run_id
    for other in (first, second, third):
        with pytest.raises(AlreadyResumed):
            await other.approve_tool_call(out.run_id or "", "a1")
    said = [
        (one["role"], [part["type"] for part in one["content"]["parts"]]) for one in await first.memory.messages("t1")
    ]  # type: ignore[union-attr]
    assert [role for role, _ in said] == ["user", "assistant", "assistant"]
    assert "tool-invocation" in said[1][1]


async def test_a_kernel_finds_the_runs_that_wait_and_answers_them(tmp_path: Path) -> None:
    first, second = (parts(tmp_path / "store.db") for _ in range(2))
    for thread in ("t1", "t2"):
        out = await first.stream("Deploy", memory={"thread": thread, "resource": "u1"})
        await out.settled()
    found = await second.suspended_runs()
    assert [(run.thread, run.calls[0].tool_name, run.calls[0].needs_approval) for run in found] == [
        ("t1", "deploy", True),
        ("t2", "deploy", True),
    ]
    assert found[0].calls[0].args == {"target": "prod"}
    (one,) = await second.suspended_runs(thread="t2")
    assert await (await one.approve()).text == "Deployed."
    assert await (await found[0].decline(reason="no")).text == "Deployed."
    assert await second.suspended_runs() == await first.suspended_runs() == []
    with pytest.raises(AlreadyResumed):
        await found[0].approve()


async def test_without_a_memory_this_process_knows_what_waits() -> None:
    local = Agent("a", model=ScriptedModel([[call("ask", "q1", question="where?")], [say("ok")]]), tools=[ask])
    out = await local.stream("go")
    await out.settled()
    (run,) = await local.suspended_runs()
    assert (run.run_id, run.calls[0].suspend_payload) == (out.run_id, {"question": "where?"})
    assert await (await run.resume({"answer": "here"})).text == "ok"


async def test_a_kernel_that_names_the_wrong_call_loses_nothing(tmp_path: Path) -> None:
    first, second = (parts(tmp_path / "store.db") for _ in range(2))
    out = await first.stream("Deploy")
    await out.settled()
    with pytest.raises(NotSuspended):
        await second.approve_tool_call(out.run_id or "", "another")
    assert await (await second.approve_tool_call(out.run_id or "", "a1")).text == "Deployed."


async def test_a_kernel_whose_agent_lacks_the_tool_leaves_the_run_to_others(tmp_path: Path) -> None:
    def made(*tools: Any) -> Agent:
        model = ScriptedModel([[call("deploy", "a1", target="x")], [say("Deployed.")]])
        return Agent("a", model=model, tools=tools, memory=Memory(tmp_path / "store.db"))

    out = await made(deploy).stream("Deploy", active_tools=["deploy"])
    await out.settled()
    with pytest.raises(SettingsError, match="active_tools= names 'deploy'; there is no tool"):
        await made().approve_tool_call(out.run_id or "")
    assert await (await made(deploy).approve_tool_call(out.run_id or "")).text == "Deployed."


async def test_a_run_that_waits_within_a_sub_agent_survives_too(tmp_path: Path) -> None:
    def boss() -> Agent:
        worker = Agent(
            "worker", model=ScriptedModel([[call("deploy", "w1", target="x")], [say("worked")]]), tools=[deploy]
        )
        script = [[call("agent-worker", "s1", prompt="deploy it")], [say("It is done.")]]
        return Agent(
            "boss", model=ScriptedModel(script), agents=[worker], memory=Memory(f"sqlite:///{tmp_path / 's.db'}")
        )

    out = await boss().stream("go", memory={"thread": "t", "resource": "r"})
    await out.settled()
    assert [(one.tool_call_id, one.status) for one in out.waiting] == [("s1", "needs-approval")]
    asked = chunks(out)[-1]["payload"]
    assert (asked["toolName"], asked["args"]) == ("deploy", {"target": "x"})
    after = await boss().approve_tool_call(out.run_id or "", "s1")
    assert await after.text == "It is done."
    nested = [c["payload"]["output"]["type"] for c in chunks(after) if c["type"] == "tool-output"]
    assert nested[0] == "tool-result"
    assert nested[-1] == "finish"
    assert types(chunks(after))[-1] == "finish"


def test_what_is_answered_while_it_is_being_answered_is_refused() -> None:
    local: Any = agent("approve")
    out = local.stream("Deploy").result()
    out.wait(5)
    jobs = [local.approve_tool_call(out.run_id, "a1") for _ in range(5)]
    outcomes = []
    for job in jobs:
        try:
            outcomes.append(job.result(5).text.result(5))
        except AlreadyResumed:
            outcomes.append("refused")
    assert sorted(outcomes) == ["Deployed."] + ["refused"] * 4
