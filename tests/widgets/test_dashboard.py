"""Dashboards: which runs they list, what they make for the selected one, and that closing frees all of it."""

from __future__ import annotations

import gc
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import ipywidgets
import pytest

from nbmastra import Agent, Dashboard, MastraClient, compare, demo_agent, tool
from nbmastra.engine import get_engine
from nbmastra.errors import ControlError, SettingsError
from nbmastra.hooks import hooks
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import BackgroundTaskManager, Memory
from nbmastra.testing import ScriptedModel, call, fail, say, usage
from nbmastra.widgets import dashboard_view
from nbmastra.widgets.approvals import ApprovalsView
from nbmastra.widgets.dashboard_view import ALL_TASKS, WAITING, DashboardView
from nbmastra.widgets.live import Act, LiveWidget
from nbmastra.widgets.run_view import RunView
from nbmastra.widgets.tasks_table import TasksTable
from nbmastra.widgets.timeline import Timeline
from nbmastra.widgets.tool_calls_table import ToolCallsTable
from nbmastra.widgets.usage_view import UsageView
from tests.support.feed import engine_tasks
from tests.support.kernel import Kernel
from tests.support.mastra import MastraServer
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.views import dangers, flat

PATIENCE_S = 20
COMPLETED = """\
from IPython.core.completer import provisionalcompleter
line = "%mastra dashboard "
with provisionalcompleter():
    print([one.text for one in get_ipython().Completer.completions(line, len(line))])
"""


def run(text: str = "It is 4.", prompt: str = "2 + 2?") -> MastraModelOutput:
    agent = Agent("helper", model=ScriptedModel([[say(text), usage(10, 5)]]))
    return agent.stream(prompt).result(PATIENCE_S).wait(PATIENCE_S)


def booking() -> MastraModelOutput:
    @tool(require_approval=True)
    def book(seats: int) -> str:
        """Book seats."""
        return "booked"

    model = ScriptedModel([[call("book", "b1", seats=2)], [say("Booked.")]])
    return Agent("booker", model=model, tools=[book]).stream("Book.").result(PATIENCE_S).wait(PATIENCE_S)


def shown(widget: LiveWidget) -> str:
    nodes = widget.boot()["nodes"]
    return flat({id: {**node, "h": node["h"] or ""} for id, node in nodes.items()})


def node(widget: LiveWidget, words: str) -> str:
    """The button whose own or children's text holds some words."""
    nodes = widget.boot()["nodes"]

    def text(id: str) -> str:
        return (nodes[id]["h"] or "") + "".join(map(text, nodes[id]["k"]))

    return next(id for id, found in nodes.items() if found["t"] == "button" and words in text(id))


def until(view: DashboardView, widget: LiveWidget, true: Callable[[], bool]) -> None:
    """Return when something is so: looked at after each message of a part of the dashboard."""
    comm: Any = widget.comm
    while True:
        told = len(comm.sent)
        settle()
        if true():
            return
        comm.wait_until(lambda told=told: len(comm.sent) > told, PATIENCE_S)


def settle() -> None:
    """Give the engine's loop a turn."""

    async def nothing() -> None:
        pass

    get_engine().start(nothing).result(PATIENCE_S)


def click(view: DashboardView, widget: LiveWidget, words: str) -> None:
    widget.on_act(Act("click", node=node(widget, words)))
    settle()


def panel(view: DashboardView) -> Any:
    children = view._panel.children
    return children[0] if children else None


# --- which runs ------------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_with_status_and_numbers() -> None:
    bad = Agent("bad", model=ScriptedModel([[say("x"), fail(RuntimeError("<i>rate limit</i>"))]]))
    outs = [run(), bad.stream("<b>Why?</b>").result(PATIENCE_S).wait(PATIENCE_S), booking()]
    view = Dashboard(outs).view()
    until(view, view._list, lambda: "Book." in shown(view._list))
    html = shown(view._list)
    assert html.index("Book.") < html.index("&lt;b&gt;Why?") < html.index("2 + 2?")
    assert "helper, 15 tokens" in html
    assert "bad, &lt;i&gt;rate limit" in html
    assert "booker, book asks for your approval" in html
    assert "Needs you <b>1</b>" in shown(view._bar)
    assert dangers(html) == []
    view.close()


def test_filters_and_search_leave_the_runs_that_fit() -> None:
    view = Dashboard([run(), booking()]).view()
    until(view, view._list, lambda: "Book." in shown(view._list))
    click(view, view._bar, "Needs you")
    assert shown(view._list).count("<li hidden") == 1
    click(view, view._bar, "All")
    field = next(id for id, n in view._bar.boot()["nodes"].items() if n["t"] == "input")
    view._bar.on_act(Act("search", values={"search": "nothing like it"}, node=field))
    settle()
    assert shown(view._list).count("<li hidden") == 2
    assert "No run fits the filters." in shown(view._list)
    view.close()


