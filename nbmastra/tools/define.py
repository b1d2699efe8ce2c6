"""`@tool`, and making tools of what people hand over: functions, tools, lists and dicts of both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast, overload

from nbmastra.errors import SettingsError
from nbmastra.tools.base import Background, RequireApproval, Tool, check_name
from nbmastra.tools.function import FunctionTool

__all__ = ["as_tool", "as_tools", "free_name", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    require_approval: RequireApproval = False,
    background: Background = None,
    strict: bool | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool that a model may call; it can still be called as the function.

    name, description: else those of the function and its docstring; a docstring's parameter sections describe the
    parameters. A parameter annotated `ToolContext` is filled in and not shown to the model.
    require_approval: True, or a function of the arguments (a dict) that says so: a call waits until it is approved.
    background: whether it may run as a background task, of an agent that has `background_tasks=`: True, or a dict of
    timeout_s, max_retries, default_disposition, executor, on_complete.
    strict: take nothing but what the signature says: no further arguments, no "5" for 5.

    Raises SettingsError for a function that no model could call.
    """
    if function is not None:
        return FunctionTool(function)

    def decorate(given: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(given, **options)

    return decorate


def as_tool(source: Tool | Callable[..., Any]) -> Tool:
    """A tool as it is, or of a function. Raises SettingsError."""
    return source if isinstance(source, Tool) else FunctionTool(source)


def as_tools(
    sources: Mapping[str, Tool | Callable[..., Any]] | Iterable[Tool | Callable[..., Any]] | None,
) -> dict[str, Tool]:
    """Tools by name, in order; a dict's keys are the names. Raises SettingsError: no tool, bad name, one name twice."""
    if sources is None:
        return {}
    if isinstance(sources, Mapping):
        named = cast("Mapping[str, Any]", sources)
        return {check_name(name): _renamed(as_tool(source), name) for name, source in named.items()}
    if isinstance(sources, str | bytes) or callable(sources):
        raise SettingsError("tools are given as a list of functions, or a dict of them by name")
    tools: dict[str, Tool] = {}
    for source in sources:
        made = as_tool(source)
        if made.name in tools:
            raise SettingsError(f"two tools are called {made.name}: rename one with @tool(name=…), or give a dict")
        tools[made.name] = made
    return tools


def free_name(made: Tool, taken: Collection[str]) -> Tool:
    """The tool, under another name if its own is taken: `search_2`."""
    name, number = made.name, 2
    while name in taken:
        suffix = f"_{number}"
        name, number = made.name[: 64 - len(suffix)] + suffix, number + 1
    if name == made.name:
        return made
    other = copy.copy(made)
    other.name = name
    return other


def _renamed(made: Tool, name: str) -> Tool:
    if made.name == name:
        return made
    if isinstance(made, FunctionTool):
        return cast("FunctionTool[..., Any]", made).with_name(name)
    raise SettingsError(f"the tool {made.name} can't be given as {name}: it has its name from where it comes from")
