"""A TCP proxy that a test can cut: for connections that break in the middle of a stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

__all__ = ["TcpProxy", "tcp_proxy"]


class TcpProxy:
    """Passes bytes to `target` and back. `cut` breaks what is open; new connections work again."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self._clients: set[socket.socket] = set()
        self._servers: set[socket.socket] = set()
        self._cut_after: tuple[bytes, threading.Event] | None = None
        self._keep_server = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut_when(self, text: bytes, *, keep_server: bool = False) -> threading.Event:
        """Break the connection in which `text` comes, once; the event is set then.

        keep_server: to the server its client seems to be there still.
        """
        self._keep_server = keep_server
        happened = threading.Event()
        self._cut_after = text, happened
        return happened

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self.connections += 1
            self._clients.add(client)
            self._servers.add(server)
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass_back, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                server.sendall(data)
            if client in self._clients:  # the client has left, it wasn't cut off
                server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        seen, gone = b"", False
        try:
            while data := server.recv(65536):
                if gone:
                    continue  # the server goes on writing to a client that isn't there
                client.sendall(data)
                seen = seen[-1000:] + data
                if self._cut_after is not None and self._cut_after[0] in seen:
                    happened, keep = self._cut_after[1], self._keep_server
                    self._cut_after, gone = None, True
                    self._clients.discard(client)
                    self._end(client)
                    if not keep:
                        self._end(server)
                    happened.set()
                    if not keep:
                        return
        except OSError:
            pass
        self._end(client)
        self._end(server)

    def _end(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def close(self) -> None:
        """End everything."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in [*self._clients, *self._servers]:
            self._end(connection)
        self._accepting.join(5)


@contextmanager
def tcp_proxy(target: str) -> Iterator[TcpProxy]:
    """A proxy in front of a server, until the block ends."""
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
