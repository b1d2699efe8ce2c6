"""Goals: an objective that a judge compares with each answer; the run goes on until it is reached, or paused.

active ─▶ answer ─▶ judge ─▶ done │ paused (runs used up, judge broke) │ active: waits for the user, or another step
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, cast

from nbmastra.errors import SettingsError
from nbmastra.runtime.chunks_out import data_chunk
from nbmastra.runtime.conversation import made_at, now_ms
from nbmastra.runtime.extend import Extension
from nbmastra.runtime.scorers import Scorer, Scores, as_scorer, run_scorers, scoring_of

if TYPE_CHECKING:
    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.step import ModelStep

__all__ = ["Goal", "GoalKeeper", "GoalRecord", "GoalRecords", "read_goal"]

_MAX_RUNS = 50
"""Source: @mastra/core 1.71."""
_KEYS = ("objective", "judge", "max_runs", "prompt")
_MAX_THREADS = 10_000


@dataclass(frozen=True, slots=True)
class Goal:
    """What `goal=` says, checked. Without a judge it is only told to the model."""

    objective: str
    judge: Scorer | None = None
    max_runs: int = _MAX_RUNS


@dataclass(slots=True)
class GoalRecord:
    """How far a goal has come."""

    objective: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "active"
    runs_used: int = 0
    started_ms: int = field(default_factory=now_ms)


class GoalRecords(dict[tuple[str, str], GoalRecord]):
    """An agent's goals that are still active, by thread and objective: the next run on the thread goes on counting."""

    def keep(self, thread: str, record: GoalRecord) -> None:
        """Remember it as long as it is active."""
        self.pop((thread, record.objective), None)
        if record.status == "active":
            self[thread, record.objective] = record
            if len(self) > _MAX_THREADS:
                del self[next(iter(self))]


def read_goal(given: Any) -> Goal | None:
    """What `goal=` says; a text is an objective without a judge. Raises SettingsError."""
    if given is None or given is False:
        return None
    if isinstance(given, Goal):
        return given
    if isinstance(given, str):
        given = {"objective": given}
    if not isinstance(given, Mapping):
        raise SettingsError(f"goal= takes a dict of {', '.join(_KEYS)}, not {type(given).__name__}")
    settings = dict(cast("Mapping[str, Any]", given))
    unknown = [key for key in settings if key not in _KEYS]
    if unknown:
        raise SettingsError(f"goal= has no {unknown[0]!r}; it takes {', '.join(_KEYS)}")
    objective: Any = settings.get("objective")
    if not isinstance(objective, str) or not objective.strip():
        raise SettingsError("goal= needs an objective: a text that says what is to be reached")
    max_runs: Any = settings.get("max_runs", _MAX_RUNS)
    if isinstance(max_runs, bool) or not isinstance(max_runs, int) or max_runs < 1:
        raise SettingsError(f"max_runs= takes a whole number above 0, not {max_runs!r}")
    prompt: Any = settings.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise SettingsError(f"prompt= of a goal is the judge's instructions, a text, not {type(prompt).__name__}")
    judge: Any = settings.get("judge")
    scorer = as_scorer(judge, "judge= of a goal", prompt=prompt) if judge is not None else None
    return Goal(objective, scorer, max_runs)


