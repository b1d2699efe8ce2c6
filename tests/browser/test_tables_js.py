"""Tables in a real Chromium, with the real kernel half in this process: only Jupyter between them is the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import comm
import ipywidgets
import pytest
from playwright.sync_api import Page, expect

from nbmastra.chunks import parse_chunk
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.widgets.tables import TableWidget
from nbmastra.widgets.tasks_table import TasksTable
from nbmastra.widgets.tool_calls_table import ToolCallsTable
from tests.support import runs
from tests.support.axe import violations
from tests.support.runs import Wire, inside
from tests.widgets.recording_comm import RecordingComm

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=document.title='evil'>"
SMOOTH = """async () => {
    const box = document.querySelector(".nbm-table");
    let most = 0, blank = 0;
    for (let i = 1; i <= 40; i++) {
        box.scrollTop = i * box.scrollHeight / 41;
        await painted();
        const seen = box.getBoundingClientRect();
        const rows = [...document.querySelectorAll(".nbm-table__row")];
        most = Math.max(most, rows.length);
        const at = document.elementFromPoint(seen.left + 200, seen.top + seen.height / 2);
        blank += !at.closest(".nbm-table__row");
    }
    return [most, blank];
}"""


class SteppedCalls(ToolCallsTable):
    """It draws when it is told to, and not by itself."""

    async def _run(self) -> None:
        pass


class SteppedTasks(TasksTable):
    async def _run(self) -> None:
        pass


@pytest.fixture
def comms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comm, "create_comm", lambda **options: RecordingComm(**options))
    yield
    ipywidgets.Widget.close_all()


class Bridge:
    """A table in a page: what the page sends goes to the widget, what the widget sends to the page."""

    def __init__(self, page: Page, table: TableWidget) -> None:
        self.page, self.table = page, table
        html = (Path(__file__).parent / "live_page.html").read_text("utf-8")
        page.set_content(html.replace('"__LIVE_JS__"', json.dumps(table._esm).replace("</", "<\\/")))
        page.wait_for_function("window.ready")
        page.add_style_tag(content=table._css)
        self.heard = len(table.comm.sent)
        self.told = 0
        page.evaluate("boot => start(boot)", json.loads(json.dumps(table.boot())))
        self.display()

    def display(self) -> None:
        self.page.evaluate("() => { (window.shown ??= []).push(display()) }")

    def pass_on(self) -> None:
        """Both ways, until nothing is under way that was sent by now."""
        for content in self.page.evaluate(f"sent.slice({self.told})"):
            self.told += 1
            self.table._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
        for _, data in self.table.comm.sent[self.heard :]:
            self.heard += 1
            if data.get("method") == "custom":
                self.page.evaluate("message => receive(message)", data["content"])
        self.page.evaluate("painted()")

    def until(self, true: str) -> None:
        """Pass on until an expression is true in the page."""
        for _ in range(600):
            self.pass_on()
            if self.page.evaluate(true):
                return
        raise AssertionError(true)

    def text(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


def feed(out: MastraModelOutput, *chunks: Wire) -> None:
    for item in chunks:
        out.feed([parse_chunk(item, event=len(out.log.items))], float(len(out.log.items)))


def test_ten_thousand_rows_are_smooth_sorted_filtered_and_walked_by_keys(page: Page, comms: None) -> None:
    """Rows outside of the window aren't in the page; what is read stays in place while rows come and change."""
    table = SteppedCalls(MastraModelOutput())
    with table.change() as rows:
        for n in range(10_000):
            bad = n % 30 == 0
            fields = {"status": "error" if bad else "success", "tool": ("wind", "tides", "road")[n % 3], "depth": 0}
            more = {"started": f"2026-01-01T10:{n // 600:02}:{n // 10 % 60:02}.000Z", "elapsed": n % 97 / 10}
            rows.put(f"k{n}", {**fields, **more, "args": f"n={n}", "says": f"{n} records", "parent": ""})
    bridge = Bridge(page, table)
    grid, row = page.locator("[role=grid]"), page.locator(".nbm-table__row")
    expect(page.locator(".nbm-toggle")).to_have_text(["All 10,000", "Failed 334"])
    expect(grid).to_have_attribute("aria-rowcount", "10001")
    most, blank = page.evaluate(SMOOTH)
    assert most < 60
    assert blank == 0
    expect(page.locator(".nbm-table__head")).to_be_visible()

    # A row stays the same element, in its place, while it and the number of rows above it change.
    page.evaluate("document.querySelector('.nbm-table').scrollTop = 140_000")
    page.evaluate("painted()")
    place = "[...document.querySelectorAll('.nbm-table__row')].find(el => el.dataset.key === 'k5001')"
    page.evaluate(f"() => {{ window.kept = {place}; window.before = kept.getBoundingClientRect().top }}")
    with table.change() as rows:
        rows.put("k5001", {"says": "changed"})
        for n in range(50):
            rows.put(f"new{n}", {"status": "running", "tool": "new", "args": "", "since": 0.0, "depth": 0}, after="k10")
    bridge.until("kept.textContent.includes('changed')")
    assert page.evaluate(f"kept === {place} && Math.abs(kept.getBoundingClientRect().top - before) < 1")

    page.get_by_role("button", name="Failed").click()
    expect(grid).to_have_attribute("aria-rowcount", "335")
    page.get_by_role("button", name="Elapsed").click()
    page.get_by_role("button", name="Elapsed").click()
    expect(page.locator("[data-column=elapsed][role=columnheader]")).to_have_attribute("aria-sort", "descending")
    expect(row.first.locator("[data-column=elapsed]")).to_have_text("9.60 s")
    page.get_by_role("searchbox").fill("ROAD n=29")
    expect(page.locator(".nbm-empty")).to_contain_text('No row matches "ROAD n=29"')
    page.get_by_role("button", name="Clear filter").click()
    page.get_by_role("button", name="Elapsed").click()
    expect(grid).to_have_attribute("aria-rowcount", "10051")

    row.first.locator("[data-column=tool]").click()
    bridge.until("document.querySelector('[data-key=k0]')?.ariaSelected === 'true'")
    for keys, focused in (
        ("ArrowDown ArrowDown", "k2 tool"),
        ("ArrowRight", "k2 args"),
        ("End", "k2 says"),
        ("Control+End", "k9999 says"),
        ("PageUp ArrowUp Home", None),
        ("Control+Home", "k0 status"),
    ):
        for key in keys.split():
            page.keyboard.press(key)
        page.evaluate("painted()")
        where = "(el => el.closest('[data-key]').dataset.key + ' ' + el.dataset.column)(document.activeElement)"
        assert focused in (None, page.evaluate(where))
        assert page.evaluate("document.activeElement.getBoundingClientRect().bottom <= innerHeight")
    # Who looks elsewhere keeps the focus, and comes back by a key.
    page.evaluate("document.querySelector('.nbm-table').scrollTop = 200_000")
    page.evaluate("painted()")
    assert page.evaluate(where) == "k0 status"
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-key=k1]")).to_be_in_viewport()
    table.select("k7000")
    bridge.until("document.querySelector('[data-key=k7000]')?.ariaSelected === 'true'")
    expect(page.locator("[data-key=k7000]")).to_be_in_viewport()


