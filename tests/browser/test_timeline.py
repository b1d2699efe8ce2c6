"""Timeline and usage in a real Chromium: drawn, zoomed, selected, by pointer and by keys; and in a real JupyterLab."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from nbmastra import Timeline, UsageView
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.widgets.following import FollowingWidget
from tests.support.axe import violations
from tests.support.lab import NotebookPage
from tests.support.runs import Wire, call, chunk, finish, result, start, step_finish, step_start
from tests.support.timed_run import RIDE, feed, ride

pytestmark = pytest.mark.browser

THEME = """
:root { --jp-layout-color1: white; --jp-ui-font-color0: black; --jp-ui-font-color1: rgba(0, 0, 0, .87);
  --jp-ui-font-color2: rgba(0, 0, 0, .54); --jp-border-color1: #bdbdbd; --jp-border-color2: #e0e0e0; }
:root.dark { color-scheme: dark; --jp-layout-color1: #212121; --jp-ui-font-color0: white; --jp-border-color2: #424242;
  --jp-ui-font-color1: #e0e0e0; --jp-ui-font-color2: #999; --jp-border-color1: #616161;
  --jp-error-color1: #f44336; --jp-warn-color1: #ff9800; --jp-success-color1: #4caf50; --jp-brand-color1: #2196f3; }
.dark body { background: #111; }
"""


class Front:
    """A page that shows one widget, whose kernel is this test."""

    def __init__(self, page: Page, widget: FollowingWidget) -> None:
        self.page, self.widget = page, widget
        self.told: list[Any] = []
        widget.send = lambda content, buffers=None: self.told.append(content)  # type: ignore[method-assign]
        html = (Path(__file__).parent / "live_page.html").read_text("utf-8")
        page.set_content(html.replace('"__LIVE_JS__"', json.dumps(widget._esm).replace("</", "<\\/")))
        page.wait_for_function("window.ready")
        page.add_style_tag(content=THEME + widget._css)
        page.evaluate("boot => start(boot).then(() => (window.shown = display()))", widget.boot())
        self.painted()

    def draw(self) -> None:
        """The kernel draws what is new, and the page shows it."""
        self.widget._frame()
        self.page.evaluate("messages => receive(...messages)", self.told)
        self.told.clear()
        self.painted()

    def painted(self) -> None:
        self.page.evaluate("painted()")

    def sent(self, name: str) -> list[str]:
        return [message["node"] for message in self.page.evaluate("sent") if message["act"] == name]

    def key(self, *keys: str) -> None:
        for name in keys:
            self.page.keyboard.press(name)
        self.painted()


class Live(Timeline):
    """Draws when the test says so."""

    def _watch(self) -> None:
        pass


class LiveUsage(UsageView):
    """Draws when the test says so."""

    def _watch(self) -> None:
        pass


def lane(page: Page, name: str) -> Locator:
    return page.get_by_role("option", name=re.compile(rf"^{re.escape(name)} (turn|step|tool|agent|background task), "))


def ticks(page: Page) -> list[str]:
    return page.locator(".nbm-tl__axis text:not(.nbm-tl__now)").all_text_contents()


def test_a_finished_timeline_is_read_zoomed_and_selected_by_pointer_and_by_keys(page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 800})
    front = Front(page, Timeline(ride()))
    expect(page.get_by_role("option")).to_have_count(13)
    assert ticks(page) == ["0 s", "4 s", "8 s", "12 s", "16 s", "20 s"]
    expect(page.locator(".nbm-metrics")).to_have_text("time23.4 sturns2to first token0.62 slongest gap6.80 s")
    expect(page.locator(".nbm-legend li")).to_have_text(
        ["turn", "step", "tool or agent", "background task", "waiting", "suspended", "failed", "first token"]
    )
    assert page.locator(".nbm-tl__gap").count() == 1
    assert page.locator(".nbm-tl__draw .nbm-tl__first").count() == 4  # three steps and one inside
    words = "route-scout agent, completed, 3.20 s from 5.90 s to 9.10 s, 892 in, 312 out, first token after 0.51 s"
    expect(lane(page, "route-scout")).to_have_accessible_name(words)

    lane(page, "route-scout").hover()
    card = page.locator(".nbm-card")
    expect(card).to_contain_text("3.20 s, 33 % of turn 1")
    expect(card).to_contain_text("892 in, 312 out")
    shown, hovered = card.bounding_box(), lane(page, "route-scout").bounding_box()
    assert shown is not None
    assert hovered is not None
    assert shown["y"] >= hovered["y"] + hovered["height"]  # never on its lane
    lane(page, "elevation").click()
    assert front.sent("select") == ["d2"]
    expect(lane(page, "elevation")).to_have_attribute("aria-selected", "true")

    drawn = page.locator(".nbm-tl__draw")
    box = drawn.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 30)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)  # twice as near, at the pointer
    page.keyboard.up("Control")
    front.painted()
    assert ticks(page) == ["4 s", "6 s", "8 s", "10 s", "12 s", "14 s"]
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4 - 300, box["y"] + 30, steps=4)
    page.mouse.up()
    front.painted()
    assert ticks(page)[0] == "8 s"
    assert front.sent("select") == ["d2"]  # to drag isn't to click
    page.get_by_role("button", name="Fit the whole run").click()
    front.painted()
    assert ticks(page)[0] == "0 s"
    expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()
    page.get_by_role("button", name="Zoom in").click()
    front.painted()
    assert "2 s" not in ticks(page)[0]

    page.get_by_role("listbox").focus()
    front.key("0", "Home", "ArrowDown", "ArrowDown")
    active = page.get_by_role("listbox").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_contain_text("get_forecast")
    expect(card).to_contain_text("2.20 s to 3.04 s")
    front.key("Enter")
    assert front.sent("select") == ["d2", "c1"]
    front.key("+", "+", "ArrowRight")
    assert ticks(page)[0] != "0 s"
    front.key("Escape")
    expect(card).to_be_hidden()
    assert violations(page, ".nbm") == []
    page.evaluate("document.documentElement.className = 'dark'")
    assert violations(page, ".nbm") == []

    page.set_viewport_size({"width": 320, "height": 900})
    front.key("0")
    page.mouse.move(0, 0)
    lane(page, "build_gpx").click()
    expect(card).to_have_css("position", "static")  # a strip below the lanes
    expect(card).to_contain_text("3.00 s to 16.4 s")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page, ".nbm") == []
    page.evaluate("shown.remove()")
    assert page.locator(".nbm").count() == 0


def test_a_live_timeline_grows_ticks_and_keeps_what_is_read_in_its_place(page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 800})
    out = MastraModelOutput(agent="trip-weather")
    view = Live(out)
    front = Front(page, view)
    expect(page.locator(".nbm-empty")).to_contain_text("Nothing has happened yet")
    early = [item for item in RIDE if item[0] <= 6.5]
    feed(out, early)
    out._source_at = 6.5  # the run's own clock
    front.draw()
    expect(page.get_by_role("option")).to_have_count(8)
    expect(lane(page, "route-scout")).to_have_accessible_name(re.compile("agent, running, .* from 5.90 s on"))
    time = page.locator("text.nbm-tl__now")
    before = time.text_content() or ""
    expect(time).not_to_have_text(before)  # the browser counts on, nobody sends
    row = lane(page, "Step 2").element_handle()
    feed(out, [item for item in RIDE if item[0] > 6.5])
    front.draw()
    assert page.evaluate("row => row.isConnected", row)  # rows are kept, not made anew
    expect(page.get_by_role("option")).to_have_count(13)
    out.finish(Ended(True, at=23.5))
    front.draw()
    expect(page.locator("text.nbm-tl__now")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("Run of trip-weather completed")
    view.select("c2")
    front.draw()
    expect(lane(page, "get_wind")).to_have_attribute("aria-selected", "true")


def many(count: int) -> list[tuple[float, Wire]]:
    chunks: list[Wire] = [start(), step_start()]
    for number in range(count):
        chunks += [call(f"c{number}", f"tool_{number}"), result(f"c{number}", 1)]
    return [(event / 100, item) for event, item in enumerate(chunks)]


def test_of_5000_calls_only_those_in_the_window_are_drawn(page: Page) -> None:
    out = MastraModelOutput()
    feed(out, many(5000))
    out._source_at = 100.0
    view = Live(out)
    front = Front(page, view)
    front.draw()
    front.draw()
    rows, shapes = page.get_by_role("option"), page.locator(".nbm-tl__draw *")
    assert rows.count() <= 45
    assert shapes.count() <= 150
    expect(lane(page, "tool_4999")).to_be_visible()  # it follows what grows
    assert lane(page, "tool_4999").get_attribute("aria-setsize") == "5002"
    page.get_by_role("listbox").evaluate("el => { el.scrollTop = 22 * 2000; }")
    front.painted()
    expect(lane(page, "tool_2000")).to_be_visible()
    assert rows.count() <= 45
    late = [call("late", "late"), chunk("background-task-started", {"taskId": "t", "toolName": "job"})]
    feed(out, [(100 + i, item) for i, item in enumerate([*late, step_finish(), finish()])])
    front.draw()
    expect(lane(page, "tool_2000")).to_be_visible()  # what is read stays
    page.get_by_role("listbox").focus()
    front.key("End")
    expect(lane(page, "job")).to_be_visible()
    front.key("Home")
    expect(lane(page, "Turn 1")).to_be_visible()


def names(rows: Locator) -> list[str]:
    return [row.split("\n")[0] for row in rows.all_inner_texts()]


def test_usage_is_read_by_step_turn_and_model_in_any_width(page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 800})
    out = MastraModelOutput(agent="trip-weather")
    view = LiveUsage(out, {"mini": {"input": 1.0, "output": 4.0}, "nano": {"input": 1.0, "output": 4.0}})
    front = Front(page, view)
    feed(out, [item for item in RIDE if item[0] <= 4])
    front.draw()
    expect(page.locator(".nbm-empty")).to_contain_text("No usage reported yet")
    expect(page.locator(".nbm-empty")).to_contain_text("0.62 s to first token")
    feed(out, [item for item in RIDE if 4 < item[0] <= 17.1])
    for step in out.state.steps:
        step.model = "mini"
    out.state.nested[0].steps[0].model = "nano"
    front.draw()
    rows = page.get_by_role("row")
    expect(rows).to_have_count(1 + 4 + 1)
    cells = rows.nth(2).get_by_role("cell").all_inner_texts()
    assert cells[1:] == ["1,124", "512", "186", "–\nnot reported", "43", "$0.0019"]
    assert "not reported yet" in rows.nth(4).inner_text()
    expect(page.locator(".nbm-stat").first).to_contain_text("3,367 1,204 by route-scout")
    feed(out, [item for item in RIDE if item[0] > 17.1])
    out.finish(Ended(True, at=23.5))
    front.draw()
    expect(rows.last).to_contain_text("4,248")
    expect(page.get_by_role("img", name=re.compile("Tokens per second over the run"))).to_be_visible()
    page.get_by_role("button", name="Turn").click()
    front.painted()
    assert names(rows) == ["Turn", "Turn 1", "route-scout", "Turn 2", "Total"]
    page.get_by_role("button", name="Model").click()
    front.painted()
    assert names(rows) == ["Model", "mini", "route-scout, nano", "Total"]
    assert violations(page, ".nbm") == []
    page.set_viewport_size({"width": 320, "height": 900})
    page.evaluate("document.documentElement.className = 'dark'")
    front.painted()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page, ".nbm") == []


SETUP = """\
import anyio
from nbmastra import MastraModelOutput, Timeline, UsageView, load_recording, demo_recording

go_on = anyio.Event()

def chunk(kind, **payload):
    return {"type": kind, "runId": "r", "from": "AGENT", "payload": payload}

async def chunks():
    yield chunk("start", id="rider")
    yield chunk("step-start")
    yield chunk("text-delta", id="t", text="Let me see")
    yield chunk("tool-call", toolCallId="c1", toolName="forecast", args={})
    while not stop:
        await anyio.sleep(0.05)
        yield chunk("text-delta", id="t", text=" and")
    yield chunk("tool-result", toolCallId="c1", toolName="forecast", result="rain")
    used = {"inputTokens": 1200, "outputTokens": 34, "totalTokens": 1234}
    yield chunk("step-finish", stepResult={"reason": "stop"}, output={"usage": used})
    yield chunk("finish", stepResult={"reason": "stop"}, output={"usage": used})

stop = []
out = MastraModelOutput.from_chunks(chunks())
live = out.timeline()
live.on_select(stop.append)
display(live, out.usage_view())
"""
BLOCK = "out.wait()\nprint(stop)"
FINISHED = """\
whole = load_recording(demo_recording())
shown = Timeline(whole)
display(shown, UsageView(whole))
"""


def test_in_jupyterlab_it_grows_acts_while_a_cell_blocks_and_leaves_plain_output(notebook_page: NotebookPage) -> None:
    """A click in a blocking cell, a reload in mid-run, the notebook read again without its kernel."""
    cells = [SETUP, BLOCK, FINISHED, "shown.close()", SETUP, "stop.append(1); out.wait()"]
    notebook_page.open("timeline.ipynb", cells)
    notebook_page.run(0)
    output = notebook_page.outputs(0)
    expect(output.nth(0).get_by_role("option", name=re.compile("^forecast"))).to_be_visible()
    expect(output.nth(1).locator(".nbm-empty")).to_contain_text("tokens/s")
    notebook_page.start(1)
    output.nth(0).get_by_role("option", name=re.compile("^forecast")).click()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(1)).to_have_text(["['c1']"])
    expect(output.nth(0)).to_contain_text("Timeline of rider")
    expect(output.nth(1)).to_contain_text("1,234 tokens")
    expect(output.locator(".nbm")).to_have_count(0)
    expect(output.nth(0).locator("img").first).to_be_visible()

    notebook_page.run(2)
    finished = notebook_page.outputs(2)
    expect(finished.nth(0).get_by_role("listbox")).to_be_visible()
    assert notebook_page.page.evaluate("document.querySelector('.nbm-timeline').clientWidth") > 300
    finished.nth(1).get_by_text("Timeline as plain output").click()
    expect(finished.nth(1).locator("img").first).to_be_visible()
    notebook_page.theme("dark")
    assert violations(notebook_page.page, ".nbm") == []
    notebook_page.run(3)
    expect(finished.nth(0).locator(".nbm")).to_have_count(0)
    expect(finished.nth(0)).to_contain_text("Timeline of trip")

    saved = notebook_page.save()
    assert [set(shown.data) for shown in saved.cells[0].outputs] == [{"text/html", "text/markdown", "text/plain"}] * 2

    notebook_page.run(4)
    again = notebook_page.outputs(4)
    expect(again.nth(0).get_by_role("option", name=re.compile("^forecast"))).to_be_visible()
    notebook_page.save()
    notebook_page.reload()
    expect(again.nth(0).get_by_role("option", name=re.compile("^forecast tool, running"))).to_be_visible()
    notebook_page.run(5)
    expect(again.nth(0)).to_contain_text("The page was loaded again during this run")
    expect(again.nth(1).get_by_role("row").last).to_contain_text("1,200")

    notebook_page.lab.end_sessions()
    notebook_page.open("timeline.ipynb")
    expect(notebook_page.outputs(0).nth(0)).to_contain_text("forecast")
    expect(notebook_page.outputs(0).nth(0).locator("img").first).to_be_visible()
    expect(notebook_page.outputs(2).locator("summary", has_text="Usage as plain output")).to_be_visible()