def test_without_a_source_every_run_that_begins_in_the_kernel_is_listed_until_it_is_closed() -> None:
    dashboard = Dashboard()
    first = run()
    comparison = compare(Agent("b", model=ScriptedModel([[say("x")]])), ["1", "2"]).wait(PATIENCE_S)
    assert dashboard.outs == [first, *comparison.outs]
    dashboard.close()
    run()
    assert len(dashboard.outs) == 3
    assert hooks.listeners == []


def test_a_run_that_goes_on_after_an_answer_stays_one_run() -> None:
    out = booking()
    dashboard = Dashboard([out])
    after = out.approve().result(PATIENCE_S).wait(PATIENCE_S)
    dashboard.add(after)
    assert dashboard.outs == [after]


def test_a_comparison_brings_its_runs_as_they_begin() -> None:
    gate = threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        assert gate.wait(PATIENCE_S)
        return "through"

    agent = Agent("a", model=ScriptedModel([[call("wait")], [say("Done.")]]), tools=[wait])
    comparison = compare(agent, ["1", "2"], limit=1)
    dashboard = Dashboard(comparison)
    gate.set()
    comparison.wait(PATIENCE_S)
    assert dashboard.outs == comparison.outs
    assert len(dashboard.outs) == 2
    dashboard.close()


def test_what_has_no_runs_is_refused() -> None:
    with pytest.raises(SettingsError):
        Dashboard(["weather"])
    with pytest.raises(ControlError):
        Dashboard([]).observe("r", "a")


# --- what is looked at -----------------------------------------------------------------------------------------------


def test_the_selected_run_has_its_view_tables_timeline_and_usage_made_when_looked_at() -> None:
    out = demo_agent(speed=None).stream("Where?").result(PATIENCE_S).wait(PATIENCE_S)
    view = Dashboard([run(), out]).view()
    until(view, view._list, lambda: view.selected is not None)
    assert isinstance(panel(view), RunView)
    assert panel(view).first is out
    kinds = {"Tool calls": ToolCallsTable, "Tasks": TasksTable, "Timeline": Timeline, "Usage": UsageView}
    for words, kind in kinds.items():
        click(view, view._tabs, words)
        assert isinstance(panel(view), kind)
    assert "Tool calls <b>4</b>" in shown(view._tabs)
    made = list(view._made.values())
    assert len(made) == 5
    view.select(0)
    settle()
    settle()
    assert all(widget.comm is None for widget in made)
    assert len(view._made) == 1
    view.close()


def test_what_is_selected_in_the_timeline_is_selected_in_the_table_opened_later() -> None:
    out = demo_agent(speed=None).stream("Where?").result(PATIENCE_S).wait(PATIENCE_S)
    view = Dashboard(out).view()
    until(view, view._list, lambda: view.selected is not None)
    click(view, view._tabs, "Timeline")
    timeline: Timeline = panel(view)
    timeline._handle_custom_msg({"act": "select", "node": "c1", "arg": "", "values": {}}, [])
    settle()
    settle()
    click(view, view._tabs, "Tool calls")
    assert panel(view).rows.fact("selected") == "c1"
    view.close()


def test_a_managers_dashboard_has_the_tasks_of_all_runs() -> None:
    manager = BackgroundTaskManager(Memory("sqlite://").store)
    dashboard = Dashboard(manager)
    view = dashboard.view()
    until(view, view._list, lambda: view.selected == ALL_TASKS)
    assert isinstance(panel(view), TasksTable)
    out = run()
    until(view, view._list, lambda: "2 + 2?" in shown(view._list))
    assert dashboard.outs == [out]
    dashboard.close()


# --- plain output, and the end ---------------------------------------------------------------------------------------


def test_the_plain_output_has_every_run_and_is_safe() -> None:
    dashboard = Dashboard([run("<script>alert(1)</script> **four**", "<img src=x onerror=alert(1)>"), booking()])
    bundle = dashboard.snapshot()
    assert dangers(bundle["text/html"]) == []
    assert "<strong>four</strong>" in bundle["text/html"]
    assert "Needs approval" in bundle["text/plain"]
    assert "\\<img" in bundle["text/markdown"]


