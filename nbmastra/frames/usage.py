"""`usage_df`: tokens and cost by step, turn, run, model or agent; whatever the grouping, rows sum to the fold's total.

Nested runs have rows of their own. Where a turn's own total differs from its steps, the difference is a row without a
step, and named in `.attrs["reconciliation"]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nbmastra.errors import SettingsError
from nbmastra.fold import Turn
from nbmastra.frames.columns import Column, Table
from nbmastra.frames.runs import Place, Run, places
from nbmastra.frames.tables import token_columns
from nbmastra.usage import FIELDS, Usage, sum_usage

__all__ = ["USAGE", "By", "Reconciliation", "Spent", "grouper", "run_cost", "spent", "together"]

By = Literal["step", "turn", "run", "model", "agent"]


@dataclass(frozen=True)
class Spent:
    """Tokens at one place. `turn`, `step` and the names are None where several were put together."""

    place: Place
    usage: Usage
    cost: float | None
    run_id: str | None
    turn: int | None
    step: int | None
    agent_id: str | None
    model: str | None
    provider: str | None

    @property
    def unpriced(self) -> bool:
        """Tokens that cost something, but nobody knows what."""
        return self.cost is None and self.usage.nonzero


USAGE = Table[Spent](
    "usage_df",
    "Tokens and cost, one row per step, turn, run, model or agent (`by=`) of each stream; `groupby('model')` sums "
    "over streams. Runs inside of the run have rows of their own, told apart by `path`. A turn whose own "
    "total differs from the sum of its steps has a further row without a step, with the difference. Rows sum to the "
    "run's total: `.attrs['reconciliation']` has both.",
    (
        Column("stream_id", "str", "Id of the stream.", lambda row: row.place.run.stream_id),
        Column("path", "str", "Names from the stream's agent down to the run.", lambda row: row.place.path),
        Column("depth", "Int64", "0, or how deep inside of other runs.", lambda row: row.place.depth),
        Column("run_id", "str", "Id of the run.", lambda row: row.run_id),
        Column("turn", "Int64", "Number of the turn in its run, from 0.", lambda row: row.turn),
        Column("step", "Int64", "Number of the step in its run, from 0.", lambda row: row.step),
        Column("agent_id", "category", "The agent that used them.", lambda row: row.agent_id),
        Column("model", "category", "The model, if it is one.", lambda row: row.model),
        Column("provider", "category", "Its provider, if it is one.", lambda row: row.provider),
        *token_columns(lambda row: row.usage),
        Column("cost_usd", "Float64", "The price; missing where a model's isn't known.", lambda row: row.cost, "USD"),
    ),
)


def spent(run: Run) -> Iterator[Spent]:
    """What each step took, then what each turn's total has beyond its steps; at every place."""
    for place in places(run):
        for turn in list(place.state.turns):
            yield from _of_turn(place, turn)


def _of_turn(place: Place, turn: Turn) -> Iterator[Spent]:
    run, agent = place.run, turn.agent_id or place.agent_id
    steps = [
        Spent(
            place,
            step.usage,
            run.cost(step.usage, step.model, step.provider),
            step.run_id or turn.run_id,
            turn.index,
            step.index,
            agent,
            step.model,
            step.provider,
        )
        for step in list(turn.steps)
    ]
    yield from steps
    beyond = turn.beyond_steps
    if beyond.reported:
        model, provider = _shared(steps, "model"), _shared(steps, "provider")
        # Prices are linear in tokens, so the difference costs what the whole costs beyond the steps.
        whole, known = run.cost(turn.usage, model, provider), _sum_costs(steps)
        cost = whole - known if whole is not None and known is not None else None
        yield Spent(place, beyond, cost, turn.run_id, turn.index, None, agent, model, provider)


def grouper(by: str) -> Callable[[Spent], tuple[Any, ...]]:
    """What rows of one group have in common. Raises SettingsError."""
    if by not in get_args(By):
        raise SettingsError(f"by={by!r}: give one of {', '.join(get_args(By))}")
    return _KEYS[by]


_KEYS: dict[str, Callable[[Spent], tuple[Any, ...]]] = {
    "step": lambda row: (id(row.place.state), row.turn, row.step),
    "turn": lambda row: (id(row.place.state), row.turn),
    "run": lambda row: (id(row.place.state),),
    "model": lambda row: (row.place.path, row.model, row.provider),
    "agent": lambda row: (row.place.path, row.agent_id),
}


def together(rows: Iterable[Spent], by: str) -> Iterator[Spent]:
    """The rows of one run, put together by group, in the order in which groups first appear."""
    key = grouper(by)
    groups: dict[tuple[Any, ...], list[Spent]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for group in groups.values():
        yield group[0] if len(group) == 1 else _sum(group)


def _sum(rows: list[Spent]) -> Spent:
    turns = {row.turn for row in rows}
    return Spent(
        rows[0].place,
        sum_usage(row.usage for row in rows),
        _sum_costs(rows),
        _shared(rows, "run_id"),
        turns.pop() if len(turns) == 1 else None,
        None,
        _shared(rows, "agent_id"),
        _shared(rows, "model"),
        _shared(rows, "provider"),
    )


def _shared(rows: Iterable[Spent], name: str) -> str | None:
    found = {getattr(row, name) for row in rows}
    return found.pop() if len(found) == 1 else None


def _sum_costs(rows: Iterable[Spent]) -> float | None:
    """The sum; None if some of it isn't known, or nothing was spent."""
    found = [row for row in rows if row.usage.nonzero]
    costs = [row.cost for row in found]
    if not costs or any(cost is None for cost in costs):
        return None
    return sum(cost for cost in costs if cost is not None)


def run_cost(run: Run) -> float | None:
    """What a stream cost, runs inside of it included."""
    return _sum_costs(spent(run))


class Reconciliation:
    """Compares the rows of a frame with what the fold says of its runs."""

    def __init__(self) -> None:
        self.rows = Usage()
        self.total = Usage()
        self.differences: list[dict[str, Any]] = []
        self.unpriced: dict[str, None] = {}
        self.streams: Counter[str] = Counter()

    def note(self, run: Run, rows: list[Spent]) -> None:
        """Take in a run and its finest rows."""
        self.rows += sum_usage(row.usage for row in rows)
        self.total += run.total
        self.streams.update([run.stream_id] if run.stream_id is not None else [])
        for row in rows:
            if row.step is None:
                where = {"stream_id": run.stream_id, "path": row.place.path, "turn": row.turn}
                self.differences.append(where | row.usage.to_dict())
            if row.unpriced:
                self.unpriced[row.model or "a model without a name"] = None

    def to_dict(self) -> dict[str, Any]:
        """Per column what the rows sum to and what the fold says; turns whose total isn't that of their steps; streams
        that came more than once, and count as often."""
        return {
            "tokens": {name: {"rows": getattr(self.rows, name), "total": getattr(self.total, name)} for name in FIELDS},
            "complete": all((getattr(self.rows, name) or 0) == (getattr(self.total, name) or 0) for name in FIELDS),
            "beyond_steps": self.differences,
            "unpriced_models": list(self.unpriced),
            "repeated_streams": [id for id, times in self.streams.items() if times > 1],
        }
