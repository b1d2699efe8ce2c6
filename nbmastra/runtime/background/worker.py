"""A task's call in another process: a pickled call comes in, what the tool writes and one end go out.

By itself (`python -m`), it is the process of a ProcessExecutor's task: lines of JSON, the last of which is the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from nbmastra.runtime.chunks_out import error_json
from nbmastra.tools import AbortSignal, FunctionTool, ToolContext, ToolSuspended

__all__ = ["call_tool", "main"]

Tell = Callable[[str, Any], object]


async def call_tool(work: bytes, tell: Tell, abort: AbortSignal | None = None) -> tuple[str, Any]:
    """Run one call: `tell` gets what is written (write, custom, printed); gives its end (result, suspended, error)."""
    try:
        where, name, strict, arguments, about = pickle.loads(work)
        tool = FunctionTool[..., Any](_function(where), name=name, strict=strict)
        context = ToolContext(
            **about,
            abort=abort,
            write=lambda value: tell("write", value),
            custom=lambda chunk: tell("custom", chunk),
            printed=lambda text: tell("printed", text),
        )
        return "result", await tool.run(tool.parse(arguments), context)
    except ToolSuspended as suspended:
        return "suspended", {"data": suspended.data, "schema": suspended.resume_schema}
    except asyncio.CancelledError:
        if abort is not None and abort.aborted:
            raise
        return "error", error_json(RuntimeError("the tool cancelled itself"))
    except BaseException as error:
        return "error", error_json(error)


def main() -> None:
    """Run one call of which standard input tells."""
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # a tool's own prints must not look like ours

    def tell(kind: str, value: Any) -> None:
        out.write(json.dumps([kind, value]) + "\n")
        out.flush()

    tell(*asyncio.run(call_tool(sys.stdin.buffer.read(), tell)))
    out.close()
    os._exit(0)  # threads that a tool left behind must not hold up the end


def _function(where: dict[str, Any]) -> Any:
    if "module" in where:
        return getattr(import_module(where["module"]), where["name"]).function
    if where["hints"] is not None:
        where["function"].__annotations__ = where["hints"]
    return where["function"]


if __name__ == "__main__":
    main()
