"""Agents of a server that a test writes itself: refusals, cuts, cancelling."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from nbmastra.chunks import Chunk
from nbmastra.client import AgentInfo, AgentList, MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import AgentNotFound, NotFound, NotMastra, SettingsError, StreamTruncated
from nbmastra.output import MastraModelOutput
from tests.client.tiny_server import Request, TinyServer, answer, chunked

SECRET = "sk-very-secret-1"
AGENTS = {
    "weather": {"name": "Weather", "modelId": "gpt-5.2", "provider": "openai", "tools": {"look": {}, "ask": {}}},
    "supervisor": {"agents": {"sub": {}}, "instructions": [{"role": "system", "content": "Lead."}]},
    "hostile": {"modelId": "\x1b[31mred\nnext", "description": "\x1b]0;owned\x07", "tools": ["no", "object"]},
}


def event(kind: str, **payload: object) -> bytes:
    chunk = {"type": kind, "runId": "r", "from": "AGENT", "payload": payload}
    return f"data: {json.dumps(chunk)}\n\n".encode()


HELLO = [event("start", id="weather"), event("text-start", id="t"), event("text-delta", id="t", text="Hello")]
END = [event("finish", stepResult={"reason": "stop"}, output={}), b"data: [DONE]\n\n"]


@pytest.fixture
def client(server: TinyServer, engine: Engine) -> MastraClient:
    return MastraClient(server.url, token=SECRET, timeout=10, engine=engine)


def streams(*pieces: bytes) -> object:
    def handler(request: Request) -> Iterable[bytes]:
        if request.target.startswith("/api/agents?"):
            return [answer(200, json.dumps(AGENTS))]
        return chunked(pieces)

    return handler


def endless(request: Request) -> Iterator[bytes]:
    """A run that goes on until its client leaves."""

    def pieces() -> Iterator[bytes]:
        yield from HELLO
        while not request.gone.wait(0.01):
            yield event("text-delta", id="t", text="x")

    return chunked(pieces())


def test_a_run_is_asked_for_and_read_to_its_end(server: TinyServer, client: MastraClient) -> None:
    server.handler = streams(*HELLO, *END)
    memory = {"thread": "t1", "resource": "u1"}
    out = client.agent("we/ather").stream("Hi", memory=memory, max_steps=2).result()
    assert out.wait().status == "success"
    assert out.text.result() == "Hello"
    assert (out.agent, out.prompt) == ("we/ather", "Hi")
    assert out.context == {"url": server.url, **memory}
    [request] = server.requests
    assert request.target == "/api/agents/we%2Father/stream"
    assert json.loads(request.body) == {
        "messages": [{"role": "user", "content": "Hi"}],
        "memory": memory,
        "maxSteps": 2,
    }
    assert request.headers["accept"] == "text/event-stream"


def test_await_and_async_for_work_on_any_loop(server: TinyServer, client: MastraClient) -> None:
    server.handler = streams(*HELLO, *END)

    async def cell() -> tuple[str, list[str]]:
        out = await client.agent("weather").stream("Hi")
        return await out.text, [chunk.type async for chunk in out.full_stream]

    for _ in range(2):
        assert asyncio.run(cell()) == ("Hello", ["start", "text-start", "text-delta", "finish"])
    assert server.connections == 1


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        (["a", {"role": "user", "parts": [{"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c"}], "b"),
        ([{"role": "tool", "content": []}], None),
        ([{"role": "user", "content": [{"type": "image", "image": "…"}]}], None),
    ],
)
def test_the_prompt_is_what_the_user_asked_last(
    server: TinyServer, client: MastraClient, messages: Any, prompt: str | None
) -> None:
    server.handler = streams(*HELLO, *END)
    assert client.agent("weather").stream(messages).result().prompt == prompt


def test_the_deprecated_alias_says_what_to_write(server: TinyServer, client: MastraClient) -> None:
    server.handler = streams(*HELLO, *END)
    with pytest.warns(DeprecationWarning, match="until_idle=True"):
        request = client.agent("weather").stream_until_idle("Hi", max_idle_ms=5)
    assert request.result().until_idle
    assert json.loads(server.requests[0].body)["untilIdle"] == {"maxIdleMs": 5}


def test_agents_are_listed_with_what_they_are(server: TinyServer, client: MastraClient) -> None:
    server.handler = lambda _: [answer(200, json.dumps(AGENTS))]
    agents = client.agents().result()
    assert agents.ids == list(AGENTS)
    assert agents["weather"].tools == ("look", "ask")
    assert agents["weather"].model == "openai/gpt-5.2"
    assert agents["supervisor"].agents == ("sub",)
    assert agents["supervisor"].instructions == "Lead."
    assert agents._ipython_key_completions_() == agents.ids
    assert "weather" in agents
    assert agents[0] in agents
    with pytest.raises(KeyError):
        agents["nope"]
    assert repr(agents).splitlines()[:2] == [
        "agent       model           tools",
        "weather     openai/gpt-5.2  look, ask",
    ]
    for agent in agents:
        assert repr(agent).isprintable()
    assert repr(agents).replace("\n", "").isprintable()
    assert len(repr(agents).splitlines()) == 4
    assert repr(AgentList([])) == "no agents"


def test_an_agent_is_described(server: TinyServer, client: MastraClient) -> None:
    server.handler = lambda _: [answer(200, json.dumps(AGENTS["weather"]))]
    info = client.agent("weather").describe().result()
    assert info == AgentInfo("weather", "Weather", "", "openai/gpt-5.2", ("look", "ask"))
    assert info.raw == AGENTS["weather"]
    assert repr(info) == "<Agent weather openai/gpt-5.2; tools: look, ask>"
    server.handler = lambda _: [answer(200, "[]")]
    with pytest.raises(NotMastra):
        client.agent("weather").describe().result()


@pytest.mark.parametrize("agent_id", ["wether", "nope\x1b[31m"])
def test_a_missing_agent_is_named_with_those_that_exist(
    server: TinyServer, client: MastraClient, agent_id: str
) -> None:
    def handler(request: Request) -> Iterable[bytes]:
        if request.target.startswith("/api/agents?"):
            return [answer(200, json.dumps(AGENTS))]
        return [answer(404, json.dumps({"error": f"Agent with id {agent_id} not found"}))]

    server.handler = handler
    for request in (client.agent(agent_id).stream("Hi"), client.agent(agent_id).describe()):
        with pytest.raises(AgentNotFound, match="There are: weather, supervisor, hostile") as caught:
            request.result()
        assert caught.value.available == list(AGENTS)
        assert ("Did you mean 'weather'?" in str(caught.value)) == (agent_id == "wether")
        assert str(caught.value).isprintable()
    with pytest.raises(NotFound, match="Agent with id") as other:
        client.agent("weather").stream("Hi").result()
    assert type(other.value) is NotFound


def test_a_missing_agent_is_said_to_be_missing_where_no_list_is_to_be_had(
    server: TinyServer, client: MastraClient
) -> None:
    server.handler = lambda _: [answer(404, '{"error": "Agent with id x not found"}')]
    with pytest.raises(AgentNotFound, match="no agent 'x' at") as caught:
        client.agent("x").stream("Hi").result()
    assert caught.value.available == []


def test_an_error_shows_in_a_notebook_as_one_line(server: TinyServer, client: MastraClient) -> None:
    server.handler = lambda _: [answer(200, "<html>", "text/html")]
    with pytest.raises(NotMastra) as caught:
        client.agent("weather").stream("Hi").result()
    [line] = caught.value._render_traceback_()
    assert line.startswith("NotMastra: http://127.0.0.1:")
    assert "\n" not in line


def test_bad_options_are_refused_before_anything_is_sent(server: TinyServer, client: MastraClient) -> None:
    with pytest.raises(SettingsError, match="max_steps"):
        client.agent("weather").stream("Hi", max_step=3)
    with pytest.raises(SettingsError, match="isn't JSON"):
        client.agent("weather").stream("Hi", context=[object()]).result()
    assert server.connections == 0


@pytest.mark.parametrize("half", [b"", b'data: {"type":"text-del'], ids=["between-events", "in-mid-event"])
@pytest.mark.parametrize("clean_end", [True, False], ids=["ended", "broken"])
def test_b07_a_run_that_just_stops_is_truncated(
    server: TinyServer, client: MastraClient, half: bytes, clean_end: bool
) -> None:
    def handler(_: Request) -> Iterator[bytes]:
        answered = list(chunked([*HELLO, half] if half else HELLO))
        yield from answered if clean_end else answered[:-1]
        if not clean_end:
            raise ConnectionAbortedError

    server.handler = handler
    out = client.agent("weather").stream("Hi").result().wait()
    assert out.status == "truncated"
    with pytest.raises(StreamTruncated) as caught:
        out.text.result()
    assert caught.value.partial == "Hello"
    assert [chunk.type for chunk in out] == ["start", "text-start", "text-delta"]
    if not clean_end:
        assert "the connection broke" in out.status_reason
    elif half:
        assert "the last event is incomplete" in out.status_reason


def test_an_event_above_the_cap_ends_the_run_with_what_came_before(server: TinyServer, engine: Engine) -> None:
    client = MastraClient(server.url, max_event_bytes=500, engine=engine)
    server.handler = streams(*HELLO, event("text-delta", id="t", text="x" * 1000), *END)
    out = client.agent("weather").stream("Hi").result().wait()
    assert out.status == "truncated"
    assert "larger than 500 bytes" in out.status_reason
    assert out.total.text == "Hello"


def test_cancelling_a_run_closes_its_connection_within_a_second(server: TinyServer, client: MastraClient) -> None:
    server.handler = endless
    out = client.agent("weather").stream("Hi").result()
    assert next(iter(out.text_stream)) == "Hello"
    out.cancel()
    assert server.requests[0].gone.wait(1)
    assert out.wait(1).status == "cancelled"
    assert out.text.result().startswith("Hello")


def test_b10_leaving_early_leaves_nothing_behind(server: TinyServer, client: MastraClient) -> None:
    async def cell(last: str) -> tuple[MastraModelOutput, set[asyncio.Task[object]]]:
        out = await client.agent("weather").stream("Hi")
        async for chunk in out.full_stream:
            if chunk.type == last:
                break
        await asyncio.wait_for(out.aclose(), 1)
        await out.aclose()
        return out, asyncio.all_tasks() - {asyncio.current_task()}

    server.handler = streams(*HELLO, *END)
    out, left = asyncio.run(cell("finish"))
    assert (out.status, left) == ("success", set())
    server.handler = endless
    out, left = asyncio.run(cell("text-delta"))
    assert (out.status, left) == ("cancelled", set())
    assert server.requests[-1].gone.wait(1)


def test_an_interrupt_while_the_answer_is_awaited_closes_the_connection(
    server: TinyServer, client: MastraClient
) -> None:
    asked = threading.Event()

    def silent(request: Request) -> Iterator[bytes]:
        asked.set()
        while not request.gone.wait(0.01):
            yield b"HTTP/1.1 100 Continue\r\n\r\n"

    server.handler = silent

    async def cell() -> None:
        waiting = asyncio.create_task(_stream(client))
        await asyncio.to_thread(asked.wait, 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cell())
    assert server.requests[0].gone.wait(1)


async def _stream(client: MastraClient) -> MastraModelOutput:
    return await client.agent("weather").stream("Hi")


def test_cancelling_a_request_ends_the_run_that_it_began(server: TinyServer, client: MastraClient) -> None:
    server.handler = endless
    request = client.agent("weather").stream("Hi")
    out = request.result()
    request.cancel()
    assert out.wait(1).status == "cancelled"
    assert server.requests[0].gone.wait(1)


def test_a_silent_run_ends_after_its_idle_timeout(server: TinyServer, client: MastraClient) -> None:
    def silent(request: Request) -> Iterator[bytes]:
        yield from list(chunked(HELLO))[:-1]
        request.gone.wait(5)

    server.handler = silent
    out = client.agent("weather").stream("Hi", idle_timeout=0.05).result().wait(5)
    assert out.status == "cancelled"
    assert "nothing came for 0.05 s" in out.status_reason


def test_reprs_help_and_tell_no_secret(server: TinyServer, client: MastraClient) -> None:
    server.handler = streams(*HELLO, *END)
    agent = client.agent("weather")
    request = agent.stream("Hi")
    out = request.result()
    out.wait()
    for thing in (client, agent, request, out):
        assert SECRET not in repr(thing)
        assert repr(thing).startswith("<")
    assert "await .stream(" in repr(agent)
    assert "await it, or call .result()" in repr(request)
    assert all(isinstance(chunk, Chunk) for chunk in out)
