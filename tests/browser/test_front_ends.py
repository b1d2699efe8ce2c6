"""The widgets in front ends that aren't JupyterLab: Notebook 7 and marimo, each as its users have it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_run_view import DEMO, ENDLESS, SNAPSHOT
from tests.support.lab import Lab, NotebookPage
from tests.support.processes import running

pytestmark = pytest.mark.browser

TABLE = """\
from nbmastra import demo_recording, load_recording
from nbmastra.widgets.tool_calls_table import ToolCallsTable
table = ToolCallsTable(load_recording(demo_recording()))
"""


@pytest.fixture
def notebook_7(jupyter_lab: Lab, page: Page) -> Iterator[NotebookPage]:
    """An empty page for `open()` in Notebook 7, which the same server shows."""
    yield NotebookPage(jupyter_lab, page, place="notebooks")
    jupyter_lab.end_sessions()


def test_notebook_7_shows_stops_reloads_and_saves(notebook_7: NotebookPage) -> None:
    """Stream, tool card, snapshot; Stop while a cell blocks; a table; a page reloaded in mid-run."""
    cells = [
        DEMO.format(speed=3) + "out",
        ENDLESS + "display(RunView(out))\nout.wait()\nprint(out.status)",
        TABLE + "table",
        ENDLESS + "out",
        "out.cancel()",
    ]
    notebook_7.open("seven.ipynb", cells)
    notebook_7.run(0)
    output = notebook_7.outputs(0)
    expect(output.locator(".nbm-status--running").first).to_be_visible()
    expect(output.locator(".nbm-call b", has_text="forecast")).to_be_visible()
    expect(output).to_contain_text([SNAPSHOT])

    notebook_7.start(1)
    expect(notebook_7.outputs(1).locator(".nbm-md")).to_contain_text("line 5")
    notebook_7.outputs(1).get_by_role("button", name=re.compile("Stop")).click()
    notebook_7.wait_done(1)
    expect(notebook_7.outputs(1).nth(0)).to_contain_text("Stopped by you. What came is kept.")
    expect(notebook_7.outputs(1).nth(1)).to_have_text("cancelled")

    notebook_7.run(2)
    table = notebook_7.outputs(2).locator(".nbm")
    expect(table.get_by_role("row", name=re.compile("forecast")).first).to_be_visible()

    notebook_7.run(3)
    expect(notebook_7.outputs(3).locator(".nbm-md")).to_contain_text("line 5")
    notebook_7.save()
    notebook_7.reload()
    text = notebook_7.outputs(3).locator(".nbm-md")
    expect(text).to_contain_text("line 100")
    # Not its inner text: a cell that is out of sight has none.
    numbers = [int(number) for number in re.findall(r"line (\d+)", text.text_content() or "")]
    assert numbers == list(range(1, 101))
    expect(notebook_7.outputs(0)).to_contain_text([SNAPSHOT])
    expect(notebook_7.outputs(2).get_by_text("forecast").first).to_be_visible()
    notebook_7.run(4)
    expect(notebook_7.outputs(3)).to_contain_text(["The page was loaded again during this run"])
    saved = notebook_7.save()
    assert set(saved.cells[0].outputs[0].data) == {"text/html", "text/markdown", "text/plain"}


CELLS = DEMO.replace("out =", "demo =").format(speed=3) + ENDLESS + TABLE
MARIMO = f"""\
import marimo

app = marimo.App()


@app.cell
async def _():
    import marimo as mo
    {"    ".join(CELLS.splitlines(keepends=True))}
    return RunView, demo, mo, out, table


@app.cell
def _(RunView, demo, mo):
    mo.ui.anywidget(RunView(demo))
    return


@app.cell
def _(RunView, mo, out):
    mo.ui.anywidget(RunView(out))
    return


@app.cell
def _(mo, table):
    mo.ui.anywidget(table)
    return
"""


@pytest.fixture
def marimo_url(tmp_path: Path) -> Iterator[str]:
    """The app in marimo's own server."""
    app = tmp_path / "app.py"
    app.write_text(MARIMO)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MARIMO", "XDG_"))}
    env |= {"HOME": str(tmp_path), "PYTHONUNBUFFERED": "1", "MARIMO_SKIP_UPDATE_CHECK": "1"}
    command = [sys.executable, "-m", "marimo", "run", str(app), "--headless", "--no-token", "--host", "127.0.0.1"]
    with running(command, r"http://localhost(:\d+)", tmp_path / "marimo.log", cwd=tmp_path, env=env) as (_, found):
        yield f"http://127.0.0.1{found[1]}"


def test_marimo_shows_streams_and_tables_and_stops(marimo_url: str, page: Page) -> None:
    page.goto(marimo_url)
    demo, endless, table = (page.locator("marimo-anywidget").nth(i) for i in range(3))
    expect(demo.locator(".nbm-call b", has_text="forecast")).to_be_visible()
    expect(demo.locator(".nbm-md").last).to_contain_text("Ride round the lake on Saturday")
    expect(demo.locator(".nbm-bar--foot")).to_be_visible()

    expect(endless.locator(".nbm-md")).to_contain_text("line 100")
    numbers = [int(word) for word in endless.locator(".nbm-md").inner_text().split() if word.isdigit()]
    assert numbers == list(range(1, 101))
    endless.get_by_role("button", name=re.compile("Stop")).click()
    expect(endless).to_contain_text("Stopped by you. What came is kept.")
    expect(endless.locator(".nbm-status--running")).to_have_count(0)

    expect(table.get_by_role("row", name=re.compile("forecast")).first).to_be_visible()
