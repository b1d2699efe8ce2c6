"""`UsageView`: tokens of a run by step and in total, its speed, and its cost where prices are known; growing live."""

from __future__ import annotations

from statistics import median
from typing import Any

from nbmastra.output import MastraModelOutput
from nbmastra.prices import OwnPrices, price
from nbmastra.usage import Usage
from nbmastra.widgets.data import Rows
from nbmastra.widgets.following import FollowingWidget
from nbmastra.widgets.header import tokens_per_second
from nbmastra.widgets.snapshot_usage import usage_snapshot
from nbmastra.widgets.token_speed import TokenSpeed
from nbmastra.widgets.usage_rows import Spent, UsageRows

__all__ = ["UsageView"]


class UsageView(FollowingWidget):
    """Tokens by step, turn or model, runs inside of the run on rows of their own, and what they cost.

    `prices` are your own, in USD per million tokens: `{"my-model": {"input": 1.5, "output": 6}}`; without, those of the
    extra `prices`. What a provider didn't report stays missing. Raises SettingsError for prices that aren't.
    """

    script = "usage.js"
    styles = ("usage.css",)
    interval_s = 0.25
    what = "Usage"

    def __init__(self, out: MastraModelOutput, prices: OwnPrices | None = None) -> None:
        for model in prices or {}:
            price(Usage(0, 0), model, own=prices)
        self._prices = prices
        self._new()
        super().__init__(out)

    def _new(self) -> None:
        self._rows = UsageRows(self._prices)
        self._speed = TokenSpeed()

    def restart(self, rows: Rows) -> None:
        """Rows of a run that begins anew."""
        for key in reversed(rows.keys()):
            rows.drop(key)
        self._new()

    def leg(self, out: MastraModelOutput, offset: float) -> None:
        """A run begins."""
        self._rows.begin(out.state)
        self._speed.begin()

    def draw(self, rows: Rows) -> None:
        """The rows that changed."""
        for row, after in self._rows.update():
            rows.put(row.key, _fields(row), after=after)
        out, speed = self.out, self._speed
        speed.update(out, self._offset)
        found = list(self._rows.by_key.values())
        speeds = [row.speed for row in found if row.speed is not None and row.step is not None]
        going = not out.done
        spoke = None if not going or speed.last_at is None else max(self.elapsed_s - speed.last_at, 0.0)
        rows.facts(
            total=_numbers(self._rows.total),
            cost=_money(self._rows.cost),
            unpriced=list(self._rows.unpriced)[:3],
            own_prices=bool(self._prices),
            turns=max((row.turn for row in found), default=0),
            first=self.first.state.time_to_first_token_s,
            speed=speed.now(self.elapsed_s) if going else _rounded(tokens_per_second(out.state)),
            median=_rounded(median(speeds)) if speeds else None,
            spoke_since=spoke,
            spark=speed.points(self.elapsed_s),
            spark_s=speed.width_s,
        )

    def snapshot_of(self, outs: list[MastraModelOutput]) -> dict[str, str]:
        """The usage as plain output: a table, its bars as images."""
        rows, speed, offset = UsageRows(self._prices), TokenSpeed(), 0.0
        for out in outs:
            rows.begin(out.state)
            speed.begin()
            speed.update(out, offset)
            offset += out.elapsed_s
        rows.update()
        return usage_snapshot(outs[-1], rows, speed.points(offset), own_prices=bool(self._prices))


def _fields(row: Spent) -> dict[str, Any]:
    return {
        "turn": row.turn,
        "step": row.step,
        "agent": row.agent,
        "depth": row.depth,
        "model": row.model,
        "open": row.open,
        "speed": _rounded(row.speed),
        "cost": _money(row.cost),
        **_numbers(row.usage),
    }


def _numbers(usage: Usage) -> dict[str, int | None]:
    return {
        "input": usage.input_tokens,
        "cached": usage.cached_input_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "all": usage.total_tokens,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _money(value: float | None) -> float | None:
    return None if value is None else round(value, 8)
