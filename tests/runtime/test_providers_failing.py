"""Providers that fail, cut their stream or never end it."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pytest

from nbmastra.engine import get_engine
from nbmastra.errors import ModelError
from nbmastra.runtime.model import (
    Finish,
    ModelRequest,
    PartDelta,
)
from nbmastra.runtime.provider_model import ProviderModel
from nbmastra.runtime.providers import resolve_model
from tests.client.tiny_server import TinyServer, answer
from tests.runtime.test_providers_http import ANTHROPIC, ASKED, CHAT, OLLAMA, RESPONSES, TEXT, events
from tests.support.provider_streams import (
    KEY,
    anthropic_events,
    anthropic_stream,
    chat_delta,
    chat_stream,
    responses_stream,
    sse,
)


def anthropic_error(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011"})


def openai_error(message: str, code: str, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


REFUSALS: list[tuple[str, int, str, str, str]] = [
    (ANTHROPIC, 401, anthropic_error("authentication_error", "invalid x-api-key"), "", "invalid x-api-key"),
    (ANTHROPIC, 429, anthropic_error("rate_limit_error", "Slow down"), "retry-after: 7\r\n", "Slow down"),
    (ANTHROPIC, 500, anthropic_error("api_error", "Internal server error"), "", "Internal server error"),
    (ANTHROPIC, 529, anthropic_error("overloaded_error", "Overloaded"), "", "Overloaded"),
    (RESPONSES, 401, openai_error(f"Incorrect API key provided: {KEY}.", "invalid_api_key"), "", "Incorrect API key"),
    (CHAT, 429, openai_error("Rate limit reached", "rate_limit_exceeded"), "retry-after: 7\r\n", "Rate limit reached"),
    (CHAT, 404, openai_error("The model does not exist", "model_not_found"), "", "does not exist"),
    (CHAT, 500, "<html>Bad\r\n gateway</html>", "", "Bad"),
    (OLLAMA, 404, openai_error("model 'qwen3' not found", "not_found"), "", "not found"),
]


@pytest.mark.parametrize(("model", "status", "told", "extra", "said"), REFUSALS)
async def test_a_refusal_is_a_model_error(
    server: TinyServer, model: str, status: int, told: str, extra: str, said: str
) -> None:
    server.handler = lambda _: [answer(status, told, extra=extra)]
    with pytest.raises(ModelError, match=said) as caught:
        await events(model)
    error = caught.value
    assert (error.status_code, error.provider) == (status, model.partition(":")[0].removesuffix("-chat"))
    assert error.retry_after_s == (7 if extra else None)
    assert error.code or "html" in told
    assert KEY not in str(error)
    assert "\n" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


async def test_a_provider_is_asked_again_where_it_may_be(server: TinyServer) -> None:
    answers = iter([[answer(529, anthropic_error("overloaded_error", "Overloaded"), extra="retry-after-ms: 1\r\n")]])
    server.handler = lambda _: next(answers, None) or anthropic_stream(TEXT)
    *_, finish = await events(ANTHROPIC, ModelRequest(ASKED.messages))
    assert isinstance(finish, Finish)
    assert len(server.requests) == 2


async def partial(model: str, request: ModelRequest = ASKED) -> tuple[str, ModelError]:
    """The text until the error, and the error."""
    text = ""
    try:
        async for event in resolve_model(model).stream(request):
            text += event.text if isinstance(event, PartDelta) else ""
    except ModelError as error:
        return text, error
    raise AssertionError("no error came")


async def test_an_error_in_the_middle_of_a_stream(server: TinyServer) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.handler = lambda _: sse([*anthropic_events(TEXT)[:4], error])
    said, caught = await partial(ANTHROPIC)
    assert (said, caught.status_code, caught.code) == ("Hé", 529, "overloaded_error")
    failed = {"error": {"message": "The server had an error", "type": "server_error", "param": None, "code": None}}
    server.handler = lambda _: sse([chat_delta({"content": "Hé"}), failed], named=False)
    said, caught = await partial(CHAT)
    assert said == "Hé"
    assert "The server had an error" in str(caught)


def cut(pieces: Iterable[bytes], after: int) -> Iterator[bytes]:
    """The first pieces of an answer; then the connection is gone."""
    for number, piece in enumerate(pieces):
        if number == after:
            raise ConnectionAbortedError
        yield piece


@pytest.mark.parametrize(
    ("model", "stream", "after"),
    [
        (ANTHROPIC, lambda: anthropic_stream(TEXT), 5),
        (CHAT, lambda: chat_stream([chat_delta({"content": text}) for text in "Hélo"]), 3),
        (RESPONSES, lambda: responses_stream(pieces=["Hé", "llo", "!"]), 6),
    ],
)
async def test_a_connection_that_is_cut_midway_is_an_error(
    server: TinyServer, model: str, stream: Callable[[], Iterator[bytes]], after: int
) -> None:
    server.handler = lambda _: cut(stream(), after)
    said, caught = await partial(model)
    assert said.startswith("H")
    assert caught.status_code is None
    assert KEY not in str(caught)


@pytest.mark.parametrize(
    ("model", "told"),
    [(ANTHROPIC, anthropic_events(TEXT)[:4]), (RESPONSES, None)],
)
async def test_a_stream_that_just_stops_is_an_error(server: TinyServer, model: str, told: Any) -> None:
    def stopped() -> Iterator[bytes]:
        if told is not None:
            yield from sse(told)
            return
        pieces = list(responses_stream(pieces=["Hé", "llo"]))
        yield from pieces[:6]
        yield pieces[-1]

    server.handler = lambda _: stopped()
    said, caught = await partial(model)
    assert said
    assert caught.code == "truncated"
    assert "broke off" in str(caught)


async def test_nobody_who_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, caught = await partial(CHAT)
    assert "onnect" in str(caught)


# --- connections ---


def endless(closed: threading.Event) -> Iterator[bytes]:
    try:
        yield from sse((chat_delta({"content": "word "}) for _ in count()), named=False)
    finally:
        closed.set()


async def test_closing_the_iterator_closes_the_request(server: TinyServer) -> None:
    closed = threading.Event()
    server.handler = lambda _: endless(closed)
    running: Any = resolve_model(CHAT).stream(ASKED)
    async for event in running:
        if isinstance(event, PartDelta):
            break
    await running.aclose()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_cancelling_closes_the_request(server: TinyServer) -> None:
    closed, begun = threading.Event(), asyncio.Event()
    server.handler = lambda _: endless(closed)

    async def read() -> None:
        async for event in resolve_model(CHAT).stream(ASKED):
            if isinstance(event, PartDelta):
                begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(closed.wait, 10)


async def test_on_the_engine_connections_are_kept_until_nobody_uses_the_model(server: TinyServer) -> None:
    server.handler = lambda _: chat_stream([chat_delta({"content": "Hi"}), chat_delta({}, "stop")])
    model: Any = resolve_model(CHAT)
    assert isinstance(model, ProviderModel)

    async def ask(model: ProviderModel) -> None:
        async for _ in model.stream(ASKED):
            pass

    for _ in range(3):
        await get_engine().start(ask, model)
    assert len(server.requests) == 3
    assert server.connections == 1
    client = model._model.client._client
    assert not client.is_closed
    del model
    gc.collect()
    await get_engine().start(asyncio.sleep, 0)
    await get_engine().start(asyncio.sleep, 0.01)
    assert client.is_closed


async def test_many_requests_at_once_share_a_model(server: TinyServer) -> None:
    server.handler = lambda _: chat_stream([chat_delta({"content": "Hi"}), chat_delta({}, "stop")])
    model = resolve_model(CHAT)

    async def ask() -> str:
        return "".join([event.text async for event in model.stream(ASKED) if isinstance(event, PartDelta)])

    assert await asyncio.gather(*(ask() for _ in range(20))) == ["Hi"] * 20
