"""Stopping a local run: whoever does it, its model's request is closed, its tools are cancelled, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nbmastra.engine import get_engine
from nbmastra.runtime import Agent, Memory, ModelRequest
from nbmastra.runtime.model import ModelEvent, PartDelta, PartStart, ResponseMetadata
from nbmastra.testing import ScriptedModel, call, say, usage
from nbmastra.tools import AbortSignal, ToolContext, tool
from tests.runtime.wire import chunks, plain, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


class Hanging:
    """A model that says something and then nothing more, until it is closed."""

    model_id, provider, native_schema = "hanging-1", "hanging", False

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            yield ResponseMetadata("resp-0", self.model_id, datetime.fromtimestamp(0, UTC))
            yield PartStart("text", "t0")
            yield PartDelta("text", "t0", "Once upon")
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def begun(out: Any) -> None:
    """Wait for the first text."""
    async for _ in out.text_stream:
        return


async def test_cancelling_says_abort_closes_the_request_and_keeps_what_came() -> None:
    model = Hanging()
    memory = Memory("sqlite://")
    out = await Agent("a", model=model, memory=memory).stream("go", memory={"thread": "t", "resource": "u"})
    await begun(out)
    out.cancel()
    await out.settled()
    assert (out.status, out.status_reason) == ("cancelled", "stopped by you")
    assert await out.text == "Once upon"
    assert types(chunks(out))[-2:] == ["abort", "finish"]
    await out.aclose()
    assert model.closed.is_set()
    kept = await memory.messages("t")
    assert [one["role"] for one in kept] == ["user", "assistant"]


async def test_an_aborted_run_ends_as_the_server_s_does() -> None:
    signal = AbortSignal()
    local = Agent("slow", model=Hanging(), memory=Memory("sqlite://"))
    out = await local.stream("go", abort_signal=signal, memory={"thread": "t", "resource": "u"})
    await begun(out)
    signal.abort("enough")
    await out.settled()
    assert (out.status, out.status_reason) == ("cancelled", "enough")
    ours, theirs = plain(chunks(out)), plain(recorded("aborted"))
    assert [one["type"] for one in ours[-2:]] == [one["type"] for one in theirs[-2:]] == ["abort", "finish"]
    for name in ("modelId", "provider"):  # a cut answer isn't signed there
        del ours[-1]["payload"]["response"]["uiMessages"][0]["metadata"][name]
    assert shape(ours[-1]) == shape(theirs[-1])
    assert ours[-1]["payload"]["output"]["usage"] == theirs[-1]["payload"]["output"]["usage"]


def shape(value: Any) -> Any:
    """The keys of it, all the way down; a list by its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("traceId", "timestamp")}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


@pytest.mark.parametrize("how", ["cancel", "signal", "max_seconds", "idle_timeout"])
async def test_tools_are_cancelled_however_the_run_is_stopped(how: str) -> None:
    began, ended = threading.Event(), threading.Event()

    @tool
    async def wait() -> str:
        """Waits for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    signal = AbortSignal()
    bounds: dict[str, Any] = {how: 0.1} if how in ("max_seconds", "idle_timeout") else {}
    local = Agent("a", model=ScriptedModel([[call("wait")]]), tools=[wait])
    out = await local.stream("go", abort_signal=signal, **bounds)
    await asyncio.to_thread(began.wait, 5)
    if how == "cancel":
        out.cancel()
    elif how == "signal":
        signal.abort()
    await out.settled()
    assert out.status == "cancelled"
    await out.aclose()
    assert ended.wait(5)
    assert types(chunks(out))[-2:] == ["abort", "finish"]


async def test_a_tool_s_thread_is_told_by_its_signal() -> None:
    began, told = threading.Event(), threading.Event()

    @tool
    def work(context: ToolContext) -> str:
        """Works until it is told to stop."""
        began.set()
        if context.abort.wait_blocking(5):
            told.set()
        return ""

    out = await Agent("a", model=ScriptedModel([[call("work")]]), tools=[work]).stream("go")
    await asyncio.to_thread(began.wait, 5)
    out.cancel()
    await out.settled()
    assert await asyncio.to_thread(told.wait, 5)


async def test_a_sub_agent_is_stopped_with_its_parent() -> None:
    model = Hanging()
    sub = Agent("sub", model=model)
    out = await Agent("a", model=ScriptedModel([[call("agent-sub", prompt="go")]]), agents=[sub]).stream("go")
    async for chunk in out.full_stream:
        if chunk.type == "tool-output" and b"Once upon" in chunk.body:
            break
    out.cancel()
    await out.settled()
    await out.aclose()
    assert model.closed.is_set()


async def test_on_abort_is_told_the_steps_that_were_finished() -> None:
    told: list[int] = []

    def turn(request: ModelRequest) -> list[Any]:
        return [call("look")]

    @tool
    def look() -> str:
        """Looks."""
        return "x"

    class Then(Hanging):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            model: Any = ScriptedModel([turn]) if len(request.messages) == 1 else Hanging()
            async for event in model.stream(request):
                yield event

    signal = AbortSignal()
    local = Agent("a", model=Then(), tools=[look])
    out = await local.stream("go", abort_signal=signal, on_abort=lambda steps: told.append(len(steps)))
    await begun(out)
    signal.abort()
    await out.settled()
    assert told == [2]
    assert out.steps[0].finish_reason == "tool-calls"


async def test_a_signal_that_was_set_before_stops_the_run_at_once() -> None:
    signal = AbortSignal()
    signal.abort()
    model = ScriptedModel([[say("hi")]])
    out = await Agent("a", model=model).stream("go", abort_signal=signal)
    await out.settled()
    assert (out.status, types(chunks(out))) == ("cancelled", ["start", "abort"])
    assert out.status_reason == "stopped by its abort signal"
    assert model.requests == []


def test_a_run_goes_on_while_nobody_reads_and_ends_with_the_engine() -> None:
    model = Hanging()
    out = Agent("a", model=model).stream("go").result()
    begun = time.monotonic()
    while "Once upon" not in out.state.text_pieces:
        assert time.monotonic() - begun < 5
        out.log.wait_blocking(len(out.log), 0.1)
    out.cancel()
    out.wait(5)
    assert model.closed.wait(5)
    assert not get_engine().closing


async def test_a_model_that_is_no_generator_needs_no_closing() -> None:
    class Events:
        """An iterator without `aclose`."""

        def __init__(self, request: ModelRequest) -> None:
            self._events = aiter(ScriptedModel([[say("plain"), usage(1, 1)]]).stream(request))

        def __aiter__(self) -> Events:
            return self

        async def __anext__(self) -> ModelEvent:
            return await anext(self._events)

    class Plain(Hanging):
        def stream(self, request: ModelRequest) -> Any:
            return Events(request)

    assert await (await Agent("a", model=Plain()).stream("go")).text == "plain"
