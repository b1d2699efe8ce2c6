"""What a server keeps: threads with their messages, and traces. As plain dicts, in the wire's own words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload
from urllib.parse import quote

from nbmastra.client.agent_routes import json_dict
from nbmastra.client.http import Http
from nbmastra.client.refusals import clean
from nbmastra.client.request import Request
from nbmastra.fold.reading import as_dict, as_list

__all__ = ["Page", "RemoteThread", "get_trace", "list_threads", "list_traces"]


class Page(Sequence[dict[str, Any]]):
    """A page of records; `total` counts those of all pages (None where the server doesn't tell), pages from 0."""

    def __init__(self, records: list[dict[str, Any]], about: dict[str, Any]) -> None:
        total, page = about.get("total"), about.get("page")
        self.records = records
        self.total: int | None = total if isinstance(total, int) else None
        self.page: int = page if isinstance(page, int) else 0
        self.has_more: bool = about.get("hasMore") is True

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        of = f" of {self.total}" if self.total is not None else ""
        more = "; page= gives more" if self.has_more else ""
        return f"<Page {self.page}: {len(self.records)}{of} records{more}>"


class RemoteThread:
    """A thread of a server's memory, by its id."""

    def __init__(self, http: Http, thread_id: str, agent: str | None = None) -> None:
        self.id = thread_id
        self._http = http
        self._agent = agent
        self._path = f"/memory/threads/{quote(thread_id, safe='')}"

    def get(self) -> Request[dict[str, Any]]:
        """The thread's record: title, resourceId, metadata, createdAt. Raises NotFound, ClientError."""

        async def ask() -> dict[str, Any]:
            asked = {"agentId": self._agent}
            return json_dict(self._http, self._path, await self._http.get(self._path, asked))

        return Request(self._http.engine, ask)

    def messages(
        self, *, resource: str | None = None, page: int | None = None, per_page: int | None = None
    ) -> Request[list[dict[str, Any]]]:
        """Its messages, oldest first, as the server keeps them: id, role, content {format, parts}, createdAt.

        Raises NotFound, ClientError.
        """
        path = f"{self._path}/messages"
        asked = {"agentId": self._agent, "resourceId": resource, "page": page, "perPage": per_page}

        async def ask() -> list[dict[str, Any]]:
            return _dicts(json_dict(self._http, path, await self._http.get(path, asked)).get("messages"))

        return Request(self._http.engine, ask)

    def delete_messages(self, ids: Sequence[str]) -> Request[None]:
        """Delete messages by their ids. Raises ClientError.

        Source: @mastra/server, POST /memory/messages/delete, which needs the agent's id.
        """

        async def ask() -> None:
            await self._http.post("/memory/messages/delete", {"messageIds": list(ids)}, {"agentId": self._agent})

        return Request(self._http.engine, ask)

    def __repr__(self) -> str:
        return f"<RemoteThread {clean(self.id, 80)} at {self._http.address.url}: await .messages(), .get()>"


async def list_threads(
    http: Http, *, resource: str | None, agent: str | None, page: int | None, per_page: int | None
) -> Page:
    """A page of threads. Raises ClientError."""
    path = "/memory/threads"
    asked = {"resourceId": resource, "agentId": agent, "page": page, "perPage": per_page}
    answer = json_dict(http, path, await http.get(path, asked))
    return Page(_dicts(answer.get("threads")), answer)


async def list_traces(http: Http, *, page: int | None, per_page: int | None, run_id: str | None) -> Page:
    """A page of root spans, newest first. Raises ClientError."""
    path = "/observability/traces"
    answer = json_dict(http, path, await http.get(path, {"page": page, "perPage": per_page, "runId": run_id}))
    return Page(_dicts(answer.get("spans")), as_dict(answer.get("pagination")))


async def get_trace(http: Http, trace_id: str) -> dict[str, Any]:
    """A trace with all its spans. Raises NotFound, ClientError."""
    path = f"/observability/traces/{quote(trace_id, safe='')}"
    return json_dict(http, path, await http.get(path))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [as_dict(item) for item in as_list(value)]
