"""An MCP server over HTTP, for tests: it wants a token, and prints the port that it listens on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("http")


@server.tool()
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


inner: Any = server.streamable_http_app()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The server behind a token."""
    if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != b"Bearer letmein":
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await inner(scope, receive, send)


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening {listener.getsockname()[1]}", flush=True)
        await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve([listener])


if __name__ == "__main__":
    asyncio.run(main())
