"""Background tasks of a server: listed, looked at and followed. Servers have no route to act on them from outside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeVar, Unpack, overload
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from nbmastra.client.agent_routes import begin, json_dict, run_context
from nbmastra.client.budgets import Bounds, make_limits
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.http import Http
from nbmastra.client.refusals import clean, not_mastra
from nbmastra.client.request import Request
from nbmastra.client.source import HttpSource
from nbmastra.errors import ControlError
from nbmastra.output import MastraModelOutput

__all__ = ["BackgroundTasks", "TaskError", "TaskPage", "TaskRecord"]

TaskStatus = Literal["pending", "running", "suspended", "completed", "failed", "cancelled", "timed_out"]
M = TypeVar("M", bound=BaseModel)


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True, frozen=True)


class TaskError(_Record):
    """Why a task failed."""

    message: str
    stack: str | None = None


class TaskRecord(_Record):
    """A task as the server keeps it; `status` is a TaskStatus or a newer server's word. `timeout_ms` in milliseconds.

    Source: @mastra/server, backgroundTaskResponseSchema; WIRE, "Background tasks".
    """

    id: str
    status: str
    tool_name: str
    tool_call_id: str = ""
    args: Any = None
    agent_id: str = ""
    thread_id: str | None = None
    resource_id: str | None = None
    run_id: str = ""
    result: Any = None
    error: TaskError | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    suspended_at: datetime | None = None
    completed_at: datetime | None = None
    retry_count: int = 0
    max_retries: int = 0
    timeout_ms: float | None = None
    suspend_payload: Any = None

    def __repr__(self) -> str:
        why = f": {self.error.message}" if self.error is not None else ""
        return clean(f"<Task {self.tool_name} {self.status} {self.id}{why}", 300) + ">"


class _TaskAnswer(_Record):
    tasks: list[TaskRecord]
    total: int


class TaskPage(Sequence[TaskRecord]):
    """A page of tasks; `total` counts those of all pages."""

    def __init__(self, tasks: list[TaskRecord], total: int) -> None:
        self.tasks = tasks
        self.total = total

    @overload
    def __getitem__(self, index: int) -> TaskRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskRecord]: ...
    def __getitem__(self, index: int | slice) -> TaskRecord | list[TaskRecord]:
        return self.tasks[index]

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return "\n".join([f"{len(self.tasks)} of {self.total} tasks", *map(repr, self.tasks)])


class BackgroundTasks:
    """`client.background_tasks`: what the server's task manager knows."""

    can: frozenset[str] = frozenset()
    """What can be done to its tasks: nothing, from outside."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        *,
        status: TaskStatus | None = None,
        agent: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
        run_id: str | None = None,
        tool: str | None = None,
        page: int | None = None,
        per_page: int | None = None,
    ) -> Request[TaskPage]:
        """The tasks, newest first; pages count from 0. Raises ClientError."""
        asked = {
            "status": status,
            **_filters(agent, thread, resource, run_id),
            "toolName": tool,
            "page": page,
            "perPage": per_page,
            "orderBy": "createdAt",
            "orderDirection": "desc",
        }

        async def ask() -> TaskPage:
            answer = await self._record("/background-tasks", _TaskAnswer, asked)
            return TaskPage(answer.tasks, answer.total)

        return Request(self._http.engine, ask)

    def get(self, task_id: str) -> Request[TaskRecord]:
        """One task. Raises NotFound, ClientError."""
        path = f"/background-tasks/{quote(task_id, safe='')}"
        return Request(self._http.engine, lambda: self._record(path, TaskRecord))

    def stream(
        self,
        *,
        agent: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
        **bounds: Unpack[Bounds],
    ) -> Request[MastraModelOutput]:
        """What happens to tasks from now on, as `out.total.tasks`; it never ends by itself: cancel it.

        Servers don't tell that a task was enqueued, so the first of it is that it runs. Raises ClientError.
        """
        asked = {**_filters(agent, thread, resource, run_id), "taskId": task_id}
        limits = make_limits(bounds)

        async def open_stream() -> MastraModelOutput:
            stream = await self._http.stream("/background-tasks/stream", params=asked, method="GET")
            context = run_context(self._http, {"thread": thread, "resource": resource})
            out = MastraModelOutput(
                agent=agent, until_idle=True, endless=True, limits=limits, context=context, engine=self._http.engine
            )
            return out.start(HttpSource(stream, ChunkDecoder(self._http.max_event_bytes)))

        return begin(self._http.engine, open_stream)

    def cancel(self, task_id: str) -> NoReturn:
        """Always raises ControlError, which says what is possible instead."""
        raise ControlError(
            f"servers can't be told to cancel a background task ({clean(task_id, 60)}): it ends by its own time-out, "
            "or the server's own code does it (mastra.backgroundTaskManager.cancel); aborting the run leaves it alone"
        )

    def resume(self, task_id: str, data: Any = None) -> NoReturn:
        """Always raises ControlError, which says what is possible instead."""
        raise ControlError(
            f"servers can't be told to resume a background task ({clean(task_id, 60)}): the server's own code does it "
            "(mastra.backgroundTaskManager.resume), or answer the agent on the task's thread"
        )

    async def _record(self, path: str, model: type[M], params: dict[str, Any] | None = None) -> M:
        raw = json_dict(self._http, path, await self._http.get(path, params))
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            what = f"answered with another record ({clean(str(error.errors()[0]['msg']), 80)})"
            raise not_mastra(self._http.address, f"{self._http.address.api}{path}", what) from None

    def __repr__(self) -> str:
        return f"<BackgroundTasks of {self._http.address.url}: await .list(), .get(id), .stream()>"


def _filters(agent: str | None, thread: str | None, resource: str | None, run_id: str | None) -> dict[str, Any]:
    return {"agentId": agent, "threadId": thread, "resourceId": resource, "runId": run_id}
