"""Observing durable runs and subscribing to threads: on a real Mastra server, and what servers may do to a client."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.client import MastraClient, observe
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.observe import unwrap
from nbmastra.engine import Engine
from nbmastra.errors import RunNotFound, Unauthorized
from nbmastra.output import MastraModelOutput
from tests.client.tiny_server import Request, TinyServer, chunked
from tests.support.mastra import MastraServer
from tests.support.runs import EXPECTED, OBSERVED, fold, recording, summary


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


def wire(out: MastraModelOutput) -> list[dict[str, Any]]:
    """A run's chunks, without what a plain stream's last chunk doesn't tell."""
    chunks = [chunk.to_wire() for chunk in out.full_stream]
    for chunk in chunks:
        if chunk["type"] == "finish":
            chunk.pop("runId", None)
            chunk.pop("from", None)
    return chunks


@pytest.mark.server
@pytest.mark.parametrize("agent", ["durable", "durable-tools"])
def test_an_observed_run_has_the_chunks_of_its_stream(client: MastraClient, agent: str) -> None:
    run_id = str(uuid.uuid4())
    out = client.agent(agent).stream("Go", run_id=run_id).result(10)
    live = client.agent(agent).observe(run_id).result(10)
    out.wait(20)
    late = client.agent(agent).observe(run_id).result(10).wait(20)
    assert live.wait(20).status == late.status == "success"
    assert wire(live) == wire(late) == wire(out)
    assert late.text.result() == out.text.result()
    assert late.usage.result() == out.usage.result()
    assert not late.state.unknown


@pytest.mark.server
def test_an_offset_begins_in_the_middle_and_stopping_to_observe_leaves_the_run_alone(client: MastraClient) -> None:
    run_id = str(uuid.uuid4())
    out = client.agent("durable").stream("Go", run_id=run_id).result(10)
    observed = client.agent("durable").observe(run_id).result(10)
    next(iter(observed.text_stream))
    observed.cancel()
    assert observed.wait(5).status == "cancelled"
    assert out.wait(20).status == "success"
    tail = client.agent("durable").observe(run_id, offset=190).result(10).wait(20)
    assert next(iter(tail.full_stream)).event == 190
    assert out.text.result().endswith(tail.text.result())


@pytest.mark.server
@pytest.mark.parametrize("agent", ["durable", "text"])
def test_a_run_that_nobody_knows_is_not_found(
    client: MastraClient, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "FIRST_EVENT_S", 0.5)
    with pytest.raises(RunNotFound, match="nothing came within"):
        client.agent(agent).observe("no-such-run").result(10)
    assert observe.FIRST_EVENT_S == 0.5


def test_how_long_a_first_event_may_take() -> None:
    assert observe.FIRST_EVENT_S == 10.0


@pytest.mark.parametrize("name", OBSERVED)
def test_a_recorded_observation_means_what_was_read_from_it_by_hand(
    server: TinyServer, engine: Engine, name: str
) -> None:
    server.handler = lambda _: chunked([recording(name)])
    out = MastraClient(server.url, engine=engine).agent("durable").observe("r", offset=7).result(5).wait(10)
    assert summary(out.state) == {key: value for key, value in OBSERVED[name].items() if key != "reason_contains"}
    assert json.loads(server.requests[0].body) == {"runId": "r", "offset": 7}


def test_an_observed_part_and_the_cut_stream_before_it_are_one_run() -> None:
    def observed(name: str) -> list[Chunk]:
        decoder = ChunkDecoder()
        unwrapped = [unwrap(chunk) for chunk in decoder.feed(recording(name))]
        return [chunk for index, chunk in unwrapped if chunk is not None and index >= 0]

    before = ChunkDecoder().feed(recording("durable-cut.sse"))
    state = fold([*before, *observed("observe-aborted.sse")])
    [turn] = state.turns
    assert (state.status, len(turn.steps), turn.usage.reported) == ("cancelled", 1, False)
    assert (
        turn.text
        == EXPECTED["durable-cut.sse"]["turns"][0]["text"] + OBSERVED["observe-aborted.sse"]["turns"][0]["text"]
    )
    whole = ChunkDecoder().feed(recording("durable.sse"))
    assert [chunk.to_json() for chunk in whole[190:-1]] == [chunk.to_json() for chunk in observed("observe.sse")[:-1]]


