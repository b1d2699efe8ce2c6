"""A recording that one moves through, in a real JupyterLab: by pointer, by keys, dark, narrow, saved."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.test_run_view import CONTRAST
from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

CELL = "from nbmastra import Replay, demo_recording\nplayer = Replay(demo_recording(){})\nplayer"


def opened(notebook_page: NotebookPage, name: str, options: str = "") -> Locator:
    notebook_page.open(name, [CELL.format(options), "player"])
    notebook_page.run(0)
    view = notebook_page.outputs(0).locator(".nbm")
    expect(view.get_by_role("slider")).to_be_visible()
    return view


def place(view: Locator) -> str:
    return view.get_by_role("slider").get_attribute("aria-valuetext") or ""


def test_it_plays_pauses_and_goes_step_by_step_with_keys(notebook_page: NotebookPage) -> None:
    view = opened(notebook_page, "keys.ipynb", ", start=3")
    page = notebook_page.page
    slider = view.get_by_role("slider")
    expect(view.get_by_role("toolbar", name="Replay")).to_be_visible()
    view.locator(".nbm-prompt").click()
    before = place(view)
    page.keyboard.press("ArrowRight")
    expect(slider).not_to_have_attribute("aria-valuetext", before)
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(before.partition(", ")[2]))
    page.keyboard.press("Space")
    expect(view.get_by_role("button", name="Pause")).to_be_visible()
    expect(view.locator(".nbm-call b", has_text="rooms")).to_be_visible()
    page.keyboard.press("Space")
    expect(view.get_by_role("button", name="Play", exact=True)).to_be_visible()
    slider.focus()
    page.keyboard.press("End")
    expect(view.locator(".nbm-bar--foot")).to_be_visible()
    expect(view.get_by_role("button", name="Play again")).to_be_visible()
    page.keyboard.press("ArrowLeft")  # the run ended a moment after its last chunk
    expect(view.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("chunk 280 of 281"))
    expect(view.locator(".nbm-bar--foot")).to_have_count(0)
    # Keys of the notebook are not meant where the replay has the focus, and are where it hasn't.
    expect(notebook_page.page.locator(".jp-Notebook .jp-Cell")).to_have_count(2)


def test_dragging_the_slider_shows_the_run_of_that_moment_and_keeps_what_is_open(notebook_page: NotebookPage) -> None:
    view = opened(notebook_page, "drag.ipynb", ", start=9")
    page = notebook_page.page
    call = view.locator("details.nbm-call", has_text="forecast").first
    call.locator("summary").first.click()
    expect(call).to_have_attribute("open", "")
    call.evaluate("element => { element.markedByTest = true; }")
    box = view.get_by_role("slider").bounding_box()
    assert box is not None

    def at(part: float) -> tuple[float, float]:
        return box["x"] + box["width"] * part, box["y"] + box["height"] / 2

    page.mouse.move(*at(0.9))
    page.mouse.down()
    for part in (0.8, 0.7, 0.6, 0.55, 0.5):
        page.mouse.move(*at(part))
    expect(view.locator(".nbm-md", has_text="Ride round the lake")).to_have_count(0)
    expect(call).to_have_attribute("open", "")
    assert call.evaluate("element => element.markedByTest")
    page.mouse.move(*at(0.95))
    expect(view.locator(".nbm-md", has_text="Ride round the lake")).to_be_visible()
    page.mouse.up()
    value = float(view.get_by_role("slider").input_value())
    assert abs(float(place(view).split()[0]) - value) < 0.1


def test_the_speed_is_chosen_in_the_bar(notebook_page: NotebookPage) -> None:
    view = opened(notebook_page, "speed.ipynb")
    view.get_by_role("combobox", name="Speed").select_option("100×")
    view.get_by_role("button", name="Play", exact=True).click()
    expect(view.locator(".nbm-bar--foot")).to_be_visible()
    view.get_by_role("combobox", name="Speed").select_option("0.25×")
    view.get_by_role("button", name="Play again").click()
    expect(view.get_by_role("button", name="Pause")).to_be_visible()
    notebook_page.run(1)  # a second display shows the same
    for i in (0, 1):
        expect(notebook_page.outputs(i).get_by_role("button", name="Pause")).to_be_visible()
    notebook_page.outputs(1).get_by_role("button", name="Pause").click()
    for i in (0, 1):
        expect(notebook_page.outputs(i).get_by_role("button", name="Play", exact=True)).to_be_visible()
        assert place(notebook_page.outputs(i)) == place(view)


def test_time_stands_still_in_a_paused_replay(notebook_page: NotebookPage) -> None:
    view = opened(notebook_page, "still.ipynb", ", start=2")
    clock = view.locator(".nbm-bar").first.locator("dd").first
    expect(clock).to_have_text("2.0 s")
    notebook_page.page.evaluate("() => new Promise(resolve => setTimeout(resolve, 400))")
    expect(clock).to_have_text("2.0 s")


def test_light_dark_and_narrow_are_readable(notebook_page: NotebookPage) -> None:
    view = opened(notebook_page, "look.ipynb", ", start=8.6")
    assert view.locator(".nbm-scrub").evaluate("el => el.clientHeight") < 40  # one line
    for theme in ("light", "dark"):
        notebook_page.theme(theme)  # type: ignore[arg-type]
        assert view.evaluate(CONTRAST) == []
    notebook_page.page.set_viewport_size({"width": 640, "height": 900})
    assert view.evaluate("el => el.scrollWidth <= el.clientWidth + 1")
    for name in ("One chunk back", "Play", "One chunk forward"):
        expect(view.get_by_role("button", name=name, exact=True)).to_be_visible()
    expect(view.locator(".nbm-scrub__chunk")).to_contain_text("text-delta")


def test_a_saved_replay_shows_the_run_without_its_kernel(notebook_page: NotebookPage) -> None:
    opened(notebook_page, "saved.ipynb")
    notebook_page.save()
    notebook_page.lab.end_sessions()
    notebook_page.open("saved.ipynb")
    kept = notebook_page.outputs(0).nth(1)
    kept.get_by_text("The whole run as plain output").click()
    expect(kept.get_by_text("Ride round the lake on Saturday")).to_be_visible()