class GoalKeeper(Extension):
    """Pursues a goal in one run."""

    def __init__(self, goal: Goal, records: GoalRecords) -> None:
        self.goal = goal
        self._records = records
        self._record: GoalRecord | None = None
        self._feedback = ""

    async def next_step(self, run: AgentRun) -> None:
        """Tell the model the objective, and later what the judge says."""
        if self._record is None:
            kept = self._records.get((run.thread or "", self.goal.objective))
            self._record = replace(kept) if kept is not None else GoalRecord(self.goal.objective)
            self._announce(run, self._record)
        elif self._feedback:
            text = f'<system-reminder type="goal-judge">{escape(self._feedback, quote=False)}</system-reminder>'
            run.conversation.add_message(_aside(text))
            self._feedback = ""

    def _announce(self, run: AgentRun, record: GoalRecord) -> None:
        words = f"\n  {escape(record.objective, quote=False)}\n"
        run.message_id = str(uuid.uuid4())
        run.conversation.add_message(_aside(f'<current-objective status="{record.status}">{words}</current-objective>'))
        state: dict[str, Any] = {
            "id": "goal",
            "cacheKey": f"goal:{len(record.objective)}:{record.objective}{len(record.status)}:{record.status}",
            "mode": "snapshot",
        }
        if run.thread is not None:
            state["threadId"] = run.thread
        value = {
            "id": record.id,
            "objective": record.objective,
            "status": record.status,
            "runsUsed": record.runs_used,
            "activeDurationMs": 0,
            "startedAt": record.started_ms,
            "updatedAt": record.started_ms,
        }
        data = {
            "id": str(uuid.uuid4()),
            "type": "state",
            "tagName": "current-objective",
            "contents": words,
            "createdAt": _now(),
            "attributes": {"status": record.status},
            "metadata": {"value": {"objective": value}, "state": {**state, "version": 1}},
        }
        run.emit(data_chunk({"type": "data-signal", "data": data, "transient": True}))

    async def after_step(self, run: AgentRun, step: ModelStep) -> None:
        """Ask the judge, unless the step goes on by itself or has failed."""
        record, judge = self._record, self.goal.judge
        if record is None or judge is None or record.status != "active":
            return
        if step.continued or step.error is not None or step.rejection is not None:
            return
        limit = self.goal.max_runs
        if record.runs_used >= limit:
            self._exhausted(run, record)
            return
        pending = self._payload(record.runs_used + 1) | {"suppressFeedback": True, "pending": True}
        run.emit(run.writer.share("goal", pending))

        def think(text: str) -> None:
            run.emit(run.writer.share("goal", {**pending, "activity": [{"type": "reason", "message": text}]}))

        scoring = scoring_of(run, step, task=record.objective, iteration=record.runs_used + 1, max_iterations=limit)
        scores = await run_scorers([judge], scoring, activity=think)
        record.runs_used += 1
        self._decide(run, step, record, scores)
        if run.thread is not None:
            self._records.keep(run.thread, record)

    def _exhausted(self, run: AgentRun, record: GoalRecord) -> None:
        """The last judgement waited for the user, and no run was left."""
        record.status, reason = "paused", _used_up(self.goal.max_runs)
        told = {"status": "paused", "pausedReason": reason, "reason": reason, "maxRunsReached": True}
        payload = self._payload(record.runs_used) | told | {"shouldContinue": False}
        run.emit(run.writer.share("goal", payload))
        if run.thread is not None:
            self._records.keep(run.thread, record)

    def _decide(self, run: AgentRun, step: ModelStep, record: GoalRecord, scores: Scores) -> None:
        failure, waiting = scores.failure, scores.waiting
        spent = record.runs_used >= self.goal.max_runs
        paused: str | None = None
        if failure is not None:
            paused = failure or "the judge failed"
        elif scores.passed:
            record.status = "done"
        elif spent and not waiting:
            paused = _used_up(self.goal.max_runs)
        if paused is not None:
            record.status = "paused"
        goes_on = not scores.passed and not waiting and failure is None and not spent
        payload = self._payload(record.runs_used) | {"passed": scores.passed, "status": record.status}
        reason = paused if paused is not None else scores.reason
        if paused is not None:
            payload["pausedReason"] = paused
        if reason is not None:
            payload["reason"] = reason
        payload |= {
            "judgeFailed": failure is not None,
            "waitingForUser": waiting,
            "results": scores.results,
            "duration": scores.duration_ms,
            "timedOut": scores.timed_out,
            "maxRunsReached": spent,
            "shouldContinue": goes_on,
        }
        count = f"{record.runs_used}/{self.goal.max_runs}"
        if goes_on:
            self._feedback = f"Goal, try {count}: not reached yet. {scores.reason or ''}".strip()
            self._feedback += f"\n\nGo on with it: {record.objective}"
        words = self._feedback if goes_on else f"{record.status} ({count})\n{reason or ''}"
        step.continued = goes_on
        step.message_id = run.message_id = str(uuid.uuid4())
        run.emit(_judged(words, payload))
        run.emit(run.writer.share("goal", payload))

    def _payload(self, iteration: int) -> dict[str, Any]:
        return {
            "objective": self.goal.objective,
            "iteration": iteration,
            "maxRuns": self.goal.max_runs,
            "passed": False,
            "status": "active",
            "results": [],
            "duration": 0,
            "timedOut": False,
            "maxRunsReached": False,
            "suppressFeedback": False,
        }


def _judged(words: str, evaluation: dict[str, Any]) -> Any:
    stamp = _now()
    data = {
        "id": str(uuid.uuid4()),
        "type": "reactive",
        "tagName": "system-reminder",
        "contents": words,
        "createdAt": stamp,
        "acceptedAt": stamp,
        "attributes": {"type": "goal-judge"},
        "metadata": {"goalEvaluation": evaluation},
    }
    return data_chunk({"type": "data-signal", "data": data, "transient": True})


def _aside(text: str) -> dict[str, Any]:
    """What the framework tells the model in the run's course: as a user would, since models listen to users."""
    return {"role": "user", "content": [{"type": "text", "text": text, "providerOptions": made_at(now_ms())}]}


def _used_up(runs: int) -> str:
    return f"all {runs} evaluations were used before the goal was reached: raise max_runs to go on"


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
