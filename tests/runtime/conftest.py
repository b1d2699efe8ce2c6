"""A small server in the place of model providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.tiny_server import TinyServer, tiny_server
from tests.support.provider_streams import KEY


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyServer]:
    with tiny_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield server
