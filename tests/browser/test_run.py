"""Runs of a real server in a real JupyterLab: what a cell shows while they go on, and what it keeps."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from nbformat import NotebookNode
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.browser

LOAD = "%load_ext nbmastra"
WIDGET = "application/vnd.jupyter.widget-view+json"
WATCH = """() => {
  window.seen = {text: [], card: []};
  const note = (kind, selector) => {
    const words = document.querySelector(selector)?.textContent;
    if (words && words !== seen[kind].at(-1)) seen[kind].push(words);
  };
  new MutationObserver(() => {
    note("text", ".nbm-run .nbm-md");
    note("card", ".nbm-run .nbm-call > summary");
  }).observe(document, {subtree: true, childList: true, characterData: true});
}"""


def ask(agent: str, url: str, options: str = "", prompt: str = "What's the weather in Paris?") -> str:
    """A cell that asks an agent of the server."""
    return f"%%mastra_stream {agent} --url {url} {options}\n{prompt}"


def snapshot(notebook_page: NotebookPage, i: int) -> Locator:
    """The plain output of a finished run; nothing live is left in its cell."""
    notebook_page.wait_done(i)
    expect(notebook_page.cell(i).locator(".nbm")).to_have_count(0)
    return notebook_page.outputs(i).first


def saved_run(notebook_page: NotebookPage, i: int) -> NotebookNode:
    """The data of the one run in a cell of the saved notebook, plain."""
    outputs = notebook_page.save().cells[i].outputs
    assert not any(WIDGET in output.get("data", {}) for output in outputs)
    (run,) = [output.data for output in outputs if "text/html" in output.get("data", {})]
    assert "<script" not in run["text/html"]
    return run


def test_text_grows_calls_get_their_cards_and_plain_output_stays(
    notebook_page: NotebookPage, start_mastra_server: Callable[..., MastraServer]
) -> None:
    """B50: and the saved notebook holds no widget."""
    url = start_mastra_server(CHUNK_DELAY_MS="60").url
    notebook_page.open("tools.ipynb", [LOAD, ask("tools", url)])
    notebook_page.run(0)
    notebook_page.page.evaluate(WATCH)
    notebook_page.start(1)
    view = notebook_page.cell(1).locator(".nbm-run")
    expect(view).to_contain_text("Running")
    expect(view.get_by_text("What's the weather in Paris?")).to_be_visible()
    expect(view.get_by_role("button", name="Stop")).to_be_enabled()
    expect(view.locator(".nbm-call").nth(1)).to_contain_text("no such city")
    output = snapshot(notebook_page, 1)
    expect(output).to_contain_text("Completed tools")
    expect(output).to_contain_text("It is 21 °C in Paris.")
    calls = output.locator("details", has=notebook_page.page.locator("summary code"))
    expect(calls.nth(0)).to_contain_text('✓ weather(city="Paris")')
    expect(calls.nth(1)).to_contain_text('Failed weather(city="Nowhere")')
    expect(calls.nth(1)).to_contain_text("no such city")

    seen = notebook_page.page.evaluate("seen")
    growing = [text for text in seen["text"] if "Let me look that up.".startswith(text)]
    assert growing == sorted(growing, key=len)
    assert len(growing) > 1, seen
    assert any("Writing arguments" in card for card in seen["card"]), seen
    assert "It is 21 °C in Paris." in saved_run(notebook_page, 1)["text/plain"]


def test_a_failed_run_shows_its_notice_and_marks_the_cell_in_one_line(
    notebook_page: NotebookPage, mastra_server: MastraServer
) -> None:
    """B43: "Run all" stops there."""
    url = mastra_server.url
    notebook_page.open(
        "error.ipynb", [LOAD, ask("error", url), "print('not reached')", ask("error", url, "--no-raise")]
    )
    notebook_page.command("notebook:run-all-cells")
    output = snapshot(notebook_page, 1)
    expect(output).to_contain_text("Failed error")
    expect(output).to_contain_text("partial")
    expect(output.locator("div", has_text=re.compile("^.*provider went away$")).last).to_be_visible()
    expect(notebook_page.outputs(1)).to_have_count(2)
    error = notebook_page.outputs(1).last.inner_text().strip()
    assert error.splitlines() == [error], error
    assert "provider went away" in error
    expect(notebook_page.outputs(2)).to_have_count(0)
    notebook_page.start(3)
    expect(snapshot(notebook_page, 3)).to_contain_text("provider went away")
    expect(notebook_page.outputs(3)).to_have_count(1)


def test_an_object_is_shown_as_a_tree_and_checked_by_its_schema(
    notebook_page: NotebookPage, mastra_server: MastraServer
) -> None:
    schemas = """
from pydantic import BaseModel
class Person(BaseModel):
    name: str
    age: int
class Child(BaseModel):
    name: str
    age: int
    school: str"""
    url = mastra_server.url
    notebook_page.open(
        "object.ipynb",
        [
            LOAD + schemas,
            ask("object", url, "--schema Person --out run"),
            "print(repr(run.object.result()))",
            ask("object", url, "--schema Child"),
        ],
    )
    notebook_page.run(0)
    notebook_page.start(1)
    output = snapshot(notebook_page, 1)
    expect(output.locator("pre")).to_contain_text('"Ada"')
    expect(notebook_page.run(2)).to_have_text([re.compile(r"Person\(name='Ada', age=36\)")])
    notebook_page.start(3)
    snapshot(notebook_page, 3)
    expect(notebook_page.outputs(3).last).to_contain_text("school")
    assert len(notebook_page.outputs(3).last.inner_text().strip().splitlines()) == 1


def test_background_tasks_come_to_their_end(notebook_page: NotebookPage, mastra_server: MastraServer) -> None:
    """B35"""
    notebook_page.open(
        "background.ipynb", [LOAD, ask("background", mastra_server.url, "--until-idle --thread tasks --resource me")]
    )
    notebook_page.run(0)
    notebook_page.start(1)
    output = snapshot(notebook_page, 1)
    expect(output).to_contain_text("Completed background")
    expect(output).to_contain_text("notes on solana")
    expect(output).to_contain_text("source offline")
    expect(output).to_contain_text("The research is finished.")


def test_markdown_images_and_sources_are_shown_live_and_kept(
    notebook_page: NotebookPage, start_mastra_server: Callable[..., MastraServer]
) -> None:
    url = start_mastra_server(CHUNK_DELAY_MS="60").url
    notebook_page.open(
        "text.ipynb",
        [LOAD, ask("text", url, "-o run", "Say hello"), "from nbmastra.widgets.run_view import RunView; RunView(run)"],
    )
    notebook_page.run(0)
    notebook_page.start(1)
    view = notebook_page.cell(1).locator(".nbm-run")
    expect(view.get_by_text("Reasoning")).to_be_visible()
    expect(view.locator(".nbm-md strong")).to_have_text("bold")
    expect(view.locator(".nbm-caret")).to_have_count(1)
    output = snapshot(notebook_page, 1)
    expect(output.locator("h1")).to_have_text("Hello")
    expect(output.locator("strong")).to_have_text("bold")
    expect(output.locator("pre")).to_have_text('print("hi")\n')
    expect(output.locator("td")).to_have_text(["1", "2"])
    expect(output.get_by_role("link", name="Example")).to_have_attribute("href", "https://example.com/a")
    image = output.locator("img[alt^='File']")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    assert "é漢字🎉" in saved_run(notebook_page, 1)["text/markdown"]
