"""What a local agent does with its options, its tools, and what can be wrong with them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nbmastra.errors import MastraStreamError, ModelError
from nbmastra.output import FullOutput
from nbmastra.runtime import Agent, StepResult
from nbmastra.testing import ScriptedModel, call, call_raw, fail, finish, say, usage, warn
from nbmastra.tools import ToolContext, tool
from tests.runtime.agents import agent, weather
from tests.runtime.wire import chunks, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")

LOOK = [call("weather", city="Paris"), usage(10, 5)]


def forever(*tools: Any, **options: Any) -> Agent:
    """An agent whose model calls a tool each time."""
    return Agent("forever", model=ScriptedModel([LOOK]), tools=tools or (weather,), **options)


# --- the answer ------------------------------------------------------------------------------------------------------


async def test_stream_and_generate_give_what_the_script_says() -> None:
    out = await agent("tools").stream("Weather?")
    assert await out.text == "It is 21 °C in Paris."
    assert [piece async for piece in out.text_stream] == [
        "Let me",
        " look ",
        "that u",
        "p.",
        "It is ",
        "21 °C ",
        "in Par",
        "is.",
    ]
    assert ((await out.usage).input_tokens, (await out.usage).output_tokens) == (45, 20)
    assert (out.status, await out.finish_reason) == ("success", "stop")
    full = await agent("tools").generate("Weather?")
    assert isinstance(full, FullOutput)
    assert full.text == "Let me look that up.It is 21 °C in Paris."
    assert [one.result for one in full.tool_results][:1] == [{"celsius": 21}]


def test_plain_code_needs_no_loop() -> None:
    out = agent("tools").stream("Weather?").result()
    assert out.text.result(5) == "It is 21 °C in Paris."
    assert agent("tools").generate("Weather?").result(5).status == "success"


async def test_instructions_and_messages_reach_the_model() -> None:
    model = ScriptedModel([[say("ok")]])

    async def told(context: dict[str, Any]) -> list[str]:
        return ["Be brief.", f"You serve {context['who']}."]

    local = Agent("a", model=model, instructions=told)
    await (
        await local.stream(["One.", {"role": "system", "content": "More."}, "Two."], request_context={"who": "Ada"})
    ).text
    await (await local.stream("hi", instructions="Only this.")).text
    sent = [
        [(m["role"], m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]) for m in r.messages]
        for r in model.requests
    ]
    assert sent[0] == [
        ("system", "Be brief."),
        ("system", "You serve Ada."),
        ("system", "More."),
        ("user", "One."),
        ("user", "Two."),
    ]
    assert sent[1] == [("system", "Only this."), ("user", "hi")]


async def test_ui_messages_images_and_files_become_model_messages() -> None:
    model = ScriptedModel([[say("ok")]])
    png = b"\x89PNG"
    history = [
        {
            "role": "user",
            "parts": [
                {"type": "text", "text": "look"},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw=="},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {
                    "type": "tool-weather",
                    "toolCallId": "w1",
                    "state": "output-available",
                    "input": {"city": "Rome"},
                    "output": {"celsius": 30},
                },
                {
                    "type": "tool-weather",
                    "toolCallId": "w2",
                    "state": "output-error",
                    "input": {"city": "?"},
                    "errorText": "unknown",
                },
                {"type": "text", "text": "Hot."},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and this?"},
                {"type": "image", "image": png, "mimeType": "image/png"},
                {"type": "image", "image": "https://example.com/cat.png"},
            ],
        },
    ]
    await (await Agent("a", model=model).stream(history)).text
    sent = model.requests[0].messages
    kinds = [(m["role"], [part["type"] for part in m["content"]]) for m in sent]
    assert kinds == [
        ("user", ["text", "file"]),
        ("assistant", ["reasoning", "tool-call", "tool-call", "text"]),
        ("tool", ["tool-result", "tool-result"]),
        ("user", ["text", "image", "image"]),
    ]
    assert sent[0]["content"][1]["mediaType"] == "image/png"
    assert [part["output"] for part in sent[2]["content"]] == [
        {"type": "json", "value": {"celsius": 30}},
        {"type": "error-text", "value": "unknown"},
    ]
    assert sent[3]["content"][1]["data"] == "iVBORw=="
    assert sent[3]["content"][2]["url"] == "https://example.com/cat.png"


async def test_settings_tools_and_choice_reach_the_model() -> None:
    model = ScriptedModel([[say("ok")]])

    @tool
    def other(x: int = 1) -> int:
        """Another tool."""
        return x

    local = Agent("a", model=model, tools=[weather], default_options={"model_settings": {"temperature": 0.5}})
    await (await local.stream("hi", tools=[other], tool_choice="required", active_tools=["other"])).text
    request = model.requests[0]
    assert [spec.name for spec in request.tools] == ["other"]
    assert (request.tool_choice, dict(request.settings)) == ("required", {"temperature": 0.5})
    assert request.tools[0].parameters["properties"]["x"]["default"] == 1


async def test_a_model_of_one_run_takes_the_agent_s_place() -> None:
    out = await agent("tools").stream("hi", model=ScriptedModel([[say("mine")]]))
    assert await out.text == "mine"


async def test_the_provider_s_warnings_stand_in_step_start() -> None:
    out = await Agent("a", model=ScriptedModel([[warn("no seed"), say("ok")]])).stream("hi")
    await out.settled()
    assert chunks(out)[1]["payload"]["warnings"] == [{"type": "other", "message": "no seed"}]


async def test_raw_chunks_and_response_metadata_come_if_asked_for() -> None:
    out = await agent("text").stream("hi", include_raw_chunks=True)
    await out.settled()
    assert "response-metadata" in types(chunks(out))


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_calls_of_a_step_run_at_the_same_time_and_results_come_as_they_finish() -> None:
    gates = {"slow": asyncio.Event(), "fast": asyncio.Event()}
    seen: list[str] = []
    first = asyncio.Event()

    @tool
    async def wait(name: str) -> str:
        """Waits."""
        await gates[name].wait()
        return name

    @tool
    async def open_gates() -> str:
        """Lets the others go, the later first."""
        gates["fast"].set()
        await first.wait()
        gates["slow"].set()
        return "opened"

    script = [[call("wait", name="slow"), call("wait", name="fast"), call("open_gates")], [say("done")]]

    def note(chunk: Any) -> None:
        if chunk.type == "tool-result":
            seen.append(chunk.payload.result)
            first.set()

    out = await Agent("a", model=ScriptedModel(script), tools=[wait, open_gates]).stream("go", on_chunk=note)
    assert await out.text == "done"
    assert seen[0] == "fast"
    assert sorted(seen) == ["fast", "opened", "slow"]
    results = out.message_list[2]["content"]
    assert [part["output"]["value"] for part in results] == ["slow", "fast", "opened"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_no_more_calls_run_at_once_than_allowed(limit: int) -> None:
    running = most = 0

    @tool
    async def work(n: int) -> int:
        """Works."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1
        return n

    script = [[call("work", n=n) for n in range(6)], [say("done")]]
    out = await Agent("a", model=ScriptedModel(script), tools=[work]).stream("go", tool_call_concurrency=limit)
    await out.settled()
    assert most == limit
    assert len(out.tool_results) == 6


