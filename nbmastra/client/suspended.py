"""Runs of a server that wait for somebody: found by asking, so also after this kernel was started anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast, overload

import anyio

from nbmastra.client.agent_routes import AgentRoutes, begin, list_agents
from nbmastra.client.answers import Question, send_answer
from nbmastra.client.http import Http
from nbmastra.client.refusals import clean
from nbmastra.client.request import Request
from nbmastra.errors import ClientError, NotSuspended
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.output import Answer, MastraModelOutput

__all__ = ["SuspendedCall", "SuspendedRun", "SuspendedRuns", "suspended_runs", "suspended_runs_of_all"]

_AT_ONCE = 8
_PAGE = 100


@dataclass(frozen=True, slots=True)
class SuspendedCall:
    """A tool call that waits: for approval, or for data (then `suspend_payload` is what it asks)."""

    tool_call_id: str
    tool_name: str
    args: Any = None
    needs_approval: bool = False
    suspend_payload: Any = None

    def __repr__(self) -> str:
        return (
            f"<SuspendedCall {clean(self.tool_name, 40)} ({clean(self.tool_call_id, 40)}) waits for {_waits_for(self)}>"
        )


def _waits_for(call: SuspendedCall) -> str:
    # Of durable runs a server (1.71) doesn't say that a call needs approval.
    return "approval" if call.needs_approval else "data" if call.suspend_payload is not None else "an answer"


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A run that waits for somebody; answering gives the output that goes on with it.

    Answers take the id of a call where several wait. They raise AlreadyResumed for a second answer, NotSuspended,
    ClientError.
    """

    agent: str
    run_id: str
    calls: tuple[SuspendedCall, ...]
    thread: str | None = None
    resource: str | None = None
    suspended_at: datetime | None = None
    _routes: AgentRoutes | None = field(default=None, repr=False, compare=False)

    def approve(self, tool_call_id: str | None = None) -> Request[MastraModelOutput]:
        """Let a call run."""
        return self._answer("approve", tool_call_id)

    def decline(self, tool_call_id: str | None = None, *, reason: str | None = None) -> Request[MastraModelOutput]:
        """Refuse a call; the model is told the reason."""
        return self._answer("decline", tool_call_id, reason=reason)

    def resume(self, data: Any, *, tool_call_id: str | None = None) -> Request[MastraModelOutput]:
        """Give a suspended tool the data that it waits for."""
        return self._answer("resume", tool_call_id, data=data)

    def _answer(
        self, answer: Answer, tool_call_id: str | None, *, reason: str | None = None, data: Any = None
    ) -> Request[MastraModelOutput]:
        routes = self._routes
        if routes is None:
            raise NotSuspended("this record belongs to no server: ask for suspended_runs()")
        call = self._call(tool_call_id)
        question = Question(self.run_id, call.tool_call_id or None, call.tool_name)
        memory = {"thread": self.thread, "resource": self.resource}
        options = {"memory": memory} if self.thread and self.resource else {}
        return begin(
            routes.http.engine,
            lambda: send_answer(routes, question, answer, reason=reason, data=data, options=options),
        )

    def _call(self, tool_call_id: str | None) -> SuspendedCall:
        calls = [call for call in self.calls if tool_call_id in (None, call.tool_call_id)]
        if len(calls) > 1:
            ids = ", ".join(call.tool_call_id for call in calls)
            raise NotSuspended(f"several calls wait ({clean(ids, 200)}): name one by tool_call_id=")
        if not calls:
            raise NotSuspended(f"no call {tool_call_id!r} waits in this run" if tool_call_id else "no call waits")
        return calls[0]

    def __repr__(self) -> str:
        row = ", ".join(map(repr, self.calls))
        return f"<SuspendedRun {clean(self.agent, 40)} {clean(self.run_id, 40)}: {row}>"


class SuspendedRuns(Sequence[SuspendedRun]):
    """The runs that wait, newest first; act on one: `runs[0].approve()`."""

    def __init__(self, runs: Sequence[SuspendedRun]) -> None:
        self._runs = list(runs)

    @overload
    def __getitem__(self, index: int) -> SuspendedRun: ...
    @overload
    def __getitem__(self, index: slice) -> list[SuspendedRun]: ...
    def __getitem__(self, index: int | slice) -> SuspendedRun | list[SuspendedRun]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        if not self._runs:
            return "no run waits for an answer"
        rows = [("", "agent", "tool", "waits for", "arguments or question", "since", "thread")]
        for number, run in enumerate(self._runs):
            for call in run.calls or (SuspendedCall("", ""),):
                what = call.args if call.suspend_payload is None else call.suspend_payload
                since = run.suspended_at.strftime("%Y-%m-%d %H:%M") if run.suspended_at else ""
                rows.append(
                    (
                        f"[{number}]",
                        clean(run.agent, 30),
                        clean(call.tool_name, 30),
                        _waits_for(call),
                        clean(str(what), 50) if what is not None else "",
                        since,
                        clean(run.thread or "", 20),
                    )
                )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


async def suspended_runs(
    routes: AgentRoutes, *, thread: str | None = None, resource: str | None = None
) -> SuspendedRuns:
    """All runs of an agent that wait, page by page. Raises ClientError."""
    found: list[SuspendedRun] = []
    page = 0
    while True:
        asked = {"threadId": thread, "resourceId": resource, "page": page, "perPage": _PAGE}
        answer = await routes.get("/suspended-runs", asked)
        runs = as_list(answer.get("runs"))
        found += [_run(routes, as_dict(run)) for run in runs]
        page += 1
        total = answer.get("total")
        if not runs or not isinstance(total, int) or len(found) >= total:
            return SuspendedRuns(found)


async def suspended_runs_of_all(http: Http, *, thread: str | None = None, resource: str | None = None) -> SuspendedRuns:
    """Those of all agents, a few agents at a time. Raises ClientError."""
    found: list[SuspendedRun] = []
    errors: list[ClientError] = []
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(agent_id: str) -> None:
        async with limiter:
            if errors:
                return
            try:
                found.extend(await suspended_runs(AgentRoutes(http, agent_id), thread=thread, resource=resource))
            except ClientError as error:
                errors.append(error)

    agents = await list_agents(http)
    async with anyio.create_task_group() as group:
        for agent_id in agents.ids:
            group.start_soon(ask, agent_id)
    if errors:
        raise errors[0]
    found.sort(key=lambda run: run.suspended_at.timestamp() if run.suspended_at else 0.0, reverse=True)
    return SuspendedRuns(found)


def _run(routes: AgentRoutes, raw: Mapping[str, Any]) -> SuspendedRun:
    """Source: @mastra/server, listSuspendedRunsResponseSchema."""
    return SuspendedRun(
        agent=routes.id,
        run_id=as_text(raw.get("runId")),
        calls=tuple(_call(as_dict(call)) for call in as_list(raw.get("toolCalls"))),
        thread=as_text(raw.get("threadId")) or None,
        resource=as_text(raw.get("resourceId")) or None,
        suspended_at=_time(raw.get("suspendedAt")),
        _routes=routes,
    )


def _call(raw: Mapping[str, Any]) -> SuspendedCall:
    return SuspendedCall(
        as_text(raw.get("toolCallId")),
        as_text(raw.get("toolName")),
        raw.get("args"),
        raw.get("requiresApproval") is True,
        raw.get("suspendPayload"),
    )


def _time(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError):
        return None
