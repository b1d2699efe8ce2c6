"""Runs in a real JupyterLab: live, stopped, reloaded, saved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

DEMO = "from nbmastra import demo_agent\nout = await demo_agent(speed={speed}).stream('Where do I ride?')\n"
ENDLESS = """\
import anyio
from nbmastra import MastraModelOutput
from nbmastra.widgets.run_view import RunView

async def chunks():
    yield {"type": "start", "runId": "r", "from": "AGENT", "payload": {"id": "rider"}}
    yield {"type": "step-start", "runId": "r", "from": "AGENT", "payload": {}}
    for number in range(1, 101):
        text = {"id": "t", "text": f"line {number}\\n\\n"}
        yield {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": text}
        await anyio.sleep(0.05)
    await anyio.sleep_forever()

out = MastraModelOutput.from_chunks(chunks())
"""
SNAPSHOT = "Completed trip"
VIEW = """\
from nbmastra.widgets.run_view import RunView
out.wait()
view = RunView(out)
display(view._repr_mimebundle_()[0], raw=True)  # the view itself, not what takes its place
"""


def stop(notebook_page: NotebookPage, i: int) -> Locator:
    return notebook_page.outputs(i).get_by_role("button", name=re.compile("Stop"))


def test_a_run_grows_and_becomes_plain_output(notebook_page: NotebookPage) -> None:
    notebook_page.open("demo.ipynb", [DEMO.format(speed=3) + "out"])
    notebook_page.run(0)
    output = notebook_page.outputs(0)
    expect(output.locator(".nbm-status--running").first).to_be_visible()
    expect(output.locator(".nbm-call b", has_text="forecast")).to_be_visible()
    expect(output.locator(".nbm-md").last).to_contain_text("Ride round the lake on Saturday")
    expect(output).to_contain_text([SNAPSHOT])
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    saved = notebook_page.save()
    (shown,) = saved.cells[0].outputs
    assert set(shown.data) == {"text/html", "text/markdown", "text/plain"}
    assert "Ride round the lake on Saturday" in shown.data["text/plain"]


def test_an_unsigned_notebook_reads_well(notebook_page: NotebookPage) -> None:
    """The sanitiser takes what an unsigned notebook must not have; nothing that one reads is lost."""
    notebook_page.open("signed.ipynb", [DEMO.format(speed="None") + "out.wait()\nout"])
    expect(notebook_page.run(0)).to_contain_text([SNAPSHOT])
    notebook_page.save()
    copy = Path(notebook_page.path).with_name("unsigned.ipynb")
    text = notebook_page.path.read_text().replace("Ride round the lake on Saturday", "Ride round the lake on Sunday")
    copy.write_text(text)
    notebook_page.open("unsigned.ipynb")
    output = notebook_page.outputs(0)
    expect(output).to_contain_text(["Ride round the lake on Sunday"])
    output.locator("code", has_text="forecast(").click()
    expect(output.get_by_text("showers from 14:00").first).to_be_visible()
    output.get_by_text("Timeline").click()
    expect(output.locator("img").first).to_be_visible()
    expect(output.locator("table")).not_to_have_count(0)
    assert notebook_page.page.locator(".jp-RenderedHTMLCommon script, .jp-RenderedHTMLCommon style").count() == 0


def test_stop_works_while_a_cell_blocks_and_what_came_is_kept(notebook_page: NotebookPage) -> None:
    notebook_page.open(
        "stop.ipynb", [ENDLESS + "display(RunView(out))\nout.wait()\nprint(out.status)", "print('next')"]
    )
    notebook_page.start(0)
    expect(notebook_page.outputs(0).locator(".nbm-md")).to_contain_text("line 20")
    notebook_page.start(1)
    stop(notebook_page, 0).click()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(0).nth(0)).to_contain_text("Stopped by you. What came is kept.")
    expect(notebook_page.outputs(0).nth(0)).to_contain_text("line 20")
    expect(notebook_page.outputs(0).nth(1)).to_have_text("cancelled")
    expect(notebook_page.outputs(1)).to_have_text(["next"])


def test_two_displays_show_the_same_and_both_become_plain(notebook_page: NotebookPage) -> None:
    notebook_page.open("two.ipynb", [ENDLESS + "out", "out", "out.cancel()"])
    notebook_page.run(0)
    expect(notebook_page.outputs(0).locator(".nbm-md")).to_contain_text("line 10")
    notebook_page.run(1)
    expect(notebook_page.outputs(1).locator(".nbm-md")).to_contain_text("line 1")
    for i in (0, 1):
        expect(notebook_page.outputs(i).locator(".nbm-md")).to_contain_text("line 100")
    notebook_page.run(2)
    for i in (0, 1):
        expect(notebook_page.outputs(i).nth(0)).to_contain_text("What came is kept.")
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)


def test_a_page_reloaded_in_mid_run_goes_on_and_says_how_to_keep_the_result(notebook_page: NotebookPage) -> None:
    notebook_page.open("reload-run.ipynb", [ENDLESS + "out", "out.cancel()", "out"])
    notebook_page.run(0)
    expect(notebook_page.outputs(0).locator(".nbm-md")).to_contain_text("line 10")
    notebook_page.save()
    notebook_page.reload()
    text = notebook_page.outputs(0).locator(".nbm-md")
    expect(text).to_contain_text("line 100")
    shown = text.inner_text().split()
    numbers = [int(word) for word in shown if word.isdigit()]
    assert numbers == list(range(1, 101))
    notebook_page.run(1)
    expect(notebook_page.outputs(0)).to_contain_text(["The page was loaded again during this run"])
    notebook_page.run(2)
    expect(notebook_page.outputs(2)).to_contain_text(["What came is kept."])
    saved = notebook_page.save()
    assert "text/html" in saved.cells[2].outputs[0].data


def test_light_dark_and_narrow_are_readable(notebook_page: NotebookPage) -> None:
    """Text at least 4.5:1 on what is behind it, nothing wider than its place."""
    notebook_page.open("look.ipynb", [DEMO.format(speed="None") + VIEW])
    notebook_page.run(0)
    view = notebook_page.outputs(0).locator(".nbm")
    expect(view.locator(".nbm-call")).not_to_have_count(0)
    view.evaluate("el => el.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    assert view.locator(".nbm-bar").first.evaluate("el => el.clientHeight") < 40  # one line
    for theme in ("light", "dark"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        assert view.evaluate(CONTRAST) == []
    notebook_page.page.set_viewport_size({"width": 640, "height": 900})
    assert view.evaluate("el => el.scrollWidth <= el.clientWidth + 1")


CONTRAST = """el => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = node => { for (; node; node = node.parentElement) {
        const colour = rgb(getComputedStyle(node).backgroundColor); if (colour[3] === 255) return colour; } };
    const bad = [];
    for (const node of el.querySelectorAll("*")) {
        const own = [...node.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!own || !node.checkVisibility() || node.closest(".nbm-sr, svg")) continue;
        const under = behind(node), [r, g, b, a] = rgb(getComputedStyle(node).color);
        const over = [r, g, b].map((v, i) => v * a / 255 + under[i] * (1 - a / 255));
        const [x, y] = [light(over), light(under)].sort((p, q) => q - p);
        if ((x + .05) / (y + .05) < 4.5) bad.push(`${node.className} ${node.textContent.slice(0, 40)}`);
    }
    return bad;
}"""
