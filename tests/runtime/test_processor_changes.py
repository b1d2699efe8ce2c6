"""Processors of local agents: what they see and change, of messages, chunks, requests and results."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.processors import Abort, ProcessorWriter
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import tool
from tests.runtime.test_processors import BlockSecrets, play
from tests.runtime.wire import chunks, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


@tool
async def weather(city: str) -> dict[str, Any]:
    """Current temperature of a city."""
    return {"celsius": 21}


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_what_a_processor_makes_of_a_delta_is_what_is_told_and_kept() -> None:
    def shout(part: dict[str, Any], state: dict[str, Any]) -> dict[str, Any] | None:
        state["count"] = state.get("count", 0) + 1
        if part["type"] == "text-delta":
            part["payload"]["text"] = part["payload"]["text"].upper()
        return None if part["type"] == "source" else part

    model = ScriptedModel([[say("look"), call("weather", city="P")], [say("done")]])
    out = await play(model=model, tools=[weather], output_processors=[shout])
    assert await out.text == "DONE"
    assert (await out.steps)[0].text == "LOOK"
    assert model.requests[1].messages[-2]["content"][0]["text"] == "LOOK"
    assert chunks(out)[-1]["payload"]["output"]["text"] == "DONE"


async def test_dropped_deltas_are_dropped_from_the_conversation_too() -> None:
    def silence(part: dict[str, Any]) -> dict[str, Any] | None:
        return None if part["type"] == "text-delta" and "no" in part["payload"]["text"] else part

    model = ScriptedModel([[say("no no no"), call("weather", city="P")], [say("yes")]])
    out = await play(model=model, tools=[weather], output_processors=[silence])
    assert await out.text == "yes"
    assert (await out.steps)[0].text == ""
    assert [part["type"] for part in model.requests[1].messages[-2]["content"]] == ["tool-call"]


async def test_one_chunk_may_become_several_and_processors_follow_each_other() -> None:
    def twice(part: dict[str, Any]) -> list[dict[str, Any]]:
        return [part, part] if part["type"] == "text-delta" else [part]

    async def star(part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "text-delta":
            part["payload"]["text"] += "*"
        return part

    out = await play([say("a")], output_processors=[twice, star])
    assert await out.text == "a*a*"
    assert chunks(out)[-1]["payload"]["output"]["text"] == "a*a*"


@pytest.mark.parametrize("gives", ["text", 3, [{"no": "type"}], KeyError("nothing")])
async def test_a_stream_processor_that_breaks_is_left_out_and_logged_once(
    caplog: pytest.LogCaptureFixture, gives: Any
) -> None:
    def broken(part: dict[str, Any]) -> Any:
        if isinstance(gives, Exception):
            raise gives
        return gives

    with caplog.at_level(logging.ERROR, "nbmastra"):
        out = await play([say("The cat sat on the mat.")], output_processors=[broken])
    assert await out.text == "The cat sat on the mat."
    assert len(caplog.records) == 1
    assert "broken" in caplog.text


async def test_what_a_processor_makes_of_the_input_is_what_the_model_reads() -> None:
    class Reword:
        """Changes what is said, and the system's words."""

        id = "reword"

        async def process_input(self, messages: list[Any], system_messages: list[Any]) -> dict[str, Any]:
            """Change."""
            messages[-1]["content"][0]["text"] = "HELLO"
            extra = {"role": "system", "content": "Be kind."}
            return {"messages": [extra, *messages], "system_messages": [*system_messages, "Be short."]}

    model = ScriptedModel([[say("ok")]])
    await play(model=model, input_processors=[Reword()])
    assert [message["role"] for message in model.requests[0].messages] == ["system"] * 3 + ["user"]
    words = [message["content"] for message in model.requests[0].messages[:3]]
    assert words == ["Answer.", "Be short.", "Be kind."]
    assert model.requests[0].messages[-1]["content"][0]["text"] == "HELLO"


async def test_a_function_may_change_messages_in_place_or_give_others() -> None:
    def in_place(messages: list[Any]) -> None:
        messages[-1]["content"][0]["text"] += " there"

    def others(messages: list[Any]) -> list[Any]:
        return [*messages, {"role": "user", "content": "and?"}]

    model = ScriptedModel([[say("ok")]])
    out = await play(model=model, input_processors=[in_place, others])
    assert [m["content"][0]["text"] for m in model.requests[0].messages[1:]] == ["hello there", "and?"]
    assert chunks(out)[-1]["payload"]["messages"]["user"][0]["content"][0]["text"] == "hello there"


async def test_an_input_processor_that_raises_fails_the_run() -> None:
    def broken(messages: list[Any]) -> None:
        raise KeyError("nothing")

    out = await play([say("x")], input_processors=[broken])
    assert types(chunks(out)) == ["start", "error"]
    assert out.status == "failed"


