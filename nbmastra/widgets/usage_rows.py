"""What a run used, row by row: its steps, what a turn's total has beyond them, and the runs inside of it.

Rows sum to what the fold says of the whole. A run is followed as it grows: steps that are over aren't looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nbmastra.fold import RunState, Step, Turn
from nbmastra.prices import OwnPrices, price
from nbmastra.usage import Usage, sum_usage
from nbmastra.widgets.format import one_line
from nbmastra.widgets.header import tokens_per_second

__all__ = ["Spent", "UsageRows", "add_costs"]


@dataclass(slots=True)
class Spent:
    """Tokens at one place; `turn` and `step` count from 1, a row without a step is the rest of its turn or a run."""

    key: str
    turn: int
    step: int | None
    agent: str
    """Of a run inside; "" for the run itself."""
    depth: int
    usage: Usage
    cost: float | None
    speed: float | None
    model: str
    open: bool = False
    """True while it goes on: what is missing may still be reported."""


def add_costs(rows: Iterable[tuple[Usage, float | None]]) -> float | None:
    """The sum; None if nothing was spent, or some of it has no known price."""
    found = [cost for usage, cost in rows if usage.nonzero]
    if not found or any(cost is None for cost in found):
        return None
    return sum(cost for cost in found if cost is not None)


@dataclass
class _Leg:
    """One output of a chain."""

    state: RunState
    number: int = 0
    turns: int = 0
    """How many there were before."""
    tail: str = ""
    """The last row before it."""
    shown: int = 0
    """Number of the turn before its first one."""
    steps: int = 0
    """How many steps its first turn had before."""
    last: object = None
    """What it looked like the last time."""
    steps_seen: int = 0
    turns_seen: int = 0
    reports: dict[int, int] = field(default_factory=dict[int, int])
    """Of each run inside, how many reports were looked at."""
    runs: dict[int, int] = field(default_factory=dict[int, int])
    """Their numbers."""
    behind: dict[int, str] = field(default_factory=dict[int, str])
    """The last row that belongs to a step."""


class UsageRows:
    """The rows of a run and of what goes on from it."""

    def __init__(self, prices: OwnPrices | None = None) -> None:
        self.by_key: dict[str, Spent] = {}
        self.order: list[str] = []
        """Their keys from top to bottom."""
        self.unpriced: dict[str, None] = {}
        """Models without a known price."""
        self._prices = prices
        self._legs: list[_Leg] = []
        self._touched: dict[str, str | None] = {}
        self._kept = Usage()
        self._kept_cost = 0.0
        self._kept_whole = True
        self._open: dict[str, None] = {}

    def begin(self, state: RunState) -> None:
        """A further output: what is followed from now on."""
        leg = _Leg(state)
        if self._legs:
            before = self._legs[-1]
            self._look(before)
            leg.number, leg.turns = before.number + 1, before.turns + len(before.state.turns)
            leg.tail = self._end(before, len(before.state.steps) - 1)
        self._legs.append(leg)

    def update(self) -> list[tuple[Spent, str | None]]:
        """The rows that are new or may have changed, and of new ones the key they stand behind ("" for the top)."""
        if self._legs:
            self._look(self._legs[-1])
        found = [(self.by_key[key], after) for key, after in self._touched.items()]
        self._touched = {}
        return found

    @property
    def total(self) -> Usage:
        """All of it."""
        return self._kept + sum_usage(self.by_key[key].usage for key in self._open)

    @property
    def cost(self) -> float | None:
        """What all of it cost in USD; None where a part isn't known."""
        rows = [self.by_key[key] for key in self._open]
        own = (Usage(1), self._kept_cost) if self._kept.nonzero else (Usage(), None)
        return add_costs([own, *((row.usage, row.cost) for row in rows)]) if self._kept_whole else None

    # --- looking ----------------------------------------------------------------------------------------------------

    def _look(self, leg: _Leg) -> None:
        state = leg.state
        steps, turns = state.steps, state.turns
        looks = (state.usage_reports, len(steps), steps[-1].ended_at if steps else None, len(turns), state.ending)
        looks += (turns[-1].ended_at if turns else None,)
        if looks == leg.last:
            return
        if leg.last is None:
            self._name_turns(leg)
        leg.last = looks
        for step in steps[leg.steps_seen :]:
            self._step(leg, step)
        while leg.steps_seen < len(steps) - 1 and steps[leg.steps_seen].ended_at is not None:
            self._keep(self._step_key(leg, steps[leg.steps_seen]))
            leg.steps_seen += 1
        for turn in turns[leg.turns_seen :]:
            self._rest(leg, turn)
        leg.turns_seen = max(0, len(turns) - 1)
        for run in state.nested:
            if leg.reports.get(id(run)) != run.usage_reports or (leg.state.ending is not None and run.ending):
                leg.reports[id(run)] = run.usage_reports
                self._run(leg, run, run.parent_call.step if run.parent_call is not None else -1)

    def _name_turns(self, leg: _Leg) -> None:
        """What goes on after an answer is still the turn that asked."""
        before = self._legs[leg.number - 1] if leg.number else None
        if before is None or not before.state.turns:
            return
        last, first = before.state.turns[-1], leg.state.turns[0] if leg.state.turns else None
        leg.shown = before.shown + len(before.state.turns)
        if first is not None and first.run_id is not None and first.run_id == last.run_id:
            leg.shown -= 1
            leg.steps = len(last.steps) + (before.steps if len(before.state.turns) == 1 else 0)

    def _step_key(self, leg: _Leg, step: Step) -> str:
        first = leg.state.turns[step.turn].steps[0].index if step.turn < len(leg.state.turns) else 0
        return f"step:{leg.turns + step.turn}.{step.index - first}"

    def _step(self, leg: _Leg, step: Step) -> None:
        key = self._step_key(leg, step)
        number = int(key.rpartition(".")[2]) + 1 + (leg.steps if step.turn == 0 else 0)
        cost = self._cost(step.usage, step.model, step.provider)
        speed = step.output_tokens_per_s if step.ended_at is not None else None
        is_open = step.ended_at is None and leg.state.ending is None
        model = one_line(step.model or "", 60)
        row = Spent(key, leg.shown + step.turn + 1, number, "", 0, step.usage, cost, speed, model, is_open)
        self._put(row, self._end(leg, step.index - 1))
        leg.behind.setdefault(step.index, key)

    def _rest(self, leg: _Leg, turn: Turn) -> None:
        key = f"rest:{leg.turns + turn.index}"
        rest = turn.beyond_steps if turn.finished_usage.reported else Usage()
        if not rest.reported and key not in self.by_key:
            return
        steps = turn.steps
        models, providers = {step.model for step in steps}, {step.provider for step in steps}
        model = models.pop() if len(models) == 1 else None
        whole = self._cost(turn.usage, model, providers.pop() if len(providers) == 1 else None)
        known = add_costs((step.usage, self._cost(step.usage, step.model, step.provider)) for step in steps)
        # Prices are linear in tokens, so the difference costs what the whole costs beyond the steps.
        cost = whole - known if whole is not None and known is not None else None
        row = Spent(key, leg.shown + turn.index + 1, None, "", 0, rest, cost, None, one_line(model or "", 60))
        self._put_behind(leg, steps[-1].index if steps else -1, row)

    def _run(self, leg: _Leg, run: RunState, step: int) -> None:
        """A run inside of a step, and the runs inside of it."""
        call = run.parent_call
        name = one_line(run.agent_id or (call.tool_name if call is not None else "") or "an agent", 60)
        key = f"run:{leg.number}.{leg.runs.setdefault(id(run), len(leg.runs))}"
        found = [s for turn in run.turns for s in turn.steps]
        models = {s.model for s in found if s.model}
        costs = [(s.usage, self._cost(s.usage, s.model, s.provider)) for s in found]
        beyond = sum_usage(turn.beyond_steps for turn in run.turns)
        costs += [(beyond, None)] if beyond.nonzero else []
        turn = leg.state.steps[step].turn if 0 <= step < len(leg.state.steps) else max(0, len(leg.state.turns) - 1)
        row = Spent(
            key,
            leg.shown + turn + 1,
            None,
            name,
            run.depth,
            run.usage,
            add_costs(costs),
            tokens_per_second(run),
            one_line(models.pop(), 60) if len(models) == 1 else "",
            leg.state.ending is None and not run.usage.reported,
        )
        self._put_behind(leg, step, row)
        for inner in run.nested:
            self._run(leg, inner, step)

    def _end(self, leg: _Leg, step: int) -> str:
        """The row that what comes after a step stands behind."""
        while step >= 0:
            if step in leg.behind:
                return leg.behind[step]
            step -= 1
        return leg.tail

    def _put_behind(self, leg: _Leg, step: int, row: Spent) -> None:
        """A row that belongs to a step."""
        new = row.key not in self.by_key
        self._put(row, self._end(leg, step))
        if new and step >= 0:
            leg.behind[step] = row.key
        elif new:
            leg.tail = row.key

    def _put(self, row: Spent, after: str) -> None:
        new = row.key not in self.by_key
        self.by_key[row.key] = row
        self._open[row.key] = None
        if new:
            at_end = not self.order or after == self.order[-1]
            self.order.insert(len(self.order) if at_end else self.order.index(after) + 1 if after else 0, row.key)
            self._touched[row.key] = after
        else:
            self._touched.setdefault(row.key, None)

    def _keep(self, key: str) -> None:
        """A step is over, and another one begun: it is only added up from now on."""
        if key not in self._open:
            return
        del self._open[key]
        row = self.by_key[key]
        self._kept += row.usage
        if row.usage.nonzero:
            self._kept_whole = self._kept_whole and row.cost is not None
            self._kept_cost += row.cost or 0.0

    def _cost(self, usage: Usage, model: str | None, provider: str | None) -> float | None:
        found = price(usage, model, provider, own=self._prices)
        if found is None and usage.nonzero:
            self.unpriced[one_line(model or "a model without a name", 60)] = None
        return None if found is None else float(found)
