"""Client tools against a real Mastra server: it asks, this process runs the function, one run for the user."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import AlreadyResumed, SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.recording import load_recording, record
from nbmastra.tools import ToolContext, tool
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.server

TABLE = pd.DataFrame({"name": ["a", "b", "c"], "n": [1, 2, 3]})
ROWS = [{"name": "a", "n": 1}, {"name": "b", "n": 2}]


def head_of_table(rows: int) -> pd.DataFrame:
    """The first rows."""
    return TABLE.head(rows)


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


def memory() -> dict[str, str]:
    return {"thread": uuid.uuid4().hex, "resource": "client-tool-tests"}


def told(out: MastraModelOutput) -> dict[str, Any]:
    """What the model was told, which its answer repeats: by the calls' ids."""
    return {result["id"]: result["output"]["value"] for result in json.loads(out.state.turns[-1].text)}


def kinds(out: MastraModelOutput) -> list[str]:
    chunks = [chunk.type for chunk in out.full_stream]
    shown = ("start", "tool-call", "tool-result", "tool-error", "tool-output", "finish", "tool-call-approval")
    return [kind for kind in chunks if kind in shown]


# --- what comes of it -------------------------------------------------------------------------------------------------


async def test_a_function_answers_a_remote_agent_and_it_is_one_turn_for_the_user(client: MastraClient) -> None:
    out = await client.agent("client-echo").stream("look", client_tools=[head_of_table])
    await out.text
    assert told(out) == {"k1": ROWS}
    assert kinds(out) == ["start", "tool-call", "finish", "tool-result", "start", "finish"]
    assert out.status == "success"
    assert len(out.turns) == 1
    assert [step.finish_reason for step in out.steps.result()] == ["tool-calls", "stop"]
    (call,) = out.state.tool_calls
    assert (call.status, call.result, call.args) == ("success", ROWS, {"rows": 2})
    usage = await out.usage
    assert (usage.input_tokens, usage.output_tokens) == (7 + 9, 3 + 2)
    assert [chunk.event for chunk in out.full_stream] == list(range(out.state.events))


async def test_on_a_thread_the_server_keeps_the_conversation(client: MastraClient) -> None:
    thread = memory()
    out = await client.agent("client-memory").stream("look", client_tools=[head_of_table], memory=thread)
    await out.text
    assert told(out) == {"k1": ROWS}
    again = await client.agent("client-memory").stream("again", client_tools=[head_of_table], memory=thread)
    await again.text
    assert again.status == "success"


async def test_until_idle_it_goes_on_as_well(client: MastraClient) -> None:
    agent = client.agent("client-memory")
    out = await agent.stream("look", client_tools=[head_of_table], memory=memory(), until_idle=True)
    out.wait(30)
    assert told(out) == {"k1": ROWS}
    assert out.status == "success"


async def test_beside_a_background_task_both_results_reach_the_model(client: MastraClient) -> None:
    agent = client.agent("client-background")
    out = await agent.stream("look", client_tools=[head_of_table], memory=memory(), until_idle=True)
    await asyncio.to_thread(out.wait, 60)
    assert told(out)["k1"] == ROWS
    assert "notes on solana" in json.dumps(told(out)["b1"])
    assert {call.tool_name: call.status for call in out.state.tool_calls} == {
        "research": "success",
        "head_of_table": "success",
    }


async def test_calls_of_one_step_run_at_the_same_time(client: MastraClient) -> None:
    barrier = threading.Barrier(2, timeout=30)

    @tool(name="head_of_table")
    def both(rows: int) -> int:
        barrier.wait()
        return rows

    out = await client.agent("client-parallel").stream("look", client_tools=[both])
    await out.text
    assert told(out) == {"k1": 2, "k2": 3}


async def test_as_many_calls_run_at_once_as_the_run_allows(client: MastraClient) -> None:
    running: list[int] = []

    @tool(name="head_of_table")
    async def alone(rows: int) -> int:
        running.append(rows)
        await asyncio.sleep(0)
        assert running == [rows]
        running.clear()
        return rows

    agent = client.agent("client-parallel")
    out = await agent.stream("look", client_tools=[alone], tool_call_concurrency=1)
    await out.text
    assert told(out) == {"k1": 2, "k2": 3}


