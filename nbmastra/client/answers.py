"""Answers to a run that waits for somebody: approve, decline, resume. Each begins a stream that goes on with the run.

Servers let two answers that come at once both run (B40), so this side sends one at a time; a later one is refused by
the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbmastra.client.agent_routes import AgentRoutes, run_context
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.refusals import clean
from nbmastra.client.source import HttpSource
from nbmastra.engine import Engine
from nbmastra.errors import AlreadyResumed, ControlError, ServerError
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, Limits, MastraModelOutput, ObjectSchema

__all__ = ["Claims", "Question", "RemoteControl", "carried_options", "claims_of", "send_answer"]

_NOT_SUSPENDED = "could not find a suspended run"
"""Source: @mastra/core 1.71, the 500 of a resume, approval or denial that comes twice or for an unknown run."""


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

    def __init__(self, routes: AgentRoutes, options: Mapping[str, Any] | None = None) -> None:
        self._routes = routes
        self._options = dict(options or {})

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
) -> MastraModelOutput:
    """Answer a question, as the routes of an agent want it. Raises AlreadyResumed, ClientError."""
    carried = dict(options or {})
    route, body = _request(question, answer, reason, data, carried)
    claims, place = claims_of(routes.http.engine), (routes.http.address.api, routes.id)
    claims.take(place, question)
    try:
        stream = await routes.stream(route, body)
    except BaseException as error:
        claims.release(place, question)
        if isinstance(error, ServerError) and _NOT_SUSPENDED in str(error):
            raise AlreadyResumed(
                f"{question} waits for no answer any more: it had one before, or never asked"
            ) from None
        raise
    out = MastraModelOutput(
        control=RemoteControl(routes, carried),
        schema=schema,
        agent=routes.id,
        previous=previous,
        until_idle="untilIdle" in body,
        limits=limits,
        answered={question.tool_call_id} if question.tool_call_id else (),
        context=dict(previous.context) if previous is not None else run_context(routes.http, carried.get("memory")),
        engine=routes.http.engine,
    )
    out.start(HttpSource(stream, ChunkDecoder(routes.http.max_event_bytes)))
    out.on_done(lambda: claims.release(place, question))
    return out


def _request(
    question: Question, answer: Answer, reason: str | None, data: Any, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    which = {"runId": question.run_id}
    if question.tool_call_id is not None:
        which["toolCallId"] = question.tool_call_id
    said = {"reason": reason} if reason else {}
    if answer == "resume":
        return "/resume-stream", {**options, **which, "resumeData": data}
    if question.tool_call_id is None or not options.keys() <= {"memory", "requestContext"}:
        # The routes for approvals take no options; this one does the same with them (until idle, a schema …).
        decision = {"approved": True} if answer == "approve" else {"approved": False, **said}
        return "/resume-stream", {**options, **which, "resumeData": decision}
    context = {key: options[key] for key in ("requestContext",) if key in options}
    return (
        ("/approve-tool-call", {**context, **which})
        if answer == "approve"
        else (
            "/decline-tool-call",
            {**context, **which, **said},
        )
    )
