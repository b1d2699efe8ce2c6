"""100 times made, shown and closed: nothing of a view stays, in ipywidgets, on the run or on the engine."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ipywidgets
import pytest

from nbmastra import RunView, Timeline, ToolCallsTable, UsageView, demo_recording, replay
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.tasks_table import TasksTable
from tests.support.feed import Feed, engine_tasks
from tests.support.runs import call, finish, start, step_finish, step_start, text
from tests.widgets.recording_comm import RecordingComm

VIEWS: list[Callable[[MastraModelOutput], Any]] = [RunView, ToolCallsTable, TasksTable, Timeline, UsageView]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("running", [True, False], ids=["running", "finished"])
def test_a_view_that_was_closed_leaves_nothing_behind(
    view: Callable[[MastraModelOutput], Any], running: bool, comms: list[RecordingComm], capsys: Any
) -> None:
    """B49: no widget, no listener on its run, no thread, no task; also of a run that goes on."""
    feed = Feed(start(), step_start(), text("Hello"), call("c1"))
    out = feed.run()
    if not running:
        feed.push(step_finish(), finish())
        feed.end(done=True)
        out.wait(5)
    view(out).close()  # what is made once
    before = len(ipywidgets.widgets.widget._instances), threading.active_count(), set(engine_tasks())
    refs = []
    for _ in range(100):
        shown = view(out)
        shown._ipython_display_()
        shown.close()
        refs.append(weakref.ref(shown))
        del shown
        comms.clear()
    capsys.readouterr()
    tasks = set(engine_tasks())  # asks on the loop, so that what was cancelled has ended
    while tasks - before[2]:
        tasks = set(engine_tasks())
    gc.collect()
    assert [ref() for ref in refs if ref() is not None] == []
    assert (len(ipywidgets.widgets.widget._instances), threading.active_count()) == before[:2]
    assert (out._done_callbacks, out._next_callbacks) == ([], [])
    if running:
        feed.end(done=True)
        out.wait(5)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_a_view_of_a_replay_that_was_closed_hears_no_more_of_its_moves(view: Callable[[Any], Any]) -> None:
    out = replay(demo_recording(), start=3, paused=True)
    shown = view(out)
    assert len(out.playback._callbacks) == 1
    shown.close()
    assert out.playback._callbacks == []
    out.cancel()
    out.wait(5)
