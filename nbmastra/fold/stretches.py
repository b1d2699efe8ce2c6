"""When things happened: the stretches of time of a turn, a step, a call or a task. Every timeline is made of these."""

from __future__ import annotations

from typing import NamedTuple

from nbmastra.fold.calls import Task, ToolCall, WorkflowStep
from nbmastra.fold.parts import ReasoningPart, TextPart
from nbmastra.fold.turns import Step, Turn

__all__ = ["Stretch", "call_stretches", "step_stretches", "task_stretches", "turn_of_task", "turn_stretches"]


class Stretch(NamedTuple):
    """From when to when, in seconds since the stream's start; `end` None while it is open."""

    kind: str
    """turn, gap, step, wait, reasoning, text, tool, agent, workflow-step, queued, task or suspended."""
    start: float
    end: float | None


def turn_stretches(turn: Turn, after: Turn | None) -> list[Stretch]:
    """A turn, and the gap until the one after it."""
    found = [Stretch("turn", turn.started_at, turn.ended_at)]
    if after is not None and turn.ended_at is not None and after.started_at > turn.ended_at:
        found.append(Stretch("gap", turn.ended_at, after.started_at))
    return found


def step_stretches(step: Step, *, parts: bool = True) -> list[Stretch]:
    """A step, the wait for its first token, and the reasoning and text in it (`parts`)."""
    found = [Stretch("step", step.started_at, step.ended_at)]
    if step.first_token_at is not None and step.first_token_at > step.started_at:
        found.append(Stretch("wait", step.started_at, step.first_token_at))
    for part in list(step.parts) if parts else ():
        if isinstance(part, TextPart):
            kind = "reasoning" if isinstance(part, ReasoningPart) else "text"
            found.append(Stretch(kind, part.started_at, part.ended_at))
    return found


def call_stretches(call: ToolCall | WorkflowStep) -> list[Stretch]:
    """A tool call from when it was called, or a step of a workflow."""
    start = call.called_at if isinstance(call, ToolCall) and call.called_at is not None else call.started_at
    kind = "workflow-step" if isinstance(call, WorkflowStep) else "agent" if call.nested else "tool"
    return [Stretch(kind, start, call.ended_at)]


def task_stretches(task: Task) -> list[Stretch]:
    """A background task: while it was queued, from its beginning on, and its last suspension."""
    running = task.running_at
    if running is None:
        return [Stretch("queued", task.started_at, task.ended_at)]
    found = [Stretch("queued", task.started_at, running)] if running > task.started_at else []
    found.append(Stretch("task", running, task.ended_at))
    if task.suspended_at is not None:
        found.append(Stretch("suspended", task.suspended_at, task.ended_at))
    elif task.resumed_at is not None:
        found.append(Stretch("suspended", task.resumed_at - task.suspended_s, task.resumed_at))
    return found


def turn_of_task(task: Task, steps: list[Step], turns: int) -> int:
    """Number of the turn that began a task; the last one where nobody knows, -1 without any."""
    return steps[task.step].turn if 0 <= task.step < len(steps) else turns - 1
