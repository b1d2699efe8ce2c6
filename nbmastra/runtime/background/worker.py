"""The process of a task: a pickled call comes in, lines of JSON go out: what the tool writes, and one end."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from importlib import import_module
from typing import Any

from nbmastra.runtime.chunks_out import error_json
from nbmastra.tools import FunctionTool, ToolContext, ToolSuspended

__all__ = ["main"]


def main() -> None:
    """Run one call."""
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # a tool's own prints must not look like ours

    def tell(kind: str, value: Any) -> None:
        out.write(json.dumps([kind, value]) + "\n")
        out.flush()

    try:
        where, name, strict, arguments, about = pickle.load(sys.stdin.buffer)
        tool = FunctionTool[..., Any](_function(where), name=name, strict=strict)
        context = ToolContext(
            **about,
            write=lambda value: tell("write", value),
            custom=lambda chunk: tell("custom", chunk),
            printed=lambda text: tell("printed", text),
        )
        tell("result", asyncio.run(tool.run(tool.parse(arguments), context)))
    except ToolSuspended as suspended:
        tell("suspended", {"data": suspended.data, "schema": suspended.resume_schema})
    except BaseException as error:
        tell("error", error_json(error))
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
