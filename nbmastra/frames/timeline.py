"""`timeline_df`: what happened when in a run, as spans of time in lanes; what `plot.timeline` draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nbmastra.fold import ReasoningPart, RunState, Step, Task, TextPart, ToolCall, Turn, WorkflowStep
from nbmastra.frames.columns import Column, Table
from nbmastra.frames.runs import Run

__all__ = ["KINDS", "TIMELINE", "Span", "timeline_rows"]

KINDS = (
    "turn",
    "gap",
    "step",
    "wait",
    "reasoning",
    "text",
    "tool",
    "agent",
    "workflow-step",
    "queued",
    "task",
    "suspended",
)


@dataclass(frozen=True)
class Span:
    """A span of time in a lane; times in seconds since the stream's start, `end` None while it is open."""

    run: Run
    lane: int
    kind: str
    name: str
    indent: int
    start: float
    end: float | None
    status: str | None = None
    id: str | None = None

    @property
    def duration(self) -> float | None:
        """How long it took; None while it is open."""
        return None if self.end is None else self.end - self.start


TIMELINE = Table[Span](
    "timeline_df",
    "One row per span of time: turns and the gaps between them, steps with the wait for their first token, reasoning "
    "and text in them, tool calls, runs inside of the run, background tasks. Spans that are drawn in one line have the "
    "same `lane`.",
    (
        Column("stream_id", "str", "Id of the stream.", lambda row: row.run.stream_id),
        Column("lane", "Int64", "Number of its line, from 0, from top to bottom.", lambda row: row.lane),
        Column("kind", "category", "What it is.", lambda row: row.kind, values=KINDS),
        Column("name", "str", "Its name, that of a tool, agent or workflow step.", lambda row: row.name),
        Column("indent", "Int64", "How deep it is inside of others.", lambda row: row.indent),
        Column("status", "category", "How a call, step or task stands.", lambda row: row.status),
        Column("id", "str", "Id of the call or task.", lambda row: row.id),
        Column("start_s", "Float64", "When it began, since the stream's start.", lambda row: row.start, "s"),
        Column("end_s", "Float64", "When it ended, since the stream's start.", lambda row: row.end, "s"),
        Column("duration_s", "Float64", "How long it took.", lambda row: row.duration, "s"),
        Column("started_at", "timestamp", "When it began.", lambda row: row.run.time(row.start)),
    ),
)


def timeline_rows(run: Run) -> Iterator[Span]:
    """The spans of a run from top to bottom."""
    return _Lanes(run).of_state(run.state, 0) if run.kept is None else iter(())


class _Lanes:
    """Numbers the lanes of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0

    def _lane(self) -> int:
        self._next += 1
        return self._next - 1

    def of_state(self, state: RunState, indent: int) -> Iterator[Span]:
        """A run's turns, steps and what is in them; of a run inside of another, no turns."""
        turns, tasks = list(state.turns), list(state.tasks.values())
        for turn in turns:
            deeper = indent
            if indent == 0:
                yield from self._turn(turn, turns)
                deeper = 1
            for step in list(turn.steps):
                yield from self._step(step, turn, deeper)
            for task in tasks:
                if turn.index == self._turn_of(task, state):
                    yield from self._task(task, deeper)
        for step in list(state.workflow_steps):
            yield from self._call(step, indent)
        if not turns:
            for task in tasks:
                yield from self._task(task, indent)

    def _turn_of(self, task: Task, state: RunState) -> int:
        return state.steps[task.step].turn if 0 <= task.step < len(state.steps) else len(state.turns) - 1

    def _turn(self, turn: Turn, turns: list[Turn]) -> Iterator[Span]:
        lane, name = self._lane(), f"Turn {turn.index + 1}"
        yield Span(self._run, lane, "turn", name, 0, turn.started_at, turn.ended_at)
        after = turns[turn.index + 1] if turn.index + 1 < len(turns) else None
        if after is not None and turn.ended_at is not None and after.started_at > turn.ended_at:
            yield Span(self._run, lane, "gap", name, 0, turn.ended_at, after.started_at)

    def _step(self, step: Step, turn: Turn, indent: int) -> Iterator[Span]:
        lane, name = self._lane(), f"Step {step.index - (turn.steps[0].index if indent == 1 else 0) + 1}"

        def span(kind: str, start: float, end: float | None) -> Span:
            return Span(self._run, lane, kind, name, indent, start, end)

        yield span("step", step.started_at, step.ended_at)
        if step.first_token_at is not None and step.first_token_at > step.started_at:
            yield span("wait", step.started_at, step.first_token_at)
        for part in list(step.parts):
            if isinstance(part, TextPart):
                kind = "reasoning" if isinstance(part, ReasoningPart) else "text"
                yield span(kind, part.started_at, part.ended_at)
        for call in step.tool_calls:
            yield from self._call(call, indent + 1)

    def _call(self, call: ToolCall | WorkflowStep, indent: int) -> Iterator[Span]:
        lane = self._lane()
        start = call.called_at if isinstance(call, ToolCall) and call.called_at is not None else call.started_at
        inner = list(call.nested)
        kind = "workflow-step" if isinstance(call, WorkflowStep) else "agent" if inner else "tool"
        yield Span(self._run, lane, kind, call.tool_name, indent, start, call.ended_at, call.status, call.tool_call_id)
        for state in inner:
            yield from self.of_state(state, indent + 1)

    def _task(self, task: Task, indent: int) -> Iterator[Span]:
        lane = self._lane()

        def span(kind: str, start: float, end: float | None) -> Span:
            return Span(self._run, lane, kind, task.tool_name, indent, start, end, task.status, task.id)

        running = task.running_at
        if running is None:
            yield span("queued", task.started_at, task.ended_at)
            return
        if running > task.started_at:
            yield span("queued", task.started_at, running)
        yield span("task", running, task.ended_at)
        if task.suspended_at is not None:
            yield span("suspended", task.suspended_at, task.ended_at)
        elif task.resumed_at is not None:
            yield span("suspended", task.resumed_at - task.suspended_s, task.resumed_at)
