"""The places where others take part in a run: extensions, dispatch of calls, sources of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nbmastra.runtime import Agent, Extension, Tripwire, making
from nbmastra.testing import ScriptedModel, call, call_raw, say
from nbmastra.tools import Tool, ToolContext, as_tool, tool
from tests.runtime.agents import weather
from tests.runtime.wire import chunks, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


def extended(monkeypatch: pytest.MonkeyPatch, *extensions: Extension, **options: Any) -> Agent:
    """An agent whose runs these take part in."""
    monkeypatch.setattr(making, "make_extensions", lambda agent, options: list(extensions))
    script = [[say("Let me look."), call("chatty")], [say("It is 21.")]]

    @tool
    def chatty(context: ToolContext) -> int:
        """Writes."""
        context.writer.write("first")
        context.writer.write("second")
        return 21

    return Agent("a", model=ScriptedModel(script), tools=[chatty], **options)


async def test_an_extension_is_asked_in_order_and_sees_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Notes(Extension):
        """Notes what it is asked."""

        sees_chunks = True

        async def start(self, run: Any) -> None:
            asked.append("start")

        async def before_step(self, run: Any, step: Any) -> None:
            asked.append("before_step")

        async def chunk(self, run: Any, step: Any, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
            if chunk["type"] == "text-delta":
                return [{**chunk, "payload": {**chunk["payload"], "text": chunk["payload"]["text"].upper()}}]
            return [] if chunk["type"] == "tool-output" and chunk["payload"]["output"] == "first" else [chunk]

        async def after_model(self, run: Any, step: Any) -> None:
            asked.append(f"after_model {step.text}")

        async def after_step(self, run: Any, step: Any) -> None:
            asked.append(f"after_step {len(run.results)}")

        async def finish(self, run: Any) -> None:
            asked.append("finish")

    out = await extended(monkeypatch, Notes()).stream("go")
    assert await out.text == "IT IS 21."
    assert asked == [
        "start",
        "before_step",
        "after_model LET ME LOOK.",
        "after_step 1",
        "before_step",
        "after_model IT IS 21.",
        "after_step 2",
        "finish",
    ]
    assert out.message_list[1]["content"][0]["text"] == "LET ME LOOK."
    written = [chunk["payload"]["output"] for chunk in chunks(out) if chunk["type"] == "tool-output"]
    assert written == ["second"]


async def test_what_a_tool_writes_may_trip_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guard(Extension):
        """Blocks."""

        sees_chunks = True

        async def chunk(self, run: Any, step: Any, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
            if chunk["type"] == "tool-output":
                raise Tripwire("not that")
            return [chunk]

    out = await extended(monkeypatch, Guard()).stream("go")
    await out.settled()
    assert (out.status, types(chunks(out))[-1]) == ("tripwire", "tripwire")
    assert "tool-result" not in types(chunks(out))


async def test_an_extension_that_fails_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Extension):
        """Fails."""

        async def after_step(self, run: Any, step: Any) -> None:
            raise ValueError("mine")

    out = await extended(monkeypatch, Broken()).stream("go")
    await out.settled()
    assert (out.status, out.error.message if out.error else "") == ("failed", "mine")


async def test_dispatch_decides_where_a_call_runs_and_the_model_s_wish_never_reaches_the_tool() -> None:
    wished: list[Any] = []

    async def dispatch(run: Any, step_call: Any, tool: Tool, run_tool: Any) -> Any:
        wished.append(step_call.background)
        if step_call.background:
            run.emit(run.writer.write("background-task-started", {"taskId": "t1", "toolCallId": step_call.id}))
            step_call.metadata = {"mastra": {"backgroundTask": {"taskId": "t1", "status": "running"}}}
            return "started t1"
        return await run_tool(None)

    script = [
        [call_raw("weather", '{"city":"Rome","_background":{"disposition":"deferred"}}'), call("weather", city="Oslo")],
        [say("ok")],
    ]
    out = await Agent("a", model=ScriptedModel(script), tools=[weather], dispatch=dispatch).stream("go")
    assert await out.text == "ok"
    assert wished == [{"disposition": "deferred"}, None]
    results = [chunk["payload"] for chunk in chunks(out) if chunk["type"] == "tool-result"]
    by_id = {one["toolCallId"]: one for one in results}
    assert (by_id["c1"]["result"], by_id["c2"]["result"]) == ("started t1", {"celsius": 21})
    assert by_id["c1"]["providerMetadata"]["mastra"]["backgroundTask"]["taskId"] == "t1"


async def test_a_source_of_tools_is_open_while_the_run_is_and_closed_however_it_ends() -> None:
    events: list[str] = []

    class Source:
        """Gives one tool."""

        @asynccontextmanager
        async def open(self) -> AsyncIterator[list[Tool]]:
            events.append("open")
            try:
                yield [as_tool(weather)]
            finally:
                events.append("closed")

    script = [[call("weather", city="Rome")], [say("ok")]]
    out = await Agent("a", model=ScriptedModel(script), mcp=[Source()]).stream("go")
    assert await out.text == "ok"
    assert events == ["open", "closed"]
    out = await Agent("a", model=ScriptedModel([[say("a")]], delay_s=10), mcp=[Source()]).stream("go")
    out.cancel()
    await out.settled()
    await out.aclose()
    assert events in (["open", "closed"], ["open", "closed", "open", "closed"])


async def test_until_idle_without_a_manager_of_tasks_is_a_plain_stream() -> None:
    out = await Agent("a", model=ScriptedModel([[say("hi")]])).stream("go", until_idle=True)
    assert (await out.text, types(chunks(out))[-1]) == ("hi", "finish")