def envelope(index: int, text: str) -> bytes:
    chunk = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": text}}
    return _event({"type": "chunk", "runId": "r", "data": chunk, "id": str(index), "createdAt": "…", "index": index})


def end(index: int) -> list[bytes]:
    payload = {"output": {"usage": {}}, "stepResult": {"reason": "stop"}}
    return [_event({"type": "finish", "runId": "r", "data": payload, "id": "f", "index": index}), b"data: [DONE]\n\n"]


def _event(value: object) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def cut(events: list[bytes]) -> Iterator[bytes]:
    """An answer whose connection breaks after these events."""
    yield from list(chunked(events))[:-1]
    raise ConnectionAbortedError


def test_b08_events_sent_twice_count_once_and_a_cut_is_observed_on_from_the_last_index(
    server: TinyServer, engine: Engine
) -> None:
    def handler(request: Request) -> Iterator[bytes]:
        if len(server.requests) == 1:
            prefix = [envelope(k, f"{k} ") for k in range(5)]
            return cut([*prefix, *prefix[2:], envelope(5, "5 "), envelope(4, "4 "), envelope(6, "6 ")])
        return chunked([*(envelope(k, f"{k} ") for k in range(5, 9)), *end(9)])

    server.handler = handler
    out = MastraClient(server.url, engine=engine).agent("a").observe("r").result(5).wait(10)
    assert (out.status, out.text.result()) == ("success", "0 1 2 3 4 5 6 7 8 ")
    assert [chunk.event for chunk in out.full_stream] == list(range(10))
    assert [json.loads(request.body)["offset"] for request in server.requests] == [0, 6]


