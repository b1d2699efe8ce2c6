"""MCP servers as tools of local agents: a real server, spoken to over its stdin and stdout."""

from __future__ import annotations

import asyncio
import builtins
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.client.stdio import StdioServerParameters

from nbmastra import Agent
from nbmastra.errors import SettingsError, ToolInputError, ToolServerError
from nbmastra.runtime.mcp import connect_mcp, mcp_sources
from nbmastra.testing import ScriptedModel, call, say
from nbmastra.tools import Tool, ToolContext, tool
from tests.support.processes import running

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
SERVER = [sys.executable, SCRIPT]


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if SCRIPT in child.cmdline()]


async def run(made: Tool, **arguments: Any) -> Any:
    return await made.run(made.parse(arguments), ToolContext(tool_name=made.name))


async def test_all_pages_of_a_servers_tools_are_there_under_names_that_models_take() -> None:
    async with connect_mcp([SERVER]) as tools:
        assert [made.name for made in tools] == ["add", "fail", "weird_n_me", "wait", "die", "environment"]
        assert tools[0].description == "add it."
        assert tools[0].parameters["properties"]["a"] == {"type": "integer"}
        assert await run(tools[0], a=1, b=2) == {"total": 3}
        assert await run(tools[2]) == "weird.näme"
        assert len(children()) == 1
    assert children() == []


async def test_names_stay_unique_over_servers() -> None:
    async with connect_mcp([SERVER, {"command": sys.executable, "args": [SCRIPT], "env": {"SAID": "hello"}}]) as tools:
        by_name = {made.name: made for made in tools}
        assert len(by_name) == 12
        assert await run(by_name["environment"]) == "nothing"
        assert await run(by_name["environment_2"]) == "hello"


@pytest.mark.parametrize(
    "spec",
    [f"{sys.executable} {SCRIPT}", StdioServerParameters(command=sys.executable, args=[SCRIPT])],
    ids=["command line", "parameter object"],
)
async def test_a_server_is_named_in_several_ways(spec: Any) -> None:
    async with connect_mcp(spec) as tools:
        assert await run(tools[0], a=1, b=2) == {"total": 3}


async def test_a_server_in_this_process_will_do_too() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("here")

    @server.tool()
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    async with connect_mcp([server]) as tools:
        assert (tools[0].name, tools[0].description) == ("shout", "Say it loudly.")
        assert await run(tools[0], text="hi") == {"result": "HI"}


async def test_a_server_is_reached_over_http_with_its_headers(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("mcp_http_server.py"))]
    with running(command, r"^listening (\d+)", tmp_path / "log", cwd=tmp_path, env=dict(os.environ)) as (_, found):
        url = f"http://127.0.0.1:{found[1]}/mcp"
        async with connect_mcp([{"url": url, "headers": {"Authorization": "Bearer letmein"}}]) as tools:
            assert await run(tools[0], text="hi") == {"result": "HI"}
        with pytest.raises(ToolServerError, match="can't be used"):
            async with connect_mcp([url]):
                pass


async def test_what_a_server_says_went_wrong_is_the_tools_error() -> None:
    async with connect_mcp([SERVER]) as (add, fail, *_):
        with pytest.raises(ToolServerError, match="the disk is full"):
            await run(fail)
        with pytest.raises(ToolInputError):
            await run(add, a="one", b=2)
        assert await run(add, a=1, b=2) == {"total": 3}


async def test_a_call_ends_after_its_time_or_when_it_is_cancelled() -> None:
    async with connect_mcp([{"command": SERVER[0], "args": SERVER[1:], "timeout": 0.2}]) as tools:
        with pytest.raises(Exception, match=r"(?i)time"):
            await run(tools[3])
        assert await run(tools[0], a=1, b=2) == {"total": 3}
    async with connect_mcp([SERVER]) as tools:
        task = asyncio.create_task(run(tools[3]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await run(tools[0], a=1, b=2) == {"total": 3}


async def test_a_server_that_dies_fails_its_calls_and_not_the_run() -> None:
    async with connect_mcp([SERVER]) as tools:
        for made in (tools[4], tools[5]):
            with pytest.raises(Exception, match=r"(?i)closed|connection|ended"):
                await run(made)


async def test_a_server_that_does_not_start_is_told_with_what_it_wrote() -> None:
    with pytest.raises(ToolServerError, match="no licence file"):
        async with connect_mcp([[*SERVER, "--broken"]]):
            pass
    with pytest.raises(ToolServerError, match="no-such-command-here"):
        async with connect_mcp(["no-such-command-here"]):
            pass
    with pytest.raises(ToolServerError, match=r"http://127\.0\.0\.1:9/mcp can't be used") as caught:
        async with connect_mcp(["http://user:secret@127.0.0.1:9/mcp?key=secret"]):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "spec", [[5], [None], [{}], [{"comand": "x"}], [{"command": "x", "url": "y"}], [[]], [["x", 3]], ['"']]
)
def test_what_names_no_server_is_refused_at_once(spec: Any) -> None:
    with pytest.raises(SettingsError, match="an MCP server is"):
        mcp_sources(spec)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "mcp":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SettingsError, match=r"nbmastra\[mcp\]") as caught:
        Agent("a", model=ScriptedModel([[say("x")]]), mcp=[SERVER])
    assert "\n" not in str(caught.value)


# --- within a run -----------------------------------------------------------------------------------------------------


async def test_an_agent_calls_them_and_closes_the_server_with_the_run() -> None:
    @tool(name="add")
    def own(a: int) -> int:
        """An own tool of the same name."""
        return -a

    script = [[call("add", a=1), call("add_2", a=1, b=2), call("fail"), call("add_2", a="x")], [say("Done.")]]
    agent = Agent("a", model=ScriptedModel(script), tools=[own], mcp=[SERVER])
    out = await agent.stream("go")
    assert await out.text == "Done."
    first, second, failed, refused = out.state.tool_calls
    assert (first.result, second.result) == (-1, {"total": 3})
    assert failed.error is not None
    assert failed.error.message == "the disk is full"
    assert refused.status == "error"
    await out.aclose()
    assert children() == []


async def test_a_server_that_cannot_be_used_fails_the_run_in_one_line() -> None:
    out = await Agent("a", model=ScriptedModel([[say("x")]]), mcp=[[*SERVER, "--broken"]]).stream("go")
    await asyncio.to_thread(out.wait, 40)
    assert out.status == "failed"
    assert "no licence file" in out.status_reason


async def test_cancelling_a_run_closes_its_servers() -> None:
    agent = Agent("a", model=ScriptedModel([[call("wait")], [say("x")]]), mcp=[SERVER])
    out = await agent.stream("go")
    async for chunk in out.full_stream:
        if chunk.type == "tool-call":
            break
    out.cancel()
    await out.aclose()
    assert out.status == "cancelled"
    deadline = asyncio.get_running_loop().time() + 10
    while children() and asyncio.get_running_loop().time() < deadline:
        await asyncio.to_thread(psutil.wait_procs, children(), 1)
    assert children() == []
