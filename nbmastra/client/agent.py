"""`RemoteAgent`: an agent of a Mastra server."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, cast
from urllib.parse import quote

from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.http import Http
from nbmastra.client.info import AgentInfo, AgentList
from nbmastra.client.options import UntilIdle, schema_options, stream_body
from nbmastra.client.refusals import clean, not_mastra
from nbmastra.client.request import Request
from nbmastra.client.source import HttpSource
from nbmastra.errors import AgentNotFound, ClientError, NotFound
from nbmastra.messages import Messages, message_records
from nbmastra.output import Limits, MastraModelOutput

__all__ = ["RemoteAgent", "list_agents"]


class RemoteAgent:
    """An agent of a server, by its id; nothing is asked of the server until a method is called."""

    def __init__(self, http: Http, agent_id: str) -> None:
        self.id = agent_id
        self._http = http

    def describe(self) -> Request[AgentInfo]:
        """Its name, model, tools and instructions. Raises AgentNotFound, ClientError."""
        return Request(self._http.engine, self._describe)

    def stream(
        self,
        messages: Messages,
        *,
        until_idle: UntilIdle = False,
        memory: Mapping[str, Any] | None = None,
        schema: Any = None,
        structured_output: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
        run_id: str | None = None,
        require_tool_approval: bool | None = None,
        idle_timeout: float | None = None,
        **options: Any,
    ) -> Request[MastraModelOutput]:
        """Start a run; the output is there as soon as the server has accepted it, and fills by itself.

        messages: a text, a message dict, or a list of them.
        until_idle: go on until the background tasks are done; `{"max_idle_ms": …}` bounds the waiting between turns.
        memory: `{"thread": …, "resource": …}`.
        schema: what the object must be: pydantic model, any type, TypeAdapter or JSON schema. `structured_output` is
        the long form, with further keys beside it.
        idle_timeout: cancel the run after so many seconds without a chunk.
        options: everything else that the server takes (`model_settings`, `request_context`, `client_tools` …), passed
        on in camelCase.

        Raises SettingsError at once; AgentNotFound, BadRequest, ServerUnreachable and other ClientErrors when awaited.
        """
        checked, structured = schema_options(schema, structured_output)
        named = {
            "memory": memory,
            "structured_output": structured,
            "max_steps": max_steps,
            "run_id": run_id,
            "require_tool_approval": require_tool_approval,
        }
        body = stream_body(messages, until_idle, {**named, **options})
        begun: list[MastraModelOutput] = []

        async def open_stream() -> MastraModelOutput:
            try:
                stream = await self._http.stream(f"{self._path}/stream", body)
            except NotFound as error:
                await self._not_found(error)
            out = MastraModelOutput(
                schema=checked,
                agent=self.id,
                prompt=_prompt(body["messages"]),
                until_idle=until_idle is not False,
                limits=Limits(idle_timeout_s=idle_timeout),
                context=self._context(memory),
                engine=self._http.engine,
            )
            begun.append(out.start(HttpSource(stream, ChunkDecoder(self._http.max_event_bytes))))
            return out

        return Request(self._http.engine, open_stream, abandon=lambda: [out.cancel() for out in begun])

    def stream_until_idle(
        self, messages: Messages, *, max_idle_ms: int | None = None, **options: Any
    ) -> Request[MastraModelOutput]:
        """Deprecated: `stream(messages, until_idle=True)`, or `until_idle={"max_idle_ms": …}`."""
        warnings.warn("stream_until_idle() is now stream(until_idle=True)", DeprecationWarning, stacklevel=2)
        until_idle: UntilIdle = True if max_idle_ms is None else {"max_idle_ms": max_idle_ms}
        return self.stream(messages, until_idle=until_idle, **options)

    @property
    def _path(self) -> str:
        return f"/agents/{quote(self.id, safe='')}"

    def _context(self, memory: Mapping[str, Any] | None) -> dict[str, Any]:
        thread = (memory or {}).get("thread")
        if isinstance(thread, Mapping):
            thread = cast("Mapping[str, Any]", thread).get("id")
        context = {"url": self._http.address.url, "thread": thread, "resource": (memory or {}).get("resource")}
        return {key: value for key, value in context.items() if value is not None}

    async def _describe(self) -> AgentInfo:
        try:
            raw = await self._http.get(self._path)
        except NotFound as error:
            await self._not_found(error)
        return AgentInfo.of(self.id, _dict(self._http, self._path, raw))

    async def _not_found(self, error: NotFound) -> NoReturn:
        """Raise the error with the agents that exist; as it is if this agent is one of them."""
        try:
            available = (await list_agents(self._http)).ids
        except ClientError:
            available = []
        if self.id in available:
            raise error from None
        raise AgentNotFound(_suggest(self.id, self._http.address.url, available), url=error.url, available=available)

    def __repr__(self) -> str:
        return f"<RemoteAgent {clean(self.id, 80)} at {self._http.address.url}: await .stream(…), .describe()>"


async def list_agents(http: Http) -> AgentList:
    """The agents of a server. Raises ClientError."""
    raw = _dict(http, "/agents", await http.get("/agents", {"partial": "true"}))
    return AgentList([AgentInfo.of(key, _dict(http, "/agents", value)) for key, value in raw.items()])


def _prompt(messages: list[dict[str, Any]]) -> str | None:
    """What the user asked last, for views."""
    asked = [record.text for record in message_records(messages) if record.role == "user"]
    return asked[-1] or None if asked else None


def _dict(http: Http, path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise not_mastra(http.address, f"{http.address.api}{path}", "answered with other JSON")
    return cast("dict[str, Any]", value)


def _suggest(agent_id: str, url: str, available: list[str]) -> str:
    shown = clean(agent_id, 80)
    close = get_close_matches(agent_id, available, 1)
    hint = f" Did you mean {clean(close[0], 80)!r}?" if close else ""
    some = ", ".join(clean(name, 80) for name in available[:20])
    more = f" and {len(available) - 20} more" if len(available) > 20 else ""
    return f"no agent {shown!r} at {url}.{hint}" + (f" There are: {some}{more}" if available else "")
