"""The magics in a real kernel: what a front end is sent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.kernel import Kernel, Shown
from tests.support.mastra import MastraServer
from tests.test_magics import B46, WIDGET


def test_b46_in_a_kernel_the_body_is_passed_on_as_it_is(kernel: Kernel) -> None:
    kernel.run(
        "class Echo:\n"
        "    def stream(self, messages, **options):\n"
        "        self.asked = messages\n"
        "        return nbmastra.replay(nbmastra.demo_recording(), None)\n"
        "echo = Echo()"
    )
    kernel.run(f"%%mastra_stream echo -o res -q\n{B46}")
    shown = kernel.run(f"print(echo.asked == {B46!r}, res.status)")
    assert shown.text == "True success\n"


def test_a_cell_blocks_until_the_run_is_over(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent(speed=20)")
    shown = kernel.run("%%mastra_stream agent -f text -o out\nhi")
    assert "Ride round the lake on Saturday" in shown.text
    assert kernel.run("print(out.done)").text == "True\n"


def test_a_failed_run_marks_its_cell_failed_in_one_line_and_later_cells_are_not_run(kernel: Kernel) -> None:
    kernel.run(
        "class Failing:\n"
        "    def stream(self, messages, **options):\n"
        "        payload = {'error': {'message': 'went away'}}\n"
        "        return nbmastra.MastraModelOutput.from_chunks([{'type': 'error', 'payload': payload}])\n"
        "failing = Failing()"
    )
    cell = kernel.start("%%mastra_stream failing -q -o out\nhi")
    after = kernel.start("print('must not run')")
    assert cell.reply()["status"] == "error"
    [error] = cell.shown.of("error")
    assert error["traceback"] == ["MastraStreamError: went away"]
    assert after.reply()["status"] == "aborted"
    assert kernel.run("print(out.status)").text == "failed\n"


def test_an_interrupt_stops_the_run_keeps_what_came_and_marks_the_cell_failed(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent()")
    cell = kernel.start("%%mastra_stream agent -f text -o out\nhi")
    cell.wait_for("→ forecast")
    kernel.interrupt()
    assert cell.reply(5)["status"] == "error"
    [error] = cell.shown.of("error")
    assert error["traceback"] == ["KeyboardInterrupt: the run was stopped; what came is kept in out"]
    assert "trip · Stopped" in cell.shown.text
    shown = kernel.run("print(out.status, out.tool_calls[0].tool_name)")
    assert shown.text == "cancelled forecast\n"


def test_stopping_a_run_does_not_mark_its_cell_failed(kernel: Kernel) -> None:
    kernel.run("import threading\nagent = nbmastra.demo_agent()\nagents = []")
    kernel.run(
        "class Stopped:\n"
        "    def stream(self, messages, **options):\n"
        "        out = nbmastra.replay(nbmastra.demo_recording())\n"
        "        threading.Thread(target=lambda: (next(iter(out.full_stream)), out.cancel())).start()\n"
        "        return out\n"
        "stopped = Stopped()"
    )
    shown = kernel.run("%%mastra_stream stopped -f text -o out\nhi")
    assert "Stopped: stopped by you" in shown.text


def test_b44_a_background_run_prints_into_its_own_cell_only(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent(speed=20)")
    first = kernel.start("%%mastra_stream agent -f text --background -o out\nhi")
    assert first.reply()["status"] == "ok"
    second = kernel.run("print('two')\n_ = out.wait()")
    first.wait_for("trip · Completed")
    assert second.text == "two\n"
    assert second.of("display_data", "update_display_data", "execute_result") == []
    assert "Ride round the lake on Saturday" in first.shown.text


def views(shown: Shown) -> list[dict[str, Any]]:
    return [content for content in shown.of("display_data") if WIDGET in content["data"]]


def test_a_live_view_gives_its_place_to_plain_output_before_the_cell_ends(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent(speed=10)")
    shown = kernel.run("%%mastra_stream agent -o out\nhi")
    [view] = views(shown)
    [update] = shown.of("update_display_data")
    assert update["transient"] == view["transient"]
    assert WIDGET not in update["data"]
    assert "Lakeside meadow" in update["data"]["text/html"]
    assert "Lakeside meadow" in update["data"]["text/markdown"]
    assert shown.text == ""


def test_b44_a_background_view_stays_in_its_own_cell(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent(speed=20)")
    first = kernel.start("%%mastra_stream agent --background -o out\nhi")
    assert first.reply()["status"] == "ok"
    assert len(views(first.shown)) == 1
    second = kernel.run("print('two')\n_ = out.wait()")
    while not first.shown.of("update_display_data"):
        kernel.read_message()
    assert second.text == "two\n"
    assert second.of("display_data", "update_display_data", "execute_result") == []


def test_an_output_as_a_cells_last_line_shows_itself_in_a_kernel(kernel: Kernel) -> None:
    shown = kernel.run("out = nbmastra.load_recording(nbmastra.demo_recording())\nout")
    [content] = shown.of("display_data")
    assert WIDGET not in content["data"]
    assert "Lakeside meadow" in content["data"]["text/html"]
    running = kernel.start("out = nbmastra.replay(nbmastra.demo_recording(), 20)\nout")
    running.reply()
    assert len(views(running.shown)) == 1
    kernel.run("_ = out.wait()")
    while not running.shown.of("update_display_data"):
        kernel.read_message()


def test_an_interrupt_leaves_a_snapshot_of_what_came(kernel: Kernel) -> None:
    kernel.run("agent = nbmastra.demo_agent()")
    cell = kernel.start("%%mastra_stream agent -o out\nhi")
    while "forecast" not in json.dumps(cell.shown.of("comm_msg")):
        kernel.read_message()
    kernel.interrupt()
    assert cell.reply(5)["status"] == "error"
    [update] = cell.shown.of("update_display_data")
    assert "forecast" in update["data"]["text/html"]
    assert [error["ename"] for error in cell.shown.of("error")] == ["RunInterrupted"]


@pytest.mark.server
def test_b43_interrupting_an_awaiting_cell_ends_the_run_and_its_connection(
    kernel: Kernel, start_mastra_server: Callable[..., MastraServer]
) -> None:
    server = start_mastra_server(CHUNK_DELAY_MS="50")
    kernel.run(f"agent = nbmastra.MastraClient({server.url!r}).agent('long')")
    cell = kernel.start("out = await agent.stream('x', until_idle=True)\nprint('begun')\nawait out.text")
    cell.wait_for("begun")
    kernel.interrupt()
    asked = time.monotonic()
    assert cell.reply(5)["status"] == "error"
    assert time.monotonic() - asked < 2
    [error] = cell.shown.of("error")
    assert error["traceback"] == ["Interrupted: the run was stopped by an interrupt"]
    shown = kernel.run(
        f"import urllib.request\nprint(out.status, urllib.request.urlopen('{server.url}/test/aborts?after=0').read())"
    )
    assert shown.text.startswith('cancelled b\'{"aborts":1')