def test_after_a_runs_last_word_nothing_is_asked_for_again(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: cut([envelope(0, "a"), end(1)[0]])
    agent = MastraClient(server.url, engine=engine).agent("a")
    assert agent.observe("r").result(5).wait(10).text.result() == "a"
    assert len(server.requests) == 1
    plain = parse_chunk('{"type":"finish","payload":{"stepResult":{"reason":"stop"}}}')
    server.handler = lambda _: cut([_event(plain.to_wire())])
    assert agent.stream("Hi", reconnect=True).result(5).wait(10).status == "success"
    assert len(server.requests) == 2


def test_without_reconnecting_a_cut_is_a_truncated_run(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: cut([envelope(0, "a")])
    out = MastraClient(server.url, engine=engine).agent("a").observe("r", reconnect=False).result(5).wait(10)
    assert (out.status, len(server.requests)) == ("truncated", 1)


def test_a_server_that_stays_away_leaves_a_truncated_run(
    server: TinyServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_PAUSES_S", (0.0, 0.01))
    monkeypatch.setattr(observe, "FIRST_EVENT_S", 0.2)

    def handler(_: Request) -> Iterator[bytes]:
        return cut([envelope(0, "a")]) if len(server.requests) == 1 else cut([])

    server.handler = handler
    out = MastraClient(server.url, engine=engine).agent("a").observe("r").result(5).wait(10)
    assert out.status == "truncated"
    assert "couldn't be observed again" in out.status_reason
    assert len(server.requests) == 3


def test_with_an_offset_of_the_callers_the_first_event_may_take_its_time(
    server: TinyServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "FIRST_EVENT_S", 0.01)
    observed = threading.Event()

    def handler(_: Request) -> Iterator[bytes]:
        answer = chunked([envelope(3, "late"), *end(4)])
        yield next(answer)
        observed.wait(10)
        yield from answer

    server.handler = handler
    out = MastraClient(server.url, engine=engine).agent("a").observe("r", offset=3).result(5)
    observed.set()
    assert out.text.result(5) == "late"


def test_every_kind_of_envelope_is_taken_off() -> None:
    chunk = '{"type":"step-start","runId":"r","from":"AGENT","payload":{}}'
    for kind in ("chunk", "step-start"):
        index, inner = unwrap(parse_chunk(f'{{"type":"{kind}","runId":"r","data":{chunk},"index":3}}'))
        assert (index, inner) == (3, parse_chunk(chunk))
    index, inner = unwrap(parse_chunk('{"type":"finish","runId":"r","data":{"output":{"text":"a"}},"index":4}'))
    assert inner is not None
    assert (index, inner.run_id, inner.raw_payload()) == (4, "r", {"output": {"text": "a"}})
    index, inner = unwrap(parse_chunk('{"type":"finish","data":{"type":"text-delta"},"index":5}'))
    assert inner is not None
    assert (index, inner.type, inner.raw_payload()) == (5, "finish", {"type": "text-delta"})
    for note in ("iteration-complete", "suspended"):
        assert unwrap(parse_chunk(f'{{"type":"{note}","data":{{"type":"approval"}},"index":6}}')) == (6, None)
    plain = parse_chunk(chunk)
    assert unwrap(plain) == (-1, plain)


@pytest.mark.server
@pytest.mark.parametrize("agent", ["slow", "text"])
def test_a_subscriber_sees_a_run_that_someone_else_started_and_those_that_follow(
    client: MastraClient, mastra_server: MastraServer, agent: str
) -> None:
    elsewhere = Engine("nbmastra-elsewhere")
    memory = {"thread": f"subscribed-{agent}", "resource": "u"}
    seen = client.agent(agent).subscribe(memory["thread"], "u").result(10)
    try:
        other = MastraClient(mastra_server.url, engine=elsewhere).agent("slow")
        texts = [other.stream("Go", memory=memory).result(10).text.result(20) for _ in range(2)]
        while len([turn for turn in seen.turns if turn.ended_at is not None]) < 2:
            assert seen.log.wait_blocking(len(seen.log.items), 10)
    finally:
        elsewhere.close()
    assert [turn.text for turn in seen.turns] == texts
    assert seen.text.result(1) == texts[0]
    assert not seen.done
    seen.cancel()
    assert seen.wait(5).status == "success"


@pytest.mark.server
def test_a_subscription_to_one_run_begins_at_its_start_and_ends_with_it(client: MastraClient) -> None:
    memory = {"thread": "subscribed-once", "resource": "u"}
    out = client.agent("slow").stream("Go", memory=memory).result(10)
    next(iter(out.text_stream))
    seen = client.agent("slow").subscribe("subscribed-once", "u", once=True).result(10).wait(20)
    assert seen.status == "success"
    assert seen.text.result() == out.text.result(20)
    assert seen.context == out.context


@pytest.mark.server
def test_a_thread_can_be_subscribed_to_without_knowing_its_agent(client: MastraClient) -> None:
    seen = client.subscribe("subscribed-any", "u", once=True).result(10)
    out = client.agent("slow").stream("Go", memory={"thread": "subscribed-any", "resource": "u"}).result(10)
    assert seen.text.result(20) == out.text.result(20)


@pytest.mark.server
def test_unsubscribing_leaves_the_run_alone(client: MastraClient) -> None:
    memory = {"thread": "unsubscribed", "resource": "u"}
    out = client.agent("slow").stream("Go", memory=memory).result(10)
    seen = client.agent("slow").subscribe("unsubscribed", "u").result(10)
    next(iter(seen.text_stream))
    seen.cancel()
    assert seen.wait(5).status == "cancelled"
    assert out.wait(20).status == "success"


@pytest.mark.server
def test_aborting_a_threads_run_cancels_it_and_its_usage_is_missing(client: MastraClient) -> None:
    memory = {"thread": "aborted", "resource": "u"}
    agent = client.agent("slow")
    out = agent.stream("Go", memory=memory).result(10)
    next(iter(out.text_stream))
    with pytest.raises(Unauthorized, match="thread belongs to a different resource"):
        agent.abort("aborted", "somebody else").result(10)
    assert agent.abort("no such thread", "u").result(10) is False
    assert agent.abort("aborted", "u").result(10) is True
    assert out.wait(10).status == "cancelled"
    assert out.status_reason == "aborted at the server"
    assert out.usage.result().total_tokens is None
    assert agent.abort("aborted", "u").result(10) is False
