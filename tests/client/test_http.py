"""Requests: what is retried, what each failure says, and that nothing stays open."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import anyio
import pytest

from nbmastra.client.address import ServerAddress
from nbmastra.client.http import Http
from nbmastra.client.refusals import clean
from nbmastra.engine import Engine
from nbmastra.errors import (
    BadRequest,
    ClientError,
    Conflict,
    NotFound,
    NotMastra,
    ServerError,
    ServerTimeout,
    ServerUnreachable,
    SettingsError,
    Unauthorized,
)
from tests.client.tiny_server import Request, TinyServer, answer, chunked

SECRET = "sk-very-secret-1"
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x9b\u202e\u2066\r\nnext"


def http(server: TinyServer, engine: Engine, **options: Any) -> Http:
    timeout = options.pop("timeout", 10)
    return Http(ServerAddress.of(server.url, **options), timeout=timeout, engine=engine)


def refused(server: TinyServer, engine: Engine, reply: bytes, kind: type[ClientError], **options: Any) -> ClientError:
    """The error of both a JSON request and a stream, which must agree."""
    server.handler = lambda _: [reply]
    client = http(server, engine, **options)
    with pytest.raises(kind) as caught:
        engine.start(client.get, "/agents").result()
    with pytest.raises(kind) as again:
        engine.start(client.stream, "/agents", {}).result()
    assert type(caught.value) is kind
    assert str(caught.value) == str(again.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


async def read_all(client: Http, path: str = "/s") -> tuple[bytes, str]:
    stream = await client.stream(path, {})
    try:
        return b"".join([data async for data in stream]), stream.broken
    finally:
        await stream.aclose()


def test_a_request_carries_the_headers_the_token_and_the_body(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(200, '{"ok": true}')]
    client = http(server, engine, token=SECRET, headers={"X-Team": "a"})
    assert engine.start(client.post, "/x", {"text": "é\u2028"}, {"page": 2, "absent": None}).result() == {"ok": True}
    [request] = server.requests
    assert (request.method, request.target) == ("POST", "/api/x?page=2")
    assert json.loads(request.body) == {"text": "é\u2028"}
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["x-team"] == "a"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("nbmastra/")


def test_connections_are_shared_and_kept_but_cookies_are_not(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(200, "{}", extra="Set-Cookie: session=1; Path=/\r\n")]
    for token in ("first-token", "second-token"):
        engine.start(http(server, engine, token=token).get, "/x").result()
    assert server.connections == 1
    assert [request.headers.get("cookie") for request in server.requests] == [None, None]


def test_nothing_answering_is_one_clear_error(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = Http(ServerAddress.of(f"http://ada:{SECRET}@127.0.0.1:{port}"), engine=engine)
    with pytest.raises(ServerUnreachable) as caught:
        engine.start(client.get, "/agents").result()
    expected = f"nothing answers at http://127.0.0.1:{port}: is the server running? (npx mastra dev)"
    assert str(caught.value) == expected
    assert caught.value.url == f"http://127.0.0.1:{port}"


def test_connecting_is_tried_again_until_the_server_is_there(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    pauses: list[float] = []

    async def starts_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer(200, "[1]"))

    client = Http(ServerAddress.of(f"http://127.0.0.1:{listener.getsockname()[1]}"), engine=engine)
    monkeypatch.setattr(anyio, "sleep", starts_meanwhile)
    job = engine.start(client.get, "/x")
    with listener:
        while len(pauses) < 2 and not job.done:
            pass
        serving = threading.Thread(target=serve)
        serving.start()
        assert job.result(5) == [1]
        serving.join()
    assert pauses == [0.2, 0.5]


def test_a_request_that_was_sent_is_never_sent_again(server: TinyServer, engine: Engine) -> None:
    def dies(_: Request) -> Iterable[bytes]:
        raise ConnectionAbortedError

    server.handler = dies
    with pytest.raises(ServerUnreachable, match="ended without an answer"):
        engine.start(http(server, engine).stream, "/agents/a/stream", {}).result()
    assert len(server.requests) == 1
    assert server.connections == 1


def test_400_names_what_is_wrong(server: TinyServer, engine: Engine) -> None:
    issues = [{"field": "messages", "message": "Invalid input"}, {"field": "maxSteps", "message": "not a number"}, 7]
    reply = answer(400, json.dumps({"error": "Invalid request body", "issues": issues}))
    error = refused(server, engine, reply, BadRequest)
    assert str(error) == "Invalid request body: messages: Invalid input; maxSteps: not a number"
    assert isinstance(error, BadRequest)
    assert error.issues == issues
    assert error.status_code == 400


@pytest.mark.parametrize("status", [401, 403])
def test_401_and_403_say_where_a_token_goes(server: TinyServer, engine: Engine, status: int) -> None:
    reply = answer(status, json.dumps({"error": f"bad token {SECRET}"}))
    without = refused(server, engine, reply, Unauthorized)
    assert "wants a token" in str(without)
    assert "MASTRA_API_TOKEN" in str(without)
    with_token = refused(server, engine, reply, Unauthorized, token=SECRET)
    assert "refused the token" in str(with_token)
    assert SECRET not in str(with_token)
    refused(server, engine, answer(status, "<html>no", "text/html"), Unauthorized)


def test_404_and_409_give_mastras_words(server: TinyServer, engine: Engine) -> None:
    assert str(refused(server, engine, answer(404, '{"error":"Task with id x not found"}'), NotFound)).startswith(
        "Task"
    )
    assert str(refused(server, engine, answer(409, '{"message":"finished already"}'), Conflict)) == "finished already"


def test_500_gives_mastras_message_and_no_page(server: TinyServer, engine: Engine) -> None:
    error = refused(server, engine, answer(500, '{"error":{"message":"no such model"}}'), ServerError)
    assert str(error) == "the server failed: no such model"
    assert error.status_code == 500
    page = refused(server, engine, answer(502, "<html>nginx</html>", "text/html"), ServerError)
    assert str(page) == "the server failed (HTTP 502 Bad Gateway)"
    assert str(refused(server, engine, answer(429, '{"error":"slow down"}'), ServerError)).startswith(
        "slow down (HTTP 429"
    )


@pytest.mark.parametrize(
    "reply",
    [
        answer(200, "<!doctype html><title>Studio</title>", "text/html; charset=utf-8"),
        answer(200, "hello", None),
        answer(404, "404 Not Found", "text/plain"),
        answer(405, "<html>", "text/html"),
        answer(200, "[" * 100_000),
    ],
    ids=["page", "no-type", "404-page", "405-page", "deep"],
)
def test_what_is_no_mastra_server_is_said_to_be_none(server: TinyServer, engine: Engine, reply: bytes) -> None:
    server.handler = lambda _: [reply]
    for function in (http(server, engine).get, http(server, engine).stream):
        with pytest.raises(NotMastra, match=r"is the address right\?"):
            engine.start(function, "/agents").result()


def test_json_instead_of_a_stream_is_not_read_as_one(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(200, "{}")]
    with pytest.raises(NotMastra, match="application/json instead of a stream"):
        engine.start(http(server, engine).stream, "/s", {}).result()


def test_a_redirect_names_the_other_address_without_its_secrets(server: TinyServer, engine: Engine) -> None:
    reply = answer(308, "", extra=f"Location: https://ada:{SECRET}@elsewhere.example/api?token={SECRET}\r\n")
    error = refused(server, engine, reply, NotMastra, token="other-token")
    assert "redirects to https://elsewhere.example/api" in str(error)
    assert SECRET not in str(error)


def test_a_servers_text_can_do_no_harm(server: TinyServer, engine: Engine) -> None:
    error = refused(server, engine, answer(500, json.dumps({"error": ESCAPES + "x" * 100_000})), ServerError)
    assert str(error).isprintable()
    assert len(str(error)) < 600
    assert str(error).startswith("the server failed: ]0;owned [31mred next")
    issue = json.dumps({"error": "bad", "issues": [{"field": ESCAPES, "message": "y" * 10_000}]})
    error = refused(server, engine, answer(400, issue), BadRequest)
    assert str(error).isprintable()
    assert len(str(error)) < 600


@pytest.mark.parametrize("body", ["[1]", "null", '{"error": 5}', '{"error": null}', '{"issues": 3}', "\udcff", "{"])
@pytest.mark.parametrize("status", [400, 404, 409, 418, 500])
def test_odd_error_bodies_still_give_an_error_with_words(
    server: TinyServer, engine: Engine, status: int, body: str
) -> None:
    server.handler = lambda _: [answer(status, body.encode("utf-8", "surrogateescape"))]
    with pytest.raises(ClientError, match=r"\w") as caught:
        engine.start(http(server, engine).get, "/x").result()
    assert caught.value.status_code == status


def test_an_endless_error_body_is_not_read_to_its_end(server: TinyServer, engine: Engine) -> None:
    def endless(_: Request) -> Iterator[bytes]:
        yield b"HTTP/1.1 500 X\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"4000\r\n" + b"x" * 0x4000 + b"\r\n"

    server.handler = endless
    with pytest.raises(ServerError):
        engine.start(http(server, engine).get, "/x").result(5)
    assert server.requests[0].gone.wait(5)


def test_no_answer_in_time_is_a_timeout_that_closes_the_connection(server: TinyServer, engine: Engine) -> None:
    release = threading.Event()

    def silent(_: Request) -> Iterator[bytes]:
        release.wait(10)
        yield b""

    server.handler = silent
    client = http(server, engine, timeout=0.05)
    for call in (engine.start(client.get, "/x"), engine.start(client.stream, "/x", {})):
        with pytest.raises(ServerTimeout, match=r"within 0\.05 s"):
            call.result(5)
    release.set()


def test_a_stream_is_read_as_it_comes_and_its_connection_used_again(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: chunked([b"data: 1\n\n", b"data: 2\n\n"])
    client = http(server, engine)
    for _ in range(2):
        assert engine.start(read_all, client).result() == (b"data: 1\n\ndata: 2\n\n", "")
    assert server.connections == 1


def test_a_stream_behind_gzip_is_read_as_it_comes(server: TinyServer, engine: Engine) -> None:
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(b"data: 2\n\n") + packer.flush()
    assert gzip.decompress(first + rest) == b"data: 1\n\ndata: 2\n\n"
    seen = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield first
        assert seen.wait(5)
        yield rest

    async def read() -> bytes:
        data = b""
        async for piece in await http(server, engine).stream("/s", {}):
            data += piece
            seen.set()
        return data

    server.handler = lambda _: chunked(pieces(), extra="Content-Encoding: gzip\r\n")
    assert engine.start(read).result(5) == b"data: 1\n\ndata: 2\n\n"


def test_b07_a_connection_that_breaks_ends_the_stream_and_says_why(server: TinyServer, engine: Engine) -> None:
    def cut(_: Request) -> Iterator[bytes]:
        yield from list(chunked([b"data: 1\n\n"]))[:-1]
        raise ConnectionAbortedError

    server.handler = cut
    data, broken = engine.start(read_all, http(server, engine)).result()
    assert data == b"data: 1\n\n"
    assert broken


def test_a_cancelled_stream_closes_its_connection_within_a_second(server: TinyServer, engine: Engine) -> None:
    started = threading.Event()

    def endless(request: Request) -> Iterator[bytes]:
        def pieces() -> Iterator[bytes]:
            while not request.gone.is_set():
                yield b"data: x\n\n"
                started.set()
                request.gone.wait(0.01)

        return chunked(pieces())

    server.handler = endless
    job = engine.start(read_all, http(server, engine))
    assert started.wait(5)
    job.cancel()
    assert server.requests[0].gone.wait(1)


def test_a_silent_cancelled_stream_closes_its_connection_too(server: TinyServer, engine: Engine) -> None:
    closed = threading.Event()
    started = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
                started.set()
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(1)
                closed.set()

        thread = threading.Thread(target=serve)
        thread.start()
        client = Http(ServerAddress.of(f"http://127.0.0.1:{listener.getsockname()[1]}"), engine=engine)
        job = engine.start(read_all, client)
        assert started.wait(5)
        job.cancel()
        assert closed.wait(1)
        thread.join()


def test_no_secret_reaches_a_log(server: TinyServer, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    server.handler = lambda _: [answer(200, "{}")]
    url = server.url.replace("http://", f"http://ada:{SECRET}@")
    with caplog.at_level(logging.INFO):
        engine.start(Http(ServerAddress.of(f"{url}?token={SECRET}"), engine=engine).get, "/x").result()
    assert SECRET not in caplog.text
    assert SECRET not in repr(Http(ServerAddress.of(url)))


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", {1: {2, object()}}])
def test_a_request_that_is_no_json_is_refused_before_it_is_sent(
    server: TinyServer, engine: Engine, value: object
) -> None:
    with pytest.raises(SettingsError, match="isn't JSON"):
        engine.start(http(server, engine).post, "/x", {"value": value}).result()
    assert server.connections == 0


def test_cleaning_keeps_words_and_cuts_with_a_mark() -> None:
    assert clean("  a\tb\n c ") == "a b c"
    assert clean("x" * 501) == "x" * 499 + "…"
    assert clean("x" * 500) == "x" * 500
    assert clean("\x00" * 1000 + "y") == "y"
    assert clean("日本é🎉") == "日本é🎉"
    assert clean("\u200e\u202ea") == "a"
