"""Where a task's tool runs: here, or in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import pickle
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast, get_type_hints

from nbmastra.errors import SettingsError
from nbmastra.tools import FunctionTool, Tool, ToolContext, ToolSuspended

__all__ = [
    "Executor",
    "LocalExecutor",
    "ProcessExecutor",
    "TaskProcessError",
    "check_sendable",
    "give_end",
    "pickled_call",
    "take",
]


class Executor(Protocol):
    """Runs a tool for a task; cancelling `run` stops the tool as far as it can be stopped."""

    def check(self, tool: Tool) -> None:
        """Raises SettingsError for a tool that it can't run: before the task is kept."""
        ...

    async def run(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run it with a model's arguments; gives JSON. Raises what the tool raises, and ToolSuspended."""
        ...


class LocalExecutor:
    """In this process: async tools on the engine's loop, others in a thread that can ask its abort signal."""

    def check(self, tool: Tool) -> None:
        """Any tool will do."""

    async def run(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the tool here."""
        return await tool.run(tool.parse(arguments), context)


class TaskProcessError(Exception):
    """The process of a task ended without a result, or its tool raised: then `name` is the error's."""

    def __init__(self, message: str, name: str = "TaskProcessError", stack: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.stack = stack


class ProcessExecutor:
    """Each task in a process of its own, which is killed when it is cancelled or takes too long: for CPU-bound tools.

    Functions must be picklable; with cloudpickle installed those of a notebook are too. What a tool writes comes out as
    it does here; its context has no messages.
    """

    def check(self, tool: Tool) -> None:
        """Raises SettingsError for what no other process could run."""
        check_sendable(tool, "a ProcessExecutor")

    async def run(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the tool in a new process. Raises TaskProcessError, ToolInputError, ToolSuspended."""
        tool.parse(arguments)
        work = pickled_call(tool, arguments, context)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "nbmastra.runtime.background.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(work)
            with contextlib.suppress(ConnectionError):  # it says why by its end
                await process.stdin.drain()
                process.stdin.close()
            async for line in process.stdout:
                kind, value = json.loads(line)
                if not take(context, kind, value):
                    return give_end(kind, value)
            raise TaskProcessError(f"the task's process ended with code {await process.wait()} and no result")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()


def take(context: ToolContext, kind: str, value: Any) -> bool:
    """Pass on what a tool has written elsewhere; False for its end."""
    match kind:
        case "write":
            context.writer.write(value)
        case "custom":
            context.writer.custom(value)
        case "printed":
            context.printed(value)
        case _:
            return False
    return True


def give_end(kind: str, value: Any) -> Any:
    """The result of a call elsewhere. Raises TaskProcessError, ToolSuspended."""
    match kind:
        case "result":
            return value
        case "suspended":
            raise ToolSuspended(value["data"], value["schema"])
        case "error":
            raise TaskProcessError(value["message"], value["name"], value.get("stack", ""))
        case _:
            raise TaskProcessError(str(value))


def check_sendable(tool: Tool, executor: str) -> None:
    """Raises SettingsError for what no other process could run."""
    if not isinstance(tool, FunctionTool):
        raise SettingsError(f"{tool.name} is no function: {executor} can't run it, the local one can")
    pickled_call(cast("Any", tool), {}, None)


def pickled_call(tool: Any, arguments: dict[str, Any], context: ToolContext | None) -> bytes:
    """A call as `worker.call_tool` takes it. Raises SettingsError for what can't be sent."""
    pickler: Any = import_module("cloudpickle") if find_spec("cloudpickle") is not None else pickle
    about: dict[str, Any] = {}
    if context is not None:
        names = ("tool_call_id", "tool_name", "run_id", "agent_id", "thread_id", "resource_id", "resume_data")
        about = {name: getattr(context, name) for name in names}
    try:
        return pickler.dumps((_function(tool), tool.name, tool.strict, arguments, about))
    except Exception as error:  # whatever a pickler finds
        raise SettingsError(
            f"{tool.name} can't be sent to another process ({str(error)[:200]}): define it in a module, or use the "
            "local executor"
        ) from None


def _function(tool: Any) -> dict[str, Any]:
    """Where the other process finds a tool, or the function itself with its annotations, whose names it won't know."""
    plain: Any = tool.function
    module, name = getattr(plain, "__module__", None), getattr(plain, "__qualname__", "")
    if module != "__main__" and getattr(sys.modules.get(module or ""), name, None) is tool:
        return {"module": module, "name": name}
    hints = get_type_hints(plain, include_extras=True) if inspect.isfunction(plain) else None
    return {"function": plain, "hints": hints}
