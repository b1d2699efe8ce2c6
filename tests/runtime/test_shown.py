"""Local runs in views, tables, recordings and magics: as a server's."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from nbmastra import demo_agent, demo_recording, load_recording
from nbmastra.frames import chunks_df, steps_df, tool_calls_df, usage_df
from nbmastra.recording import record
from nbmastra.runtime import Agent
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import tool
from nbmastra.widgets.live import Act
from nbmastra.widgets.snapshot import snapshot
from tests.runtime.agents import agent
from tests.runtime.wire import chunks
from tests.widgets.views import SteppedView

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


async def ended(local: Any) -> Any:
    """A run to its end."""
    out = await local.stream("hello")
    await out.settled()
    return out


async def test_tables_of_a_local_run_have_its_calls_steps_and_tokens() -> None:
    out = await ended(agent("tools"))
    calls = tool_calls_df(out)
    assert calls[["tool_name", "status"]].values.tolist() == [["weather", "success"], ["weather", "error"]]
    assert steps_df(out)["finish_reason"].tolist() == ["tool-calls", "stop"]
    assert usage_df(out)["input_tokens"].sum() == 45
    assert len(chunks_df(out)) == len(out.log)
    assert out.tool_calls_df()["tool_call_id"].tolist() == ["c1", "c2"]


async def test_a_snapshot_of_a_local_run_shows_calls_errors_and_the_answer() -> None:
    page = snapshot(await ended(agent("tools")))["text/html"]
    for words in ("weather", "no such city", "It is 21 °C in Paris."):
        assert words in page


async def test_a_local_run_is_recorded_and_read_again(tmp_path: Path) -> None:
    out = await ended(agent("supervisor"))
    path = await record(out, tmp_path / "run.jsonl")
    again = load_recording(path)
    assert chunks(again) == chunks(out)
    assert (again.status, again.total.grand_usage) == (out.status, out.total.grand_usage)
    assert again.agent == "supervisor"


async def test_the_demo_says_what_its_recording_of_a_real_server_says() -> None:
    out, recorded = await ended(demo_agent(speed=None)), load_recording(demo_recording())
    assert await out.text == await recorded.text
    assert await out.reasoning == await recorded.reasoning
    assert [(one.tool_name, one.status) for one in out.tool_calls] == [
        (one.tool_name, one.status) for one in recorded.tool_calls
    ]
    assert [one.result for one in out.tool_calls if one.tool_name == "campsites"] == [
        one.result for one in recorded.tool_calls if one.tool_name == "campsites"
    ]
    assert out.total.grand_usage == recorded.total.grand_usage
    assert [run.text for run in out.total.nested] == [run.text for run in recorded.total.nested]
    assert len(out.sources) == len(recorded.sources) == 1


def test_a_local_agent_s_run_is_a_live_view_whose_stop_button_stops_it() -> None:
    began, ended_ = threading.Event(), threading.Event()

    @tool
    async def wait() -> str:
        """Waits for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended_.set()
        return ""

    out = Agent("a", model=ScriptedModel([[say("Let me see."), call("wait")]]), tools=[wait]).stream("go").result()
    view = SteppedView(out)
    assert began.wait(5)
    view.on_act(Act("stop"))
    out.wait(5)
    assert ended_.wait(5)
    assert out.status == "cancelled"
    assert "Let me see." in snapshot(out)["text/html"]
