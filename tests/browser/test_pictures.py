"""Pictures in a real JupyterLab: in the theme's colours, and still there when the notebook is opened again."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

CELL = """\
from nbmastra import demo_recording, load_recording
load_recording(demo_recording()).timeline_chart()
"""


def the_one_that_shows(outputs: Locator, name: str) -> Locator:
    """The drawing for this kind of page, if it is the only thing that shows."""
    picture = outputs.locator(f"img.nbm-{name}")
    expect(picture).to_be_visible()
    expect(outputs.locator("img:visible")).to_have_count(1)
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 500
    assert outputs.inner_text().strip() == ""  # the words are in the image, and in what it is called
    assert (picture.get_attribute("alt") or "").startswith("Timeline, 10.9 s")
    return picture


def test_a_picture_follows_the_theme_and_stays_in_the_notebook(notebook_page: NotebookPage, tmp_path: Path) -> None:
    notebook = notebook_page
    page = notebook.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    notebook.open("picture.ipynb", [CELL])
    notebook.theme("light")
    outputs = notebook.run(0)
    the_one_that_shows(outputs, "light")
    notebook.theme("dark")
    dark = the_one_that_shows(outputs, "dark")
    box, cell = dark.bounding_box(), outputs.bounding_box()
    assert box is not None
    assert cell is not None
    assert box["width"] <= cell["width"]  # as wide as there is room
    notebook.screenshot(tmp_path / "dark.png", notebook.cell(0))

    saved = notebook.save()
    notebook.lab.end_sessions()
    saved.metadata["from"] = "somebody else"  # so that its signature is another
    for one in saved.cells:
        one.metadata.pop("trusted", None)
    nbformat.write(saved, notebook.lab.root / "other.ipynb")
    notebook.open("other.ipynb")
    the_one_that_shows(notebook.outputs(0), "light")  # on white: its style sheet was taken away
    notebook.theme("light")
    the_one_that_shows(notebook.outputs(0), "light")
    assert [url for url in asked if not url.startswith((notebook.lab.url, "data:", "blob:"))] == []
