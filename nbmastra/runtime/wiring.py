"""Which extensions take part in a run, by the agent's settings and the run's options; in the order they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbmastra.runtime.extend import Extension
from nbmastra.runtime.options import StreamOptions

if TYPE_CHECKING:
    from nbmastra.runtime.agent import Agent

__all__ = ["make_extensions"]


def make_extensions(agent: Agent, options: StreamOptions) -> list[Extension]:
    """New ones for each run, since they keep its state. Raises SettingsError."""
    return []