async def test_a_step_s_request_may_be_changed_for_that_step_only() -> None:
    class First:
        """Changes the first step's request."""

        id = "first"

        def process_input_step(self, messages: list[Any], step_number: int, tools: list[str]) -> Any:
            """Change."""
            if step_number:
                return None
            assert tools == ["weather"]
            return {
                "messages": [*messages, {"role": "user", "content": "quick"}],
                "system_messages": ["New."],
                "tool_choice": "none",
                "active_tools": [],
                "model_settings": {"temperature": 0.5},
            }

    model = ScriptedModel([[call("weather", city="P")], [say("ok")]])
    await play(model=model, tools=[weather], input_processors=[First()])
    first, second = model.requests
    assert [message["content"] for message in first.messages if message["role"] == "system"] == ["New."]
    assert first.messages[-1]["content"][0]["text"] == "quick"
    assert (first.tool_choice, first.tools, first.settings) == ("none", [], {"temperature": 0.5})
    assert second.messages[0]["content"] == "Answer."
    assert second.tools[0].name == "weather"
    assert "quick" not in str(second.messages)


async def test_the_kept_answer_may_be_changed_after_it_was_told() -> None:
    class Redact:
        """Takes words out of what is kept."""

        id = "redact"

        def process_output_step(self, messages: list[Any]) -> list[Any]:
            """Change."""
            messages[-1]["content"][0]["text"] = "[gone]"
            return messages

    memory = Memory("sqlite://")
    model = ScriptedModel([[say("1234"), call("weather", city="P")], [say("done")]])
    own = Agent("a", model=model, tools=[weather], output_processors=[Redact()], memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    content = model.requests[1].messages[-2]["content"]
    assert content[0]["text"] == "[gone]"
    assert content[1]["type"] == "tool-call"
    assert "1234" not in str(await memory.messages("t"))
    assert chunks(out)[-1]["payload"]["output"]["steps"][0]["content"][0]["text"] == "[gone]"


async def test_a_tool_s_result_may_be_changed_before_anyone_reads_it() -> None:
    class Colder:
        """Changes results."""

        id = "colder"

        async def process_tool_result(self, result: Any, tool_name: str, args: Any) -> Any:
            """Change."""
            assert (tool_name, args) == ("weather", {"city": "P"})
            return {**result, "celsius": 3}

    model = ScriptedModel([[call("weather", city="P")], [say("done")]])
    out = await play(model=model, tools=[weather], output_processors=[Colder()])
    assert out.tool_calls[0].result == {"celsius": 3}
    assert model.requests[1].messages[-1]["content"][0]["output"]["value"] == {"celsius": 3}


async def test_a_tool_s_result_may_block_the_run() -> None:
    class No:
        """Blocks."""

        id = "no"

        def process_tool_result(self, abort: Abort) -> None:
            """Block."""
            abort("bad result")

    out = await play([say("Look."), call("weather", city="P")], tools=[weather], output_processors=[No()])
    assert types(chunks(out))[-2:] == ["tool-call", "tripwire"]
    assert "from" not in chunks(out)[-1]
    assert out.status_reason == "bad result"


async def test_the_whole_result_is_seen_and_may_be_changed_for_memory_or_blocked() -> None:
    class Last:
        """Sees the result."""

        id = "last"

        def process_output_result(self, messages: list[Any], result: dict[str, Any], abort: Abort) -> list[Any]:
            """See."""
            seen.append((result["text"], result["finish_reason"], len(result["steps"])))
            if result["text"] == "bad":
                abort("no such result")
            messages[-1]["content"][0]["text"] = "kept"
            return messages

    seen: list[Any] = []
    memory = Memory("sqlite://")
    own = Agent("a", model=ScriptedModel([[say("told")]]), output_processors=[Last()], memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    assert seen == [("told", "stop", 1)]
    assert await out.text == "told"
    assert "kept" in str(await memory.messages("t"))
    assert "told" not in str(await memory.messages("t"))
    blocked = await play([say("bad")], output_processors=[Last()])
    assert types(chunks(blocked))[-2:] == ["step-finish", "tripwire"]
    assert blocked.status == "tripwire"


async def test_a_step_processor_that_raises_fails_the_run_as_on_the_server() -> None:
    class Broken:
        """Raises."""

        def process_output_step(self, text: str) -> None:
            """Raise."""
            raise KeyError("nothing")

    out = await play([say("x")], output_processors=[Broken()])
    assert types(chunks(out))[-2:] == ["text-end", "error"]
    assert out.status == "failed"


# --- state, scope and settings ----------------------------------------------------------------------------------------


async def test_state_is_shared_by_the_methods_of_a_processor_and_new_in_each_run() -> None:
    class Both:
        """Stands on both sides."""

        id = "both"

        def process_input(self, state: dict[str, Any]) -> None:
            """Note."""
            state["input"] = state.get("input", 0) + 1

        def process_output_stream(self, part: dict[str, Any], state: dict[str, Any], stream_parts: list[Any]) -> Any:
            """Note."""
            state["parts"] = len(stream_parts)
            return part

        def process_output_result(self, state: dict[str, Any]) -> None:
            """Tell."""
            seen.append(dict(state))

    seen: list[dict[str, Any]] = []
    both = Both()
    own = Agent("a", model=ScriptedModel([[say("x")]]), input_processors=[both], output_processors=[both])
    for _ in range(2):
        await (await own.stream("hello")).settled()
    assert seen == [{"input": 1, "parts": 4}, {"input": 1, "parts": 4}]  # text-start, -delta, -end, step-finish


async def test_processors_know_run_agent_thread_and_context() -> None:
    seen: dict[str, Any] = {}

    def note(messages: list[Any], **rest: Any) -> None:
        seen.update(rest)

    own = Agent("a", model=ScriptedModel([[say("x")]]), input_processors=[note], memory=Memory("sqlite://"))
    memory = {"thread": "t", "resource": "u"}
    out = await own.stream("hello", memory=memory, request_context={"k": 1}, run_id="r")
    await out.settled()
    names = ("run_id", "agent_id", "thread_id", "resource_id", "request_context", "retry_count")
    assert [seen[name] for name in names] == ["r", "a", "t", "u", {"k": 1}, 0]


async def test_options_of_a_run_replace_the_agent_s_processors() -> None:
    own = Agent("a", model=ScriptedModel([[say("SECRET")]]), output_processors=[BlockSecrets()])
    out = await own.stream("hello", output_processors=[])
    await out.settled()
    assert await out.text == "SECRET"


class Empty:
    """No processor."""


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("input_processors", BlockSecrets(), "input_processors= takes a list"),
        ("output_processors", [3], "output_processors= takes functions, or objects with a method"),
        ("output_processors", [Empty()], "not Empty"),
        ("output_processors", [BlockSecrets], r"takes objects: BlockSecrets\(\), not the class"),
        ("output_processors", [lambda part, abrot: part], "process_output_stream asks for 'abrot'"),
        ("input_processors", [lambda messages, part: part], "process_input asks for 'part'"),
    ],
)
def test_a_wrong_processor_is_said_at_once(option: str, value: Any, words: str) -> None:
    model = ScriptedModel([[say("x")]])
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=model, **{option: value})
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=model).stream("hello", **{option: value})  # type: ignore[typeddict-item]


