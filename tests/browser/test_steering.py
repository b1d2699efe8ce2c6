"""Stopping, interrupting, reloading and answering a run from a real JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import NotebookPage
from tests.support.mastra import MastraServer, run_mastra_server

pytestmark = pytest.mark.browser

RUNS = 50


@pytest.fixture(scope="module")
def slow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose agents `slow` (200 deltas) and `long` (2,000) take a while: 50 ms for a delta."""
    with run_mastra_server(tmp_path_factory.mktemp("slow"), CHUNK_DELAY_MS="50") as server:
        yield server.url


def setup(url: str) -> str:
    return f"%load_ext nbmastra\nfrom nbmastra import MastraClient\nclient = MastraClient({url!r})"


def ask(agent: str, url: str, options: str = "") -> str:
    return f"%%mastra_stream {agent} --url {url} {options}\nGo on"


def view_in(notebook_page: NotebookPage, i: int) -> Locator:
    return notebook_page.cell(i).locator(".nbm-run")


def text_of(locator: Locator) -> Locator:
    return locator.locator(".nbm-md")


def wait_for_text(notebook_page: NotebookPage, i: int, words: str) -> None:
    expect(text_of(view_in(notebook_page, i))).to_contain_text(words)


def paragraphs(shown: Locator) -> list[int]:
    """The numbers of the paragraphs that were shown, also of those out of sight."""
    return [int(number) for number in re.findall(r"Paragraph (\d+):", "".join(shown.all_text_contents()))]


# --- stop and interrupt ----------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_stop_ends_every_one_of_50_runs_while_the_cell_blocks(notebook_page: NotebookPage, slow_url: str) -> None:
    """Each within a second of its click; the cell that was queued meanwhile runs afterwards."""
    loop = f"""
import time
from nbmastra.display import show
from nbmastra.widgets.live import LiveWidget

clicks, ends = [], []
handle = LiveWidget._handle_custom_msg
def clicked(self, content, buffers):
    clicks.append(time.monotonic())
    handle(self, content, buffers)
LiveWidget._handle_custom_msg = clicked

for number in range({RUNS}):
    out = client.agent("long").stream(f"Run {{number}}").result()
    shown = show(out)
    out.wait()
    ends.append((time.monotonic(), out.status, bool(out.text.result())))
    shown.wait(10)
"""
    report = """
print(len(ends), {status for _, status, _ in ends}, sum(kept for *_, kept in ends))
print(max(end - max(click for click in clicks if click <= end) for end, *_ in ends) < 1)
"""
    notebook_page.open("stop.ipynb", [setup(slow_url), loop, report])
    notebook_page.run(0)
    notebook_page.start(1)
    notebook_page.start(2)
    for number in range(RUNS):
        view = view_in(notebook_page, 1).filter(has_text=re.compile(rf"Run {number}(?!\d)"))
        expect(text_of(view)).to_contain_text("Paragraph")
        view.get_by_role("button", name="Stop").click()
    notebook_page.wait_done(2)
    expect(notebook_page.outputs(2)).to_have_text([f"{RUNS} {{'cancelled'}} {RUNS}\nTrue\n"])
    expect(notebook_page.outputs(1).filter(has_text="Cancelled long")).to_have_count(RUNS)
    expect(notebook_page.cell(1).locator(".nbm")).to_have_count(0)


def test_stop_in_a_magic_does_not_mark_the_cell(notebook_page: NotebookPage, slow_url: str) -> None:
    notebook_page.open("magic.ipynb", [setup(slow_url), ask("long", slow_url, "-o run"), "print(run.status)"])
    notebook_page.run(0)
    notebook_page.start(1)
    notebook_page.start(2)
    wait_for_text(notebook_page, 1, "Paragraph 1")
    view_in(notebook_page, 1).get_by_role("button", name="Stop").click()
    notebook_page.wait_done(2)
    expect(notebook_page.outputs(2)).to_have_text(["cancelled\n"])
    expect(notebook_page.outputs(1)).to_have_count(1)
    expect(notebook_page.outputs(1)).to_contain_text("What came is kept")
    expect(notebook_page.outputs(1)).to_contain_text("Paragraph 1")


def test_an_interrupt_stops_the_run_keeps_what_came_and_marks_the_cell(
    notebook_page: NotebookPage, slow_url: str
) -> None:
    """B43"""
    notebook_page.open(
        "interrupt.ipynb",
        [setup(slow_url), ask("long", slow_url, "-o run"), "print(run.status, run.text.result()[:11])"],
    )
    notebook_page.run(0)
    notebook_page.start(1)
    wait_for_text(notebook_page, 1, "Paragraph 1")
    notebook_page.interrupt()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(1)).to_have_count(2)
    expect(notebook_page.outputs(1).first).to_contain_text("Paragraph 1")
    expect(notebook_page.outputs(1).last).to_have_text(
        re.compile(r"^KeyboardInterrupt: the run was stopped; what came is kept in run\s*$")
    )
    expect(notebook_page.run(2)).to_have_text(["cancelled Paragraph 0\n"])


def test_an_interrupt_during_await_ends_the_cell_and_the_next_one_runs(
    notebook_page: NotebookPage, slow_url: str
) -> None:
    """B43: it cancels the run too, and keeps what came."""
    notebook_page.open(
        "await.ipynb",
        [
            setup(slow_url) + "\nout = client.agent('long').stream('Go on').result()",
            "for text, _ in zip(out.text_stream, range(3)): pass\nprint('waiting')\nawait out.text",
            "print(out.status, out.text.result()[:11])",
        ],
    )
    notebook_page.run(0)
    notebook_page.start(1)
    expect(notebook_page.outputs(1)).to_have_text(["waiting\n"])
    notebook_page.interrupt()
    notebook_page.wait_done(1)
    expect(notebook_page.outputs(1).last).to_have_text(
        re.compile(r"^Interrupted: the run was stopped by an interrupt\s*$")
    )
    expect(notebook_page.run(2)).to_have_text(["cancelled Paragraph 0\n"])


