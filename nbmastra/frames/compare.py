"""Two runs beside each other: the rows of `diff`, in the order in which one reads a run.

turns ─align─▶ steps ─align─▶ calls, what runs inside of them ─▶ a row for each thing that was compared
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from nbmastra.fold import RunState, Step, Task, ToolCall, Turn, WorkflowStep
from nbmastra.frames.align import Call, align, align_calls, json_changes, step_likeness
from nbmastra.frames.columns import Column, Table
from nbmastra.frames.runs import Run
from nbmastra.frames.usage import run_cost
from nbmastra.frames.word_diff import Piece, similarity, word_diff
from nbmastra.usage import FIELDS, Usage

__all__ = ["DIFF", "Compared", "compare"]

Aspect = Literal["input", "structure", "content", "outcome", "tokens", "time"]
Change = Literal["same", "changed", "added", "removed"]

_MOST_DEPTH = 40
_UNITS = {"tokens": "tokens", "time": "s"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One thing that was compared: where it stands in both runs, and what it is there.

    `aspect`: input (what was asked), structure (a step or call that only one has), content (texts, arguments, results),
    outcome (status, errors), tokens, time. `change`: same, changed, added (only the second has it), removed.
    """

    item: str
    field: str = ""
    aspect: Aspect = "content"
    change: Change = "same"
    a: Any = None
    b: Any = None
    name: str = ""
    path: str = ""
    depth: int = 0
    turn_a: int | None = None
    turn_b: int | None = None
    step_a: int | None = None
    step_b: int | None = None
    tool_call_id_a: str | None = None
    tool_call_id_b: str | None = None
    parent_tool_call_id: str | None = None
    similarity: float | None = None
    unit: str = ""

    @property
    def delta(self) -> float | None:
        """What the second has more, of numbers."""
        numbers = (int, float)
        if type(self.a) in numbers and type(self.b) in numbers:
            return self.b - self.a
        return None

    @property
    def pieces(self) -> list[Piece]:
        """What two texts that differ are made of; [] for anything else."""
        differ = isinstance(self.a, str) and isinstance(self.b, str) and self.a != self.b
        return word_diff(self.a, self.b) if differ else []

    @property
    def parts(self) -> bool:
        """True if the runs differ here in what was asked, said or done: tokens and times always do."""
        return self.change != "same" and self.aspect not in ("tokens", "time")


@dataclass(frozen=True)
class _Row:
    stream_id_a: str | None
    stream_id_b: str | None
    seen: Compared


def _seen(name: str) -> Callable[[_Row], Any]:
    return lambda row: getattr(row.seen, name)


DIFF = Table[_Row](
    "diff",
    "One row per thing that was compared: a text, an argument or a result by its JSON path, a status, a number. "
    "`_a` is the first run, `_b` the second; what only one of them has is missing in the other.",
    (
        Column("stream_id_a", "str", "Id of the first stream.", lambda row: row.stream_id_a),
        Column("stream_id_b", "str", "Id of the second stream.", lambda row: row.stream_id_b),
        Column("path", "str", "Names from the stream's agent down to the run.", _seen("path")),
        Column("depth", "Int64", "0, or how deep inside of other runs.", _seen("depth")),
        Column(
            "parent_tool_call_id",
            "str",
            "The call or workflow step of the first run that the run is inside of.",
            _seen("parent_tool_call_id"),
        ),
        Column("turn_a", "Int64", "Number of the turn in the first run, from 0.", _seen("turn_a")),
        Column("turn_b", "Int64", "The turn of the second that answers to it.", _seen("turn_b")),
        Column("step_a", "Int64", "Number of the step in the first run, from 0.", _seen("step_a")),
        Column("step_b", "Int64", "The step of the second that answers to it.", _seen("step_b")),
        Column(
            "item",
            "category",
            "What is compared.",
            _seen("item"),
            values=("run", "step", "tool-call", "workflow-step", "task"),
        ),
        Column("name", "str", "Name of the tool or workflow step, id of the agent.", lambda r: r.seen.name or None),
        Column("tool_call_id_a", "str", "Id of the call in the first run.", _seen("tool_call_id_a")),
        Column("tool_call_id_b", "str", "The call of the second that answers to it.", _seen("tool_call_id_b")),
        Column(
            "aspect",
            "category",
            "What kind of thing.",
            _seen("aspect"),
            values=("input", "structure", "content", "outcome", "tokens", "time"),
        ),
        Column("field", "str", "What of the item, with its JSON path: `args.days`, `result[0].km`.", _seen("field")),
        Column(
            "change",
            "category",
            "Whether they differ; added is what only the second has.",
            _seen("change"),
            values=("same", "changed", "added", "removed"),
        ),
        Column("a", "object", "What it is in the first run.", _seen("a")),
        Column("b", "object", "What it is in the second run.", _seen("b")),
        Column("delta", "Float64", "How much more the second has, of numbers.", _seen("delta")),
        Column("unit", "str", "Unit of the numbers.", lambda row: row.seen.unit or None),
        Column("similarity", "Float64", "How much of two texts is the same, 0 to 1.", _seen("similarity")),
    ),
)


