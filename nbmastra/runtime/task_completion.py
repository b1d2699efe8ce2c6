"""Is the task complete? Scorers say it after each answer, and what they find missing, the model is told.

answer ─▶ scorers ─▶ `is-task-complete` ─▶ passed: the run ends │ else: another step, with their reasons
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from nbmastra.errors import SettingsError
from nbmastra.runtime.conversation import made_at, now_ms
from nbmastra.runtime.extend import Extension
from nbmastra.runtime.model import Message
from nbmastra.runtime.scorers import Scorer, Scores, as_scorer, run_scorers, scoring_of

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.step import ModelStep

__all__ = ["TaskCheck", "TaskCompletion", "read_task_check"]

_CHECK_KEYS = ("scorers", "strategy", "parallel", "timeout", "suppress_feedback", "on_complete")


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What `is_task_complete=` says, checked. timeout in seconds."""

    scorers: list[Scorer]
    strategy: Literal["all", "any"] = "all"
    parallel: bool = True
    timeout: float = 600.0
    suppress_feedback: bool = False
    on_complete: Callable[[Scores], Any] | None = None


def read_task_check(given: Any) -> TaskCheck | None:
    """What `is_task_complete=` says; a scorer or a list of them will do. Raises SettingsError."""
    if given is None or given is False:
        return None
    if isinstance(given, Mapping):
        settings = dict(cast("Mapping[str, Any]", given))
    else:
        settings: dict[str, Any] = {"scorers": given if isinstance(given, list | tuple) else [given]}
    unknown = [key for key in settings if key not in _CHECK_KEYS]
    if unknown:
        raise SettingsError(f"is_task_complete= has no {unknown[0]!r}; it takes {', '.join(_CHECK_KEYS)}")
    scorers = settings.pop("scorers", None)
    if not isinstance(scorers, list | tuple) or not scorers:
        raise SettingsError("is_task_complete= needs scorers: a list of functions")
    if settings.get("strategy", "all") not in ("all", "any"):
        raise SettingsError(f"strategy= is all or any, not {settings['strategy']!r}")
    timeout: Any = settings.get("timeout", 1)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise SettingsError(f"timeout= takes seconds above 0, not {timeout!r}")
    if settings.get("on_complete") is not None and not callable(settings["on_complete"]):
        raise SettingsError("on_complete= takes a function of the scores")
    found = [as_scorer(scorer, "is_task_complete=") for scorer in cast("Sequence[Any]", scorers)]
    return TaskCheck(found, **{key: value for key, value in settings.items() if value is not None})


class TaskCompletion(Extension):
    """Asks after each answer whether the task is complete; if not, another step follows, which is told why."""

    def __init__(self, check: TaskCheck) -> None:
        self.check = check
        self._feedback: Message | None = None
        self._first_id = ""

    async def next_step(self, run: AgentRun) -> None:
        """Say what is missing."""
        self._first_id = self._first_id or run.message_id
        if self._feedback is not None:
            run.conversation.add_message(self._feedback)
            self._feedback = None
            run.message_id = f"{self._first_id}-{len(run.results) + 1}"

    async def after_step(self, run: AgentRun, step: ModelStep) -> None:
        """Ask the scorers, unless the step goes on by itself or has failed."""
        if step.continued or step.error is not None or step.rejection is not None:
            return
        check, count = self.check, len(run.results)
        limit = run.options.max_steps
        scoring = scoring_of(run, step, task=_first_words(run), iteration=count, max_iterations=limit)
        scores = await run_scorers(
            check.scorers, scoring, strategy=check.strategy, parallel=check.parallel, seconds=check.timeout
        )
        if check.on_complete is not None:
            told = check.on_complete(scores)
            if inspect.isawaitable(told):
                await told
        step.continued = not scores.passed
        last = limit is not None and count >= limit
        if not scores.passed:
            note = made_at(now_ms())
            text = _feedback(scores)
            content = [{"type": "text", "text": text, "providerOptions": note}]
            self._feedback = {"role": "assistant", "content": content}
        payload: dict[str, Any] = {
            "iteration": count,
            "passed": scores.passed,
            "results": scores.results,
            "duration": scores.duration_ms,
            "timedOut": scores.timed_out,
        }
        if scores.reason is not None:
            payload["reason"] = scores.reason
        payload |= {"maxIterationReached": last, "suppressFeedback": check.suppress_feedback}
        run.emit(run.writer.share("is-task-complete", payload))
        step.extra["isTaskCompleteCheckFailed"] = not scores.passed


def _first_words(run: AgentRun) -> str:
    parts: Iterable[dict[str, Any]] = (part for message in run.conversation.input for part in message["content"])
    return next((str(part["text"]) for part in parts if part.get("type") == "text"), "")


def _feedback(scores: Scores) -> str:
    lines = ["The task isn't complete yet."]
    lines += [
        f"- {one['scorerName']}: {one.get('reason') or one['score']}" for one in scores.results if not one["passed"]
    ]
    return "\n".join([*lines, "Go on, with that in mind."])