# --- background, reload, second displays -----------------------------------------------------------------------------


def test_a_background_run_stays_in_its_cell_and_every_display_shows_it_once(
    notebook_page: NotebookPage, slow_url: str
) -> None:
    """B44, B47: while other cells print, and in one that shows it late."""
    notebook_page.open(
        "background.ipynb",
        [
            setup(slow_url),
            ask("slow", slow_url, "--background -o run"),
            "for number in range(200): print(number)",
            "run",
            "await run.text",
            "run",
        ],
    )
    notebook_page.run(0)
    notebook_page.run(1)
    wait_for_text(notebook_page, 1, "Paragraph 1")
    expect(notebook_page.run(2)).to_have_text([re.compile(r"^0\n1\n[\d\n]*199\n$")])
    notebook_page.run(3)
    wait_for_text(notebook_page, 3, "Paragraph 1")
    expect(view_in(notebook_page, 1)).to_have_count(1)
    notebook_page.start(4)
    notebook_page.wait_done(4)
    notebook_page.run(5)
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    expect(notebook_page.outputs(2)).to_have_count(1)
    for i in (1, 3, 5):
        expect(notebook_page.outputs(i)).to_have_count(1)
        expect(notebook_page.outputs(i)).to_contain_text("Completed slow")
        numbers = paragraphs(notebook_page.outputs(i))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 70


def test_a_page_reloaded_in_mid_run_shows_everything_once_and_the_view_goes_on(
    notebook_page: NotebookPage, slow_url: str
) -> None:
    """B47: the view says then how to keep the result in the notebook."""
    notebook_page.open("reload.ipynb", [setup(slow_url), ask("long", slow_url, "--background -o run"), "run"])
    notebook_page.run(0)
    notebook_page.run(1)
    wait_for_text(notebook_page, 1, "Paragraph 1")
    notebook_page.save()
    notebook_page.reload()
    view = view_in(notebook_page, 1)
    wait_for_text(notebook_page, 1, "Paragraph 1")
    expect(view).to_contain_text("Running")
    wait_for_text(notebook_page, 1, f"Paragraph {paragraphs(text_of(view))[-1] + 2}:")
    view.get_by_role("button", name="Stop").click()
    expect(view).to_contain_text("Cancelled")
    expect(view).to_contain_text("show the output in a cell")
    numbers = paragraphs(text_of(view))
    assert numbers == list(range(len(numbers)))
    notebook_page.wait_idle()
    notebook_page.run(2)
    assert paragraphs(notebook_page.outputs(2)) == numbers


# --- answers ---------------------------------------------------------------------------------------------------------


def test_approve_goes_on_in_the_same_view_and_a_double_click_acts_once(
    notebook_page: NotebookPage, mastra_server: MastraServer
) -> None:
    """B40"""
    count = """
runs, out = [], run
while out is not None:
    runs.append(out.status)
    out = out.next
print(runs, len(posts))"""
    spy = """
from nbmastra import MastraModelOutput
posts = []
approve = MastraModelOutput.approve
def counted(self, *args, **options):
    posts.append(args)
    return approve(self, *args, **options)
MastraModelOutput.approve = counted"""
    notebook_page.open(
        "approve.ipynb",
        [setup(mastra_server.url) + spy, ask("approve", mastra_server.url, "-o run --thread t --resource r"), count],
    )
    notebook_page.run(0)
    notebook_page.run(1)
    view = view_in(notebook_page, 1)
    expect(view).to_contain_text("Needs approval")
    expect(view).to_contain_text("asks to run deploy")
    view.get_by_role("button", name="Approve deploy").dblclick()
    output = notebook_page.outputs(1)
    expect(output).to_contain_text("Deployed.")
    expect(output).to_contain_text("Completed")
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    expect(output).to_have_count(1)
    expect(notebook_page.run(2)).to_have_text(["['suspended', 'success'] 1\n"])


def test_decline_tells_the_agent_why(notebook_page: NotebookPage, mastra_server: MastraServer) -> None:
    notebook_page.open(
        "decline.ipynb",
        [setup(mastra_server.url), ask("approve", mastra_server.url, "-o run --thread t2 --resource r")],
    )
    notebook_page.run(0)
    notebook_page.run(1)
    view = view_in(notebook_page, 1)
    view.get_by_label("Reason for declining").fill("not on a Friday")
    view.get_by_role("button", name="Decline deploy").click()
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    expect(notebook_page.outputs(1)).to_contain_text("Declined")


def test_the_form_of_a_question_resumes_the_run(notebook_page: NotebookPage, mastra_server: MastraServer) -> None:
    notebook_page.open(
        "ask.ipynb", [setup(mastra_server.url), ask("ask", mastra_server.url, "-o run --thread t3 --resource r")]
    )
    notebook_page.run(0)
    notebook_page.run(1)
    view = view_in(notebook_page, 1)
    expect(view).to_contain_text("Which city?")
    view.get_by_label("answer").fill("Oslo")
    view.get_by_role("button", name="Resume ask").click()
    output = notebook_page.outputs(1)
    expect(notebook_page.page.locator(".nbm")).to_have_count(0)
    expect(output).to_contain_text("Thanks, noted.")
    expect(output).to_contain_text("Oslo")