def test_a_row_opens_copies_and_holds_whatever_a_model_wrote(page: Page, comms: None) -> None:
    """B47, B49, B52: two displays, details on demand, the whole in copies, times in ISO, hostile text as text."""
    out = MastraModelOutput()
    table = SteppedCalls(out)
    bridge = Bridge(page, table)
    expect(page.locator(".nbm-empty")).to_contain_text("No tool calls yet")
    args = {"text": EVIL * 50, "rtl": "שלום", "emoji": "👩🏽‍🚀e\u0301"}
    feed(out, runs.step_start(), runs.call("a", "agent-scout", args), runs.call("b", EVIL))
    for chunk in (runs.step_start(), runs.call("c", "routes")):
        feed(out, inside("a", {**chunk, "runId": "in"}))
    table.draw()
    bridge.until("document.querySelectorAll('.nbm-table__row').length === 3")
    assert bridge.text(".nbm-table__name .nbm-mono") == ["agent-scout", "routes", EVIL]
    left = "el => el.getBoundingClientRect().left"
    parent, child = (page.locator(f"[data-key={key}] .nbm-expand").evaluate(left) for key in "ac")
    assert child > parent

    # Time passes without messages.
    elapsed = page.locator("[data-key=b] [data-column=elapsed]")
    before = elapsed.inner_text()
    expect(elapsed).not_to_have_text(before)
    assert bridge.page.evaluate("sent.length") == 1  # what the page started from, nothing since

    page.locator("[data-key=b] [data-column=tool]").focus()
    page.keyboard.press("Enter")
    bridge.until("document.querySelector('.nbm-table__detail .nbm-times')?.hidden === false")
    feed(out, runs.chunk("tool-output", {"output": "first\nsecond", "toolCallId": "b", "toolName": "f"}))
    table.draw()
    bridge.until("document.querySelector('.nbm-table__output')?.textContent.includes('second')")
    error = {"name": "Bad", "message": EVIL, "hint": [EVIL]}
    feed(out, inside("a", {**runs.result("c", [{"km": n} for n in range(9)]), "runId": "in"}))
    feed(out, runs.result("a", {"text": "two roads"}))
    feed(out, runs.chunk("tool-error", {"toolCallId": "b", "toolName": EVIL, "error": error}))
    out.finish(Ended(True, at=9.0))
    table.draw()
    bridge.until("document.querySelector('[data-key=b] [data-column=status]').textContent === 'Failed'")
    assert EVIL in page.locator(".nbm-table__detail .nbm-result").inner_text()
    page.locator("[data-key=c] .nbm-expand").click()
    bridge.until("document.querySelectorAll('.nbm-grid tbody tr').length === 4")
    page.get_by_role("button", name="Show all").click()
    bridge.until("document.querySelectorAll('.nbm-grid tbody tr').length === 9")
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Tab")

    page.evaluate("""() => {
        window.copied = [];
        Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => { copied.push(text) }}});
    }""")
    for cell, whole in (("started", out.created_at.isoformat()[:13]), ("elapsed", "6"), ("args", EVIL * 50)):
        page.evaluate("copied.length = 0")
        page.locator(f"[data-key=a] [data-column={cell}]").focus()
        page.keyboard.press("Control+c")
        bridge.until("copied.length === 1")
        assert whole in page.evaluate("copied[0]")
    page.locator("[data-key=c] [data-column=says]").hover()
    page.locator(".nbm-cellcopy").click()
    bridge.until("copied.length === 2")
    assert len(json.loads(page.evaluate("copied[1]"))) == 9

    bridge.display()
    assert page.evaluate("shown[1].el.querySelectorAll('.nbm-table__row').length") == 3
    assert page.title() == ""
    assert page.locator("img").count() == 0
    assert violations(page, ".nbm") == []
    page.evaluate("shown[0].remove()")
    page.evaluate("stop()")
    assert page.evaluate("[...document.querySelectorAll('body > div')].map(el => el.innerHTML)") == ["", ""]
    assert page.evaluate("[model.listeners['msg:custom'].size, model.listeners['change:_boot'].size]") == [0, 0]