@pytest.mark.parametrize("agent", ["client-mixed", "client-mixed-memory"])
async def test_tools_of_the_server_and_of_the_caller_go_together(client: MastraClient, agent: str) -> None:
    about = {"memory": memory()} if agent.endswith("memory") else {}
    out = await client.agent(agent).stream("look", client_tools=[head_of_table], **about)
    await out.text
    assert told(out) == {"c1": {"celsius": 21}, "k1": ROWS}


async def test_several_rounds_keep_the_whole_conversation(client: MastraClient) -> None:
    out = await client.agent("client-turns").stream("look", client_tools=[head_of_table])
    await out.text
    assert list(told(out)) == ["c1", "k1", "k2"]
    assert len(out.turns) == 1
    assert len(out.steps.result()) == 4


async def test_thinking_and_its_signature_go_back_to_the_model(client: MastraClient) -> None:
    out = await client.agent("client-thinks").stream("look", client_tools=[head_of_table])
    assistant, results = json.loads(await out.text)
    thought, text, call = assistant["content"]
    assert (thought["type"], thought["text"]) == ("reasoning", "I need the table.")
    assert thought["providerOptions"]["anthropic"] == {"signature": "c2ln"}
    assert (text["text"], call["toolCallId"]) == ("Let me look.", "k1")
    assert results["content"][0]["output"]["value"] == ROWS


async def test_an_async_function_runs_on_the_engine_and_sees_its_context(client: MastraClient, engine: Engine) -> None:
    seen: list[Any] = []

    @tool(name="head_of_table")
    async def look(rows: int, context: ToolContext) -> str:
        print("looking")
        context.writer.write({"at": rows})
        await context.writer.custom({"type": "data-progress", "data": 1})
        seen.extend([engine.on_own_thread, context.agent_id, context.thread_id, context.request_context])
        return "seen"

    thread = memory()
    out = await client.agent("client-memory").stream(
        "look", client_tools=[look], memory=thread, request_context={"user": "ann"}
    )
    await out.text
    assert told(out) == {"k1": "seen"}
    assert seen == [True, "client-memory", thread["thread"], {"user": "ann"}]
    (call,) = out.state.tool_calls
    assert call.outputs == ["looking\n", {"at": 2}]
    assert [chunk.type for chunk in out.full_stream].count("data-progress") == 1


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_function_that_raises_is_a_tool_error_that_the_model_is_told(client: MastraClient) -> None:
    @tool(name="head_of_table")
    def broken(rows: int) -> None:
        raise LookupError(f"no {rows} rows")

    out = await client.agent("client-echo").stream("look", client_tools=[broken])
    await out.text
    assert told(out) == {"k1": {"error": "LookupError: no 2 rows"}}
    (call,) = out.state.tool_calls
    assert call.status == "error"
    assert call.error is not None
    assert (call.error.name, call.error.message) == ("LookupError", "no 2 rows")
    assert "broken" in (call.error.stack or "")
    assert out.status == "success"


async def test_a_result_that_cannot_be_json_is_a_tool_error(client: MastraClient) -> None:
    @tool(name="head_of_table")
    def strange(rows: int) -> object:
        return object()

    out = await client.agent("client-echo").stream("look", client_tools=[strange])
    await out.text
    assert "can't be JSON" in told(out)["k1"]["error"]


@pytest.mark.parametrize("agent", ["client-bad-args", "client-wrong-args"])
async def test_arguments_that_do_not_fit_never_run_the_function(client: MastraClient, agent: str) -> None:  # B23
    ran: list[int] = []

    @tool(name="head_of_table")
    def look(rows: int = 1) -> None:
        ran.append(rows)

    out = await client.agent(agent).stream("look", client_tools=[look])
    await out.text
    assert ran == []
    refused = told(out)["k1"]
    assert refused["error"] is True
    assert "validationErrors" in refused
    if agent == "client-bad-args":
        assert refused["rawArguments"] == '{"rows":2}<|call|>'
    assert [call.status for call in out.state.tool_calls] == ["error"]


async def test_a_tool_that_nobody_has_is_an_error_for_the_model(client: MastraClient) -> None:
    out = await client.agent("client-unknown").stream("look", client_tools=[head_of_table])
    await out.text
    assert told(out)["k1"] == ROWS
    assert "no_such_tool" in told(out)["u1"]


async def test_at_most_max_steps_rounds(client: MastraClient) -> None:
    out = await client.agent("client-endless").stream("look", client_tools=[head_of_table], max_steps=3)
    await out.text
    assert len(out.steps.result()) == 3
    assert [call.status for call in out.state.tool_calls] == ["success"] * 3
    assert (out.status, out.status_reason) == ("success", "tool-calls")


