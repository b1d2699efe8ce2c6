"""`MastraClient`: one Mastra server."""

from __future__ import annotations

from collections.abc import Mapping

from nbmastra.client.address import ServerAddress
from nbmastra.client.agent import RemoteAgent
from nbmastra.client.agent_routes import list_agents
from nbmastra.client.decode import DEFAULT_MAX_EVENT_BYTES
from nbmastra.client.http import Http
from nbmastra.client.info import AgentList
from nbmastra.client.request import Request
from nbmastra.client.suspended import SuspendedRuns, suspended_runs_of_all
from nbmastra.client.workflow import RemoteWorkflow, list_workflows
from nbmastra.client.workflow_info import WorkflowList
from nbmastra.engine import Engine

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

    def __repr__(self) -> str:
        return f"<MastraClient {self.url}: .agent(id), await .agents()>"
