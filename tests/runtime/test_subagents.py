"""Agents as tools of another agent."""

from __future__ import annotations

from typing import Any

import pytest

from nbmastra.errors import ModelError
from nbmastra.frames import usage_df
from nbmastra.runtime import Agent, Memory
from nbmastra.testing import ScriptedModel, call, fail, say, usage
from nbmastra.tools import ToolContext, tool
from tests.runtime.agents import deploy, weather
from tests.runtime.wire import chunks

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


def boss(sub: Agent, **options: Any) -> Agent:
    """An agent that asks another, and then is done."""
    script = [[call(f"agent-{sub.name}", "s1", prompt="help me"), usage(10, 5)], [say("Done."), usage(20, 5)]]
    return Agent("boss", model=ScriptedModel(script), agents=[sub], **options)


async def test_a_sub_agent_s_tokens_and_calls_are_nested_and_never_the_parent_s() -> None:
    script = [[call("weather", city="Rome"), usage(100, 1)], [say("It is 21."), usage(200, 2)]]
    sub = Agent("sub", model=ScriptedModel(script), tools=[weather], description="Knows the weather")
    out = await boss(sub).stream("go")
    assert await out.text == "Done."
    assert (await out.usage).input_tokens == 30
    assert out.total.grand_usage.input_tokens == 330
    nested = out.total.nested[0]
    assert (nested.text, [one.tool_name for one in nested.tool_calls]) == ("It is 21.", ["weather"])
    result = out.tool_calls[0].result
    assert result["text"] == "It is 21."
    assert result["subAgentToolResults"] == [
        {"toolName": "weather", "toolCallId": "c1", "result": {"celsius": 21}, "args": {"city": "Rome"}}
    ]
    assert usage_df(out)["input_tokens"].sum() == 330


async def test_the_model_reads_the_sub_agent_s_answer_only() -> None:
    sub = Agent("sub", model=ScriptedModel([[say("the answer")]]))
    local = boss(sub)
    out = await local.stream("go")
    await out.settled()
    model: Any = local.model
    told = model.requests[1].messages[-1]["content"][0]["output"]
    assert told == {"type": "text", "value": "the answer"}
    assert model.requests[0].tools[0].description == "Agent: sub"


async def test_agents_within_agents() -> None:
    inner = Agent("inner", model=ScriptedModel([[say("deep")]]))
    middle = Agent(
        "middle", model=ScriptedModel([[call("agent-inner", prompt="x")], [say("middle says deep")]]), agents=[inner]
    )
    out = await boss(middle).stream("go")
    assert await out.text == "Done."
    (within,) = out.total.nested
    assert (within.text, [run.text for run in within.nested]) == ("middle says deep", ["deep"])


async def test_a_sub_agent_gets_the_conversation_without_its_tool_calls_and_its_own_instructions() -> None:
    model = ScriptedModel([[say("ok")]])
    sub = Agent("sub", model=model, instructions="You are sub.")
    script = [
        [say("First."), call("weather", city="Rome")],
        [call("agent-sub", prompt="help", instructions="Be quick.", maxSteps=1)],
        [say("Done.")],
    ]
    out = await Agent("boss", model=ScriptedModel(script), agents={"sub": sub}, tools=[weather]).stream("go")
    assert await out.text == "Done."
    sent = [
        (m["role"], m["content"] if isinstance(m["content"], str) else [p["text"] for p in m["content"]])
        for m in model.requests[0].messages
    ]
    assert sent == [
        ("system", "You are sub."),
        ("system", "Be quick."),
        ("user", ["go"]),
        ("assistant", ["First."]),
        ("user", ["help"]),
    ]


async def test_a_failing_sub_agent_is_a_tool_error_and_the_parent_goes_on() -> None:
    sub = Agent("sub", model=ScriptedModel([[say("par"), fail(ModelError("no credit", status_code=402))]]))
    out = await boss(sub).stream("go")
    assert await out.text == "Done."
    assert out.status == "success"
    error = next(chunk["payload"]["error"] for chunk in chunks(out) if chunk["type"] == "tool-error")
    assert "no credit" in error["message"]


async def test_a_sub_agent_s_memory_is_a_thread_of_its_own() -> None:
    memory = Memory("sqlite://")
    sub = Agent("sub", model=ScriptedModel([[say("noted")]]))
    out = await boss(sub, memory=memory).stream("go", memory={"thread": "t1", "resource": "u1"})
    await out.settled()
    threads = {thread["id"]: thread["resourceId"] for thread in await memory.threads()}
    result = out.tool_calls[0].result
    assert threads == {"t1": "u1", result["subAgentThreadId"]: result["subAgentResourceId"]}
    said = await memory.messages(result["subAgentThreadId"])
    assert [message["role"] for message in said] == ["user", "assistant"]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_within_a_sub_agent_is_the_parent_s_question(approved: bool) -> None:
    sub_model = ScriptedModel([[call("deploy", "d1", target="x")], [say("sub is done")]])
    sub = Agent("sub", model=sub_model, tools=[deploy])
    out = await boss(sub).stream("go")
    await out.settled()
    assert out.status == "suspended"
    assert [one.tool_call_id for one in out.waiting] == ["s1"]
    after = await (out.approve("s1") if approved else out.decline("s1", reason="no"))
    assert await after.text == "Done."
    told = sub_model.requests[1].messages[-1]["content"][0]["output"]["value"]
    assert told == ({"deployed": "x"} if approved else "no")
    assert after.tool_calls[0].result["text"] == "sub is done"


async def test_data_that_a_sub_agent_s_tool_waits_for_is_asked_and_given_through_the_parent() -> None:
    @tool
    def who(context: ToolContext) -> str:
        """Asks."""
        if context.resume_data is None:
            context.suspend({"ask": "who?"}, resume_schema={"type": "string"})
        return f"it is {context.resume_data}"

    sub = Agent("sub", model=ScriptedModel([[call("who")], [say("thanks")]]), tools=[who])
    out = await boss(sub).stream("go")
    await out.settled()
    assert await out.suspend_payload == {"ask": "who?"}
    assert await out.resume_schema == {"type": "string"}
    after = await out.resume("Ada")
    assert await after.text == "Done."
    assert after.tool_calls[0].result["subAgentToolResults"][0]["result"] == "it is Ada"


async def test_data_chunks_of_a_sub_agent_s_tools_are_the_run_s() -> None:
    @tool
    def note(context: ToolContext) -> str:
        """Notes."""
        context.writer.custom({"type": "data-note", "data": 1})
        return "ok"

    sub = Agent("sub", model=ScriptedModel([[call("note")], [say("ok")]]), tools=[note])
    out = await boss(sub).stream("go")
    await out.settled()
    assert {"type": "data-note", "data": 1} in chunks(out)
