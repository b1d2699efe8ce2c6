"""The base of the live widgets in a real JupyterLab."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

GROWING = """\
import threading
from IPython.display import display
from nbmastra.widgets.live import LiveWidget

class Counter(LiveWidget):
    def __init__(self):
        super().__init__()
        self.more, self.stopped = threading.Semaphore(0), threading.Event()
        with self.frame() as doc:
            box = doc.add(cls="nbm", attrs={"data-nbm-caret": ""})
            self.stop = doc.add(box, "button", "nbm-btn", text="Stop", attrs={"data-nbm-act": "stop"})
            doc.add(box, "button", "nbm-btn", text="More", attrs={"data-nbm-act": "more", "data-nbm-repeat": ""})
            self.text = doc.add(box, "p", "numbers", html="0")
        self.thread = threading.Thread(target=self.count)
        self.thread.start()

    def on_act(self, act):
        if act.name == "stop":
            self.stopped.set()
        self.more.release(10 if act.name == "more" else 1)

    def count(self):
        number = 0
        while self.more.acquire() and not self.stopped.is_set():
            number += 1
            with self.frame() as doc:
                doc.patch(self.text, len(doc.html(self.text)), f" {number}")

widget = Counter()
"""
NUMBERS = [" ".join(map(str, range(1 + 10 * n))) for n in range(10)]


def button(notebook_page: NotebookPage, i: int, name: str) -> Locator:
    return notebook_page.outputs(i).get_by_role("button", name=name, exact=True)


def test_text_grows_in_every_display_while_a_cell_blocks(notebook_page: NotebookPage) -> None:
    """A click is served while a cell blocks the kernel; a display opened late and one opened first show the same."""
    notebook_page.open("grow.ipynb", [GROWING + "display(widget)\nwidget.stopped.wait()\nprint('ended')", "widget"])
    notebook_page.start(0)
    text, more = notebook_page.cell(0).locator(".numbers"), button(notebook_page, 0, "More")
    expect(text).to_have_text(NUMBERS[0])
    for n in (1, 2):
        more.click()
        expect(text).to_have_text(NUMBERS[n])
    notebook_page.start(1)
    button(notebook_page, 0, "Stop").click()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(0).last).to_have_text("ended")
    for i in (0, 1):
        expect(notebook_page.cell(i).locator(".numbers")).to_have_text(NUMBERS[2])
        expect(button(notebook_page, i, "Stop")).to_be_disabled()
    assert notebook_page.count(".numbers .nbm-caret") == 2


def test_a_page_reloaded_in_mid_run_shows_everything_once_and_goes_on(notebook_page: NotebookPage) -> None:
    notebook_page.open("reload.ipynb", [GROWING + "widget"])
    notebook_page.run(0)
    text, more = notebook_page.cell(0).locator(".numbers"), button(notebook_page, 0, "More")
    more.click()
    expect(text).to_have_text(NUMBERS[1])
    notebook_page.save()
    notebook_page.reload()
    expect(text).to_have_text(NUMBERS[1])
    more.click()
    expect(text).to_have_text(NUMBERS[2])
    button(notebook_page, 0, "Stop").click()
    expect(button(notebook_page, 0, "Stop")).to_be_disabled()


def test_a_page_reloaded_while_a_cell_blocks_shows_everything_when_the_cell_ends(notebook_page: NotebookPage) -> None:
    """Until then JupyterLab itself waits for the kernel's shell ("Loading widget...")."""
    notebook_page.open("blocked.ipynb", [GROWING + "display(widget)\nwidget.stopped.wait()"])
    notebook_page.start(0)
    text = notebook_page.cell(0).locator(".numbers")
    button(notebook_page, 0, "More").click()
    expect(text).to_have_text(NUMBERS[1])
    notebook_page.save()
    notebook_page.reload()
    expect(notebook_page.outputs(0)).to_have_text(["Loading widget..."])
    (session,) = notebook_page.page.request.get(f"{notebook_page.lab.url}/api/sessions").json()
    notebook_page.page.request.post(f"{notebook_page.lab.url}/api/kernels/{session['kernel']['id']}/interrupt")
    expect(text).to_have_text(NUMBERS[1])
    button(notebook_page, 0, "More").click()
    expect(text).to_have_text(NUMBERS[2])
    button(notebook_page, 0, "Stop").click()
    expect(button(notebook_page, 0, "Stop")).to_be_disabled()


def test_a_closed_widget_leaves_the_page(notebook_page: NotebookPage) -> None:
    notebook_page.open(
        "close.ipynb", [GROWING + "widget", "widget.close()\nwidget.stopped.set()\nwidget.more.release()"]
    )
    notebook_page.run(0)
    expect(notebook_page.cell(0).locator(".numbers")).to_have_text(re.compile("0"))
    notebook_page.run(1)
    expect(notebook_page.page.locator(".numbers")).to_have_count(0)
