"""Bounds of a run: how long it may be silent, how long it may take, what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nbmastra.fold import RunState
from nbmastra.usage import Usage

__all__ = ["Limits"]

Price = Callable[[Usage, str | None], float | None]
"""Cost of a usage in USD, by model; None if unknown."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What stops a run, as cancelled with a reason; None is no bound. Tokens and costs count nested runs."""

    idle_timeout_s: float | None = None
    max_seconds: float | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    price: Price | None = None

    def wait_s(self, elapsed_s: float) -> float | None:
        """How long to wait for the next chunk; None for ever."""
        left = None if self.max_seconds is None else max(self.max_seconds - elapsed_s, 0.0)
        bounds = [bound for bound in (self.idle_timeout_s, left) if bound is not None]
        return min(bounds) if bounds else None

    def waited_too_long(self, elapsed_s: float) -> tuple[str, str]:
        """Code and reason, after `wait_s` passed without a chunk."""
        if self.max_seconds is not None and elapsed_s >= self.max_seconds:
            return "budget", f"the budget of {self.max_seconds:g} s is used up"
        return "idle", f"nothing came for {self.idle_timeout_s:g} s"

    def crossed(self, state: RunState) -> tuple[str, str] | None:
        """Code and reason of a bound that is crossed; None if none is."""
        if self.max_tokens is None and self.max_cost_usd is None:
            return None
        usage = state.grand_usage
        if self.max_tokens is not None and (usage.total_tokens or 0) > self.max_tokens:
            return "budget", f"{usage.total_tokens:,} tokens are more than the budget of {self.max_tokens:,}"
        if self.max_cost_usd is not None and self.price is not None:
            cost = _cost(state, self.price)
            if cost > self.max_cost_usd:
                return "budget", f"${cost:.4f} is more than the budget of ${self.max_cost_usd:g}"
        return None


def _cost(state: RunState, price: Price) -> float:
    """Each run at the price of its own model; what has no price counts nothing."""
    return (price(state.usage, state.model) or 0.0) + sum(_cost(run, price) for run in state.nested)
