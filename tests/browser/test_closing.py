"""100 times made, shown and closed in a real page: nothing of a view stays in it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.test_run_view import ENDLESS
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

SETUP = f"""{ENDLESS}
import gc, threading, ipywidgets
from nbmastra import Timeline, ToolCallsTable, UsageView
from nbmastra.engine import get_engine
shown, tries = [], 10_000
"""
SHOW = """
for number in range(20):
    shown.append([RunView, ToolCallsTable, Timeline, UsageView][number % 4](out))
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


PLAIN = """
from IPython.display import HTML
for number in range(20):
    display(HTML("<p>plain</p>"))
"""
Counts = tuple[int, int, int]


def test_the_page_keeps_no_more_of_100_views_that_were_closed_than_of_plain_output(notebook_page: NotebookPage) -> None:
    """B49: no model, no element, no listener that would hold them; JupyterLab itself keeps some of everything."""
    page = notebook_page.page
    notebook_page.open("closing.ipynb", [SETUP, PLAIN, SHOW, CLOSE])
    notebook_page.run(0)
    session = page.context.new_cdp_session(page)

    def count() -> Counts:
        notebook_page.command("notebook:clear-all-cell-outputs")
        expect(page.locator(".jp-OutputArea-output")).to_have_count(0)
        session.send("HeapProfiler.collectGarbage")
        dom = session.send("Memory.getDOMCounters")
        return page.evaluate(COMMS), dom["nodes"], dom["jsEventListeners"]

    plain: list[Counts] = []
    for _ in range(3):
        notebook_page.run(1)
        expect(notebook_page.outputs(1)).to_have_count(20)
        notebook_page.run(3)  # every run of a cell leaves something in JupyterLab, too
        plain.append(count())
    said: list[str] = []
    views: list[Counts] = []
    for _ in range(6):  # the first time warms up
        notebook_page.run(2)
        expect(page.locator(".nbm")).to_have_count(20)
        said.append(notebook_page.run(3).inner_text())
        expect(page.locator(".nbm")).to_have_count(0)
        views.append(count())
    assert said[1:] == said[:1] * 5
    (_, nodes, listeners), (_, nodes_after, listeners_after) = plain[1:]
    each_round = (0, nodes_after - nodes, listeners_after - listeners)
    rounds = len(views) - 1
    comms, nodes, listeners = (after - before for before, after in zip(views[0], views[-1], strict=True))
    assert comms == 0
    assert listeners < rounds * (each_round[2] + 20)  # less than one of each view
    assert nodes < rounds * (each_round[1] + 20 * 30)  # the plain output that a view leaves has more than a paragraph
