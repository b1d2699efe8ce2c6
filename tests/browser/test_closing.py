"""More than 100 views of all kinds, made, shown and closed in a real page: nothing of them stays in it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.test_run_view import ENDLESS
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

ROUNDS = 5
VIEWS = [21, *[7] * (ROUNDS + 1), *[21] * ROUNDS]
"""So many views are shown and closed in each round; the first one warms up."""
SETUP = f"""{ENDLESS}
import gc, threading, ipywidgets
from nbmastra import Agent, Chat, Dashboard, TasksTable, Timeline, ToolCallsTable, UsageView
from nbmastra.engine import get_engine
from nbmastra.testing import ScriptedModel, say
rider = Agent("rider", model=ScriptedModel([[say("Hello")]]))
kinds = [RunView, ToolCallsTable, TasksTable, Timeline, UsageView]
kinds += [lambda out: Dashboard([out]), lambda out: Chat(rider)]
shown, tries, views = [], 10_000, {VIEWS}
"""
SHOW = """
for number in range(views.pop(0)):
    shown.append(kinds[number % 7](out))
    display(shown[-1])
"""
CLOSE = """
while shown:
    shown.pop().close()
async def nothing():
    pass
while out._done_callbacks and tries:
    get_engine().start(nothing).result()  # a turn of the engine's loop: what was cancelled ends there
    tries -= 1
gc.collect()
print(len(ipywidgets.widgets.widget._instances), threading.active_count(), len(out._done_callbacks))
"""
COMMS = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel._comms.size"
Counts = tuple[str, int, int, int]


def test_105_views_that_were_closed_leave_nothing_in_kernel_and_page(notebook_page: NotebookPage) -> None:
    """B49: no model, no element, no listener that would hold them.

    JupyterLab itself keeps hundreds of listeners for each run of a cell, however many outputs it has: so rounds with
    three views of each kind are compared with rounds with one.
    """
    page = notebook_page.page
    notebook_page.open("closing.ipynb", [SETUP, SHOW, CLOSE])
    notebook_page.run(0)
    session = page.context.new_cdp_session(page)

    def play(views: int) -> Counts:
        notebook_page.run(1)
        expect(notebook_page.outputs(1).filter(has=page.locator(".nbm"))).to_have_count(views)
        assert page.evaluate(COMMS) > views
        said = notebook_page.run(2).inner_text()
        expect(page.locator(".nbm")).to_have_count(0)
        comms = page.evaluate(COMMS)
        notebook_page.command("notebook:clear-all-cell-outputs")
        expect(page.locator(".jp-OutputArea-output")).to_have_count(0)
        session.send("HeapProfiler.collectGarbage")
        dom = session.send("Memory.getDOMCounters")
        return said, comms, dom["nodes"], dom["jsEventListeners"]

    _, *counted = map(play, VIEWS)
    first, few, many = counted[0], counted[ROUNDS], counted[-1]
    assert {(said, comms) for said, comms, *_ in counted} == {counted[0][:2]}
    more_nodes, more_listeners = (many[at] - few[at] - (few[at] - first[at]) for at in (2, 3))
    assert more_listeners < ROUNDS * 7  # 14 views more a round, two of each kind
    assert more_nodes < ROUNDS * 14 * 15  # JupyterLab keeps some of what was the plain output
