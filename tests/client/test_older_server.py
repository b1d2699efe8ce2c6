"""An older Mastra 1.x, the lower end of what is supported in practice: the same client, fold and output."""

from __future__ import annotations

import pytest

from nbmastra import MastraClient
from nbmastra.usage import Usage
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.server


async def test_an_older_server_streams_text_reasoning_parallel_tools_and_usage(
    older_mastra_server: MastraServer,
) -> None:
    out = await MastraClient(older_mastra_server.url).agent("tools").stream("Weather?")
    assert await out.text == "It is 21 °C."
    assert await out.reasoning == "Two cities."
    assert [(call.args, call.status) for call in await out.tool_calls] == [
        ({"city": "Paris"}, "success"),
        ({"city": "Nowhere"}, "error"),
    ]
    assert await out.usage == Usage(45, 20, 65)
    assert out.status == "success"
    assert not out.state.unknown
    assert not out.state.notices


async def test_an_older_server_gives_a_checked_object(older_mastra_server: MastraServer) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    out = await MastraClient(older_mastra_server.url).agent("object").stream("Who?", schema=schema)
    assert await out.object == {"name": "Ada"}


async def test_an_older_server_lists_its_agents(older_mastra_server: MastraServer) -> None:
    assert sorted((await MastraClient(older_mastra_server.url).agents()).ids) == ["object", "tools"]
