"""What the tables of calls and tasks promise, from the kernel's side."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pytest

from nbmastra.chunks import parse_chunk
from nbmastra.client import MastraClient
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import ToolContext, tool
from nbmastra.widgets.table_rows import progress_of, tail_words
from nbmastra.widgets.tables import TableWidget
from nbmastra.widgets.tasks_table import TasksTable
from nbmastra.widgets.tool_calls_table import ToolCallsTable
from tests.support import runs
from tests.support.mastra import MastraServer
from tests.support.runs import Wire, inside
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.views import dangers

EVIL = '<img src=x onerror=alert(1)>"\u202e`|'
PNG = {"mimeType": "image/png", "data": "iVBORw0KGgo="}


class SteppedTable(ToolCallsTable):
    """It draws when it is told to, and not by itself."""

    async def _run(self) -> None:
        pass


class SteppedTasks(TasksTable):
    async def _run(self) -> None:
        pass


class Fed:
    """A run that is fed by hand, the n-th chunk of all at n seconds, and its table."""

    def __init__(self, kind: Any = SteppedTable) -> None:
        self.out = MastraModelOutput()
        self.table: TableWidget = kind(self.out)
        self.events = 0

    def feed(self, *chunks: Wire) -> None:
        for item in chunks:
            self.out.feed([parse_chunk(item, event=self.events)], float(self.events))
            self.events += 1
        self.table.draw()  # type: ignore[attr-defined]

    def ops(self) -> list[Any]:
        """What the last message said."""
        return self.table.comm.custom()[-1]["ops"]

    def row(self, key: str) -> dict[str, Any]:
        return dict(self.table.rows.state()["rows"])[key]


def send(table: TableWidget, act: str, key: str = "", arg: str = "", **values: Any) -> None:
    content = {"act": act, "node": key, "arg": arg, "values": values}
    table._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def wait(table: TableWidget, true: Callable[[], bool]) -> None:
    table.comm.wait_until(true, 60)


def statuses(table: TableWidget) -> dict[str, str]:
    return {row["tool"]: row["status"] for _, row in table.rows.state()["rows"]}


# --- tool calls ------------------------------------------------------------------------------------------------------


def test_rows_are_updated_in_place_and_keep_their_order() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a", "wind", {"place": "Rouen", "days": 2}), runs.call("b", "tides"))
    assert [op[:3] for op in fed.ops() if op[0] == "+"] == [["+", "a", None], ["+", "b", "a"]]
    assert fed.row("a")["args"] == 'place="Rouen", days=2'
    assert fed.row("a")["since"] >= 0
    fed.feed(runs.result("b", [{"h": 1}, {"h": 2}]))
    ((kind, key, fields),) = fed.ops()
    assert (kind, key) == ("=", "b")
    assert fields["status"], fields["says"] == ("success", "2 records")
    assert (fields["elapsed"], fields["since"]) == (1.0, None)
    assert fed.table.rows.keys() == ["a", "b"]


def test_calls_of_sub_agents_stand_indented_under_their_parent() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a", "agent-scout"), runs.call("b", "tides"))
    inner = {**runs.call("c", "routes"), "runId": "inner"}
    fed.feed(inside("a", {**runs.step_start(), "runId": "inner"}), inside("a", inner))
    fed.feed(inside("a", {**runs.call("d", "surface"), "runId": "inner"}))
    assert fed.table.rows.keys() == ["a", "c", "d", "b"]
    assert [fed.row(key)["depth"] for key in "acdb"] == [0, 1, 1, 0]
    assert fed.row("d")["parent"] == "a"
    assert fed.row("a")["tags"] == ["agent"]


def test_arguments_show_while_they_are_written() -> None:
    fed = Fed()
    start = runs.chunk("tool-call-input-streaming-start", {"toolCallId": "a", "toolName": "book"})
    fed.feed(runs.step_start(), start)
    for piece in ('{"train": "14:06', ' Dieppe", "sea', 't": 4'):
        delta = {"toolCallId": "a", "toolName": "book", "argsTextDelta": piece}
        fed.feed(runs.chunk("tool-call-delta", delta))
    assert fed.row("a")["args"] == 'train="14:06 Dieppe", seat=4'
    assert (fed.row("a")["status"], fed.row("a")["writing"]) == ("streaming", True)


def test_ids_that_return_in_a_later_step_have_rows_of_their_own() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a"), runs.result("a", 1), runs.step_finish("tool-calls", continued=True))
    fed.feed(runs.step_start(), runs.call("a"))
    assert fed.table.rows.keys() == ["a", "a#2"]
    assert (fed.row("a")["status"], fed.row("a#2")["status"]) == ("success", "running")


def test_what_was_open_ends_with_the_run() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a"))
    fed.out.finish(Ended(False, cancelled="stopped by you"))
    fed.table.draw()  # type: ignore[attr-defined]
    assert (fed.row("a")["status"], fed.row("a")["since"]) == ("cancelled", None)


def test_details_are_made_when_asked_for_and_kept_up_to_date() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a", "wind", {"place": "Rouen"}))
    assert "d" not in fed.row("a")
    send(fed.table, "detail", "a")
    wait(fed.table, lambda: "d" in fed.row("a"))
    assert "Rouen" in fed.row("a")["d"]["args_html"]
    for number in range(30):
        line = f"line {number}: " + "x" * 30
        fed.feed(runs.chunk("tool-output", {"output": line, "toolCallId": "a", "toolName": "wind"}))
    assert fed.row("a")["d_output"].splitlines()[-1] == line
    assert fed.row("a")["says"] == line
    assert [op[0] for op in fed.ops() if op[0] == "~"] == ["~"]  # B48: only what is new
    fed.feed(runs.result("a", [{"hour": hour, "kmh": 11} for hour in range(27)]))
    d = fed.row("a")["d"]
    assert (d["result_words"], d["cut"]) == ("27 records", True)
    assert d["result_html"].count("<tr>") == 5
    send(fed.table, "detail", "a", "all")
    wait(fed.table, lambda: fed.row("a")["d"]["cut"] is False)
    assert fed.row("a")["d"]["result_html"].count("<tr>") == 28


@pytest.mark.parametrize(
    ("value", "html"),
    [(PNG, "<img"), ([{"a": 1}], "<table"), ({"a": {"b": [1]}}, 'class="nbm-json"'), ("text", "<pre"), (None, "null")],
)
def test_a_result_opens_to_what_suits_it(value: Any, html: str) -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a"), runs.result("a", value))
    fed.table._opened.add("a")
    with fed.table.change() as rows:
        fed.table.open_row("a", rows)
    assert html in fed.row("a")["d"]["result_html"]


def test_the_whole_is_copied() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a", "f", {"text": "y" * 5000}), runs.result("a", "x" * 5000))
    for what, whole in (("args", '"' + "y" * 5000), ("result", "x" * 5000)):
        send(fed.table, "copy", "a", what, token=what)
        copies: dict[str, str] = {}

        def came(copies: dict[str, str] = copies, what: str = what) -> bool:
            copies.update({m["copy"]: m["text"] for m in fed.table.comm.custom() if "copy" in m})
            return what in copies

        wait(fed.table, came)
        assert whole in copies[what]


def test_a_row_is_selected_from_code_and_by_a_click() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a"))
    chosen: list[str] = []
    end = fed.table.on_select(chosen.append)
    fed.table.select("a")
    assert fed.table.rows.fact("selected") == "a"
    assert chosen == []
    fed.table.select("")
    send(fed.table, "select", "a")
    wait(fed.table, lambda: (fed.table.rows.fact("selected") == "a" and chosen == ["a"]) or bool(chosen))
    end()
    end()


def test_what_a_model_or_a_server_wrote_acts_nowhere() -> None:
    """B52, B53"""
    fed = Fed()
    value = {EVIL: [EVIL, {"src": f"javascript:{EVIL}"}], "src": "https://evil.example/?q=SECRET"}
    fed.feed(runs.step_start(), runs.call("a", EVIL, value), runs.call("b", EVIL, value), runs.call("c", EVIL, value))
    fed.feed(runs.result("a", value), runs.result("b", [value]))
    fed.feed(runs.chunk("tool-error", {"toolCallId": "c", "toolName": EVIL, "error": {"message": EVIL, "x": value}}))
    fed.table._opened |= set("abc")
    with fed.table.change() as rows:
        for key in "abc":
            fed.table.open_row(key, rows)
    for key in "abc":
        row = fed.row(key)
        assert "\u202e" not in row["tool"] + row["args"] + row["says"]
        html = "".join(str(part) for name, part in row["d"].items() if name.endswith("_html"))
        assert dangers(html) == []
    shot = fed.table.snapshot()
    assert dangers(shot["text/html"]) == []
    assert "<img" not in shot["text/markdown"]
    assert "\u202e" not in "".join(shot.values())


def test_the_static_table_has_the_first_rows_and_says_how_many_there_are() -> None:
    fed = Fed()
    fed.feed(runs.step_start(), *(runs.call(f"c{n}", "wind", {"n": n}) for n in range(1234)))
    shot = fed.table.snapshot()
    assert shot["text/html"].count("<tr>") == 51
    assert "50 of 1,234" in shot["text/html"]
    assert "n=49" in shot["text/plain"]
    assert "n=50" not in shot["text/plain"]
    assert "class=" not in shot["text/html"]
    bundle, _ = fed.table._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(bundle)


def test_a_huge_result_costs_little_in_a_row_and_in_its_details() -> None:
    """50 MB in one result: its row and what it opens to stay small."""
    fed = Fed()
    fed.feed(runs.step_start(), runs.call("a"))
    fed.out.state.tool_calls[0].result = [{"text": "x" * 1000} for _ in range(50_000)]
    fed.out.state.tool_calls[0].has_result, fed.out.state.tool_calls[0].status = True, "success"
    fed.table._opened.add("a")
    fed.table.draw()  # type: ignore[attr-defined]
    assert fed.row("a")["says"] == "50,000 records"
    assert len(str(fed.row("a"))) < 5000


def test_closing_frees_everything(comms: list[RecordingComm]) -> None:
    """B49: a hundred times made, shown and closed, nothing is left."""
    before = len(ipywidgets.widgets.widget._instances)
    threads = threading.active_count()
    refs = []
    for number in range(100):
        out = MastraModelOutput.from_chunks([runs.step_start(), runs.call("a")]) if number % 2 else MastraModelOutput()
        table = ToolCallsTable(out) if number % 3 else TasksTable(out)
        table.close()
        refs.append(weakref.ref(table))
        del table, out
        comms.clear()
    gc.collect()
    for _ in range(100):  # the engine's loop lets go of jobs that were cancelled
        if not any(ref() for ref in refs):
            break
        threading.Event().wait(0.05)
        gc.collect()
    assert [ref for ref in refs if ref() is not None] == []
    assert len(ipywidgets.widgets.widget._instances) == before
    assert threading.active_count() <= threads + 2  # the engine's own


# --- answers ---------------------------------------------------------------------------------------------------------


@tool(require_approval=True)
async def deploy(target: str) -> dict[str, str]:
    """Needs approval."""
    return {"deployed": target}


def test_a_call_that_was_answered_goes_on_in_its_row_and_twice_is_once() -> None:
    """B40: the second click, from wherever, isn't heard."""
    script = [[call("deploy", "d1", target="staging")], [say("Done.")]]
    out = Agent("ops", model=ScriptedModel(script), tools=[deploy]).stream("Deploy").result(20)
    out.wait(20)
    for table in (ToolCallsTable(out), TasksTable(out)):
        row = dict(table.rows.state()["rows"])["d1"]
        assert (row["status"], row["says"]) == ("needs-approval", "asks before it runs")
    assert row["acts"] == ["approve", "decline"]
    calls = ToolCallsTable(out)
    for _ in range(2):
        send(table, "approve", "d1")
    wait(calls, lambda: statuses(calls) == {"deploy": "success"})
    assert calls.rows.keys() == ["d1"]
    assert dict(calls.rows.state()["rows"])["d1"]["args"] == 'target="staging"'
    assert out.next is not None
    assert out.next.next is None