async def test_plain_methods_run_in_a_thread_but_for_those_of_chunks() -> None:
    class Where:
        """Notes threads."""

        def process_input(self) -> None:
            """Note."""
            threads.append(threading.get_ident())

        def process_output_stream(self, part: dict[str, Any]) -> dict[str, Any]:
            """Note."""
            threads.append(threading.get_ident())
            return part

    threads: list[int] = []
    where = Where()
    out = await play([say("x")], input_processors=[where], output_processors=[where])

    async def engine_thread() -> int:
        return threading.get_ident()

    engine = await out._engine.start(engine_thread)
    assert threads[0] != engine
    assert set(threads[1:]) == {engine}


async def test_the_prompt_may_be_rewritten_on_its_way_to_the_model_and_is_not_kept() -> None:
    class Short:
        """Shortens."""

        id = "short"

        def process_llm_request(self, prompt: list[Any], step_number: int) -> list[Any]:
            """Change."""
            return [prompt[0], {"role": "user", "content": [{"type": "text", "text": f"step {step_number}"}]}]

    model = ScriptedModel([[say("ok")]])
    out = await play(model=model, input_processors=[Short()])
    assert [message["role"] for message in model.requests[0].messages] == ["system", "user"]
    assert model.requests[0].messages[1]["content"][0]["text"] == "step 0"
    assert chunks(out)[-1]["payload"]["messages"]["user"][0]["content"][0]["text"] == "hello"


async def test_processors_do_not_take_the_schema_from_the_model() -> None:
    class New:
        """Has its own system message."""

        def process_input_step(self, system_messages: list[Any]) -> Any:
            """Change."""
            assert len(system_messages) == 1
            return {"system_messages": ["New."]}

    model = ScriptedModel([[say('{"elements":[]}')]])
    await play(model=model, input_processors=[New()], structured_output={"schema": {"type": "array"}})
    first, second = (message["content"] for message in model.requests[0].messages if message["role"] == "system")
    assert first == "New."
    assert "elements" in second


async def test_a_processor_may_write_data_of_its_own_from_any_thread() -> None:
    class Tell:
        """Tells what it does."""

        def process_input(self, writer: ProcessorWriter) -> None:
            """In a thread."""
            writer.custom({"type": "data-checked", "data": {"input": True}})

        async def process_output_stream(self, part: dict[str, Any], writer: ProcessorWriter) -> dict[str, Any]:
            """On the engine."""
            if part["type"] == "text-delta":
                await writer.custom({"type": "data-delta", "data": part["payload"]["text"], "transient": True})
            return part

        def process_output_step(self, writer: ProcessorWriter) -> None:
            """Wrongly."""
            with pytest.raises(ValueError, match=r"writer\.custom takes"):
                writer.custom({"type": "text-delta"})

    tell = Tell()
    out = await play([say("x")], input_processors=[tell], output_processors=[tell])
    told = [chunk for chunk in chunks(out) if chunk["type"].startswith("data-")]
    assert told == [
        {"type": "data-checked", "data": {"input": True}},
        {"type": "data-delta", "data": "x", "transient": True},
    ]
    kinds = types(chunks(out))
    assert kinds.index("data-delta") == kinds.index("text-delta") - 1
    assert out.status == "success"
