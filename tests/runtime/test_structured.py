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
from nbmastra.testing import ScriptedModel, call, fail, finish, say, usage
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