def test_declining_tells_the_model_why() -> None:
    script = [[call("deploy", "d1", target="prod")], [say("Then not.")]]
    out = Agent("ops", model=ScriptedModel(script), tools=[deploy]).stream("Deploy").result(20)
    out.wait(20)
    table = TasksTable(out)
    send(table, "decline", "d1", reason="not on a Friday")
    wait(table, lambda: statuses(table) == {"deploy": "denied"})
    assert "not on a Friday" in dict(table.rows.state()["rows"])["d1"]["says"]


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[BackgroundTaskManager]:
    made = BackgroundTaskManager(tmp_path / "tasks.db", poll_s=0.05, global_concurrency=4)
    yield made
    made.shutdown(0.5).result(10)


class Work:
    """Tools that one lets go on."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.cancelled = 0
        self.answers: list[Any] = []

    async def build(self, n: int, context: ToolContext) -> str:
        """Write how far it is, and wait."""
        context.writer.write({"done": 1, "total": 4, "message": "first of four"})
        try:
            await asyncio.to_thread(self.go.wait, 30)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return f"built {n}"

    async def book(self, context: ToolContext) -> dict[str, Any]:
        """Ask for a price."""
        if context.resume_data is None:
            schema = {"properties": {"max_eur": {"type": "number", "title": "Highest price"}}, "required": ["max_eur"]}
            context.suspend({"question": "Which price is the limit?"}, resume_schema=schema)
        self.answers.append(context.resume_data)
        return {"paid": context.resume_data["max_eur"]}

    async def fail(self) -> None:
        """Fail at first."""
        if not self.go.is_set():
            raise ValueError("no such road")


def test_tasks_are_cancelled_resumed_and_restarted_by_their_rows(manager: BackgroundTaskManager) -> None:
    """B38, B40: each act once, however often it is clicked; a cancelled task stays so."""
    work = Work()
    build = manager.enqueue(work.build, {"n": 1}, agent="a").result(10)
    table = TasksTable(manager)
    wait(table, lambda: statuses(table).get("build") == "running")
    wait(table, lambda: dict(table.rows.state()["rows"])[build.id].get("progress") == 25.0)
    row = dict(table.rows.state()["rows"])[build.id]
    assert (row["says"], row["acts"], row["attempts"]) == ("first of four", ["cancel"], 1)
    for _ in range(2):
        send(table, "cancel", build.id)
    wait(table, lambda: statuses(table)["build"] == "cancelled")
    wait(table, lambda: dict(table.rows.state()["rows"])[build.id]["acts"] == ["restart"])
    work.go.set()

    book = manager.enqueue(work.book, {}, agent="a").result(10)
    wait(table, lambda: statuses(table).get("book") == "suspended")
    send(table, "detail", book.id)
    wait(table, lambda: dict(table.rows.state()["rows"])[book.id].get("d") is not None)
    row = dict(table.rows.state()["rows"])[book.id]
    assert row["says"] == "Which price is the limit?"
    assert [(field["label"], field["kind"]) for field in row["d"]["ask"]["fields"]] == [("Highest price", "number")]
    send(table, "resume", book.id, max_eur="cheap")
    wait(table, lambda: "a number is needed" in (dict(table.rows.state()["rows"])[book.id].get("problem") or ""))
    for _ in range(2):
        send(table, "resume", book.id, max_eur="95")
    wait(table, lambda: statuses(table)["book"] == "completed")
    assert work.answers == [{"max_eur": 95.0}]

    work.go.clear()
    failed = manager.enqueue(work.fail, {}, agent="a", max_retries=0).result(10)
    wait(table, lambda: statuses(table).get("fail") == "failed")
    assert "no such road" in dict(table.rows.state()["rows"])[failed.id]["says"]
    work.go.set()
    for _ in range(2):
        send(table, "restart", failed.id)
    wait(table, lambda: statuses(table)["fail"] == "completed")
    assert len([key for key, row in table.rows.state()["rows"] if row["tool"] == "fail"]) == 2
    assert table.rows.fact("news").startswith("fail")
    table.close()


def test_a_manager_s_table_has_tasks_of_all_runs_and_of_earlier_kernels(
    manager: BackgroundTaskManager, tmp_path: Path
) -> None:
    work = Work()
    work.go.set()
    for number in range(3):
        task = manager.enqueue(work.build, {"n": number}, agent=f"a{number}").result(10)
        manager.wait_for_next(task.id, 20).result(25)
    other = BackgroundTaskManager(tmp_path / "tasks.db", poll_s=0.05)
    table = TasksTable(other)
    wait(table, lambda: len(table.rows) == 3)
    assert [row["says"] for _, row in table.rows.state()["rows"]] == ['"built 0"', '"built 1"', '"built 2"']
    later = manager.enqueue(work.fail, {}, agent="a").result(10)
    wait(table, lambda: later.id in table.rows and statuses(table)["fail"] == "completed")
    table.close()
    other.shutdown(0.5).result(10)


def test_a_run_s_tasks_follow_the_manager_when_the_run_is_over(manager: BackgroundTaskManager) -> None:
    work = Work()
    slow = tool(background=True)(work.build)
    script = [[call("build", "b1", n=7)], [say("It is on its way.")]]
    agent = Agent(
        "builder", model=ScriptedModel(script), tools=[slow], background_tasks=manager, memory=Memory("sqlite://")
    )
    out = agent.stream("Build", memory={"thread": "t", "resource": "u"}).result(20)
    table = TasksTable(out)
    calls = ToolCallsTable(out)
    out.wait(20)
    wait(table, lambda: statuses(table) == {"build": "running"})
    assert dict(table.rows.state()["rows"]).popitem()[1]["acts"] == ["cancel"]
    work.go.set()
    wait(table, lambda: statuses(table) == {"build": "completed"})
    assert calls.rows.keys() == ["b1"]
    assert dict(calls.rows.state()["rows"])["b1"]["tags"] == ["background"]


def test_what_a_source_can_t_do_has_no_button_and_says_why() -> None:
    fed = Fed(SteppedTasks)
    about = {"taskId": "t1", "toolName": "index", "toolCallId": "c1", "agentId": "a", "runId": "r"}
    fed.feed(runs.step_start(), runs.chunk("background-task-running", {**about, "startedAt": "2026-01-01T00:00:00Z"}))
    row = fed.row("t1")
    assert (row["status"], row["acts"]) == ("running", [])
    assert "no way to cancel" in row["why"]
    send(fed.table, "cancel", "t1")
    wait(fed.table, lambda: "no way to cancel" in (fed.row("t1").get("problem") or ""))


@pytest.mark.server
def test_a_server_s_table_has_its_tasks_as_they_come_and_says_that_nothing_can_be_done_to_them(
    mastra_server: MastraServer,
) -> None:
    client = MastraClient(mastra_server.url)
    memory = {"thread": "tasks-table", "resource": "tables"}
    client.agent("suspend").stream("Review", until_idle=True, memory=memory).result(20).wait(30)
    [waits] = client.background_tasks.list(thread="tasks-table", status="suspended").result(20)
    table = TasksTable(client)
    wait(table, lambda: waits.id in table.rows)
    row = dict(table.rows.state()["rows"])[waits.id]
    assert (row["status"], row["acts"]) == ("suspended", [])
    assert "no way to cancel" in row["why"]
    send(table, "cancel", waits.id)
    wait(table, lambda: "no way to cancel" in (dict(table.rows.state()["rows"])[waits.id].get("problem") or ""))
    client.agent("background").stream("Research", until_idle=True, memory=memory).result(20).wait(30)
    ended = {one.id: one.status for one in client.background_tasks.list(thread="tasks-table").result(20)}
    assert len(ended) > 1
    wait(table, lambda: ended.items() <= {key: row["status"] for key, row in table.rows.state()["rows"]}.items())
    table.close()


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "percent", "words"),
    [
        ({"percent": 42, "message": "segment 12"}, 42.0, "segment 12"),
        ({"progress": 0.5}, 50.0, ""),
        ({"done": 3, "total": 4}, 75.0, ""),
        ({"done": 3, "total": 0}, None, ""),
        ({"percent": float("nan")}, None, ""),
        ({"percent": 900}, 100.0, ""),
        ("one\ntwo\n", None, "two"),
        ({"rows": 8760}, None, "{rows: 8760}"),
        (None, None, "null"),
    ],
)
def test_progress_is_read_from_what_tools_write(value: Any, percent: float | None, words: str) -> None:
    assert progress_of(value) == percent
    assert tail_words(value) == words
