"""What is done: tools of five kinds, the true stream of each, and how each task must end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbmastra.tools import ToolContext, tool

AGENT = "torture"


@tool
async def plain(n: int, context: ToolContext) -> int:
    """Write five times."""
    for i in range(5):
        context.writer.write({"i": i})
        await asyncio.sleep(0.002)  # long enough for a kill in between
    return n


@tool
async def flaky(n: int, folder: str, context: ToolContext) -> int:
    """Fail once."""
    for i in range(5):
        context.writer.write({"i": i})
        mark = Path(folder) / f"failed-{context.tool_call_id}"
        if i == 1 and not mark.exists():
            mark.touch()
            raise ValueError("the first time")
    return n


@tool
def asks(n: int, context: ToolContext) -> int:
    """Ask, in a thread."""
    context.writer.write({"i": 0})
    if context.resume_data is None:
        context.suspend({"n": n})
    context.writer.write({"i": 1})
    return context.resume_data


@tool
async def endless(n: int, context: ToolContext) -> int:
    """Go on until it is stopped."""
    for i in range(3):
        context.writer.write({"i": i})
    await context.abort.wait()
    return n


@tool
def hopeless(n: int, context: ToolContext) -> int:
    """Fail, in a thread."""
    context.writer.write({"i": 0})
    raise ValueError(f"no {n}")


@dataclass(frozen=True)
class Kind:
    """A tool, how many outputs a whole attempt of it has, how its tasks end, how often it may be tried again."""

    tool: Any
    outputs: int
    end: str
    retries: int = 100_000  # each kill costs one


KINDS = (
    Kind(plain, 5, "completed"),
    Kind(flaky, 5, "completed"),
    Kind(asks, 2, "completed"),
    Kind(endless, 3, "cancelled"),
    Kind(hopeless, 1, "failed", 2),
)
TOOLS = {kind.tool.name: kind.tool for kind in KINDS}


def kind_of(task_id: str) -> Kind:
    """The kind of a task, from its number."""
    return KINDS[number(task_id) % len(KINDS)]


def number(task_id: str) -> int:
    return int(task_id.rpartition("-")[2])
