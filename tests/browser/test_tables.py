"""Tables in a real JupyterLab: acted on while a cell blocks, loaded again, saved."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

SETUP = """\
import asyncio, threading, time
from nbmastra import TasksTable, ToolCallsTable, MastraModelOutput
from nbmastra.runtime.background.manager import BackgroundTaskManager
from nbmastra.tools import ToolContext

go, answers = threading.Event(), []

async def build(n: int, context: ToolContext) -> str:
    "Write how far it is."
    for step in range(1, 1001):
        context.writer.write({"percent": step / 10, "message": f"step {step}"})
        await asyncio.sleep(0.1)
    return "built"

async def book(context: ToolContext) -> dict:
    "Ask for a price."
    if context.resume_data is None:
        schema = {"properties": {"max_eur": {"type": "number", "title": "Highest price"}}, "required": ["max_eur"]}
        context.suspend({"question": "Which price is the limit?"}, resume_schema=schema)
    answers.append(context.resume_data)
    return {"paid": context.resume_data["max_eur"]}

manager = BackgroundTaskManager("tasks.db", poll_s=0.1)
"""
BLOCKS = """\
tasks = [manager.enqueue(build, {"n": n}).result() for n in range(2)] + [manager.enqueue(book, {}).result()]
table = TasksTable(manager)
display(table)
ended = [manager.wait_for_next(tasks[n].id).result() for n in (0, 2, 2)]
while manager.get(tasks[2].id).result().status == "suspended":
    time.sleep(0.1)
ended.append(manager.wait_for_next(tasks[2].id).result())
print(*(task.status for task in ended), answers)
"""
RUN = """\
async def chunks():
    yield {"type": "start", "runId": "r", "from": "AGENT", "payload": {"id": "rider"}}
    yield {"type": "step-start", "runId": "r", "from": "AGENT", "payload": {}}
    for n in range(3):
        call = {"toolCallId": f"c{n}", "toolName": "wind", "args": {"place": f"place {n}"}}
        yield {"type": "tool-call", "runId": "r", "from": "AGENT", "payload": call}
        yield {"type": "tool-result", "runId": "r", "from": "AGENT", "payload": {**call, "result": [{"kmh": n}]}}
    while not go.is_set():
        await asyncio.sleep(0.05)

out = MastraModelOutput.from_chunks(chunks())
ToolCallsTable(out)
"""


def row_of(shown: Locator, tool: str, n: int = 0) -> Locator:
    return shown.locator(".nbm-table__row").filter(has_text=tool).nth(n)


def test_tasks_are_acted_on_while_a_cell_blocks_and_the_tables_survive(notebook_page: NotebookPage) -> None:
    """B38, B40, B44, B50: each act once, output in its own cell, readable without the kernel."""
    cells = [SETUP, BLOCKS, "print('next')", RUN, "go.set()\nout.wait()", "ToolCallsTable(out)", "table.close()"]
    notebook_page.open("tables.ipynb", cells)
    page = notebook_page.page
    notebook_page.run(0)
    notebook_page.start(1)
    notebook_page.start(2)
    shown = notebook_page.outputs(1)
    cancel = row_of(shown, "n=0").get_by_role("button", name="Cancel")
    expect(row_of(shown, "n=0").get_by_role("progressbar")).to_be_visible()
    expect(row_of(shown, "n=0")).to_contain_text(re.compile(r"step [1-9]\d"))
    cancel.dblclick()
    expect(row_of(shown, "n=0")).to_contain_text("Cancelled")
    row_of(shown, "book").get_by_role("button", name="Resume…").click()
    expect(shown.locator(".nbm-ask")).to_contain_text("Which price is the limit?")
    shown.get_by_label("Highest price").fill("cheap")
    shown.get_by_role("button", name="Resume book").last.click()
    expect(shown.get_by_role("alert")).to_contain_text("a number is needed")
    shown.get_by_label("Highest price").fill("95")
    shown.get_by_role("button", name="Resume book").last.dblclick()
    expect(row_of(shown, "book")).to_contain_text("Completed")
    notebook_page.wait_done(2)
    expect(shown.last).to_have_text("cancelled suspended suspended completed [{'max_eur': 95.0}]")
    expect(notebook_page.outputs(2)).to_have_text(["next"])

    # A run that goes on: its table lives through a reload.
    notebook_page.run(3)
    calls = notebook_page.outputs(3)
    expect(calls.locator(".nbm-table__row")).to_have_count(3)
    notebook_page.save()
    notebook_page.reload()
    expect(calls.locator(".nbm-table__row")).to_have_count(3)
    expect(shown.locator(".nbm-table__row")).to_have_count(3)
    row_of(calls, "place 1").get_by_role("button", name="Details of wind").click()
    expect(calls.locator(".nbm-grid")).to_contain_text("kmh")
    row_of(shown, "n=1").get_by_role("button", name="Cancel").click()
    expect(row_of(shown, "n=1")).to_contain_text("Cancelled")

    # When it is over, plain output stands there; a table of what is over is live, with plain output beside it.
    notebook_page.run(3)
    expect(calls.locator(".nbm-table__row")).to_have_count(3)
    notebook_page.run(4)
    expect(calls.locator("td", has_text="place 2")).to_be_visible()
    expect(calls.locator(".nbm")).to_have_count(0)
    notebook_page.run(5)
    again = notebook_page.outputs(5)
    expect(again.locator(".nbm-table__row")).to_have_count(3)
    again.get_by_role("searchbox").fill("place 2")
    expect(again.locator(".nbm-table__row")).to_have_count(1)
    for theme in ("light", "dark"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        expect(again.locator(".nbm")).to_be_visible()
    notebook_page.run(6)
    saved = notebook_page.save()
    (plain,) = [output for output in saved.cells[3].outputs if "data" in output]
    assert set(plain.data) == {"text/html", "text/markdown", "text/plain"}
    assert "place 2" in plain.data["text/html"]
    live = [output.data for output in saved.cells[5].outputs if "data" in output]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in live)
    assert any("place 2" in data.get("text/html", "") for data in live)
    assert page.title() != "evil"
