"""`MastraClient`: one Mastra server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from nbmastra.client.address import ServerAddress
from nbmastra.client.agent import RemoteAgent
from nbmastra.client.agent_routes import begin, json_dict, list_agents
from nbmastra.client.background import BackgroundTasks
from nbmastra.client.budgets import Bounds
from nbmastra.client.decode import DEFAULT_MAX_EVENT_BYTES
from nbmastra.client.history import Page, RemoteThread, get_trace, list_threads, list_traces
from nbmastra.client.http import Http
from nbmastra.client.info import AgentList
from nbmastra.client.request import Request
from nbmastra.client.run_history import History, fetch_history, trace_store, wanted
from nbmastra.client.since import When
from nbmastra.client.suspended import SuspendedRuns, suspended_runs_of_all
from nbmastra.client.workflow import RemoteWorkflow, list_workflows
from nbmastra.client.workflow_info import WorkflowList
from nbmastra.engine import Engine
from nbmastra.errors import NotFound
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.output import MastraModelOutput

__all__ = ["MastraClient"]


class MastraClient:
    """A Mastra server: `client.agent("weather").stream("…")`. Clients share their connections and need no closing.

    base_url: with or without `/api`; default MASTRA_API_URL, then http://localhost:4111.
    token: sent as a bearer token; default MASTRA_API_TOKEN. headers: sent with every request. Neither shows in a repr.
    timeout: seconds until an answer, or a stream, must have begun; a stream that has begun may be silent for ever.
    max_event_bytes: a run ends as truncated where one event is larger.

    Methods give a `Request`: `await` it, or call `.result()` in plain code. Raises SettingsError for a bad address.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
        engine: Engine | None = None,
    ) -> None:
        address = ServerAddress.of(base_url, token=token, headers=headers)
        self._http = Http(address, timeout=timeout, max_event_bytes=max_event_bytes, engine=engine)

    @property
    def url(self) -> str:
        """The server's address, without secrets."""
        return self._http.address.url

    # --- agents ----------------------------------------------------------------------------------------------------

    def agents(self) -> Request[AgentList]:
        """The agents that the server has. Raises ClientError."""
        return Request(self._http.engine, lambda: list_agents(self._http))

    def agent(self, agent_id: str) -> RemoteAgent:
        """One agent; whether it exists shows when it is used."""
        return RemoteAgent(self._http, agent_id)

    def suspended_runs(self, *, thread: str | None = None, resource: str | None = None) -> Request[SuspendedRuns]:
        """The runs of all agents that wait for somebody, newest first; they can be answered. Raises ClientError."""
        return Request(self._http.engine, lambda: suspended_runs_of_all(self._http, thread=thread, resource=resource))

    # --- workflows -------------------------------------------------------------------------------------------------

    def workflows(self) -> Request[WorkflowList]:
        """The workflows that the server has. Raises ClientError."""
        return Request(self._http.engine, lambda: list_workflows(self._http))

    def workflow(self, workflow_id: str) -> RemoteWorkflow:
        """One workflow; whether it exists shows when it is used."""
        return RemoteWorkflow(self._http, workflow_id)

    # --- tasks and history -----------------------------------------------------------------------------------------

    @property
    def background_tasks(self) -> BackgroundTasks:
        """The server's background tasks: `list`, `get`, `stream`."""
        return BackgroundTasks(self._http)

    def threads(
        self,
        *,
        resource: str | None = None,
        agent: str | None = None,
        page: int | None = None,
        per_page: int | None = None,
    ) -> Request[Page]:
        """Threads of the server's memory; `agent`: of that agent's memory. Raises ClientError."""
        return Request(
            self._http.engine,
            lambda: list_threads(self._http, resource=resource, agent=agent, page=page, per_page=per_page),
        )

    def thread(self, thread_id: str, *, agent: str | None = None) -> RemoteThread:
        """One thread: `await client.thread("t1").messages()`."""
        return RemoteThread(self._http, thread_id, agent)

    def subscribe(
        self, thread: str, resource: str, *, agent: str | None = None, once: bool = False, **bounds: Unpack[Bounds]
    ) -> Request[MastraModelOutput]:
        """The runs of a thread, whoever starts them, as `agent(…).subscribe`; without `agent` by any that there is."""

        async def open_stream() -> MastraModelOutput:
            name = agent or next(iter((await list_agents(self._http)).ids), "")
            return await self.agent(name).subscribe_now(thread, resource, once=once, bounds=bounds)

        return begin(self._http.engine, open_stream)

    def history(
        self,
        *,
        since: When | None = None,
        until: When | None = None,
        agent: str | None = None,
        limit: int | None = None,
        run_id: str | None = None,
        cache: bool | str | Path = True,
        progress: bool = True,
    ) -> Request[History]:
        """The runs that the server has traced, as finished outputs, oldest first: `docs/history.md`.

        since, until: when they began: a datetime, a date or its text, or how long ago: "7d", "24h".
        agent: id of the agent or workflow that was asked. limit: at most so many traces, the newest.
        run_id: joins a stream to its trace: `client.history(run_id=out.run_id)`.
        cache: False keeps nothing, a folder takes the place of the user's cache folder; what is kept isn't asked for
        again, unless it may have changed. progress: a bar, if it takes longer than a second.
        Raises SettingsError, ClientError. Servers write spans some seconds late.
        """
        which = wanted(since, until, agent, limit, run_id)
        store = trace_store(self.url, cache)
        return Request(self._http.engine, lambda: fetch_history(self._http, which, store, progress=progress))

    def traces(
        self, *, page: int | None = None, per_page: int | None = None, run_id: str | None = None
    ) -> Request[Page]:
        """Root spans of the runs that the server has traced, newest first, raw. Raises ClientError.

        Servers write spans in batches, some seconds late.
        """
        return Request(self._http.engine, lambda: list_traces(self._http, page=page, per_page=per_page, run_id=run_id))

    def trace(self, trace_id: str) -> Request[dict[str, Any]]:
        """One trace, raw: `{"traceId", "spans"}`. Raises NotFound, ClientError."""
        return Request(self._http.engine, lambda: get_trace(self._http, trace_id))

    def packages(self) -> Request[dict[str, str]]:
        """Versions of the server's Mastra packages, by name; {} if it tells none. Raises ClientError."""

        async def ask() -> dict[str, str]:
            try:
                answer = json_dict(self._http, "/system/packages", await self._http.get("/system/packages"))
            except NotFound:
                return {}  # an older server
            packages = map(as_dict, as_list(answer.get("packages")))
            return {as_text(package.get("name")): as_text(package.get("version")) for package in packages}

        return Request(self._http.engine, ask)

    def __repr__(self) -> str:
        return f"<MastraClient {self.url}: .agent(id), await .agents()>"
