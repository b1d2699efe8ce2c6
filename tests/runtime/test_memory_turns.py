"""What an agent remembers of a thread from one run to the next."""

from __future__ import annotations

from typing import Any

import pytest

from nbmastra.errors import ModelError
from nbmastra.runtime import Agent, Memory
from nbmastra.testing import ScriptedModel, call, fail, say
from tests.runtime.agents import weather

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")

THREAD = {"thread": "t1", "resource": "u1"}


def sent(model: ScriptedModel, index: int) -> list[tuple[str, list[str]]]:
    """Roles and part types of a request."""
    return [(m["role"], [part["type"] for part in m["content"]]) for m in model.requests[index].messages]


async def test_a_thread_is_told_to_the_model_and_goes_on() -> None:
    model = ScriptedModel([[call("weather", city="Paris")], [say("21 degrees.")]])
    local = Agent("a", model=model, tools=[weather], memory=Memory("sqlite://"))
    await (await local.stream("Weather?", memory=THREAD)).text
    await (await local.stream("And now?", memory=THREAD)).text
    assert sent(model, 2) == [
        ("user", ["text"]),
        ("assistant", ["tool-call"]),
        ("tool", ["tool-result"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
    await (await local.stream("Fresh", memory={**THREAD, "last_messages": 0})).text
    assert sent(model, 4) == [("user", ["text"])]
    await (await local.stream("Other", memory={"thread": {"id": "t2"}, "resource": "u1"})).text
    assert sent(model, 6) == [("user", ["text"])]


async def test_a_run_without_a_thread_is_not_remembered() -> None:
    memory = Memory("sqlite://")
    await (await Agent("a", model=ScriptedModel([[say("hi")]]), memory=memory).stream("hi")).text
    assert await memory.threads() == []


async def test_a_failed_run_keeps_what_was_said() -> None:
    memory = Memory("sqlite://")
    local = Agent("a", model=ScriptedModel([[say("half"), fail(ModelError("gone"))]]), memory=memory)
    out = await local.stream("hi", memory=THREAD)
    await out.settled()
    kept: list[Any] = await memory.messages("t1")
    assert [(m["role"], m["content"]["parts"][-1]["text"]) for m in kept] == [("user", "hi"), ("assistant", "half")]


async def test_the_message_of_the_user_is_kept_before_the_model_is_asked() -> None:
    memory = Memory("sqlite://")

    async def turn_saw() -> list[Any]:
        return await memory.messages("t1")

    seen: list[Any] = []

    def turn(_request: Any) -> list[Any]:
        seen.append(memory.store.messages("t1"))
        return [say("ok")]

    await (await Agent("a", model=ScriptedModel([turn]), memory=memory).stream("hi", memory=THREAD)).text
    assert [m["role"] for m in seen[0]] == ["user"]
    assert [m["role"] for m in await turn_saw()] == ["user", "assistant"]


async def test_a_memory_that_fails_fails_the_run_with_its_reason() -> None:
    class Broken:
        """A memory that can't keep anything."""

        async def recall(self, thread: str, resource: str, **_more: Any) -> list[Any]:
            return []

        async def remember(self, thread: str, resource: str, messages: Any) -> None:
            raise OSError("disk full")

    out = await Agent("a", model=ScriptedModel([[say("ok")]]), memory=Broken()).stream("hi", memory=THREAD)
    await out.settled()
    assert (out.status, out.status_reason) == ("failed", "disk full")
