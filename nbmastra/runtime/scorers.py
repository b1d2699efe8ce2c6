"""Scorers: functions or models that say whether an answer is what it should be.

A scorer is a function of a `Scoring`, plain or async. It gives True or False, a score (1 passes), a pair of score and
reason, or a dict of `score` or `passed`, and `reason`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from nbmastra.errors import ObjectError, SettingsError
from nbmastra.output import ObjectSchema
from nbmastra.runtime.answer_object import AnswerObject
from nbmastra.runtime.asking import ask_model
from nbmastra.runtime.model import Message, Model, ModelRequest
from nbmastra.runtime.models import find_model
from nbmastra.runtime.structured import StructuredSettings, ask_for

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.step import ModelStep, StepCall

__all__ = [
    "Scorer",
    "Scores",
    "Scoring",
    "as_scorer",
    "run_scorers",
    "scoring_of",
]

Activity = Callable[[str], None]

JUDGE_ID, JUDGE_NAME = "goal-scorer", "Goal (LLM)"
WAITING = 0.5
"""The score of an answer that needs a person's word first. Source: @mastra/core 1.71."""

_JUDGE = (
    "You judge whether an agent has reached its goal. Decide by what it has said and done, not by what it promises. "
    "done: the goal is reached. continue: something is missing that the agent can still do by itself. waiting: the "
    "goal itself asks for a person's word, which isn't there yet. Give the reason in one or two sentences: what was "
    "reached, or what is missing."
)
_VERDICT = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["done", "continue", "waiting"]},
        "reason": {"type": "string"},
    },
    "required": ["decision", "reason"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a scorer is asked about: the last step's answer, and what led to it."""

    task: str
    """What was asked: the goal's objective, or what the user said first."""
    output: str
    """The text of the step."""
    iteration: int
    max_iterations: int | None
    tool_calls: Sequence[StepCall]
    """The step's calls; each has name, args, state and result."""
    messages: Sequence[Message]
    """The whole conversation."""
    agent_id: str
    run_id: str
    thread_id: str | None = None
    resource_id: str | None = None
    request_context: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Scorer:
    """A scorer with its name."""

    id: str
    name: str
    score: Callable[[Scoring, Activity], Awaitable[Any]]


def _silent(_text: str) -> None:
    """Nobody wants to know what the judge thinks meanwhile."""


@dataclass(slots=True)
class Scores:
    """What scorers found, as the wire has it."""

    passed: bool
    reason: str | None
    results: list[dict[str, Any]]
    duration_ms: int
    timed_out: bool = False

    @property
    def failure(self) -> str | None:
        """Why a scorer broke; None if none did."""
        return next((str(result.get("reason", "")) for result in self.results if result.get("errored")), None)

    @property
    def waiting(self) -> bool:
        """True if a judge wants a person to say something first."""
        return not self.passed and self.failure is None and any(one["score"] == WAITING for one in self.results)


def as_scorer(given: Any, option: str, *, prompt: str | None = None) -> Scorer:
    """A scorer of a function, of an object with a method `score`, or of a model or its name. Raises SettingsError."""
    if isinstance(given, Scorer):
        return given
    method: Any = getattr(given, "score", None)
    if inspect.isclass(given):
        raise SettingsError(f"{option}: an object, {given.__name__}(), not the class")
    if isinstance(given, str | Model):
        return _model_scorer(find_model(given), prompt)
    if callable(method):
        return _named(given, cast("Callable[[Scoring], Any]", method))
    if callable(given):
        return _named(given, cast("Callable[[Scoring], Any]", given))
    if given is not None and hasattr(given, "request"):  # a model of pydantic-ai
        return _model_scorer(find_model(given), prompt)
    raise SettingsError(f"{option}: a function, a model or a model's name, not {type(given).__name__}")


def _named(source: Any, function: Callable[[Scoring], Any]) -> Scorer:
    own: Any = getattr(source, "id", None) or getattr(source, "name", None) or getattr(source, "__name__", None)
    kind = cast("type[Any]", type(source))
    name = str(own or kind.__name__).replace("_", "-")

    async def score(scoring: Scoring, _activity: Activity) -> Any:
        answer = await asyncio.to_thread(function, scoring)  # a plain function may take its time
        return await answer if inspect.isawaitable(answer) else answer

    return Scorer(name, str(getattr(source, "name", None) or name), score)


def _model_scorer(model: Model, prompt: str | None) -> Scorer:
    verdict = StructuredSettings(ObjectSchema(_VERDICT), "object", _VERDICT)
    system: Message = {"role": "system", "content": prompt or _JUDGE}

    async def judge(scoring: Scoring, activity: Activity) -> tuple[float, str]:
        calls = "\n".join(
            f"- {call.name}({call.text}): {call.state} {call.result!r:.400}" for call in scoring.tool_calls
        )
        text = f"Goal: {scoring.task}\n\nThe agent's last answer:\n{scoring.output}"
        text += f"\n\nTools it used for that:\n{calls}" if calls else ""
        user: Message = {"role": "user", "content": [{"type": "text", "text": text}]}
        answer, thought = AnswerObject("object"), ""
        async with aclosing(ask_model(model, ask_for(verdict, model, ModelRequest([system, user])))) as pieces:
            async for piece in pieces:
                if answer.feed(piece):
                    reason = cast("dict[str, Any]", answer.value).get("reason") if answer.kind == "object" else None
                    reason = reason.strip() if isinstance(reason, str) else ""
                    if reason and reason != thought:
                        thought = reason
                        activity(reason)
        found = answer.result()
        try:
            verdict.check(found)
        except ObjectError as error:
            raise ValueError(f"the judge gave no verdict: {error}") from None
        return {"done": 1.0, "waiting": WAITING}.get(found["decision"], 0.0), found["reason"]

    return Scorer(JUDGE_ID, JUDGE_NAME, judge)


def judged(answer: Any) -> tuple[float, str | None]:
    """Score and reason of whatever a scorer gave. Raises TypeError if it is none of what a scorer may give."""
    reason: Any = None
    if isinstance(answer, Mapping):
        told = cast("Mapping[str, Any]", answer)
        reason = told.get("reason")
        answer = told.get("score", told.get("passed", told.get("decision")))
    elif isinstance(answer, tuple) and len(cast("tuple[Any, ...]", answer)) == 2:
        answer, reason = cast("tuple[Any, Any]", answer)
    if isinstance(answer, str):
        answer = {"done": 1.0, "continue": 0.0, "waiting": WAITING}.get(answer)
    if isinstance(answer, bool | int | float) and (reason is None or isinstance(reason, str)):
        return float(answer), reason
    raise TypeError("a scorer gives True or False, a score, (score, reason), or a dict of score and reason")


async def _run_scorer(scorer: Scorer, scoring: Scoring, activity: Activity) -> dict[str, Any]:
    started = time.perf_counter()
    errored: dict[str, Any] = {}
    try:
        score, reason = judged(await scorer.score(scoring, activity))
    except Exception as error:
        score, reason, errored = 0.0, f"Scorer threw an error: {error}", {"errored": True}
    return _result(scorer, score, reason, started, errored)


def _result(
    scorer: Scorer, score: float, reason: str | None, started: float, errored: dict[str, Any]
) -> dict[str, Any]:
    made: dict[str, Any] = {"score": int(score) if score.is_integer() else score, "passed": score == 1}
    if reason is not None:
        made["reason"] = reason
    made |= {"scorerId": scorer.id, "scorerName": scorer.name, "duration": _ms(started)}
    return made | errored


def _ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


async def run_scorers(
    scorers: Sequence[Scorer],
    scoring: Scoring,
    *,
    strategy: Literal["all", "any"] = "all",
    parallel: bool = True,
    seconds: float = 600.0,
    activity: Activity = _silent,
) -> Scores:
    """Ask them all; one after another, stop where the outcome is clear. Who isn't done in time has failed."""
    started = time.perf_counter()
    results: list[dict[str, Any]] = []
    timed_out = False

    def late(scorer: Scorer) -> dict[str, Any]:
        return _result(scorer, 0.0, "Scorer did not finish before the completion timeout", started, {"errored": True})

    tasks: list[asyncio.Task[dict[str, Any]]] = []
    try:
        if parallel:
            tasks = [asyncio.create_task(_run_scorer(scorer, scoring, activity)) for scorer in scorers]
            await asyncio.wait(tasks, timeout=seconds)
            timed_out = not all(task.done() for task in tasks)
            results = [
                task.result() if task.done() else late(scorer) for task, scorer in zip(tasks, scorers, strict=True)
            ]
        else:
            for scorer in scorers:
                tasks = [asyncio.create_task(_run_scorer(scorer, scoring, activity))]
                await asyncio.wait(tasks, timeout=max(seconds - (time.perf_counter() - started), 0))
                timed_out = not tasks[0].done()
                results.append(late(scorer) if timed_out else tasks[0].result())
                if timed_out or results[-1]["passed"] == (strategy == "any"):
                    break
    finally:
        for task in tasks:
            task.cancel()
    passes = [result["passed"] for result in results]
    passed = any(passes) if strategy == "any" else all(passes) and len(results) == len(scorers)
    best = next((result for result in results if result["passed"]), results[0] if results else {})
    return Scores(passed, best.get("reason"), results, _ms(started), timed_out)


def scoring_of(run: AgentRun, step: ModelStep, *, task: str, iteration: int, max_iterations: int | None) -> Scoring:
    """What scorers are asked about a step."""
    conversation = run.conversation
    return Scoring(
        task=task,
        output=step.text,
        iteration=iteration,
        max_iterations=max_iterations,
        tool_calls=list(step.calls),
        messages=[*conversation.earlier, *conversation.input, *conversation.response],
        agent_id=run.agent_id,
        run_id=run.run_id,
        thread_id=run.thread,
        resource_id=run.resource,
        request_context=run.options.request_context,
    )
