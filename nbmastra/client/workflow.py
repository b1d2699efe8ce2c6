"""`RemoteWorkflow`: a workflow of a Mastra server. Its streams are JSON records, each ended by the byte 0x1E."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Unpack
from urllib.parse import quote

from nbmastra.chunks import Chunk
from nbmastra.client.agent_routes import begin, json_dict, run_context
from nbmastra.client.answers import Question, claims_of
from nbmastra.client.budgets import Bounds, make_limits
from nbmastra.client.decode import RecordDecoder
from nbmastra.client.http import ByteStream, Http
from nbmastra.client.refusals import clean
from nbmastra.client.request import Request
from nbmastra.client.source import HttpSource
from nbmastra.client.workflow_info import WorkflowInfo, WorkflowList
from nbmastra.errors import (
    AlreadyResumed,
    ClientError,
    ControlError,
    NotFound,
    NotSuspended,
    RunNotFound,
    SettingsError,
)
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.fold.reading import as_dict, as_text
from nbmastra.output import Answer, Batch, Limits, MastraModelOutput

__all__ = ["RemoteWorkflow", "list_workflows"]


class RemoteWorkflow:
    """A workflow of a server, by its id; nothing is asked of the server until a method is called.

    All methods raise SettingsError at once; NotFound (no such workflow), RunNotFound, Conflict (a run that is finished)
    and other ClientErrors when awaited.
    """

    def __init__(self, http: Http, workflow_id: str) -> None:
        self.id = workflow_id
        self.http = http
        self._path = f"/workflows/{quote(workflow_id, safe='')}"

    def describe(self) -> Request[WorkflowInfo]:
        """Its steps and schemas."""

        async def ask() -> WorkflowInfo:
            return WorkflowInfo.of(self.id, json_dict(self.http, self._path, await self.http.get(self._path)))

        return Request(self.http.engine, ask)

    def create_run(self, run_id: str | None = None) -> Request[str]:
        """Prepare a run, with an id of your own or the server's; gives the id. `stream` does without it."""

        async def ask() -> str:
            path = f"{self._path}/create-run"
            answer = json_dict(self.http, path, await self.http.post(path, {}, {"runId": run_id}))
            return as_text(answer.get("runId"))

        return Request(self.http.engine, ask)

    def stream(
        self,
        input: Any = None,
        *,
        run_id: str | None = None,
        request_context: Mapping[str, Any] | None = None,
        **bounds: Unpack[Bounds],
    ) -> Request[MastraModelOutput]:
        """Start a run with its input; `out.state.result` is what it gave. Stopping the output cancels the run."""
        body = {"inputData": input, "requestContext": request_context}
        limits = _limits(bounds)

        async def open_stream() -> MastraModelOutput:
            return await self._open("/stream", run_id or str(uuid.uuid4()), body, limits, cancels=True)

        return begin(self.http.engine, open_stream)

    def resume_stream(
        self, run_id: str, step: str | None = None, data: Any = None, **bounds: Unpack[Bounds]
    ) -> Request[MastraModelOutput]:
        """Give a suspended step its data; gives the output that goes on. Raises AlreadyResumed if nothing waits.

        step: which step is meant, where several wait.
        """
        limits = _limits(bounds)
        return begin(self.http.engine, lambda: self.resume_now(run_id, step, data, limits, None))

    def observe(self, run_id: str, **bounds: Unpack[Bounds]) -> Request[MastraModelOutput]:
        """A run from its first record on, whoever started it; the run isn't touched. Raises RunNotFound."""
        limits = _limits(bounds)
        return begin(self.http.engine, lambda: self._open("/observe", run_id, None, limits, cancels=False))

    def cancel(self, run_id: str) -> Request[None]:
        """Stop a run, whoever started it; its streams then end as cancelled. Raises RunNotFound."""
        return Request(self.http.engine, lambda: self.cancel_now(run_id))

    def run(self, run_id: str) -> Request[dict[str, Any]]:
        """The state of a run as the server keeps it: status, steps, result. Raises RunNotFound."""
        return Request(self.http.engine, lambda: self._run(run_id))

    # --- shared ----------------------------------------------------------------------------------------------------

    async def _run(self, run_id: str) -> dict[str, Any]:
        path = self._run_path(run_id)
        try:
            return json_dict(self.http, path, await self.http.get(path))
        except NotFound as error:
            raise self._no_run(run_id, error) from None

    async def cancel_now(self, run_id: str) -> None:
        """As `cancel`, on the engine's loop."""
        try:
            await self.http.post(f"{self._run_path(run_id)}/cancel", {})
        except NotFound as error:
            raise self._no_run(run_id, error) from None

    async def _open(
        self,
        route: str,
        run_id: str,
        body: Mapping[str, Any] | None,
        limits: Limits,
        *,
        cancels: bool,
        previous: MastraModelOutput | None = None,
        answered: str | None = None,
    ) -> MastraModelOutput:
        sent = {key: value for key, value in (body or {}).items() if value is not None}
        try:
            stream = await self.http.stream(self._path + route, sent, {"runId": run_id}, content_type=_CONTENT_TYPE)
        except NotFound as error:
            raise self._no_run(run_id, error) from None
        out = MastraModelOutput(
            control=_WorkflowControl(self, run_id),
            agent=self.id,
            previous=previous,
            limits=limits,
            answered={answered} if answered else (),
            context=run_context(self.http),
            engine=self.http.engine,
        )
        return out.start(_WorkflowSource(self, stream, run_id, cancels=cancels))

    async def resume_now(
        self, run_id: str, step: str | None, data: Any, limits: Limits, previous: MastraModelOutput | None
    ) -> MastraModelOutput:
        """As `resume_stream`, on the engine's loop; `previous` is the output that asks."""
        claims, place = claims_of(self.http.engine), (self.http.address.api, "workflow", self.id)
        question = Question(run_id, step)
        claims.take(place, question)
        try:
            # A second resume would answer 200 and note a failure in the run's own record: so its state is asked first.
            _refuse_unless_suspended(question, await self._run(run_id))
            out = await self._open(
                "/resume-stream",
                run_id,
                {"step": step, "resumeData": data},
                limits,
                cancels=True,
                previous=previous,
                answered=step,
            )
        except BaseException:
            claims.release(place, question)
            raise
        out.on_done(lambda: claims.release(place, question))
        return out

    def _run_path(self, run_id: str) -> str:
        return f"{self._path}/runs/{quote(run_id, safe='')}"

    def _no_run(self, run_id: str, error: NotFound) -> NotFound:
        if "run not found" not in str(error).lower():
            return error
        return RunNotFound(
            f"no run {clean(run_id, 80)!r} of workflow {clean(self.id, 80)}", url=error.url, status_code=404
        )

    def __repr__(self) -> str:
        return f"<RemoteWorkflow {clean(self.id, 80)} at {self.http.address.url}: await .stream(input), .describe()>"