async def test_a_raising_tool_is_an_error_chunk_with_type_message_and_traceback_and_the_run_goes_on() -> None:
    @tool
    def broken(path: str) -> str:
        """Reads."""
        raise FileNotFoundError(f"no file {path}")

    model = ScriptedModel([[call("broken", path="a.csv")], [say("Sorry.")]])
    out = await Agent("a", model=model, tools=[broken]).stream("go")
    assert await out.text == "Sorry."
    error = next(chunk["payload"]["error"] for chunk in chunks(out) if chunk["type"] == "tool-error")
    assert (error["name"], error["message"]) == ("FileNotFoundError", "no file a.csv")
    assert "in broken" in error["stack"]
    assert "nbmastra/" not in error["stack"]
    told = model.requests[1].messages[-1]["content"][0]["output"]
    assert told == {"type": "error-text", "value": "no file a.csv"}


async def test_one_error_of_a_task_group_is_told_as_itself_and_a_long_one_is_cut() -> None:
    @tool
    async def grouped() -> str:
        """Fails in a task group."""
        async with asyncio.TaskGroup() as group:
            group.create_task(weather.run({"city": "Nowhere"}, ToolContext()))
        return ""

    @tool
    def long() -> str:
        """Fails at length."""
        raise ValueError("x" * 50_000)

    model = ScriptedModel([[call("grouped"), call("long")], [say("ok")]])
    out = await Agent("a", model=model, tools=[grouped, long]).stream("go")
    assert await out.text == "ok"
    errors = {c["payload"]["toolName"]: c["payload"]["error"] for c in chunks(out) if c["type"] == "tool-error"}
    assert (errors["grouped"]["name"], errors["grouped"]["message"]) == ("Error", "no such city")
    assert len(errors["long"]["message"]) < 11_000
    told = model.requests[1].messages[-1]["content"]
    assert [len(part["output"]["value"]) < 11_000 for part in told] == [True, True]


