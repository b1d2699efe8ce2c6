"""`timeline_df`: what happened when in a run, as spans of time in lanes; what `plot.timeline` draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nbmastra.fold import RunState, Step, ToolCall, Turn, WorkflowStep
from nbmastra.fold.stretches import (
    Stretch,
    call_stretches,
    step_stretches,
    task_stretches,
    turn_of_task,
    turn_stretches,
)
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

    def of_state(self, state: RunState, indent: int) -> Iterator[Span]:
        """A run's turns, steps and what is in them; of a run inside of another, no turns."""
        turns, tasks, steps = list(state.turns), list(state.tasks.values()), list(state.steps)
        for turn in turns:
            deeper = indent
            if indent == 0:
                after = turns[turn.index + 1] if turn.index + 1 < len(turns) else None
                yield from self._line(turn_stretches(turn, after), f"Turn {turn.index + 1}", 0)
                deeper = 1
            for step in list(turn.steps):
                yield from self._step(step, turn, deeper)
            for task in tasks:
                if turn.index == turn_of_task(task, steps, len(turns)):
                    yield from self._line(task_stretches(task), task.tool_name, deeper, task.status, task.id)
        for step in list(state.workflow_steps):
            yield from self._call(step, indent)
        if not turns:
            for task in tasks:
                yield from self._line(task_stretches(task), task.tool_name, indent, task.status, task.id)

    def _step(self, step: Step, turn: Turn, indent: int) -> Iterator[Span]:
        name = f"Step {step.index - (turn.steps[0].index if indent == 1 else 0) + 1}"
        yield from self._line(step_stretches(step), name, indent)
        for call in step.tool_calls:
            yield from self._call(call, indent + 1)

    def _call(self, call: ToolCall | WorkflowStep, indent: int) -> Iterator[Span]:
        yield from self._line(call_stretches(call), call.tool_name, indent, call.status, call.tool_call_id)
        for state in list(call.nested):
            yield from self.of_state(state, indent + 1)

    def _line(
        self, found: list[Stretch], name: str, indent: int, status: str | None = None, id: str | None = None
    ) -> Iterator[Span]:
        lane, self._next = self._next, self._next + 1
        for kind, start, end in found:
            yield Span(self._run, lane, kind, name, indent, start, end, status, id)