_CONTENT_TYPE = "text/plain"


class _WorkflowSource:
    """A workflow's records. Servers let a run go on whose client has left: so stopping the output cancels it there."""

    def __init__(self, workflow: RemoteWorkflow, stream: ByteStream, run_id: str, *, cancels: bool) -> None:
        self._workflow = workflow
        self._stream = stream
        self._run_id = run_id
        self._source = HttpSource(stream, RecordDecoder(workflow.http.max_event_bytes))
        self._cancels = cancels
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they come. Raises StreamTruncated."""
        # Who observes may be sent what is known a second time (server 1.71): records have no index to tell it by.
        replays = None if self._cancels else Replays()
        async for at, chunks in self._source.batches():
            new = chunks if replays is None else replays.leave_out(chunks)
            if new:
                yield at, new
        if replays is not None and replays.held:
            yield None, replays.held
        self._cancels = False

    async def aclose(self) -> None:
        """Close the connection; if the run was stopped, cancel it at the server first."""
        if self._cancels and not self._stream.broken:
            with suppress(ClientError):
                await self._workflow.cancel_now(self._run_id)
        await self._source.aclose()


class Replays:
    """Leaves out a stream's beginning where it is sent again: its first chunk and, equal too, the ones after it."""

    def __init__(self) -> None:
        self._known: list[Chunk] = []
        self._at = 0  # the next known chunk of a replay; 0: no replay
        self.held: list[Chunk] = []
        """A first chunk that came again: the one after it tells whether it is a replay."""

    def leave_out(self, chunks: list[Chunk]) -> list[Chunk]:
        """The chunks that are new."""
        new: list[Chunk] = []
        for chunk in chunks:
            if self._known and self._at < len(self._known) and chunk == self._known[self._at]:
                self.held = [chunk] if self._at == 0 else []
                self._at += 1
                continue
            new += [*self.held, chunk]
            self._known += [*self.held, chunk]
            self.held, self._at = [], 0
        return new


class _WorkflowControl:
    """What can be done to a run of a workflow: its steps take data."""

    can = frozenset({"resume", "observe"})

    def __init__(self, workflow: RemoteWorkflow, run_id: str) -> None:
        self._workflow = workflow
        self._run_id = run_id

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        """Give a suspended step its data. Raises AlreadyResumed, ControlError, ClientError."""
        if answer != "resume":
            raise ControlError(f"a workflow's step takes data: resume({{…}}) instead of {answer}()")
        return await self._workflow.resume_now(self._run_id, call.tool_call_id, data, out.limits, out)


async def list_workflows(http: Http) -> WorkflowList:
    """The workflows of a server. Raises ClientError."""
    raw = json_dict(http, "/workflows", await http.get("/workflows"))
    return WorkflowList([WorkflowInfo.of(key, json_dict(http, "/workflows", value)) for key, value in raw.items()])


def _refuse_unless_suspended(question: Question, run: Mapping[str, Any]) -> None:
    status = as_text(run.get("status"))
    if status != "suspended":
        raise AlreadyResumed(f"{question} waits for no answer: the run is {clean(status, 40) or 'unknown'}")
    steps = as_dict(run.get("steps"))
    waiting = [step for step, about in steps.items() if as_dict(about).get("status") == "suspended"]
    step = question.tool_call_id
    if step is not None and step.partition(".")[0] not in waiting:
        raise NotSuspended(f"step {clean(step, 80)!r} waits for nothing; waiting: {clean(', '.join(waiting), 200)}")


def _limits(bounds: Bounds) -> Limits:
    if bounds.get("max_cost_usd") is not None:
        raise SettingsError("a workflow has no model of its own, so max_cost_usd= can't be watched: take max_tokens=")
    return make_limits(bounds)
