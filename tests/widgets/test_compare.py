"""Comparisons: every prompt asked of every agent, a few at a time, shown as a matrix."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from typing import Any

import pytest

from nbmastra import Agent, MastraClient, RecordedAgent, compare, demo_recording, tool
from nbmastra.errors import SettingsError
from nbmastra.testing import ScriptedModel, call, fail, say, usage
from nbmastra.widgets.compare import CompareView, ShownComparison
from nbmastra.widgets.compare_snapshot import comparison_snapshot
from nbmastra.widgets.live import Act
from tests.support.feed import engine_tasks
from tests.support.mastra import MastraServer
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.views import dangers, flat

PATIENCE_S = 20


def speaker(name: str, text: str = "It is 4.") -> Agent:
    return Agent(name, model=ScriptedModel([[say(text), usage(10, 5)]]))


def failing(name: str = "bad") -> Agent:
    return Agent(name, model=ScriptedModel([[say("Well"), fail(RuntimeError("<b>rate limit</b>"))]]))


class Gate:
    """An agent whose tool waits until the test lets it go; counts how many wait at the same time."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.now = self.most = 0
        self._lock = threading.Lock()

    def agent(self, name: str = "gated") -> Agent:
        @tool
        def wait(context: Any = None) -> str:
            """Wait."""
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.entered.release()
            assert self.open.wait(PATIENCE_S)
            with self._lock:
                self.now -= 1
            return "through"

        return Agent(name, model=ScriptedModel([[call("wait")], [say("Done.")]]), tools=[wait])


def booker(name: str = "booker") -> Agent:
    @tool(require_approval=True)
    def book(seats: int) -> str:
        """Book seats."""
        return "booked"

    turns = [[call("book", "b1", seats=2), usage(20, 3)], [say("Booked."), usage(30, 4)]]
    return Agent(name, model=ScriptedModel(turns), tools=[book])


def shown(view: CompareView) -> str:
    nodes = view.boot()["nodes"]
    return flat({id: {**node, "h": node["h"] or ""} for id, node in nodes.items()})


def node(view: CompareView, act: str, at: int = 0) -> str:
    nodes = view.boot()["nodes"]
    return [id for id, found in nodes.items() if found["a"].get("data-nbm-act") == act][at]


def test_every_agent_is_asked_every_prompt_and_the_table_has_a_row_for_each() -> None:
    """Local agents and recorded ones; one failure is its cell's alone."""
    recorded = RecordedAgent(demo_recording(), speed=None)
    comparison = compare([speaker("a"), failing(), recorded, recorded], ["One?", "Two?"], limit=3)
    assert comparison.wait(PATIENCE_S) is comparison
    assert list(comparison.agents) == ["a", "bad", "trip", "trip 2"]
    assert [cell.status for cell in comparison.cells] == ["success", "failed", "success", "success"] * 2
    assert len(comparison.outs) == 8
    frame = comparison.df()
    assert list(frame.columns[:4]) == ["prompt", "agent", "status", "answer"]
    assert list(frame["prompt"]) == ["One?"] * 4 + ["Two?"] * 4
    assert frame["answer"][0] == "It is 4."
    assert frame["total_tokens"][0] == 15
    assert comparison[1, "bad"].out is comparison[1, 1].out
    assert "rate limit" in frame["error_message"][1]


async def test_a_comparison_is_awaited_until_nothing_runs_any_more() -> None:
    comparison = await compare({"left": speaker("x"), "right": speaker("x", "It is 5.")}, "How much?")
    assert [cell.answer for cell in comparison.cells] == ["It is 4.", "It is 5."]
    assert repr(comparison) == "<Comparison of 2 agents on 1 prompts, 2 of 2 ended>"


def test_no_more_run_at_a_time_than_the_limit_and_queued_cells_are_in_the_table() -> None:
    gate = Gate()
    comparison = compare([gate.agent("a"), gate.agent("b")], ["1", "2", "3"], limit=2)
    for _ in range(2):
        assert gate.entered.acquire(timeout=PATIENCE_S)
    assert list(comparison.df()["status"]) == ["running", "running", *["queued"] * 4]
    gate.open.set()
    comparison.wait(PATIENCE_S)
    assert gate.most == 2
    assert list(comparison.df()["status"]) == ["success"] * 6


def test_stop_all_ends_what_runs_begins_nothing_more_and_keeps_what_came(comms: list[RecordingComm]) -> None:
    gate = Gate()
    comparison = compare(gate.agent(), ["1", "2", "3"], limit=1)
    view = comparison.view()
    assert gate.entered.acquire(timeout=PATIENCE_S)
    stop = node(view, "stop")
    view._handle_custom_msg({"act": "stop", "node": stop}, [])
    view._handle_custom_msg({"act": "stop", "node": stop}, [])
    comparison.wait(PATIENCE_S)
    gate.open.set()
    assert [cell.status for cell in comparison.cells] == ["cancelled"] * 3
    assert len(comparison.outs) == 1
    assert view.ended.wait(PATIENCE_S)
    assert "Comparison over: 3 of 3 finished" in shown(view)
    assert 'aria-valuetext="3 of 3 finished"' in shown(view)