def diff_rows(a: Run, b: Run, found: list[Compared]) -> Iterator[_Row]:
    """The rows of the table."""
    return (_Row(a.stream_id, b.stream_id, seen) for seen in found)


def compare(a: Run, b: Run) -> list[Compared]:
    """All that was compared, in the order of the runs; what sums them up comes last."""
    place = Compared("run", path=a.agent_id or b.agent_id or "", name=a.agent_id or b.agent_id or "")
    found = [
        *_value(place, "prompt", a.prompt, b.prompt, "input"),
        *_value(place, "agent", a.agent_id, b.agent_id, "input"),
        *_value(place, "model", a.state.model, b.state.model, "input"),
        *_states(a.state, b.state, place),
        *_value(place, "status", a.status, b.status, "outcome"),
    ]
    if a.state.status_reason != b.state.status_reason or a.status != "success":
        found += _value(place, "status_reason", a.state.status_reason or None, b.state.status_reason or None, "outcome")
    found += _value(place, "result", a.state.result, b.state.result)
    found += _number(place, "steps", len(a.state.steps), len(b.state.steps), "tokens", "steps")
    found += _number(place, "tool_calls", len(a.state.tool_calls), len(b.state.tool_calls), "tokens", "calls")
    found += _tokens(place, a.total, b.total)
    found += _number(place, "cost_usd", run_cost(a), run_cost(b), "tokens", "USD")
    found += _number(place, "duration_s", a.elapsed_s, b.elapsed_s, "time")
    first_a, first_b = a.state.time_to_first_token_s, b.state.time_to_first_token_s
    found += _number(place, "time_to_first_token_s", first_a, first_b, "time")
    return found


def _states(a: RunState, b: RunState, place: Compared) -> Iterator[Compared]:
    likeness = step_likeness()

    def turn_likeness(left: Turn, right: Turn) -> float:
        steps = align(left.steps[:20], right.steps[:20], likeness, _kind)
        alike = sum(likeness(x, y) for x, y in steps if x is not None and y is not None)
        return 0.1 + 0.9 * alike / max(len(steps), 1)

    for left, right in align(a.turns, b.turns, turn_likeness, lambda turn: len(turn.steps)):
        steps_a = left.steps if left is not None else []
        steps_b = right.steps if right is not None else []
        for step_a, step_b in align(steps_a, steps_b, likeness, _kind):
            yield from _steps(step_a, step_b, a, b, place)
    for first, second in align_calls(a.workflow_steps, b.workflow_steps):
        yield from _calls(first, second, a, b, replace(place, item="workflow-step"))


def _kind(step: Step) -> tuple[str, ...]:
    return tuple(call.tool_name for call in step.tool_calls)


# --- steps -----------------------------------------------------------------------------------------------------------


def _steps(a: Step | None, b: Step | None, state_a: RunState, state_b: RunState, run: Compared) -> Iterator[Compared]:
    place = replace(
        run,
        item="step",
        name="",
        turn_a=a.turn if a is not None else None,
        turn_b=b.turn if b is not None else None,
        step_a=a.index if a is not None else None,
        step_b=b.index if b is not None else None,
    )
    if a is None or b is None:
        text_a, text_b = a.text if a is not None else None, b.text if b is not None else None
        change: Change = "removed" if b is None else "added"
        yield replace(place, field="step", aspect="structure", change=change, a=text_a, b=text_b)
    else:
        yield from _value(place, "text", a.text, b.text)
        if a.reasoning or b.reasoning:
            yield from _value(place, "reasoning", a.reasoning, b.reasoning)
        if a.object is not None or b.object is not None:
            value_a, value_b = (step.object.value if step.object is not None else None for step in (a, b))
            yield from _json(place, "object", value_a, value_b)
    calls_a, calls_b = (step.tool_calls if step is not None else [] for step in (a, b))
    for first, second in align_calls(calls_a, calls_b):
        yield from _calls(first, second, state_a, state_b, replace(place, item="tool-call"))
    if a is not None and b is not None:
        yield from _value(place, "model", a.model, b.model, "input")
        yield from _value(place, "finish_reason", a.finish_reason, b.finish_reason, "outcome")
        yield from _tokens(place, a.usage, b.usage)
        yield from _number(place, "duration_s", a.duration_s, b.duration_s, "time")
        yield from _number(place, "time_to_first_token_s", a.time_to_first_token_s, b.time_to_first_token_s, "time")


