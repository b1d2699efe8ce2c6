"""Threads, messages, traces and packages of a real Mastra server."""

from __future__ import annotations

import json

import pytest

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import NotFound
from tests.client.tiny_server import TinyServer, answer
from tests.support.mastra import MastraServer


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


@pytest.mark.server
def test_threads_and_their_messages_are_there_after_a_run(client: MastraClient) -> None:
    for number in range(2):
        memory = {"thread": f"kept-{number}", "resource": "history-tests"}
        client.agent("slow").stream("Remember", memory=memory).result(10).wait(20)
    threads = client.threads(resource="history-tests").result(10)
    assert {thread["id"] for thread in threads} == {"kept-0", "kept-1"}
    assert (threads.total, threads.has_more) == (2, False)
    first = client.threads(resource="history-tests", per_page=1).result(10)
    assert (len(first), first.has_more) == (1, True)
    thread = client.thread("kept-0")
    assert thread.get().result(10)["resourceId"] == "history-tests"
    messages = thread.messages().result(10)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[0]["content"]["parts"][0]["text"] == "Remember"
    with pytest.raises(NotFound):
        client.thread("nope", agent="slow").get().result(10)


@pytest.mark.server
def test_a_run_is_found_in_the_traces_by_its_run_id(client: MastraClient) -> None:
    out = client.agent("tools").stream("Weather?").result(10).wait(20)
    client.agent("tools").stream("Weather?").result(10).wait(20)
    while not (spans := client.traces(run_id=out.run_id).result(10)):  # servers write spans some seconds late
        pass
    [span] = spans
    assert (span["runId"], span["entityId"]) == (out.run_id, "tools")
    trace = client.trace(span["traceId"]).result(10)
    assert {"agent_run", "tool_call"} <= {span["spanType"] for span in trace["spans"]}
    newest = client.traces(per_page=1).result(10)
    assert len(newest) == 1
    assert newest.has_more
    with pytest.raises(NotFound):
        client.trace("nope").result(10)


@pytest.mark.server
def test_a_server_that_tells_no_packages_gives_none(client: MastraClient) -> None:
    assert client.packages().result(10) == {}


def test_packages_are_versions_by_name(server: TinyServer, engine: Engine) -> None:
    client = MastraClient(server.url, engine=engine)
    packages = [{"name": "@mastra/core", "version": "1.71.0"}, {"name": "@mastra/hono", "version": "1.2.3"}]
    server.handler = lambda _: [answer(200, json.dumps({"packages": packages, "isDev": False}))]
    assert client.packages().result(5) == {"@mastra/core": "1.71.0", "@mastra/hono": "1.2.3"}
    server.handler = lambda _: [answer(404, '{"error":"Not Found"}')]
    assert client.packages().result(5) == {}
