"""Tools of MCP servers (Model Context Protocol), opened, called and closed with a run. Extra `mcp`.

    Agent("helper", model=…, mcp=[["uvx", "mcp-server-time"], "https://example.com/mcp"])

Source: the `mcp` package 2.x, whose `Client` speaks the protocol.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import tempfile
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import anyio

from nbmastra.errors import SettingsError, ToolServerError
from nbmastra.tools import SchemaTool, Tool, ToolContext, free_name

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["McpSource", "connect_mcp", "mcp_sources"]

CONNECT_S = 30.0
"""How long a server may take to start, to shake hands and to list its tools."""
CALL_S = 120.0
"""How long it may take to answer a call, unless `timeout` says else."""
_CLOSE_S = 5.0
_MAX_PAGES = 100
_KEYS = {"command", "args", "env", "cwd", "url", "headers", "timeout", "require_approval"}
_EXPECTED = (
    'an MCP server is a URL, a command ("uvx server" or ["uvx", "server"]), a dict with "command" or "url", or a '
    "parameter object of the mcp package"
)


def mcp_sources(specs: object) -> list[Any]:
    """What `mcp=` was given, as sources of tools; those that are already stay. Raises SettingsError.

    One server or a sequence of them: a URL; a command, as text or as a list; a dict of `command`, `args`, `env`, `cwd`
    or `url`, `headers`, and `timeout` (seconds a call may take) and `require_approval`; or what `mcp.Client` takes.
    """
    if specs is None:
        return []
    if isinstance(specs, str | Mapping) or not isinstance(specs, Sequence):
        return [_source(cast("object", specs))]
    return [_source(spec) for spec in cast("Sequence[object]", specs)]


@asynccontextmanager
async def connect_mcp(specs: object) -> AsyncGenerator[list[Tool]]:
    """The tools of MCP servers while the block runs, each under a name of its own; see `mcp_sources`.

    Raises SettingsError, and ToolServerError for a server that can't be reached.
    """
    tools: dict[str, Tool] = {}
    async with AsyncExitStack() as stack:
        for source in mcp_sources(specs):
            for tool in await stack.enter_async_context(source.open()):
                named = free_name(tool, tools)
                tools[named.name] = named
        yield list(tools.values())


def _source(spec: object) -> Any:
    return spec if callable(getattr(spec, "open", None)) else McpSource(spec)


class McpSource:
    """One MCP server; a connection of its own for each run."""

    def __init__(self, spec: Any) -> None:
        self._options: dict[str, Any] = {}
        if isinstance(spec, str):
            url = spec.startswith(("http://", "https://"))
            self._options = {"url": spec} if url else _command(_split(spec))
        elif isinstance(spec, list | tuple):
            self._options = _command(cast("Sequence[Any]", spec))
        elif isinstance(spec, Mapping):
            self._options = dict(cast("Mapping[str, Any]", spec))
            unknown = sorted(set(self._options) - _KEYS)
            if unknown or ("command" in self._options) == ("url" in self._options):
                why = f"; {', '.join(unknown)[:60]} isn't known" if unknown else ""
                raise SettingsError(f"{_EXPECTED}{why}")
        elif spec is None or isinstance(spec, int | float | bytes):
            raise SettingsError(f"{_EXPECTED}; not {type(spec).__name__}")
        self._given: Any = None if self._options else cast("Any", spec)
        timeout = self._options.get("timeout", CALL_S)
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise SettingsError(f"an MCP server's timeout is a number of seconds above 0, not {timeout!r}")
        self._timeout = float(timeout)
        _client_class()

    @property
    def title(self) -> str:
        """The server for people, without what may be secret: its command or its host."""
        if "url" in self._options:
            return re.sub(r"//[^/@]*@", "//", str(self._options["url"])).partition("?")[0]
        return str(self._options.get("command") or type(self._given).__name__)

    def open(self) -> AbstractAsyncContextManager[list[Tool]]:
        """Connect; gives the tools. Leaving the context closes the connection. Raises ToolServerError."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[list[Tool]]:
        ready: asyncio.Future[tuple[Client, list[Any]]] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()
        # A task of its own: what breaks in the connection must not cancel the run that uses it.
        task = asyncio.create_task(self._hold(ready, over))
        try:
            # No cancel scope around what is opened there: it lives longer than this wait.
            await asyncio.wait({ready}, timeout=CONNECT_S)
            if not ready.done():
                raise ToolServerError(f"the MCP server {self.title} gave no answer within {CONNECT_S:.0f} s")
            client, listed = ready.result()
            yield self._tools(client, listed)
        finally:
            over.set()
            if not ready.done():
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=_CLOSE_S)
            task.cancel()

    async def _hold(self, ready: asyncio.Future[tuple[Client, list[Any]]], over: asyncio.Event) -> None:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            log = cast("TextIO", file)
            try:
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(await self._client(stack, log))
                    listed = await _list_tools(client)
                    if not ready.done():
                        ready.set_result((client, listed))
                    await over.wait()
            except Exception as error:  # whatever transport and protocol raise, in groups too
                if not ready.done():
                    ready.set_exception(self._failed(error, log))
                    ready.exception()  # nobody may be left to ask
            finally:
                ready.cancel()

    async def _client(self, stack: AsyncExitStack, log: TextIO) -> Client:
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        options, given = self._options, self._given
        server: Any = given
        if "command" in options:
            given = StdioServerParameters(
                **{key: options[key] for key in ("command", "args", "env", "cwd") if key in options}
            )
        elif "url" in options and options.get("headers"):
            import httpx2

            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=options["headers"], timeout=httpx2.Timeout(CONNECT_S, read=self._timeout))
            )
            server = streamable_http_client(options["url"], http_client=http)
        elif "url" in options:
            server = options["url"]
        if isinstance(given, StdioServerParameters):
            server = stdio_client(given, errlog=log)  # a kernel's stderr is no file that a process could write to
        return _client_class()(server, read_timeout_seconds=self._timeout)

    def _failed(self, error: Exception, log: TextIO) -> ToolServerError:
        while isinstance(error, ExceptionGroup):
            error = cast("ExceptionGroup[Exception]", error).exceptions[0]
        log.seek(0)
        last = [line.strip() for line in log.read()[-4000:].splitlines() if line.strip()]
        stderr = f"; it wrote: {last[-1][:200]}" if last else ""
        return ToolServerError(
            f"the MCP server {self.title} can't be used: {error or type(error).__name__}{stderr}"[:600]
        )

    def _tools(self, client: Client, listed: Sequence[Any]) -> list[Tool]:
        tools: dict[str, Tool] = {}
        for one in listed:
            made = self._tool(client, one, tools)
            tools[made.name] = made
        return list(tools.values())

    def _tool(self, client: Client, listed: Any, taken: Collection[str]) -> Tool:
        name: str = listed.name

        async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
            async def tell(progress: float, total: float | None, message: str | None) -> None:
                context.writer.write({"type": "progress", "progress": progress, "total": total, "message": message})

            return _result(name, await client.call_tool(name, arguments, progress_callback=tell))

        return free_name(
            SchemaTool(
                re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "tool",
                listed.description or "",
                listed.input_schema,
                call,
                require_approval=self._options.get("require_approval", False),
            ),
            taken,
        )


async def _list_tools(client: Client) -> list[Any]:
    """All pages of the list."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found.extend(page.tools)
        cursor = page.next_cursor
        if not cursor:
            return found
    raise ToolServerError(f"its list of tools has more than {_MAX_PAGES} pages")


def _result(name: str, result: Any) -> Any:
    """What a call gave, as JSON: what is structured, or else its text. Raises ToolServerError if it says it failed."""
    parts: list[dict[str, Any]] = [
        part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content
    ]
    texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
    if result.is_error:
        raise ToolServerError("\n".join(texts) or f"{name} failed without a reason")
    if result.structured_content is not None:
        return result.structured_content
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _client_class() -> type[Client]:
    try:
        from mcp import Client
    except ImportError:
        raise SettingsError('mcp= needs the package mcp: pip install "nbmastra[mcp]"') from None
    return Client


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise SettingsError(f"{_EXPECTED}; {line[:60]!r} is none ({error})") from None


def _command(words: Sequence[Any]) -> dict[str, Any]:
    if not words or not all(isinstance(word, str) and word for word in words):
        raise SettingsError(f"{_EXPECTED}; a command is a list of texts")
    return {"command": words[0], "args": list(words[1:])}