# --- calls -----------------------------------------------------------------------------------------------------------


def _calls(a: Call | None, b: Call | None, state_a: RunState, state_b: RunState, at: Compared) -> Iterator[Compared]:
    some = a if a is not None else b
    assert some is not None
    place = replace(
        at,
        name=some.tool_name,
        tool_call_id_a=a.tool_call_id if a is not None else None,
        tool_call_id_b=b.tool_call_id if b is not None else None,
    )
    if a is None or b is None:
        change: Change = "removed" if b is None else "added"
        args_a, args_b = a.args if a is not None else None, b.args if b is not None else None
        yield replace(place, field="call", aspect="structure", change=change, a=args_a, b=args_b)
        return
    yield from _json(place, "args", a.args, b.args)
    yield from _value(place, "status", a.status, b.status, "outcome")
    if a.error is not None or b.error is not None:
        yield from _value(place, "error", _message(a), _message(b), "outcome")
    if not (a.nested and b.nested):  # an agent's result is what its run says, which is compared as such
        yield from _json(place, "result", a.result, b.result)
    elif place.depth < _MOST_DEPTH:
        for inner_a, inner_b in zip(a.nested, b.nested, strict=False):
            inside = Compared("run", path=f"{at.path}/{some.tool_name}", depth=at.depth + 1)
            yield from _states(inner_a, inner_b, replace(inside, parent_tool_call_id=some.tool_call_id))
        yield from _number(place, "runs", len(a.nested), len(b.nested), "tokens", "runs")
    yield from _number(place, "duration_s", a.duration_s, b.duration_s, "time")
    yield from _tasks(_task(a, state_a), _task(b, state_b), replace(place, item="task"))


def _task(call: Call, state: RunState) -> Task | None:
    return state.tasks.get(call.task_id) if isinstance(call, ToolCall) and call.task_id else None


def _tasks(a: Task | None, b: Task | None, place: Compared) -> Iterator[Compared]:
    if a is None or b is None:
        if a is not b:
            change: Change = "removed" if b is None else "added"
            yield replace(place, field="task", aspect="structure", change=change)
        return
    yield from _value(place, "status", a.status, b.status, "outcome")
    if a.error is not None or b.error is not None:
        yield from _value(place, "error", _message(a), _message(b), "outcome")
    yield from _json(place, "result", a.result, b.result)
    yield from _number(place, "running_s", a.running_s, b.running_s, "time")


def _message(item: ToolCall | WorkflowStep | Task) -> str | None:
    return item.error.message if item.error is not None else None


# --- values ----------------------------------------------------------------------------------------------------------


def _value(place: Compared, field: str, a: Any, b: Any, aspect: Aspect = "content") -> Iterator[Compared]:
    if isinstance(a, str) and isinstance(b, str):
        alike = 1.0 if a == b else similarity(word_diff(a, b))
        change: Change = "same" if a == b else "changed"
        yield replace(place, field=field, aspect=aspect, change=change, a=a, b=b, similarity=alike)
    elif a is not None or b is not None:
        yield from _json(place, field, a, b, aspect)


def _json(place: Compared, field: str, a: Any, b: Any, aspect: Aspect = "content") -> Iterator[Compared]:
    """One row for each place where the values differ, or one that says that they don't."""
    if isinstance(a, str) and isinstance(b, str):
        yield from _value(place, field, a, b, aspect)
        return
    changes = json_changes(a, b)
    if not changes and (a is not None or b is not None):
        yield replace(place, field=field, aspect=aspect, a=a, b=b)
    for change in changes:
        path = change.path
        joined = field if not path else f"{field}{path}" if path.startswith("[") else f"{field}.{path}"
        kind: Any = "added" if a is None else "removed" if b is None else change.change
        row = replace(place, field=joined, aspect=aspect, change=kind, a=change.a, b=change.b)
        if isinstance(change.a, str) and isinstance(change.b, str):
            row = replace(row, similarity=similarity(word_diff(change.a, change.b)))
        yield row


def _number(
    place: Compared, field: str, a: float | None, b: float | None, aspect: Aspect, unit: str = ""
) -> Iterator[Compared]:
    if a is None and b is None:
        return
    change: Change = "added" if a is None else "removed" if b is None else "same" if a == b else "changed"
    yield replace(place, field=field, aspect=aspect, change=change, a=a, b=b, unit=unit or _UNITS[aspect])


def _tokens(place: Compared, a: Usage, b: Usage) -> Iterator[Compared]:
    for name in FIELDS:
        yield from _number(place, name, getattr(a, name), getattr(b, name), "tokens")