async def test_what_is_cancelled_from_within_is_an_error_and_doesn_t_end_the_run() -> None:
    @tool
    async def gone() -> str:
        """Awaits something that was cancelled."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    out = await Agent("a", model=ScriptedModel([[call("gone")], [say("ok")]]), tools=[gone]).stream("go")
    assert await out.text == "ok"
    assert out.tool_calls[0].status == "error"

    async def instructions(_context: dict[str, Any]) -> str:
        raise asyncio.CancelledError("oh")

    out = await Agent("a", model=ScriptedModel([[say("ok")]]), instructions=instructions).stream("go")
    await out.settled()
    assert (out.status, out.error.name if out.error else "") == ("failed", "CancelledError")


async def test_an_unknown_tool_is_an_error_that_names_those_there_are() -> None:
    model = ScriptedModel([[call("wether", city="Paris"), call("weather", city="Rome")], [say("ok")]])
    out = await Agent("a", model=model, tools=[weather]).stream("go")
    assert await out.text == "ok"
    error = next(chunk["payload"]["error"] for chunk in chunks(out) if chunk["type"] == "tool-error")
    assert error["name"] == "ToolNotFoundError"
    assert "weather" in error["message"]
    assert out.tool_calls[1].result == {"celsius": 21}


async def test_a_tool_that_isn_t_active_can_t_be_called() -> None:
    out = await agent("tools").stream("go", active_tools=[])
    assert await out.text == "It is 21 °C in Paris."
    assert {call.status for call in out.tool_calls} == {"error"}


async def test_a_tool_that_returns_nothing_has_the_result_null() -> None:
    @tool
    def nothing() -> None:
        """Does nothing."""

    out = await Agent("a", model=ScriptedModel([[call("nothing")], [say("ok")]]), tools=[nothing]).stream("go")
    assert await out.text == "ok"
    assert out.tool_calls[0].result is None
    assert out.tool_calls[0].status == "success"


async def test_what_a_tool_writes_and_prints_goes_into_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def chatty(context: ToolContext) -> str:
        """Talks."""
        print("printed")
        context.writer.write({"pct": 50})
        context.writer.custom({"type": "data-note", "data": {"n": 1}})
        return "ok"

    out = await Agent("a", model=ScriptedModel([[call("chatty")], [say("done")]]), tools=[chatty]).stream("go")
    await out.settled()
    written = [chunk["payload"]["output"] for chunk in chunks(out) if chunk["type"] == "tool-output"]
    assert sorted(map(str, written)) == ["printed\n", "{'pct': 50}"]
    assert {"type": "data-note", "data": {"n": 1}} in chunks(out)
    assert capsys.readouterr().out == ""


async def test_a_tool_knows_its_run() -> None:
    known: dict[str, Any] = {}

    @tool
    def look(context: ToolContext) -> str:
        """Looks."""
        known.update(run=context.run_id, agent=context.agent_id, who=context.request_context, call=context.tool_call_id)
        return "ok"

    model = ScriptedModel([[call("look", "k1")], [say("done")]])
    out = await Agent("a", model=model, tools=[look]).stream("go", run_id="r1", request_context={"who": "Ada"})
    await out.settled()
    assert known == {"run": "r1", "agent": "a", "who": {"who": "Ada"}, "call": "k1"}
    assert out.run_id == "r1"


async def test_arguments_that_don_t_fit_are_told_to_the_model_and_the_tool_doesn_t_run() -> None:
    ran = threading.Event()

    @tool
    def count(n: int) -> int:
        """Counts."""
        ran.set()
        return n

    model = ScriptedModel([[call("count", n="many"), call_raw("count", "[1]")], [say("ok")]])
    out = await Agent("a", model=model, tools=[count]).stream("go")
    assert await out.text == "ok"
    assert not ran.is_set()
    results = [chunk["payload"]["result"] for chunk in chunks(out) if chunk["type"] == "tool-result"]
    assert [result["error"] for result in results] == [True, True]
    assert "n" in results[0]["validationErrors"]["fields"]


# --- how long it goes on ---------------------------------------------------------------------------------------------


async def test_five_steps_are_the_default_and_max_steps_another_number() -> None:
    out = await forever().stream("go")
    await out.settled()
    assert len(out.steps) == 5
    assert await out.finish_reason == "tool-calls"
    assert [step.is_continued for step in out.steps] == [True] * 4 + [False]
    for local, options in ((forever(), {"max_steps": 2}), (forever(max_steps=2), {})):
        out = await local.stream("go", **options)
        await out.settled()
        assert len(out.steps) == 2


async def test_stop_when_is_asked_after_each_step() -> None:
    asked: list[int] = []

    async def enough(steps: list[StepResult]) -> bool:
        asked.append(len(steps))
        return sum(step.usage.input_tokens or 0 for step in steps) >= 30

    out = await forever().stream("go", stop_when=[lambda steps: False, enough])
    await out.settled()
    assert asked == [1, 2, 3]
    out = await forever().stream("go", stop_when=lambda steps: steps[-1].tool_results[0].result == {"celsius": 21})
    await out.settled()
    assert len(out.steps) == 1


async def test_a_stop_when_that_raises_fails_the_run() -> None:
    def wrong(_steps: list[StepResult]) -> bool:
        raise ValueError("oh")

    out = await forever().stream("go", stop_when=wrong)
    await out.settled()
    assert (out.status, out.error.message if out.error else "") == ("failed", "oh")


@pytest.mark.parametrize("reason", ["length", "content-filter"])
async def test_calls_of_an_answer_that_was_cut_don_t_run(reason: str) -> None:
    out = await Agent("a", model=ScriptedModel([[call("weather", city="P"), finish(reason)]]), tools=[weather]).stream(
        "go"
    )
    await out.settled()
    assert await out.finish_reason == reason
    assert len(out.tool_results) == 0


# --- failing ---------------------------------------------------------------------------------------------------------


async def test_a_provider_s_error_is_told_with_status_and_fails_the_run() -> None:
    error = ModelError("slow down", status_code=429, retry_after_s=3, provider="acme")
    out = await Agent("a", model=ScriptedModel([[say("par"), fail(error)]])).stream("go")
    with pytest.raises(MastraStreamError, match="slow down") as raised:
        await out.text
    assert (raised.value.status_code, raised.value.partial) == (429, "par")
    payload = next(chunk["payload"] for chunk in chunks(out) if chunk["type"] == "error")
    assert payload["error"]["retryAfterS"] == 3
    assert types(chunks(out))[-3:] == ["error", "step-finish", "finish"]
    with pytest.raises(MastraStreamError, match="slow down"):
        await Agent("a", model=ScriptedModel([[fail(error)]])).generate("go")


async def test_tools_don_t_run_after_an_error() -> None:
    script = [[call("weather", city="Paris"), fail(ModelError("gone"))]]
    out = await Agent("a", model=ScriptedModel(script), tools=[weather]).stream("go")
    await out.settled()
    assert "tool-result" not in types(chunks(out))


async def test_an_agent_without_a_model_says_what_to_give() -> None:
    out = await Agent("bare").stream("hi")
    await out.settled()
    assert out.status == "failed"
    assert 'model="openai:' in out.status_reason
