"""Bounds of a run as its user gives them."""

from __future__ import annotations

from typing import TypedDict

from nbmastra.errors import SettingsError
from nbmastra.output.limits import Limits
from nbmastra.prices import OwnPrices, price, require_price
from nbmastra.usage import Usage

__all__ = ["Bounds", "make_limits", "price_limits"]


class Bounds(TypedDict, total=False):
    """What stops a run, as cancelled with a reason; tokens and costs count sub-agents, and are known step by step.

    idle_timeout: seconds without a chunk. max_seconds: seconds for the whole run. max_tokens: input and output.
    max_cost_usd: a run of a model without a known price doesn't start (PriceUnknown).
    prices: your own, `{"my-model": {"input": 1.5, "output": 6}}` in USD per million tokens.
    """

    idle_timeout: float | None
    max_seconds: float | None
    max_tokens: int | None
    max_cost_usd: float | None
    prices: OwnPrices | None


def make_limits(bounds: Bounds) -> Limits:
    """The bounds, still without a price. Raises SettingsError."""
    for name in ("idle_timeout", "max_seconds", "max_tokens", "max_cost_usd"):
        value = bounds.get(name)
        if value is not None and not value > 0:
            raise SettingsError(f"{name}= takes a number above 0, not {value!r}")
    return Limits(
        idle_timeout_s=bounds.get("idle_timeout"),
        max_seconds=bounds.get("max_seconds"),
        max_tokens=bounds.get("max_tokens"),
        max_cost_usd=bounds.get("max_cost_usd"),
    )


def price_limits(limits: Limits, model: str, own: OwnPrices | None) -> Limits:
    """The bounds with the prices that a cost bound needs, of a model "provider/name". Raises PriceUnknown."""
    require_price(model or None, own=own)
    bare = model.partition("/")[2]

    def cost(usage: Usage, named: str | None) -> float | None:
        # Streams name the model without its provider, which the price may depend on.
        found = price(usage, model if named in (None, bare) else named, own=own)
        return None if found is None else float(found)

    return Limits(limits.idle_timeout_s, limits.max_seconds, limits.max_tokens, limits.max_cost_usd, cost)
