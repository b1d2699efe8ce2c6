from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

BUTTON = """\
import ipywidgets
button = ipywidgets.Button(description="Press me")
button.on_click(lambda button: setattr(button, "description", "Pressed"))
button"""


def test_a_cell_runs_and_shows_its_output(notebook_page: NotebookPage) -> None:
    notebook_page.open("print.ipynb", ["print(1+1)"])
    expect(notebook_page.run(0)).to_have_text(["2"])
    assert notebook_page.output_text(0).strip() == "2"
    saved = notebook_page.save()
    assert saved.cells[0].outputs[0].text == "2\n"


def test_a_widget_is_shown_and_its_click_reaches_the_kernel(notebook_page: NotebookPage) -> None:
    notebook_page.open("button.ipynb", [BUTTON, "print(button.description)"])
    notebook_page.run(0)
    button = notebook_page.outputs(0).get_by_role("button")
    button.click()
    expect(button).to_have_text("Pressed")
    expect(notebook_page.run(1)).to_have_text(["Pressed"])


def test_a_running_cell_can_be_interrupted_and_a_failed_one_ends(notebook_page: NotebookPage) -> None:
    notebook_page.open("interrupt.ipynb", ["print('on')\nimport threading; threading.Event().wait()"])
    notebook_page.start(0)
    expect(notebook_page.outputs(0)).to_have_text(["on"])
    notebook_page.interrupt()
    notebook_page.wait_done(0)
    assert "KeyboardInterrupt" in notebook_page.output_text(0)


def test_a_reloaded_page_shows_the_saved_notebook(notebook_page: NotebookPage) -> None:
    notebook_page.open("reload.ipynb", ["print('before')"])
    notebook_page.run(0)
    notebook_page.save()
    notebook_page.reload()
    expect(notebook_page.outputs(0)).to_have_text(["before"])


def test_light_and_dark_themes_give_different_pictures(notebook_page: NotebookPage, tmp_path: Path) -> None:
    notebook_page.open("theme.ipynb", ["print(1)"])
    for name in ("light", "dark"):
        notebook_page.theme(name)
        notebook_page.screenshot(tmp_path / f"{name}.png", notebook_page.cell(0))
    assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()
    assert notebook_page.count(".jp-CodeCell") == 1
