"""Callbacks of an agent's runs, wrong settings that are said at once, and the scripted model."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.output import FullOutput
from nbmastra.runtime import Agent, ModelRequest
from nbmastra.testing import ScriptedModel, call_raw, finish, say, think, usage
from tests.runtime.agents import agent
from tests.runtime.test_agent import forever
from tests.runtime.wire import chunks, types


async def test_callbacks_are_told_in_order_and_before_the_run_settles() -> None:
    told: list[Any] = []

    async def finished(full: FullOutput) -> None:
        await asyncio.sleep(0)
        told.append(("finish", full.text, full.status, len(full.steps)))

    out = await agent("tools").stream(
        "go",
        on_chunk=lambda chunk: told.append(chunk.type),
        on_step_finish=lambda step: told.append(("step", step.index, step.text, step.finish_reason)),
        on_finish=finished,
    )
    await out.settled()
    assert [one for one in told if isinstance(one, tuple)] == [
        ("step", 0, "Let me look that up.", "tool-calls"),
        ("step", 1, "It is 21 °C in Paris.", "stop"),
        ("finish", "It is 21 °C in Paris.", "success", 2),
    ]
    assert [one for one in told if isinstance(one, str)] == types(chunks(out))


async def test_chunks_are_numbered_as_they_come() -> None:
    out = await agent("supervisor").stream("go")
    await out.settled()
    assert [chunk.event for chunk in out.log] == list(range(len(out.log)))


async def test_on_error_is_told_why() -> None:
    told: list[Exception] = []
    out = await agent("error").stream("go", on_error=told.append)
    await out.settled()
    assert [str(error) for error in told] == ["provider went away"]


async def test_a_callback_that_raises_is_a_warning_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_chunk: Any) -> None:
        raise ValueError("mine")

    with caplog.at_level(logging.WARNING, "nbmastra"):
        out = await agent("text").stream("go", on_finish=wrong)
        await out.settled()
    assert out.status == "success"
    assert [(notice.code, notice.text) for notice in out.state.notices] == [("callback", "ValueError: mine")]
    assert "on_finish" in caplog.text


# --- what is wrong is said at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_step": 3}, "did you mean max_steps"),
        ({"max_steps": 0}, "max_steps= takes a whole number above 0"),
        ({"tool_call_concurrency": "2"}, "tool_call_concurrency="),
        ({"on_chunk": 5}, "on_chunk= takes a function"),
        ({"idle_timeout": -1}, "idle_timeout= takes a number above 0"),
        ({"memory": {"thread": "t1"}}, "has no memory"),
        ({"active_tools": ["wether"]}, "active_tools= names 'wether'; there is weather"),
        ({"active_tools": "weather"}, "active_tools= takes a list of names of tools, not 'weather'"),
        ({"memory": "t1"}, "memory= takes a dict"),
        ({"memory": {"threads": "t1"}}, "memory= has no 'threads'; it takes thread, resource, last_messages"),
        ({"request_context": 5}, "request_context= takes a dict, not 5"),
        ({"require_tool_approval": "yes"}, "require_tool_approval= takes True, False or a function"),
        ({"run_id": 5}, "run_id= takes a text"),
        ({"stop_when": [5]}, "stop_when= takes a function of the steps"),
        ({"model_settings": 5}, "model_settings= takes a dict"),
        ({"tool_choice": 5}, "tool_choice= takes auto, none"),
        ({"tool_choice": "wether"}, "tool_choice= names 'wether'; there is weather"),
        ({"abort_signal": 5}, "abort_signal= takes an AbortSignal"),
        ({"instructions": 5}, "instructions= takes a text"),
        ({"tools": [5]}, "tool"),
        ({"schema": {"type": "nonsense"}}, "nonsense"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        agent("tools").stream("hi", **options)


async def test_instructions_may_be_a_system_message() -> None:
    model = ScriptedModel([[say("x")]])
    await (await Agent("a", model=model).stream("hi", instructions={"role": "system", "content": "Only this."})).text
    assert model.requests[0].messages[0] == {"role": "system", "content": "Only this."}


async def test_no_repr_of_a_run_holds_what_a_terminal_would_obey() -> None:
    evil = "\x1b]0;mine\x07\n\u202e"
    model = ScriptedModel([[say("hm"), call_raw(evil, "{}", evil), finish(evil)], [say(evil)]], model_id=evil)
    out = await Agent(evil, model=model).stream("hi")
    await out.settled()
    shown = [out, *out.state.tool_calls, *out.state.steps, *out.state.turns, *out.state.notices, *out.log]
    assert out.state.tool_calls
    assert [text for text in map(repr, shown) if not text.isprintable()] == []


def test_wrong_agents_are_refused() -> None:
    with pytest.raises(SettingsError, match="did you mean max_steps"):
        Agent("a", default_options={"max_stepz": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(SettingsError):
        Agent("", model=ScriptedModel([[say("x")]]))
    with pytest.raises(SettingsError, match="agents= takes agents, in a list or by name, not str"):
        Agent("a", agents=["b"])  # type: ignore[list-item]
    with pytest.raises(SettingsError, match=r"memory= takes a Memory, not str: memory=Memory\('notes.db'\)"):
        Agent("a", memory="notes.db")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="instructions= takes a text"):
        Agent("a", instructions=5)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="messages"):
        agent("text").stream(5)  # type: ignore[arg-type]


def test_a_budget_of_a_model_without_a_price_is_refused() -> None:
    with pytest.raises(Exception, match="price"):
        agent("text").stream("hi", max_cost_usd=1)


async def test_a_budget_stops_the_run() -> None:
    out = await forever().stream("go", max_tokens=20)
    await out.settled()
    await out.aclose()
    assert out.status == "cancelled"
    assert "budget" in out.status_reason
    prices = {"scripted/scripted-1": {"input": 1e6, "output": 1e6}}
    out = await forever().stream("go", max_cost_usd=20, prices=prices)
    await out.settled()
    await out.aclose()
    assert "budget" in out.status_reason


# --- the scripted model ----------------------------------------------------------------------------------------------


async def test_a_scripted_model_counts_from_the_last_user_message_and_repeats_its_last_turn() -> None:
    model = ScriptedModel([[say("one")], [say("two")]], piece_chars=1)
    local = Agent("a", model=model)
    assert await (await local.stream("hi")).text == "one"
    history: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "one"}]
    assert await (await local.stream(history)).text == "two"
    assert await (await local.stream([*history, {"role": "assistant", "content": "two"}])).text == "two"
    assert await (await local.stream([*history, "again"])).text == "one"
    assert len(model.requests) == 4


async def test_a_turn_may_be_a_function_of_the_request() -> None:
    def turn(request: ModelRequest) -> list[Any]:
        return [think("hm"), say(f"you said {request.messages[-1]['content'][0]['text']}"), usage(1, 2)]

    out = await Agent("a", model=ScriptedModel([turn])).stream("hello")
    assert await out.text == "you said hello"
    assert await out.reasoning == "hm"


def test_a_script_that_is_none_is_refused() -> None:
    for wrong in ([], "hi", [say("x")], [["x"]]):
        with pytest.raises(SettingsError):
            ScriptedModel(wrong)  # type: ignore[arg-type]
