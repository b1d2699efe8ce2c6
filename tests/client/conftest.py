"""What the client's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbmastra.client.address import TOKEN_VARIABLE, URL_VARIABLE
from nbmastra.engine import Engine
from tests.client.tiny_server import TinyServer, tiny_server


@pytest.fixture(autouse=True)
def no_server_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine("nbmastra-test-engine")
    yield engine
    engine.close()


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with tiny_server() as server:
        yield server
