"""Local agents: the loop, models, tools, memory, processors, goals."""

from __future__ import annotations