async def test_without_max_steps_an_endless_run_ends_and_says_why(client: MastraClient) -> None:
    out = await client.agent("client-endless").stream("look", client_tools=[head_of_table])
    await asyncio.to_thread(out.wait, 60)
    assert out.status == "truncated"
    assert "max_steps" in out.status_reason


async def test_bounds_count_all_rounds(client: MastraClient) -> None:
    out = await client.agent("client-endless").stream("look", client_tools=[head_of_table], max_tokens=35)
    await asyncio.to_thread(out.wait, 60)
    assert out.status == "cancelled"
    assert len(out.state.steps) == 4


async def test_cancelling_stops_the_function(client: MastraClient) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @tool(name="head_of_table")
    async def endless(rows: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    out = await client.agent("client-echo").stream("look", client_tools=[endless])
    assert await asyncio.to_thread(begun.wait, 30)
    out.cancel()
    assert await asyncio.to_thread(cancelled.wait, 10)
    await asyncio.to_thread(out.wait, 10)
    assert out.status == "cancelled"
    assert [call.status for call in out.state.tool_calls] == ["cancelled"]


async def test_cancelling_tells_a_function_in_a_thread(client: MastraClient) -> None:
    begun, left = threading.Event(), threading.Event()

    @tool(name="head_of_table")
    def endless(rows: int, context: ToolContext) -> None:
        begun.set()
        if context.abort.wait_blocking(30):
            left.set()

    out = await client.agent("client-echo").stream("look", client_tools=[endless])
    assert await asyncio.to_thread(begun.wait, 30)
    out.cancel()
    assert await asyncio.to_thread(left.wait, 10)


async def test_a_server_that_goes_away_between_the_rounds_is_seen(
    start_mastra_server: Callable[..., MastraServer], engine: Engine
) -> None:
    server = start_mastra_server()

    @tool(name="head_of_table")
    def kill(rows: int) -> None:
        server.process.kill()
        server.process.wait()

    out = await MastraClient(server.url, engine=engine).agent("client-echo").stream("look", client_tools=[kill])
    await asyncio.to_thread(out.wait, 30)
    assert out.status == "truncated"


# --- waiting for somebody ---------------------------------------------------------------------------------------------


@tool(name="head_of_table", require_approval=lambda arguments: arguments["rows"] == 2)
def careful(rows: int) -> int:
    """Rows, two of them with permission only."""
    return rows


async def test_a_call_waits_for_approval_and_goes_on_as_a_new_output(client: MastraClient) -> None:
    out = await client.agent("client-echo").stream("look", client_tools=[careful])
    await asyncio.to_thread(out.wait, 30)
    assert out.status == "suspended"
    assert [call.tool_call_id for call in out.waiting] == ["k1"]
    after = await out.approve()
    await after.text
    assert after.previous is out
    assert told(after) == {"k1": 2}
    assert kinds(after) == ["tool-result", "start", "finish"]
    assert after.status == "success"
    with pytest.raises(AlreadyResumed):
        await out.approve()


async def test_a_run_whose_tools_all_need_approval_asks_for_functions_too(client: MastraClient) -> None:
    agent = client.agent("client-parallel")
    out = await agent.stream("look", client_tools=[head_of_table], require_tool_approval=True)
    await asyncio.to_thread(out.wait, 30)
    assert [call.status for call in out.waiting] == ["needs-approval"] * 2


async def test_a_recording_of_a_run_that_waits_waits_too(client: MastraClient, tmp_path: Path) -> None:
    out = await client.agent("client-echo").stream("look", client_tools=[careful])
    again = load_recording(await record(out, tmp_path / "run.jsonl"))
    again.wait(30)
    assert (again.status, again.status_reason) == (out.status, out.status_reason)
    assert out.status == "suspended"


async def test_a_declined_call_is_told_to_the_model_with_the_reason(client: MastraClient) -> None:
    agent = client.agent("client-memory")
    out = await agent.stream("look", client_tools=[careful], memory=memory())
    await asyncio.to_thread(out.wait, 30)
    after = await out.decline(reason="not these")
    await after.text
    assert told(after) == {"k1": {"error": "The user declined this call. not these"}}
    (call,) = after.state.tool_calls
    assert (call.status, call.denial_reason) == ("denied", "not these")


async def test_of_several_calls_only_those_wait_that_must(client: MastraClient) -> None:
    out = await client.agent("client-parallel").stream("look", client_tools=[careful])
    await asyncio.to_thread(out.wait, 30)
    assert {call.tool_call_id: call.status for call in out.state.tool_calls} == {
        "k1": "needs-approval",
        "k2": "success",
    }
    after = await out.approve("k1")
    await after.text
    assert told(after) == {"k1": 2, "k2": 3}


async def test_answers_to_several_calls_come_one_after_the_other(client: MastraClient) -> None:
    @tool(name="head_of_table", require_approval=True)
    def asks(rows: int) -> int:
        return rows

    out = await client.agent("client-parallel").stream("look", client_tools=[asks])
    await asyncio.to_thread(out.wait, 30)
    assert len(out.waiting) == 2
    first = await out.approve("k2")
    await asyncio.to_thread(first.wait, 30)
    assert first.status == "suspended"
    assert [call.tool_call_id for call in first.waiting] == ["k1"]
    second = await first.decline("k1")
    await second.text
    assert second.previous is first
    assert told(second)["k2"] == 3
    assert "declined" in told(second)["k1"]["error"]


async def test_a_function_may_wait_for_data(client: MastraClient) -> None:
    @tool(name="head_of_table")
    def asks(rows: int, context: ToolContext) -> Any:
        return context.resume_data or context.suspend({"need": "a number"})

    out = await client.agent("client-echo").stream("look", client_tools=[asks])
    await asyncio.to_thread(out.wait, 30)
    assert out.status == "suspended"
    assert out.waiting[0].suspend_payload == {"need": "a number"}
    after = await out.resume({"number": 7})
    await after.text
    assert told(after) == {"k1": {"number": 7}}


async def test_after_an_approval_at_the_server_the_functions_are_still_there(client: MastraClient) -> None:
    agent = client.agent("client-after-approval")
    out = await agent.stream("go", client_tools=[head_of_table], memory=memory())
    await asyncio.to_thread(out.wait, 30)
    assert out.status == "suspended"
    after = await out.approve()
    await asyncio.to_thread(after.wait, 30)
    assert told(after) == {"a1": {"deployed": "prod"}, "k1": ROWS}


async def test_another_process_gives_its_own_functions_with_the_answer(client: MastraClient) -> None:
    agent, thread = client.agent("client-after-approval"), memory()
    out = await agent.stream("go", client_tools=[head_of_table], memory=thread)
    await asyncio.to_thread(out.wait, 30)
    after = await agent.approve_tool_call(out.run_id, "a1", client_tools=[head_of_table], memory=thread)
    await asyncio.to_thread(after.wait, 30)
    assert told(after)["k1"] == ROWS


# --- recordings, and what is refused ----------------------------------------------------------------------------------


async def test_a_recording_of_all_rounds_replays_equal(client: MastraClient, tmp_path: Path) -> None:
    out = await client.agent("client-parallel").stream("look", client_tools=[head_of_table])
    again = load_recording(await record(out, tmp_path / "run.jsonl"))
    again.wait(30)
    assert [chunk.to_json() for chunk in again.full_stream] == [chunk.to_json() for chunk in out.full_stream]
    assert told(again) == told(out)
    assert (again.status, len(again.turns), again.state.usage) == (out.status, len(out.turns), out.state.usage)


async def test_a_declaration_in_the_wires_own_words_is_passed_on(client: MastraClient) -> None:
    declared = {"head_of_table": {"id": "head_of_table", "description": "", "inputSchema": {"type": "object"}}}
    out = await client.agent("client-echo").stream("look", client_tools=declared)
    await out.text
    assert [call.status for call in out.state.tool_calls] == ["pending"]


def test_what_cannot_work_is_refused_at_once(client: MastraClient) -> None:
    agent = client.agent("client-echo")
    with pytest.raises(SettingsError, match="reconnect="):
        agent.stream("x", client_tools=[head_of_table], reconnect=True)
    with pytest.raises(SettingsError, match=r"for stream\(\)"):
        agent.generate("x", client_tools=[head_of_table])
    with pytest.raises(SettingsError, match="two tools are called"):
        agent.stream("x", client_tools=[head_of_table, head_of_table])
    with pytest.raises(SettingsError, match="not str"):
        agent.stream("x", client_tools=["head_of_table"])