def test_questions_are_answered_once_by_forms_keys_and_json(page: Page, comms: None) -> None:
    """B40: the first click disables every button of the question, in all displays."""
    table = SteppedTasks(MastraModelOutput())
    acts: list[Any] = []
    schema = {
        "price": {"name": "price", "label": "Highest price", "kind": "number", "hint": "EUR", "value": "95"},
        "meal": {"name": "meal", "label": "Breakfast", "kind": "choice", "hint": "", "choices": [["no", '"no"']]},
        "window": {"name": "window", "label": "With a view", "kind": "check", "hint": "", "value": ""},
    }
    fields = list(schema.values())
    ask = {"kind": "data", "words": "Which price?", "more_html": "", "fields": fields, "able": True}
    base = {"args_html": "", "times": [], "ids": [["Task id", "t1"]], "remarks": []}
    with table.change() as rows:
        row = {"status": "suspended", "tool": "book", "args": "", "since": 65.0, "says": "needs a price", "tone": ""}
        rows.put("t1", {**row, "acts": ["resume", "cancel"], "d": {**base, "ask": ask}})
        asks = {"kind": "approval", "words": "It has not run yet.", "able": True}
        row = {"status": "needs-approval", "tool": "pay", "args": "", "since": 1.0, "says": "asks", "tone": ""}
        rows.put("c1", {**row, "acts": ["approve", "decline"], "d": {**base, "ask": asks}})
        row = {"status": "running", "tool": "index", "args": "", "since": 1.0, "says": "page 1", "tone": "muted"}
        rows.put("t2", {**row, "progress": 42.0, "acts": [], "why": "This server offers no way."})
    table.on_act = acts.append  # type: ignore[method-assign]
    bridge = Bridge(page, table)
    bridge.display()
    first, second = (page.locator("body > div").nth(n) for n in (0, 1))
    expect(first.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "42")
    first.get_by_role("button", name="No actions").focus()
    expect(first.get_by_role("tooltip")).to_have_text("This server offers no way.")

    first.get_by_role("button", name="Resume… book").click()
    expect(first.get_by_label("Highest price")).to_be_focused()
    first.get_by_label("Highest price").fill("80")
    first.get_by_label("With a view").check()
    with table.change() as rows:  # what comes meanwhile takes nothing of what was written
        rows.put("t1", {"since": 70.0, "says": "still needs a price"})
    bridge.until("document.body.textContent.includes('still needs')")
    expect(first.get_by_label("Highest price")).to_have_value("80")
    first.get_by_label("Highest price").press("Enter")
    expect(first.get_by_role("button", name="Resume book")).to_be_disabled()
    expect(second.get_by_role("button", name="Resume… book")).to_be_disabled()
    bridge.pass_on()
    bridge.pass_on()
    ((act, values),) = [(act.name, act.values) for act in acts]
    assert (act, values) == ("resume", {"price": "80", "meal": '"no"', "window": True})
    table.again("t1")
    with table.change() as rows:
        rows.put("t1", {"problem": "price: too low"})
    bridge.until("document.querySelector('[role=alert]').textContent === 'price: too low'")
    first.get_by_role("button", name="Edit as JSON").click()
    expect(first.get_by_label("Answer as JSON")).to_have_value(
        '{\n  "price": 80,\n  "meal": "no",\n  "window": true\n}'
    )
    first.get_by_label("Answer as JSON").fill('{"price": 90}')
    first.get_by_role("button", name="Resume book").dblclick()
    bridge.pass_on()
    assert [act.values for act in acts[1:]] == [{"json": '{"price": 90}'}]

    first.get_by_role("button", name="Decline… pay").click()
    first.get_by_label("Reason for declining pay").fill("too dear")
    first.get_by_role("button", name="Decline pay").click()
    expect(first.get_by_role("button", name="Approve pay").first).to_be_disabled()
    bridge.pass_on()
    assert (acts[-1].name, acts[-1].node, acts[-1].values) == ("decline", "c1", {"reason": "too dear"})
    with table.change() as rows:
        rows.put("c1", {"status": "denied", "says": "too dear", "acts": [], "d": base, "since": None, "elapsed": 3.0})
        rows.facts(news="pay: too dear")
    bridge.until("document.querySelector('[role=status]').textContent === 'pay: too dear'")
    for width in (1000, 600, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("painted()")
        assert violations(page, ".nbm") == []
        assert first.evaluate("el => el.scrollWidth <= el.clientWidth + 1")