def test_a_hundred_dashboards_shown_and_closed_leave_nothing_behind(comms: list[RecordingComm]) -> None:
    """No widget, no listener, no task; the run goes on."""
    gate = threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        assert gate.wait(60)
        return "through"

    agent = Agent("a", model=ScriptedModel([[call("wait")], [say("Done.")]]), tools=[wait])
    out = agent.stream("Go.").result(PATIENCE_S)
    widgets = len(ipywidgets.widgets.widget._instances)
    dashboards: list[weakref.ref[Any]] = []
    for number in range(100):
        dashboard = Dashboard([out] if number % 2 else None)
        dashboard.add(out)
        view = dashboard.view()
        if number % 10 == 0:
            until(view, view._list, lambda view=view: view.selected is not None)
        dashboards += [weakref.ref(dashboard), weakref.ref(view)]
        dashboard.close()
        comms.clear()
    del dashboard, view
    while any("Dashboard" in where or "RunView" in where for where in engine_tasks().values()):
        pass  # each question gives the loop a turn
    for _ in range(50):
        gc.collect()
        if not any(ref() for ref in dashboards):
            break
        settle()  # what the loop has just let go of may be held by its last turn
    assert len(ipywidgets.widgets.widget._instances) == widgets
    assert hooks.listeners == []
    assert out._done_callbacks == []
    assert [ref for ref in dashboards if ref() is not None] == []
    assert not out.done
    gate.set()
    assert out.wait(PATIENCE_S).status == "success"


# --- the magic -------------------------------------------------------------------------------------------------------


def test_the_magic_shows_the_dashboard_of_the_kernel_or_of_a_variable(kernel: Kernel) -> None:
    kernel.run(
        "%load_ext nbmastra\nfrom nbmastra import demo_agent, compare, Dashboard\nfrom IPython import get_ipython"
    )
    kernel.run("out = demo_agent(speed=None).stream('Where?').result().wait()\ntwo = compare(demo_agent(), '?')")
    for line in ("", "out", "two"):
        shown = kernel.run(f"%mastra dashboard {line}").of("display_data")
        assert "application/vnd.jupyter.widget-view+json" in shown[0]["data"]
        assert "Where?" in shown[1]["data"]["text/html"] or line == "two"
    assert "['out', 'server', 'two']" in kernel.run(COMPLETED).text
    cell = kernel.start("%mastra dashboard nothing")
    assert cell.reply()["evalue"].startswith("%mastra dashboard nothing: there is no such variable")
    kernel.run("two.stop()")


# --- a server --------------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_a_servers_dashboard_watches_runs_of_others_and_lists_those_that_wait(
    mastra_server: MastraServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own runs, a durable one by its id, a thread's; suspended ones are answered."""
    monkeypatch.setattr(dashboard_view, "WAITING_S", 0.1)
    client, other_client = MastraClient(mastra_server.url), MastraClient(mastra_server.url)
    dashboard = Dashboard(client)
    own = client.agent("tools").stream("Weather?").result(PATIENCE_S).wait(PATIENCE_S)
    run()  # of another source: not the server's
    assert dashboard.outs == [own]
    memory = {"thread": "dash", "resource": "dashboard"}
    waiting = client.agent("approve").stream("go", memory=memory).result(PATIENCE_S).wait(PATIENCE_S)
    view = dashboard.view()
    until(view, view._list, lambda: view.selected is not None)
    click(view, view._list, WAITING)
    until(view, view._list, lambda: isinstance(panel(view), ApprovalsView))
    table = panel(view)
    assert waiting.run_id in {suspended.run_id for suspended in table.runs}
    later = client.agent("approve").stream("go", memory=memory).result(PATIENCE_S).wait(PATIENCE_S)
    until(view, table, lambda: later.run_id in shown(table))  # it is asked for again and again
    later.decline(reason="no").result(PATIENCE_S).wait(PATIENCE_S)
    until(view, table, lambda: shown(table).count("answered elsewhere") == 1)
    row = next(row for (run_id, _), row in table._rows.items() if run_id == waiting.run_id)
    approve = row._controls[0]
    table.on_act(Act("approve", node=approve))
    until(view, table, lambda: "Completed" in shown(table))
    assert panel(view) is table
    [went_on] = table.outs
    assert went_on.done
    run_id = str(uuid.uuid4())
    begun = other_client.agent("durable").stream("Count", run_id=run_id).result(PATIENCE_S)
    durable = dashboard.observe(run_id, "durable").result(PATIENCE_S)
    assert durable in dashboard.outs
    assert durable.wait(PATIENCE_S).text.result() == begun.wait(PATIENCE_S).text.result() != ""
    with pytest.raises(ControlError, match="only the dashboard of a server"):
        Dashboard([own]).observe("r", "a")
    thread = dashboard.subscribe("dash-watched", "dashboard", agent="slow").result(PATIENCE_S)
    assert dashboard.outs[-1] is thread
    other = MastraClient(mastra_server.url).agent("slow")
    other.stream("Go", memory={"thread": "dash-watched", "resource": "dashboard"}).result(PATIENCE_S).cancel()
    while not thread.log.items:
        thread.log.wait_blocking(0, PATIENCE_S)
    thread.cancel()
    dashboard.close()
