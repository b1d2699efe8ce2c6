"""What a saved notebook shows without its kernel: opened by somebody else, after a restart, as a web page."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.browser

AGENTS = ("tools", "error", "supervisor", "tripwire", "text")


@pytest.fixture
def saved(notebook_page: NotebookPage, mastra_server: MastraServer) -> Path:
    """A notebook with a run of each agent, saved; its second cell is `tools`."""
    ask = "%%mastra_stream {} --no-raise --url {}\nHello <b>there</b>"
    cells = [ask.format(agent, mastra_server.url) for agent in AGENTS]
    notebook_page.open("saved.ipynb", ["%load_ext nbmastra", *cells])
    notebook_page.command("notebook:run-all-cells")
    notebook_page.wait_done(len(cells))
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    notebook_page.save()
    return notebook_page.path


def expect_all_runs(page: Locator) -> None:
    """Text, calls, notices, links and the image are there to be seen."""
    expect(page.get_by_text("It is 21 °C in Paris.")).to_be_visible()
    expect(page.locator("summary", has_text='weather(city="Nowhere")')).to_contain_text("no such city")
    expect(page.get_by_text("provider went away").last).to_be_visible()
    expect(page.get_by_text("partial", exact=True)).to_be_visible()
    expect(page.get_by_text("The sub-agent said hi.")).to_be_visible()
    expect(page.get_by_text("secret in output").last).to_be_visible()
    expect(page.get_by_text("SECRET-1234")).to_have_count(0)
    expect(page.get_by_text("Hello <b>there</b>").first).to_be_visible()
    expect(page.get_by_role("cell", name="2", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Example", exact=True)).to_have_attribute("href", "https://example.com/a")
    image = page.locator("img[alt^='File']")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(page.get_by_text("Loading widget")).to_have_count(0)


def test_a_notebook_that_nobody_signed_reads_well(notebook_page: NotebookPage, saved: Path) -> None:
    """B50, B52: the sanitiser of an untrusted notebook takes nothing that one reads."""
    notebook = nbformat.read(saved, as_version=4)
    for cell in notebook.cells:
        cell.metadata.pop("trusted", None)
    notebook.metadata["copied_by"] = "somebody else"
    for cell in notebook.cells[1:]:
        for output in cell.outputs:
            output.data["text/html"] += "<!-- not what was signed -->"
    nbformat.write(notebook, saved.with_name("copy.ipynb"))
    notebook_page.lab.end_sessions()
    notebook_page.open("copy.ipynb")
    trusted = "window.jupyterapp.shell.currentWidget.content.model.cells.get(1).trusted"
    assert notebook_page.page.evaluate(trusted) is False
    cells = notebook_page.page.locator(".jp-Notebook")
    expect_all_runs(cells)
    expect(cells.locator(".jp-OutputArea-output :is(script, style, iframe)")).to_have_count(0)
    cells.locator("summary", has_text='weather(city="Paris")').click()
    expect(cells.get_by_text('{"celsius": 21}').or_(cells.get_by_text('"celsius": 21')).last).to_be_visible()


def test_a_restart_of_the_kernel_leaves_everything_readable(notebook_page: NotebookPage, saved: Path) -> None:
    notebook_page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    notebook_page.wait_idle()
    expect_all_runs(notebook_page.page.locator(".jp-Notebook"))


VIEWS = """\
import nbmastra
ride = nbmastra.load_recording(nbmastra.demo_recording())
display(nbmastra.{}({}))
"""
SHOWN = {
    "ToolCallsTable": "forecast",
    "TasksTable": "No background tasks yet",
    "Timeline": "to first token",
    "UsageView": "not reported",
    "Dashboard": "Two days by bike",
}


def test_a_restart_of_the_kernel_leaves_tables_and_charts_readable(notebook_page: NotebookPage) -> None:
    page = notebook_page.page
    cells = [VIEWS.format(name, "[ride]" if name == "Dashboard" else "ride") for name in SHOWN]
    notebook_page.open("charts.ipynb", [*cells, "print('new kernel:', 'ride' not in globals())"])
    for i in range(len(cells)):
        notebook_page.run(i)

    def texts() -> list[str]:
        found = [notebook_page.outputs(i).first for i in range(len(cells))]
        for output, words in zip(found, SHOWN.values(), strict=True):
            expect(output).to_contain_text(words)
        return [output.inner_text() for output in found]

    before = texts()
    notebook_page.save()
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    notebook_page.wait_idle()
    expect(notebook_page.run(len(cells))).to_have_text("new kernel: True")
    assert texts() == before
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(page.get_by_text("Loading widget")).to_have_count(0)
    saved_cells = nbformat.read(notebook_page.path, as_version=4).cells
    for cell in saved_cells[: len(cells)]:
        assert any("as plain output" in output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_nbconvert_shows_every_run_as_a_web_page(notebook_page: NotebookPage, saved: Path) -> None:
    html, _ = HTMLExporter().from_filename(str(saved))
    page = saved.with_suffix(".html")
    page.write_text(html, encoding="utf-8")
    notebook_page.page.route("https://**", lambda route: route.abort())  # MathJax and require.js, by a CDN
    notebook_page.page.goto(page.as_uri())
    expect_all_runs(notebook_page.page.locator("body"))
