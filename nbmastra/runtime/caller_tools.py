"""Tools that whoever asked runs: the agent calls them, and the run ends there, as on a server with client tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from nbmastra.errors import SettingsError
from nbmastra.tools import SchemaTool, Tool, ToolContext

__all__ = ["CallerTool", "caller_tools"]

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class CallerTool(SchemaTool):
    """A tool that is only declared."""

    def __init__(self, name: str, description: str, parameters: dict[str, Any]) -> None:
        super().__init__(name, description, parameters, _not_here)


async def _not_here(_arguments: dict[str, Any], _context: ToolContext) -> NoReturn:
    raise RuntimeError("the caller runs this tool")


def caller_tools(declared: Any) -> dict[str, Tool]:
    """Tools by name, of `{name: {"description", "inputSchema"}}`, as servers take them. Raises SettingsError."""
    if not declared:
        return {}
    if not isinstance(declared, Mapping):
        raise SettingsError("client_tools= declares tools that you run: {name: {'description': …, 'inputSchema': …}}")
    made: dict[str, Tool] = {}
    for name, about in cast("Mapping[str, Any]", declared).items():
        if not isinstance(about, Mapping):
            raise SettingsError(f"client_tools={{{name!r}: …}} takes a dict with 'description' and 'inputSchema'")
        said = cast("Mapping[str, Any]", about)
        schema: Any = said.get("inputSchema", said.get("input_schema")) or _NOTHING
        if not isinstance(schema, dict):
            raise SettingsError(f"client_tools={{{name!r}: …}}: 'inputSchema' is a JSON Schema, a dict")
        made[name] = CallerTool(name, str(said.get("description") or ""), cast("dict[str, Any]", schema))
    return made
