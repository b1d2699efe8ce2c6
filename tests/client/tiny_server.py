"""A small HTTP/1.1 server whose answers a test writes byte by byte: for what a real Mastra server never does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

__all__ = ["Request", "TinyServer", "answer", "chunked", "tiny_server"]

Handler = Callable[["Request"], Iterable[bytes]]


@dataclass
class Request:
    """What came: `gone` is set when the client has closed the connection."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    gone: threading.Event = field(default_factory=threading.Event)


def answer(status: int, body: bytes | str, content_type: str | None = "application/json", extra: str = "") -> bytes:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else body
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    return f"HTTP/1.1 {status} X\r\n{kind}{extra}Content-Length: {len(data)}\r\n\r\n".encode() + data


def chunked(pieces: Iterable[bytes], content_type: str = "text/event-stream", extra: str = "") -> Iterator[bytes]:
    """A streamed answer, ended properly when `pieces` end."""
    yield f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{extra}Transfer-Encoding: chunked\r\n\r\n".encode()
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def _read(lines: BinaryIO) -> Request | None:
    first = lines.readline().decode()
    if not first:
        return None
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    while (line := lines.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, target, headers, lines.read(int(headers.get("content-length", 0))))


class TinyServer:
    """Answers every request by `handler`; closes the connection when it raises ConnectionAbortedError."""

    def __init__(self) -> None:
        self.handler: Handler = lambda _request: [answer(404, "404 Not Found", "text/plain")]
        self.requests: list[Request] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        request: Request | None = None
        try:
            with connection, connection.makefile("rb") as lines:
                while (request := _read(lines)) is not None:
                    self.requests.append(request)
                    for data in self.handler(request):
                        connection.sendall(data)
        except OSError:  # the client has closed, or the handler wants to
            if request is not None:
                request.gone.set()
        self._open.discard(connection)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for request in self.requests:
            request.gone.set()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in [self._accepting, *self._threads]:
            thread.join(5)


@contextmanager
def tiny_server() -> Iterator[TinyServer]:
    server = TinyServer()
    try:
        yield server
    finally:
        server.close()
