from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mastra import MastraServer, run_mastra_server

pytestmark = pytest.mark.server

AGENTS = set(
    "text tools bad-args object list background suspend approve client-tool ask goal task-complete data tripwire error "
    "error-first supervisor slow durable long".split()
)


def get(url: str) -> object:
    with urllib.request.urlopen(url) as response:
        return json.load(response)


def test_the_server_has_every_agent_of_the_recordings(mastra_server: MastraServer) -> None:
    agents = get(f"{mastra_server.url}/api/agents")
    assert isinstance(agents, dict)
    assert set(agents) >= AGENTS


def test_the_scripted_model_streams_the_same_text_every_time(mastra_server: MastraServer) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Weather?"}]}).encode()
    request = urllib.request.Request(
        f"{mastra_server.url}/api/agents/tools/stream", body, {"Content-Type": "application/json"}
    )
    texts: list[str] = []
    for _ in range(2):
        with urllib.request.urlopen(request) as response:
            events = response.read().decode().split("\n\n")
        assert events[-2] == "data: [DONE]"
        chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
        texts.append("".join(chunk["payload"]["text"] for chunk in chunks if chunk["type"] == "text-delta"))
    assert texts == ["Let me look that up.It is 21 °C in Paris."] * 2


def test_a_second_server_has_settings_and_a_port_of_its_own(
    mastra_server: MastraServer, start_mastra_server: Callable[..., MastraServer]
) -> None:
    second = start_mastra_server(CHUNK_DELAY_MS="20")
    assert second.url != mastra_server.url
    assert get(f"{second.url}/api/agents")


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"(?s)before it was ready.*nowhere"),
        run_mastra_server(tmp_path, DB="nowhere:x"),
    ):
        pass


def test_no_server_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    with run_mastra_server(tmp_path) as server:
        assert server.process.stdin is not None
        server.process.stdin.close()  # what the system does when this process dies
        assert server.process.wait(timeout=30) == 0
