"""What a connection has to endure: cuts, compression, many streams at once; and the budgets of a run."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections.abc import Callable, Iterator

import pytest

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import PriceUnknown, SettingsError
from tests.client.tiny_server import Request, TinyServer, answer, chunked
from tests.support.mastra import MastraServer
from tests.support.tcp_proxy import TcpProxy, tcp_proxy


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


@pytest.fixture
def proxy(mastra_server: MastraServer) -> Iterator[TcpProxy]:
    with tcp_proxy(mastra_server.url) as proxy:
        yield proxy


# --- cuts ------------------------------------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("agent", ["durable", "durable-tools"])
def test_b08_a_stream_that_is_cut_goes_on_where_the_server_keeps_the_run(
    client: MastraClient, proxy: TcpProxy, engine: Engine, agent: str
) -> None:
    whole = client.agent(agent).stream("Go").result(10).wait(20)
    cut = proxy.cut_when(b"Paragraph 30" if agent == "durable" else b"It is ", keep_server=True)
    out = MastraClient(proxy.url, engine=engine).agent(agent).stream("Go", reconnect=True).result(10).wait(20)
    assert cut.is_set()
    assert (out.status, out.status_reason) == ("success", whole.status_reason)
    assert out.total.text == whole.total.text
    assert [chunk.type for chunk in out.full_stream] == [chunk.type for chunk in whole.full_stream]
    assert out.usage.result() == whole.usage.result()
    assert proxy.connections > 1


@pytest.mark.server
def test_an_observed_run_that_is_cut_goes_on_while_a_second_connection_holds_the_run(
    client: MastraClient, proxy: TcpProxy, engine: Engine
) -> None:
    out = client.agent("durable").stream("Go", run_id="held-by-another").result(10)
    cut = proxy.cut_when(b"Paragraph 50")
    observed = MastraClient(proxy.url, engine=engine).agent("durable").observe("held-by-another").result(10)
    assert observed.text.result(20) == out.text.result(20)
    assert observed.status == "success"
    assert cut.is_set()


@pytest.mark.server
def test_a_server_that_aborts_a_run_whose_client_left_makes_it_cancelled_with_that_reason(
    proxy: TcpProxy, engine: Engine
) -> None:
    proxy.cut_when(b"Paragraph 30")
    out = MastraClient(proxy.url, engine=engine).agent("durable").stream("Go", reconnect=True).result(10).wait(20)
    assert out.status == "cancelled"
    assert "client was gone" in out.status_reason
    assert out.text.result().startswith("Paragraph 0")
    assert out.usage.result().total_tokens is None


@pytest.mark.server
def test_without_reconnecting_a_cut_is_a_truncated_run_that_says_so(proxy: TcpProxy, engine: Engine) -> None:
    proxy.cut_when(b"Paragraph 30")
    out = MastraClient(proxy.url, engine=engine).agent("durable").stream("Go").result(10).wait(20)
    assert out.status == "truncated"
    assert "may still be going on" in out.state.notices[-1].text


# --- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_finished_runs_leave_their_connection_to_the_next_one(proxy: TcpProxy, engine: Engine) -> None:
    for agent in ("tools", "text", "error"):
        MastraClient(proxy.url, engine=engine).agent(agent).stream("Hi").result(10).wait(10)
        MastraClient(proxy.url, engine=engine).agents().result(10)
    assert proxy.connections == 1


@pytest.mark.server
@pytest.mark.timeout(300)  # the server needs a second or more of CPU for each ten of them
def test_200_streams_at_once_from_one_client_all_arrive(client: MastraClient) -> None:
    async def cell() -> list[str]:
        outs = await asyncio.gather(*(client.agent("text").stream("Hi") for _ in range(200)))
        return [await out.text for out in outs]

    texts = asyncio.run(cell())
    assert len(texts) == 200
    assert len(set(texts)) == 1
    assert texts[0].startswith("# Hello")


def deltas(count: int) -> list[bytes]:
    chunk = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "é漢 "}}
    finish = {"type": "finish", "runId": "r", "from": "AGENT", "payload": {"stepResult": {"reason": "stop"}}}
    events = [json.dumps(chunk, ensure_ascii=False)] * count + [json.dumps(finish), "[DONE]"]
    return [f"data: {event}\n\n".encode() for event in events]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_stream_arrives_as_it_is_sent(server: TinyServer, engine: Engine, coding: str) -> None:
    read = threading.Event()

    def handler(request: Request) -> Iterator[bytes]:
        assert coding in request.headers["accept-encoding"]
        squeeze = zlib.compressobj(wbits=31 if coding == "gzip" else 15)

        def pieces() -> Iterator[bytes]:
            for number, event in enumerate(deltas(20)):
                if number == 10:
                    read.wait(10)
                yield squeeze.compress(event) + squeeze.flush(zlib.Z_SYNC_FLUSH)
            yield squeeze.flush()

        return chunked(pieces(), extra=f"Content-Encoding: {coding}\r\n")

    server.handler = handler
    out = MastraClient(server.url, engine=engine).agent("a").stream("Hi").result(5)
    texts = iter(out.text_stream)
    assert [next(texts) for _ in range(10)] == ["é漢 "] * 10
    read.set()
    assert out.text.result(5) == "é漢 " * 20


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_a_run_that_takes_longer_than_its_budget_is_cancelled_with_that_reason(client: MastraClient) -> None:
    out = client.agent("slow").stream("Go", max_seconds=0.1).result(10).wait(10)
    assert (out.status, out.status_reason) == ("cancelled", "the budget of 0.1 s is used up")
    assert out.state.notices[-1].code == "budget"


@pytest.mark.server
def test_a_run_that_uses_more_tokens_than_its_budget_is_cancelled_with_that_reason(client: MastraClient) -> None:
    out = client.agent("tools").stream("Weather?", max_tokens=20).result(10).wait(10)
    assert out.status == "cancelled"
    assert out.status_reason == "23 tokens are more than the budget of 20"
    assert len(out.state.steps) == 1
    assert client.agent("tools").stream("Weather?", max_tokens=65).result(10).wait(10).status == "success"


@pytest.mark.server
def test_tokens_of_sub_agents_count(client: MastraClient) -> None:
    memory = {"thread": "budget-sub", "resource": "u"}
    out = client.agent("supervisor").stream("Go", memory=memory, max_tokens=9).result(10).wait(10)
    assert out.status == "cancelled"
    assert out.status_reason == "10 tokens are more than the budget of 9"


@pytest.mark.server
def test_a_run_that_costs_more_than_its_budget_is_cancelled_with_that_reason(client: MastraClient) -> None:
    prices = {"scripted/scripted-1": {"input": 1000.0, "output": 1000.0}}  # a tenth of a cent for each token
    agent = client.agent("tools")
    out = agent.stream("Weather?", max_cost_usd=0.02, prices=prices).result(10).wait(10)
    assert (out.status, out.status_reason) == ("cancelled", "$0.0230 is more than the budget of $0.02")
    assert agent.stream("Weather?", max_cost_usd=0.07, prices=prices).result(10).wait(10).status == "success"


@pytest.mark.server
def test_budgets_hold_for_observed_runs_and_for_what_follows_an_answer(client: MastraClient) -> None:
    run = client.agent("durable").stream("Go", run_id="budget-observed").result(10)
    observed = client.agent("durable").observe("budget-observed", max_seconds=0.05).result(10).wait(10)
    assert (observed.status, observed.state.notices[-1].code) == ("cancelled", "budget")
    assert run.wait(20).status == "success"
    memory = {"thread": "budget-approve", "resource": "u"}
    asked = client.agent("approve").stream("Go", memory=memory, max_tokens=5).result(10).wait(10)
    after = asked.approve().result(10).wait(10)
    assert (after.status, after.status_reason) == ("cancelled", "10 tokens are more than the budget of 5")


@pytest.mark.server
def test_a_model_without_a_known_price_is_said_before_the_run_starts(client: MastraClient) -> None:
    with pytest.raises(PriceUnknown, match="scripted-1"):
        client.agent("tools").stream("Weather?", max_cost_usd=1).result(10)


def test_no_run_is_started_for_a_budget_that_cannot_be_watched(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(200, '{"name":"a","provider":"x","modelId":"none-such"}')]
    with pytest.raises(PriceUnknown, match="x/none-such"):
        MastraClient(server.url, engine=engine).agent("a").stream("Hi", max_cost_usd=1).result(5)
    assert [request.method for request in server.requests] == ["GET"]


START: list[Callable[[MastraClient, float], object]] = [
    lambda client, value: client.agent("a").stream("Hi", max_tokens=int(value)),
    lambda client, value: client.agent("a").stream("Hi", idle_timeout=value),
    lambda client, value: client.agent("a").observe("r", max_cost_usd=value),
    lambda client, value: client.agent("a").subscribe("t", "r", max_seconds=value),
    lambda client, value: client.workflow("w").stream({}, max_tokens=int(value)),
    lambda client, value: client.background_tasks.stream(max_seconds=value),
]


@pytest.mark.parametrize("start", START)
def test_a_budget_of_nothing_is_refused_at_once(engine: Engine, start: Callable[[MastraClient, float], object]) -> None:
    with pytest.raises(SettingsError, match="above 0"):
        start(MastraClient("http://127.0.0.1:9", engine=engine), 0)
