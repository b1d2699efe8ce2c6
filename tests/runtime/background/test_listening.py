"""Who listens to tasks, or waits for one, misses nothing that another kernel does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nbmastra.runtime.background.manager import BackgroundTaskManager
from tests.runtime.background.conftest import Make


def noted(text: str) -> str:
    """Give the text."""
    return text


@pytest.fixture
def here(make: Make, tmp_path: Path) -> BackgroundTaskManager:
    return make(f"sqlite:///{tmp_path}/tasks.db")


@pytest.fixture
def elsewhere(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackgroundTaskManager:
    """Another kernel, which queues and cancels but runs nothing."""
    manager = make(f"sqlite:///{tmp_path}/tasks.db")
    monkeypatch.setattr(manager, "kick", lambda: None)
    return manager


def queue(manager: BackgroundTaskManager, task_id: str) -> None:
    manager.enqueue(noted, {"text": "x"}, agent="elsewhere", task_id=task_id).result(10)


def until(manager: BackgroundTaskManager, is_so: Callable[[], object]) -> None:
    """Return when something is so on the engine's loop."""

    async def look() -> bool:
        return bool(is_so())

    while not manager.engine.start(look).result(10):
        pass


def test_what_happens_before_the_first_look_is_heard(
    here: BackgroundTaskManager, elsewhere: BackgroundTaskManager
) -> None:
    queue(elsewhere, "t1")
    here._looking = True  # no look until this is False
    out = here.stream().result(10)
    waiting = here.wait_for_next("t1", 20)
    until(here, lambda: here._listeners and here._waiters and here._position is not None)
    elsewhere.cancel("t1").result(10)
    here._looking = False
    assert next(chunk.type for chunk in out.full_stream) == "background-task-cancelled"
    assert waiting.result(20).status == "cancelled"
    out.cancel()
    out.wait(10)


def test_who_begins_to_listen_hears_nothing_of_the_time_before(
    here: BackgroundTaskManager, elsewhere: BackgroundTaskManager
) -> None:
    for before, during in (("t1", "t2"), ("t3", "t4")):
        queue(elsewhere, before)
        elsewhere.cancel(before).result(10)
        out = here.stream().result(10)
        until(here, lambda: here._listeners)
        queue(elsewhere, during)
        elsewhere.cancel(during).result(10)
        assert next(iter(out.full_stream)).raw_payload()["taskId"] == during
        out.cancel()
        out.wait(10)
        until(here, lambda: here._poller is not None and here._poller.done())


def test_a_listener_that_comes_while_the_watch_is_being_given_up_is_watched_for(
    here: BackgroundTaskManager, elsewhere: BackgroundTaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on, live = threading.Event(), threading.Event(), here.tasks.live

    def slowly(known: set[tuple[str, str]]) -> set[str]:
        asked.set()
        go_on.wait(10)
        return live(known)

    async def watch() -> None:
        here.kick()

    monkeypatch.setattr(here.tasks, "live", slowly)
    here.engine.start(watch).result(10)
    assert asked.wait(10)
    out = here.stream().result(10)
    until(here, lambda: here._listeners)
    go_on.set()
    queue(elsewhere, "t1")
    elsewhere.cancel("t1").result(10)
    assert next(chunk.type for chunk in out.full_stream) == "background-task-cancelled"
    out.cancel()
    out.wait(10)
