"""What all routes of one agent share: its path, the error for an agent that doesn't exist, outputs of its streams."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote

from nbmastra.client.http import ByteStream, Http
from nbmastra.client.info import AgentInfo, AgentList
from nbmastra.client.refusals import clean, not_mastra
from nbmastra.client.request import Request
from nbmastra.engine import Engine
from nbmastra.errors import AgentNotFound, ClientError, NotFound
from nbmastra.output import MastraModelOutput

__all__ = ["AgentRoutes", "begin", "json_dict", "list_agents", "run_context"]

T = TypeVar("T")


class AgentRoutes:
    """Requests below `/agents/{id}`; a missing agent raises AgentNotFound with those that exist."""

    def __init__(self, http: Http, agent_id: str) -> None:
        self.http = http
        self.id = agent_id
        self.path = f"/agents/{quote(agent_id, safe='')}"

    async def describe(self) -> AgentInfo:
        """The agent as its server describes it. Raises ClientError."""
        return AgentInfo.of(self.id, await self.get(""))

    async def get(self, route: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that a route answers. Raises ClientError."""
        path = self.path + route
        return json_dict(self.http, path, await self._ask(self.http.get(path, params)))

    async def post(self, route: str, body: object, *, patient: bool = False) -> dict[str, Any]:
        """The JSON object that a route answers; `patient` waits as long as it takes. Raises ClientError."""
        path = self.path + route
        return json_dict(self.http, path, await self._ask(self.http.post(path, body, patient=patient)))

    async def stream(self, route: str, body: object) -> ByteStream:
        """The stream that a route answers; whoever gets it closes it. Raises ClientError."""
        return await self._ask(self.http.stream(self.path + route, body))

    async def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return await request
        except NotFound as error:
            await self._not_found(error)

    async def _not_found(self, error: ClientError) -> NoReturn:
        """Raise the error with the agents that exist; as it is if this agent is one of them."""
        try:
            available = (await list_agents(self.http)).ids
        except ClientError:
            available = []
        if self.id in available:
            raise error from None
        raise AgentNotFound(_suggest(self.id, self.http.address.url, available), url=error.url, available=available)


def begin(engine: Engine, open_run: Callable[[], Coroutine[Any, Any, MastraModelOutput]]) -> Request[MastraModelOutput]:
    """A request for a run: whoever gives it up also stops the run that it began."""
    begun: list[MastraModelOutput] = []

    async def run() -> MastraModelOutput:
        out = await open_run()
        begun.append(out)
        return out

    return Request(engine, run, abandon=lambda: [out.cancel() for out in begun])


def run_context(http: Http, memory: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Facts of a run for views and recordings: url, thread, resource."""
    thread = (memory or {}).get("thread")
    if isinstance(thread, Mapping):
        thread = cast("Mapping[str, Any]", thread).get("id")
    context = {"url": http.address.url, "thread": thread, "resource": (memory or {}).get("resource")}
    return {key: value for key, value in context.items() if value is not None}


async def list_agents(http: Http) -> AgentList:
    """The agents of a server. Raises ClientError."""
    raw = json_dict(http, "/agents", await http.get("/agents", {"partial": "true"}))
    return AgentList([AgentInfo.of(key, json_dict(http, "/agents", value)) for key, value in raw.items()])


def json_dict(http: Http, path: str, value: object) -> dict[str, Any]:
    """The value, which has to be a JSON object. Raises NotMastra."""
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
