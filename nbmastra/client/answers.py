"""Answers to a run that waits for somebody: approve, decline, resume. Each begins a stream that goes on with the run.

Servers let two answers that come at once both run (B40), so this side sends one at a time; a later one is refused by
the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbmastra.client.agent_routes import AgentRoutes, run_context
from nbmastra.client.client_tools import ClientToolRun, ClientTools
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.refusals import clean
from nbmastra.client.source import HttpSource
from nbmastra.engine import Engine
from nbmastra.errors import AlreadyResumed, ClientError, ControlError, ServerError
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.fold.reading import as_dict, as_list
from nbmastra.output import Answer, Limits, MastraModelOutput, ObjectSchema, Source

__all__ = ["Claims", "Question", "RemoteControl", "carried_options", "claims_of", "send_answer"]

_NOT_SUSPENDED = "could not find a suspended run"
"""Source: @mastra/core 1.71, the 500 of a resume, approval or denial that comes twice or for an unknown run."""

_WAS_NOT_SUSPENDED = b"run was not suspended"
"""The same of a durable run: not a refusal, but a stream whose first chunk is this error."""
_SAYS_SO_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Question:
    """What waits in a run: a call, by its id; None stands for whatever waits."""

    run_id: str
    tool_call_id: str | None = None
    tool_name: str = ""

    def __str__(self) -> str:
        name = clean(self.tool_name or self.tool_call_id or "the run", 80)
        return f"{name} (run {clean(self.run_id, 40)})"


class Claims:
    """The questions that are being answered now, on this engine."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, ...], set[str | None]] = {}

    def take(self, place: tuple[str, ...], question: Question) -> None:
        """Note that a question is being answered. Raises AlreadyResumed if it is already."""
        calls = self._calls.setdefault((*place, question.run_id), set())
        if question.tool_call_id in calls or None in calls or (question.tool_call_id is None and calls):
            raise AlreadyResumed(f"{question} is being answered already")
        calls.add(question.tool_call_id)

    def release(self, place: tuple[str, ...], question: Question) -> None:
        """From now on the server knows whether the question was answered: the same call may ask again."""
        key = (*place, question.run_id)
        calls = self._calls.get(key, set())
        calls.discard(question.tool_call_id)
        if not calls:
            self._calls.pop(key, None)


def claims_of(engine: Engine) -> Claims:
    """The claims of an engine; on its loop."""
    claims: Claims = engine.resources.setdefault("claims", Claims())
    return claims


def carried_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that hold for what follows an answer as well."""
    return {key: value for key, value in body.items() if key not in ("messages", "runId")}


class RemoteControl:
    """What can be done to a run of a server. `options`: those that the run was started with."""

    can = frozenset({"approve", "decline", "resume", "observe"})

    def __init__(
        self, routes: AgentRoutes, options: Mapping[str, Any] | None = None, run: ClientToolRun | None = None
    ) -> None:
        self._routes = routes
        self._options = dict(options or {})
        self._run = run

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        """Send an answer; gives the output that goes on. Raises AlreadyResumed, ClientError."""
        if self._run is not None and self._run.waiting is not None:
            run = self._run.answer(call.tool_call_id, answer, reason=reason, data=data)
            return _output(self._routes, run, self._options, run, out.schema, out.limits, out, (call.tool_call_id,))
        run_id = call.run_id or out.run_id
        if not run_id:
            raise ControlError(f"{call.tool_name} can't be answered: its stream tells no run id")
        question = Question(run_id, call.tool_call_id or None, call.tool_name)
        return await send_answer(
            self._routes,
            question,
            answer,
            reason=reason,
            data=data,
            options=self._options,
            schema=out.schema,
            limits=out.limits,
            previous=out,
            client=self._run.client if self._run is not None else None,
        )


async def send_answer(
    routes: AgentRoutes,
    question: Question,
    answer: Answer,
    *,
    reason: str | None = None,
    data: Any = None,
    options: Mapping[str, Any] | None = None,
    schema: ObjectSchema | None = None,
    limits: Limits | None = None,
    previous: MastraModelOutput | None = None,
    client: ClientTools | None = None,
) -> MastraModelOutput:
    """Answer a question, as the routes of an agent want it. Raises AlreadyResumed, ClientError."""
    carried = dict(options or {})
    route, body = _request(question, answer, reason, data, carried)
    claims, place = claims_of(routes.http.engine), (routes.http.address.api, routes.id)
    claims.take(place, question)
    try:
        listed = await _is_listed(routes, question, carried)
        source = HttpSource(await routes.stream(route, body), ChunkDecoder(routes.http.max_event_bytes))
        if not listed:
            await _refuse_second(source, question)
    except BaseException as error:
        claims.release(place, question)
        if isinstance(error, ServerError) and _NOT_SUSPENDED in str(error):
            raise _second(question) from None
        raise
    run = client.start(routes, source, carried) if client is not None else None
    answered = (question.tool_call_id,) if question.tool_call_id else ()
    out = _output(routes, run or source, carried, run, schema, limits, previous, answered)
    out.on_done(lambda: claims.release(place, question))
    return out


def _output(
    routes: AgentRoutes,
    source: Source,
    options: Mapping[str, Any],
    run: ClientToolRun | None,
    schema: ObjectSchema | None,
    limits: Limits | None,
    previous: MastraModelOutput | None,
    answered: Sequence[str],
) -> MastraModelOutput:
    out = MastraModelOutput(
        control=RemoteControl(routes, options, run),
        schema=schema,
        agent=routes.id,
        previous=previous,
        until_idle="untilIdle" in options,
        limits=limits,
        answered=answered,
        context=dict(previous.context) if previous is not None else run_context(routes.http, options.get("memory")),
        engine=routes.http.engine,
    )
    return out.start(source)


async def _is_listed(routes: AgentRoutes, question: Question, options: Mapping[str, Any]) -> bool:
    """Whether the server lists the run as waiting; it may wait all the same (a long list, a server without one)."""
    about = run_context(routes.http, options.get("memory"))
    asked = {"threadId": about.get("thread"), "resourceId": about.get("resource"), "perPage": 100}
    try:
        answer = await routes.get("/suspended-runs", asked)
    except ClientError:
        return False
    return any(as_dict(run).get("runId") == question.run_id for run in as_list(answer.get("runs")))


async def _refuse_second(source: HttpSource, question: Question) -> None:
    """Of a durable run, a second answer gets a stream that says that nothing waits. Raises AlreadyResumed."""
    first = await source.peek(_SAYS_SO_WITHIN_S)
    if first and first[0].type == "error" and _WAS_NOT_SUSPENDED in first[0].body:
        await source.aclose()
        raise _second(question)


def _second(question: Question) -> AlreadyResumed:
    return AlreadyResumed(f"{question} waits for no answer any more: it had one before, or never asked")


def _request(
    question: Question, answer: Answer, reason: str | None, data: Any, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    which = {"runId": question.run_id}
    if question.tool_call_id is not None:
        which["toolCallId"] = question.tool_call_id
    said = {"reason": reason} if reason else {}
    if answer == "resume":
        return "/resume-stream", {**options, **which, "resumeData": data}
    if question.tool_call_id is None or not options.keys() <= {"requestContext"}:
        # The routes for approvals take no options (until idle, a schema …), nor the resource that a durable run must be
        # answered with; this one does the same with them.
        decision = {"approved": True} if answer == "approve" else {"approved": False, **said}
        return "/resume-stream", {**options, **which, "resumeData": decision}
    route = "/approve-tool-call" if answer == "approve" else "/decline-tool-call"
    return route, {**options, **which, **said}