def test_a_cell_that_waits_is_answered_in_the_matrix_and_goes_on(comms: list[RecordingComm]) -> None:
    comparison = compare([booker(), speaker("a")], ["Book."]).wait(PATIENCE_S)
    assert [cell.status for cell in comparison.cells] == ["needs-approval", "success"]
    view = comparison.view()
    assert view.ended.wait(PATIENCE_S)
    assert "book asks for your approval" in shown(view)
    view.on_act(Act("approve", node=node(view, "approve")))
    comms[-1].wait_until(lambda: "Booked." in str(comms[-1].sent), PATIENCE_S)
    comparison.outs[0].wait(PATIENCE_S)
    assert comparison.cells[0].status == "success"
    assert comparison.cells[0].tokens == 57
    assert len(comparison.cells[0].chain) == 2


def test_a_cell_opens_to_its_whole_run_and_closes_again(comms: list[RecordingComm]) -> None:
    comparison = compare([RecordedAgent(demo_recording(), speed=None)], ["Where?"]).wait(PATIENCE_S)
    view = comparison.view()
    assert view.ended.wait(PATIENCE_S)
    assert "nbm-call" not in shown(view)
    view.on_act(Act("open", node=node(view, "open")))
    comms[-1].wait_until(lambda: "nbm-call" in str(comms[-1].custom()))
    assert 'aria-expanded="true"' in shown(view)
    view.on_act(Act("open", node=node(view, "open")))
    comms[-1].wait_until(lambda: "'aria-expanded': 'false'" in str(comms[-1].custom()[-1]))
    assert "nbm-call" not in shown(view)


def test_what_agents_say_is_safe_in_cells_and_in_the_plain_output() -> None:
    evil = "<img src=x onerror=alert(1)> **bold** | <script>alert(1)</script> [x](javascript:alert(1))"
    comparison = compare([speaker(evil[:50], evil), failing()], [evil]).wait(PATIENCE_S)
    view = comparison.view()
    assert view.ended.wait(PATIENCE_S)
    bundle = comparison_snapshot(comparison)
    assert dangers(shown(view)) == []
    assert dangers(bundle["text/html"]) == []
    assert re.search(r"(?<!\\)<", bundle["text/markdown"]) is None
    assert "&lt;b&gt;rate limit" in bundle["text/html"]
    assert "✕ bad" in bundle["text/plain"]


def test_wrong_agents_prompts_and_limits_are_refused_at_once() -> None:
    for agents, prompts, limit in (
        ([], "x", 1),
        (["weather"], "x", 1),
        ([speaker("a")], [], 1),
        ([speaker("a")], "x", 0),
    ):
        with pytest.raises(SettingsError):
            compare(agents, prompts, limit=limit)


def test_an_agent_that_cannot_be_asked_fails_in_its_cell() -> None:
    comparison = compare([speaker("a"), speaker("b")], "x", memory={"thread": "t"}).wait(PATIENCE_S)
    assert [cell.status for cell in comparison.cells] == ["failed", "failed"]
    assert "has no memory" in comparison.df()["error_message"][0]


def test_closed_views_are_freed_and_the_runs_go_on(comms: list[RecordingComm]) -> None:
    gate = Gate()
    comparison = compare(gate.agent(), ["1"])
    views: list[weakref.ref[Any]] = []
    for _ in range(20):
        view = comparison.view()
        views.append(weakref.ref(view))
        view.close()
    del view
    comms.clear()
    assert comparison._watchers == []
    gate.open.set()
    assert isinstance(comparison.wait(PATIENCE_S), ShownComparison)
    while any("_pump" in where for where in engine_tasks().values()):
        pass  # each question gives the loop a turn
    gc.collect()
    assert [ref for ref in views if ref() is not None] == []


@pytest.mark.server
def test_agents_of_a_server_stand_beside_local_ones(mastra_server: MastraServer) -> None:
    remote = MastraClient(mastra_server.url).agent("tools")
    comparison = compare([remote, speaker("local"), MastraClient(mastra_server.url).agent("nobody")], "Weather?")
    comparison.wait(PATIENCE_S)
    assert [cell.status for cell in comparison.cells] == ["success", "success", "failed"]
    assert "21 °C" in comparison.cells[0].answer
    assert "nobody" in comparison.cells[2].problem
