"""A manager for each test, shut down at its end, after which nothing is left on the engine's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbmastra.runtime.background.manager import BackgroundTaskManager
from tests.support.postgres import new_schema
from tests.torture.run import local_cluster

Make = Callable[..., BackgroundTaskManager]
ON_BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.server)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.endswith("test_manager") and "make" in metafunc.fixturenames:
        metafunc.parametrize("make", ON_BOTH, indirect=True)


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path, nothing_stays_behind: None) -> Iterator[Make]:
    """Makes managers; without a store of their own, in memory, or in a schema of PostgreSQL."""
    made: list[BackgroundTaskManager] = []
    usual = "sqlite://"
    if getattr(request, "param", "sqlite") == "postgres":
        usual = new_schema(request.getfixturevalue("postgres_url"))

    def new(store: Any = usual, **options: Any) -> BackgroundTaskManager:
        manager = BackgroundTaskManager(store, **{"poll_s": 0.05, **options})
        made.append(manager)
        return manager

    yield new
    for manager in made:
        manager.shutdown(0.5).result(60)
        if not manager.store.address.is_sqlite:
            manager.store.close()


@pytest.fixture(params=ON_BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store that several kernels can share."""
    if request.param == "postgres":
        return new_schema(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a Dask cluster of two processes."""
    with local_cluster(threads=2) as address:
        yield address
