"""1,000 deltas a second into a run view in a real JupyterLab in Chromium: what the page and the kernel need for it.

    python benchmarks/bench_browser.py [SECONDS]

From the browser's own performance trace: the tasks of the page's main thread, by time and by CPU time, since others may
use this machine too. No task may take more than 100 ms; the kernel may need 20 % of one core, its streaming included.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.lab import CHROMIUM_FLAGS, NotebookPage, run_lab
from tests.support.setup_browser import find_chromium

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
PER_SECOND = 1000
LONGEST_MS = 100
KERNEL_SHARE = 0.20
CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]

SETUP = f"""
import asyncio, time
from nbmastra import MastraModelOutput, RunView

def chunk(kind, **payload):
    return {{"type": kind, "runId": "r", "from": "AGENT", "payload": payload}}

WORDS = "The **wind** comes from the west and pushes you most of the way, `14 km/h` at noon.\\n\\n- rest\\n\\n"

async def paced(seconds, pace={PER_SECOND}):
    yield chunk("start", id="a")
    yield chunk("step-start")
    began, at = time.perf_counter(), 0
    for number in range(seconds * pace):
        wait = began + number / pace - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        at = (at + 6) % len(WORDS)
        yield chunk("text-delta", id="t", text=WORDS[at : at + 6])
    yield chunk("step-finish", stepResult={{"reason": "stop"}}, output={{}})
    yield chunk("finish", stepResult={{"reason": "stop"}}, output={{}})

MastraModelOutput.from_chunks(paced(1)).wait()  # all is loaded
"""
RUN = """
out = MastraModelOutput.from_chunks(paced({seconds}))
view = RunView(out)
display(view._repr_mimebundle_()[0], raw=True)
cpu, began = time.process_time(), time.perf_counter()
out.wait()
cpu, took = time.process_time() - cpu, time.perf_counter() - began
print(f"kernel {{cpu / took:.3f}} of one core, {{len(out.log) / took:.0f}} deltas a second")
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, run_lab(Path(directory)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        notebook = NotebookPage(lab, browser.new_page(viewport={"width": 1280, "height": 900}))
        notebook.open("bench.ipynb", [SETUP, RUN.format(seconds=1), RUN.format(seconds=SECONDS)])
        notebook.run(0)
        notebook.run(1)  # warm
        notebook.start(2)
        expect(notebook.outputs(2).locator(".nbm-md")).to_contain_text("rest")  # the click that ran the cell isn't ours
        browser.start_tracing(page=notebook.page, categories=CATEGORIES)
        notebook.page.wait_for_timeout(1000 * SECONDS)  # nothing of ours in the page while it works
        notebook.wait_done(2)
        trace: dict[str, Any] = json.loads(browser.stop_tracing())
        expect(notebook.outputs(2).locator(".nbm-status--completed").first).to_be_visible()
        said = notebook.outputs(2).last.inner_text()
        browser.close()
    print(said)
    share = re.search(r"kernel ([\d.]+)", said)
    assert share is not None
    wall, cpu = tasks(trace["traceEvents"])
    for name, times in (("time", wall), ("CPU time", cpu)):
        over = sum(ms > 50 for ms in times)
        print(f"page's tasks by {name}: longest {max(times):.0f} ms, {over} above 50 ms, together {sum(times):.0f} ms")
    good = max(cpu) <= LONGEST_MS and float(share[1]) <= KERNEL_SHARE
    print("within bounds" if good else f"OUT OF BOUNDS: {LONGEST_MS} ms, {KERNEL_SHARE:.0%}")
    return 0 if good else 1


def tasks(events: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Milliseconds and CPU milliseconds of each task of the busiest page's main thread."""
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"].get("name") == "CrRendererMain"
    }
    by_thread: dict[tuple[int, int], list[dict[str, Any]]] = {thread: [] for thread in mains}
    for event in events:
        if event["name"] == "RunTask" and event["ph"] == "X" and (event["pid"], event["tid"]) in mains:
            by_thread[event["pid"], event["tid"]].append(event)
    busiest = max(by_thread.values(), key=lambda found: sum(event["dur"] for event in found))
    return [event["dur"] / 1000 for event in busiest], [event.get("tdur", 0) / 1000 for event in busiest]


if __name__ == "__main__":
    sys.exit(main())
