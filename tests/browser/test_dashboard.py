"""Dashboard, compare and Chat in a real JupyterLab: live, acted on while a cell blocks, read by axe, saved."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.support.axe import violations
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

AGENTS = """\
import threading
import pandas as pd
from nbmastra import Agent, Chat, Dashboard, compare, tool
from nbmastra.runtime import Memory
from nbmastra.testing import ScriptedModel, call, fail, say, usage

gate = threading.Event()

@tool
def wait() -> str:
    "Wait."
    assert gate.wait(200)
    return "through"

@tool(require_approval=True)
def book(seats: int) -> str:
    "Book seats."
    return "booked"

def agent(name, *turns, **more):
    return Agent(name, model=ScriptedModel(turns), tools=[wait, book], **more)

booker = agent("booker", [call("book", "b1", seats=2), usage(20, 3)], [say("Booked **two** seats."), usage(30, 5)])
waiter = agent("waiter", [say("Let me wait. "), call("wait", "w1")], [say("Done waiting.")])
bad = agent("bad", [say("Well"), fail(RuntimeError("rate limit"))])
quick = agent("quick", [say("It is **4**."), usage(10, 5)])
"""
DASHBOARD = """\
dash = Dashboard()
quick.stream("2 + 2?"); bad.stream("Why?"); booking = booker.stream("Book.").result()
waiting = waiter.stream("Wait for it.").result()
dash
"""
BLOCKED = "after = None\nwhile after is None:\n    after = booking.next\nprint(after.wait().total.text)"
OVER = "gate.set(); waiting.wait(); print(waiting.status)"
CHAT = """\
table = pd.DataFrame({"name": ["a", "b"], "km": [1, 2]})
model = ScriptedModel([[say("It is **4**. " * 30), usage(10, 5)]], delay_s=0.005)
chat = Chat(Agent("helper", model=model, memory=Memory("sqlite://")), thread="t1", suggestions=["Rain in Dieppe?"])
chat
"""
COMPARE = """\
comparison = compare([quick, booker, bad, waiter], ["2 + 2?", "Book."], limit=8)
display(comparison)
comparison.wait()
print([cell.status for cell in comparison.cells])
"""


def button(where: Locator, name: str) -> Locator:
    return where.get_by_role("button", name=name, exact=True)


def check(notebook_page: NotebookPage, selector: str) -> None:
    """Nothing that axe finds, in light, dark and narrow; nothing wider than its place."""
    page = notebook_page.page
    for theme in ("light", "dark"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        assert violations(page, selector) == []
    page.set_viewport_size({"width": 700, "height": 1400})
    assert violations(page, selector) == []
    assert page.locator(selector).first.evaluate("el => el.scrollWidth <= el.clientWidth + 1")
    page.set_viewport_size({"width": 1280, "height": 900})
    notebook_page.theme("light")


def test_a_dashboard_shows_steers_and_leaves_its_runs(notebook_page: NotebookPage) -> None:
    """B43, B44: acts while a cell blocks; several runs at once; its end is plain output."""
    cells = [AGENTS, DASHBOARD, BLOCKED, OVER, "dash.close()"]
    notebook_page.open("dashboard.ipynb", cells)
    notebook_page.run(0)
    notebook_page.run(1)
    board = notebook_page.cell(1).locator(".nbm-dash").first
    items = board.locator(".nbm-runs__item")
    expect(items).to_have_count(4)
    expect(items.first).to_contain_text("Wait for it.")
    expect(board.locator(".nbm-run .nbm-md")).to_contain_text("Let me wait.")
    notebook_page.start(2)
    items.filter(has_text="Book.").click()
    button(board, "Approve book").click()
    notebook_page.wait_done(2)
    expect(notebook_page.outputs(2)).to_have_text(["Booked **two** seats.\n"])
    expect(board.locator(".nbm-run .nbm-md")).to_contain_text("Booked two seats.")
    for name, shown in (("Tool calls 1", ".nbm-table"), ("Timeline", ".nbm-tl"), ("Usage", ".nbm-usage")):
        button(board, name).click()
        expect(board.locator(f".nbm-dash__panel {shown}").first).to_be_visible()
    check(notebook_page, ".nbm-dash")
    board.get_by_role("button", name=re.compile("^Running 1")).first.click()
    expect(board.locator(".nbm-runs li:not([hidden])")).to_have_count(1)
    notebook_page.run(3)
    expect(board.get_by_role("button", name=re.compile("^Running 0"))).to_be_visible()
    notebook_page.run(4)
    expect(board).to_have_count(0)
    expect(notebook_page.outputs(1).first).to_contain_text("booker, 58 tokens")
    html = notebook_page.save().cells[1].outputs[0].data["text/html"]
    assert "Done waiting." in html
    assert "rate limit" in html


def test_chat_is_used_by_keyboard(notebook_page: NotebookPage) -> None:
    notebook_page.open("chat.ipynb", [AGENTS, CHAT, "print(len(model.requests[-1].messages))"])
    notebook_page.run(0)
    notebook_page.run(1)
    page = notebook_page.page
    chat = notebook_page.cell(1).locator(".nbm-chat")
    field = chat.get_by_role("textbox", name="Message to helper")
    field.focus()
    page.keyboard.type("2 + 2")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("please")
    page.keyboard.press("Enter")
    expect(field).to_have_value("")
    page.keyboard.type("Sure?")
    expect(button(chat, "Edit your last message and run it again")).to_be_visible()
    assert chat.locator(".nbm-msg__text").inner_text() == "2 + 2\nplease"
    expect(field).to_be_focused()
    button(chat, "Attach a DataFrame, figure or file from the kernel").press("Enter")
    variable = chat.get_by_role("combobox", name="Variable")
    expect(variable).to_be_focused()
    variable.select_option("table")
    button(chat, "Attach").press("Enter")
    expect(chat.locator(".nbm-compose .nbm-chip")).to_contain_text("table")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")
    expect(chat.locator(".nbm-msg--user")).to_have_count(2)
    expect(button(chat, "Edit your last message and run it again")).to_be_visible()
    button(chat, "Edit your last message and run it again").press("Enter")
    edited = chat.get_by_role("textbox", name="Your message")
    expect(edited).to_be_focused()
    page.keyboard.press("Escape")
    expect(edited).to_have_count(0)
    button(chat, "Edit your last message and run it again").press("Enter")
    edited.fill("Really?")
    page.keyboard.press("Enter")
    expect(chat.locator(".nbm-msg--user").last).to_contain_text("Really?")
    expect(button(chat, "Edit your last message and run it again")).to_be_visible()
    check(notebook_page, ".nbm-chat")
    notebook_page.run(2)
    expect(notebook_page.outputs(2)).to_have_text(["3\n"])  # what was edited was taken back from memory


def test_a_comparison_is_answered_and_stopped_while_its_cell_blocks(notebook_page: NotebookPage) -> None:
    notebook_page.open("compare.ipynb", [AGENTS, COMPARE])
    notebook_page.run(0)
    notebook_page.start(1)
    matrix = notebook_page.cell(1).locator(".nbm-compare")
    expect(button(matrix, "Approve book")).to_have_count(2)
    button(matrix, "Approve book").first.click()
    expect(matrix.locator(".nbm-matrix__text").nth(1)).to_have_text("Booked two seats.")
    check(notebook_page, ".nbm-compare")
    button(matrix, "Stop all running and queued runs").click()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(1).last).to_contain_text("'cancelled'")
    button(matrix, "Approve book").click()
    expect(matrix).to_have_count(0)
    expect(notebook_page.outputs(1).first).to_contain_text("4 of 8 completed")
    assert "<table" in notebook_page.save().cells[1].outputs[0].data["text/html"]
