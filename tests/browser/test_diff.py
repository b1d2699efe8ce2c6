"""Two runs beside each other, as a saved notebook shows them to somebody else."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.test_run_view import CONTRAST
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

CELL = """\
from pathlib import Path
from nbmastra import demo_recording, diff
text = demo_recording().read_text()
text = text.replace('"near":"Annecy"', '"near":"Talloires <b>x</b>"').replace('Take a ', 'Take 2 ')
Path("other.jsonl").write_text(text)
diff(demo_recording(), "other.jsonl")
"""


def test_an_unsigned_notebook_shows_what_differs_light_and_dark(notebook_page: NotebookPage) -> None:
    notebook_page.open("diff.ipynb", [CELL])
    expect(notebook_page.run(0).last).to_contain_text("They part at")
    saved = notebook_page.save()
    saved.cells[0].outputs[-1].data["text/html"] += "<!-- not what was signed -->"
    copy = notebook_page.path.with_name("unsigned-diff.ipynb")
    nbformat.write(saved, copy)
    notebook_page.lab.end_sessions()
    notebook_page.open("unsigned-diff.ipynb")
    shown = notebook_page.outputs(0).last
    expect(shown.locator("ins", has_text="Talloires <b>x</b>")).to_be_visible()
    expect(shown.locator("del", has_text="Annecy")).to_be_visible()
    decoration = "el => getComputedStyle(el).textDecorationLine"
    assert shown.locator("ins", has_text="Talloires").evaluate(decoration) == "underline"
    assert shown.locator("del", has_text="Annecy").evaluate(decoration) == "line-through"
    expect(shown.locator(":is(script, style, b b)")).to_have_count(0)
    for theme in ("light", "dark"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        assert shown.evaluate(CONTRAST) == []
