"""A manager for each test, shut down at its end, after which nothing is left on the engine's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbmastra.runtime.background.manager import BackgroundTaskManager

Make = Callable[..., BackgroundTaskManager]


@pytest.fixture
def make(tmp_path: Path, nothing_stays_behind: None) -> Iterator[Make]:
    made: list[BackgroundTaskManager] = []

    def new(store: Any = "sqlite://", **options: Any) -> BackgroundTaskManager:
        manager = BackgroundTaskManager(store, **{"poll_s": 0.05, **options})
        made.append(manager)
        return manager

    yield new
    for manager in made:
        manager.shutdown(0.5).result(10)
