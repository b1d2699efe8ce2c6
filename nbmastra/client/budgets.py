"""Bounds of a run that a client watches over."""

from __future__ import annotations

from nbmastra.client.info import AgentInfo
from nbmastra.output import Bounds, Limits, make_limits, price_limits
from nbmastra.prices import OwnPrices

__all__ = ["Bounds", "make_limits", "priced"]


def priced(limits: Limits, agent: AgentInfo, own: OwnPrices | None) -> Limits:
    """The bounds with the prices that a cost bound needs. Raises PriceUnknown if the agent's model has none."""
    return price_limits(limits, agent.model, own)
