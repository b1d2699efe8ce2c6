"""Tools that other processes import: a module of little else, since each of them does so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from nbmastra.tools import ToolContext, tool


@tool
async def chatty(name: str, context: ToolContext) -> dict[str, Any]:
    """Write, print, and give something."""
    for i in range(3):
        context.writer.write({"i": i, "text": "\ud83d \0 é"[i:]})
    print("printed", name)
    return {"name": name, "large": 2**70}


@tool
def broken(context: ToolContext) -> None:
    """Fail in a thread."""
    context.writer.write("so far")
    raise ValueError("offline")


@tool
def review(context: ToolContext) -> str:
    """Ask."""
    if context.resume_data is None:
        context.suspend({"q": "ok?"})
    context.writer.write(context.resume_data)
    return f"said {context.resume_data}"


@tool
async def gives_itself_up() -> None:
    """Raise what cancels."""
    raise asyncio.CancelledError


@tool
def stays(folder: str, context: ToolContext) -> str:
    """Say where it runs, then wait for the signal; a second attempt ends at once."""
    marks = Path(folder)
    number = len(list(marks.glob("begun-*")))
    (marks / f"begun-{number}").touch()
    context.writer.write({"pid": os.getpid()})
    if number == 0 and context.abort.wait_blocking(120):
        (marks / "told").touch()
    return f"attempt {number}"


TOOLS = {one.name: one for one in (chatty, broken, review, gives_itself_up, stays)}
