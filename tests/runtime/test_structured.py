"""Structured output of local agents: chunks as a real server has them, objects that fit, and what happens else."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter

from nbmastra.errors import MastraStreamError, ObjectError, SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Agent
from nbmastra.testing import ScriptedModel, call, fail, finish, say, think, usage
from nbmastra.tools import tool
from tests.runtime.agents import ANSWER, agent
from tests.runtime.test_same_chunks import comparable
from tests.runtime.wire import chunks, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


class Person(BaseModel):
    """A schema of the tests."""

    name: str
    age: int | None = None
    tags: list[str] = []


class Item(BaseModel):
    """An element of a list."""

    n: int


@tool
async def weather(city: str) -> dict[str, Any]:
    """Current temperature of a city."""
    return {"celsius": 21}


def made(chunks_of: list[dict[str, Any]], kind: str) -> list[Any]:
    """The objects of the chunks of a type."""
    return [chunk["object"] for chunk in chunks_of if chunk["type"] == kind]


def without_own_words(of: list[Any]) -> list[Any]:
    """What a validator says is in its own words."""
    for chunk in of:
        if chunk["type"] == "error":
            chunk["payload"]["error"]["message"] = chunk["payload"]["error"]["message"].partition(":")[0]
    return of


async def play(*turns: list[Any], structured: Any, **more: Any) -> MastraModelOutput:
    """A run of a scripted agent with structured output, to its end."""
    options = {key: more.pop(key) for key in ("piece_chars", "native_schema") if key in more}
    own = Agent("a", model=ScriptedModel(turns, **options), instructions="Answer.", **more)
    out = await own.stream("hello", structured_output=structured)
    await out.settled()
    return out


async def played(name: str, script: list[Any], schema: Any, chars: int = 5) -> MastraModelOutput:
    """A run of the script of a recorded agent."""
    own = Agent(name, model=ScriptedModel(script, piece_chars=chars), instructions="Answer.")
    out = await own.stream("hello", structured_output={"schema": schema})
    await out.settled()
    return out


async def test_an_object_has_the_server_s_chunks() -> None:
    script = [[say('{"name":"Ada","age":36,"tags":["math","code"]}'), usage(11, 22)]]
    out = await played("object", script, Person)
    assert comparable(chunks(out)) == comparable(recorded("object"))
    assert await out.object == Person(name="Ada", age=36, tags=["math", "code"])


async def test_a_list_is_wrapped_for_the_model_and_bare_in_the_server_s_chunks() -> None:
    script = [[say('{"elements":[{"n":1},{"n":2},{"n":3}]}'), usage(11, 22)]]
    out = await played("list", script, list[Item])
    assert comparable(chunks(out)) == comparable(recorded("list"))
    assert await out.object == [Item(n=1), Item(n=2), Item(n=3)]
    assert [one async for one in out.element_stream] == [Item(n=1), Item(n=2), Item(n=3)]


async def test_an_answer_that_does_not_fit_fails_with_the_server_s_chunks() -> None:
    out = await agent("text").stream("hello", structured_output={"schema": {"type": "object"}})
    await out.settled()
    ours = without_own_words(comparable(chunks(out)))
    assert ours == without_own_words(comparable(recorded("object-invalid")))
    assert out.status == "failed"
    with pytest.raises(MastraStreamError, match="Structured output validation failed"):
        await out.object
    assert ANSWER in (await out.get_full_output()).text


# --- kinds of objects ------------------------------------------------------------------------------------------------


class Colour(Enum):
    """Words."""

    RED = "red"
    REDDISH = "reddish"
    GREEN = "green"


@pytest.mark.parametrize("schema", [Literal["red", "reddish", "green"], Colour])
async def test_words_are_wrapped_for_the_model_and_shown_as_soon_as_they_are_certain(schema: Any) -> None:
    out = await play([say('{"result":"green"}')], structured=TypeAdapter(schema), piece_chars=1)
    assert made(chunks(out), "object") == ["green"]
    red = await play([say('{"result":"red"}')], structured={"schema": schema}, piece_chars=4)
    assert made(chunks(red), "object") == ["r", "red"]  # red may still become reddish
    assert await red.object == (Colour.RED if schema is Colour else "red")
    assert [value async for value in red.object_stream] == ["r", "red"]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [(bool, "false", False), (int, "0", 0), (str, '""', ""), (type(None), "null", None), (int, "42", 42)],
)
async def test_falsy_values_are_objects(schema: Any, text: str, value: Any) -> None:
    out = await play([say(text)], structured={"schema": schema}, piece_chars=2)
    kinds = types(chunks(out))
    assert kinds[kinds.index("text-end") + 1] == "object-result"
    assert made(chunks(out), "object-result") == [value]
    assert await out.object == value
    assert (await out.get_full_output()).object_error is None
    assert ("object" in chunks(out)[-1]["payload"]["output"]) == bool(value)  # as on the server


async def test_empty_containers_are_objects() -> None:
    assert await (await play([say("{}")], structured={"type": "object"})).object == {}
    empty = await play([say('{"elements":[]}')], structured=list[int])
    assert await empty.object == []
    assert made(chunks(empty), "object") == [[]]
    assert chunks(empty)[-1]["payload"]["output"]["object"] == []


async def test_texts_of_a_list_show_when_they_are_complete() -> None:
    out = await play([say('{"elements":["ab","cd",""]}')], structured=list[str], piece_chars=3)
    assert made(chunks(out), "object") == [[], ["ab"], ["ab", "cd"]]  # as the server has it
    assert await out.object == ["ab", "cd", ""]


async def test_a_bare_list_is_read_too() -> None:
    out = await play([say("[1, 2]")], structured=list[int])
    assert await out.object == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "Ada"}\n```',
        '```json {"name": "Ada"}```\nThere you are.',
        'Here it is: {"name": "Ada"}. Ok?',
        'First {"no": 1}, or rather {"name": "Ada"}',
        '<|channel|>final <|constrain|>json<|message|>{"name": "Ada"}',
        '  \n {"name": "Ada"} trailing words',
    ],
)
async def test_the_object_is_found_in_fences_prose_and_behind_marks(text: str) -> None:
    out = await play([say(text)], structured=Person, piece_chars=3)
    assert await out.object == Person(name="Ada")


async def test_line_breaks_within_strings_are_let_pass() -> None:
    out = await play([say('{"name": "A\n\tda \\" \\\\"}')], structured=Person, piece_chars=2)
    assert await out.object == Person(name='A\n\tda " \\')


# --- what doesn't fit ------------------------------------------------------------------------------------------------


async def test_a_misfit_tells_path_code_and_what_was_said() -> None:
    out = await play([say('{"name": "Ada", "age": "old"}')], structured=Person)
    error = next(chunk for chunk in chunks(out) if chunk["type"] == "error")["payload"]["error"]
    assert error["code"] == "STRUCTURED_OUTPUT_SCHEMA_VALIDATION_FAILED"
    assert error["details"] == {"value": '{"name":"Ada","age":"old"}'}
    assert "age" in error["message"]
    assert (error["domain"], error["category"]) == ("AGENT", "SYSTEM")
    assert "object-result" not in types(chunks(out))


@pytest.mark.parametrize("reason", ["length", "content-filter"])
async def test_an_answer_that_was_cut_off_is_no_object_even_if_it_would_fit(reason: str) -> None:
    out = await play([say('{"name": "Ada"'), finish(reason)], structured=Person)
    error = next(chunk for chunk in chunks(out) if chunk["type"] == "error")["payload"]["error"]
    assert error["code"] == "STRUCTURED_OUTPUT_TRUNCATED"
    assert error["details"] == {"finishReason": reason, "value": '{"name": "Ada"'}
    assert out.status == "failed"


async def test_warn_goes_on_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nbmastra"):
        out = await play([say("Hello")], structured={"schema": Person, "error_strategy": "warn"})
    assert types(chunks(out))[-3:] == ["text-end", "step-finish", "finish"]
    assert out.status == "success"
    assert await out.text == "Hello"
    assert len(caplog.records) == 1
    assert "isn't the object" in caplog.text
    with pytest.raises(ObjectError):
        await out.object


@pytest.mark.parametrize("fallback", [Person(name="nobody"), {"name": "nobody", "age": None, "tags": []}])
async def test_a_fallback_takes_the_place_of_an_answer_that_does_not_fit(fallback: Any) -> None:
    settings = {"schema": Person, "error_strategy": "fallback", "fallback_value": fallback}
    out = await play([say("Hello")], structured=settings)
    result = next(chunk for chunk in chunks(out) if chunk["type"] == "object-result")
    assert result["metadata"] == {"fallback": True}
    assert await out.object == Person(name="nobody")
    assert await out.used_fallback_value is True
    assert (await out.get_full_output()).used_fallback_value is True
    fine = await play([say('{"name": "Ada"}')], structured=settings)
    assert await fine.object == Person(name="Ada")
    assert await fine.used_fallback_value is False


@pytest.mark.parametrize("fallback", [None, False, "n/a"])
async def test_a_fallback_need_not_fit(fallback: Any) -> None:
    settings = {"schema": Person, "error_strategy": "fallback", "fallback_value": fallback}
    out = await play([say("Hello")], structured=settings)
    assert await out.object == fallback
    assert await out.used_fallback_value is True


async def test_no_text_is_no_object_and_no_error_as_on_the_server() -> None:
    out = await play([usage(1, 0)], structured=Person)
    assert types(chunks(out)) == ["start", "step-start", "step-finish", "finish"]


async def test_what_is_said_beside_tool_calls_need_not_be_the_object() -> None:
    out = await play(
        [say("Let me look."), call("weather", city="P")], [say('{"name": "Ada"}')], structured=Person, tools=[weather]
    )
    assert await out.object == Person(name="Ada")
    assert out.status == "success"
    assert types(chunks(out)).count("object-result") == 1


# --- how the model is asked ------------------------------------------------------------------------------------------


async def request(structured: Any, **more: Any) -> Any:
    """What a model is asked."""
    model = ScriptedModel([[say('{"elements": [], "name": "x"}')]], **more)
    out = await Agent("a", model=model, instructions="Answer.").stream("hello", structured_output=structured)
    await out.settled()
    return model.requests[0]


async def test_a_model_with_schemas_of_its_own_is_given_one_others_are_told() -> None:
    native = await request({"schema": list[Item]}, native_schema=True)
    assert native.response_schema["required"] == ["elements"]
    assert "$defs" in native.response_schema
    assert [message["role"] for message in native.messages] == ["system", "user"]
    told = await request({"schema": list[Item]})
    assert told.response_schema is None
    assert '"elements"' in told.messages[1]["content"]
    assert [message["role"] for message in told.messages] == ["system", "system", "user"]


async def test_the_mode_can_be_chosen_and_the_instructions_written() -> None:
    instructed = await request({"schema": Person, "mode": "instruct", "instructions": "Give JSON."}, native_schema=True)
    assert instructed.response_schema is None
    assert instructed.messages[1]["content"] == "Give JSON."
    native = await request({"schema": Person, "mode": "native"})
    assert native.response_schema["title"] == "Person"


# --- a model of its own ----------------------------------------------------------------------------------------------


async def structure(*turns: Any, settings: dict[str, Any] | None = None, retries: int = 0) -> MastraModelOutput:
    """A run whose answer another model makes an object of."""
    answers = iter(turns)
    other = ScriptedModel([lambda _: next(answers)], piece_chars=9)
    own = Agent("a", model=ScriptedModel([[say("Ada is 36.")]]), instructions="Answer.", max_processor_retries=retries)
    out = await own.stream("hello", structured_output={"schema": Person, "model": other, **(settings or {})})
    await out.settled()
    return out


async def test_another_model_makes_the_object_of_the_answer() -> None:
    out = await structure([say('{"name":"Ada","age":36}')])
    objects = [chunk for chunk in chunks(out) if chunk["type"].startswith("object")]
    assert [chunk["object"] for chunk in objects] == [
        {"name": ""},
        {"name": "Ada"},
        {"name": "Ada", "age": 36},
        {"name": "Ada", "age": 36},
    ]
    assert all(chunk["metadata"] == {"from": "structured-output"} for chunk in objects)
    assert types(chunks(out))[-6:-4] == ["object", "object"]
    assert await out.object == Person(name="Ada", age=36)
    assert await out.text == "Ada is 36."


async def test_the_other_model_reads_answer_thoughts_and_tools() -> None:
    other = ScriptedModel([[say('{"name":"Ada"}')]])
    model = ScriptedModel([[call("weather", city="P")], [say("Ada.")]])
    own = Agent("a", model=model, instructions="Answer.", tools=[weather])
    settings = {"schema": Person, "model": other, "instructions": "Take names."}
    out = await own.stream("hello", structured_output=settings)
    assert await out.object == Person(name="Ada")
    (asked,) = other.requests
    assert asked.messages[0]["content"] == "Take names."
    text = asked.messages[-1]["content"][0]["text"]
    assert all(words in text for words in ("# Answer\nAda.", "weather", '{"city":"P"}', '{"celsius":21}'))
    assert '"name"' in model.requests[0].messages[1]["content"]  # the agent's model knows what it is for


async def test_an_object_that_can_not_be_made_blocks_the_answer_or_has_it_tried_again() -> None:
    blocked = await structure([say("nope")])
    assert types(chunks(blocked))[-3:] == ["text-end", "step-finish", "finish"]
    assert blocked.status == "tripwire"
    noted = chunks(blocked)[-1]["payload"]["output"]["steps"][-1]["tripwire"]
    assert noted["retry"] is True
    assert noted["processorId"] == "structured-output"
    again = await structure([say("nope")], [say('{"name":"Ada"}')], retries=1)
    assert [step.finish_reason for step in await again.steps] == ["retry", "stop"]
    assert await again.object == Person(name="Ada")


@pytest.mark.parametrize("turn", [[say("nope")], [say('{"name": 5}')], [fail(RuntimeError("no such model"))]])
async def test_warn_and_fallback_hold_for_another_model_too(turn: list[Any]) -> None:
    warned = await structure(turn, settings={"error_strategy": "warn"})
    assert warned.status == "success"
    assert "object-result" not in types(chunks(warned))
    replaced = await structure(turn, settings={"error_strategy": "fallback", "fallback_value": {"name": "x"}})
    assert await replaced.object == Person(name="x")
    assert await replaced.used_fallback_value is True


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [Person, TypeAdapter(Person), Person.model_json_schema(), {"schema": Person}])
async def test_a_schema_alone_will_do(given: Any) -> None:
    out = await play([say('{"name":"Ada"}')], structured=given)
    assert Person.model_validate(await out.object) == Person(name="Ada")


async def test_schema_is_an_option_of_its_own() -> None:
    own = Agent("a", model=ScriptedModel([[say('{"name":"Ada"}')]]))
    out = await own.stream("hello", schema=Person)
    assert await out.object == Person(name="Ada")
    full = await own.generate("hello", schema=Person)
    assert full.object == Person(name="Ada")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "structured_output= needs a schema"),
        ({"schema": 3}, "a schema is a pydantic model"),
        ({"schema": {"type": "nothing"}}, "not a JSON schema"),
        ({"schema": Person, "mode": "magic"}, "mode= is native, instruct or None, not 'magic'"),
        ({"schema": Person, "error_strategy": "ignore"}, "error_strategy= is strict, warn or fallback"),
        ({"schema": Person, "error_strategy": "fallback"}, 'error_strategy="fallback" needs a fallback_value'),
        ({"schema": Person, "strategy": "warn"}, "structured_output= has no 'strategy'"),
        ({"schema": Person, "instructions": 3}, "instructions= of structured_output is a text"),
        ({"schema": Person, "error_strategy": "fallback", "fallback_value": object()}, "fallback_value is no JSON"),
        ({"schema": Person, "model": 3}, "model"),
        (3, "a schema is a pydantic model"),
    ],
)
def test_wrong_structured_output_is_said_at_once(given: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=ScriptedModel([[say("x")]])).stream("hello", structured_output=given)


async def test_prose_is_no_empty_list() -> None:
    out = await play([say("There are none.")], structured=list[int])
    assert out.status == "failed"
    assert "object-result" not in types(chunks(out))


async def test_what_a_structuring_model_thinks_is_not_the_agent_s_thought() -> None:
    out = await structure([think("hm"), say('{"name":"Ada"}')])
    assert await out.reasoning == ""
    assert await out.object == Person(name="Ada")
