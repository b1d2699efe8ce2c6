"""Tools: functions that a model may call, checked and run in one way, by local agents and for remote ones."""

from __future__ import annotations

from nbmastra.tools.abort import AbortSignal
from nbmastra.tools.base import Tool
from nbmastra.tools.context import ToolContext, ToolSuspended, ToolWriter
from nbmastra.tools.define import as_tool, as_tools, free_name, tool
from nbmastra.tools.function import FunctionTool
from nbmastra.tools.json_schema import SchemaTool
from nbmastra.tools.results import to_json

__all__ = [
    "AbortSignal",
    "FunctionTool",
    "SchemaTool",
    "Tool",
    "ToolContext",
    "ToolSuspended",
    "ToolWriter",
    "as_tool",
    "as_tools",
    "free_name",
    "to_json",
    "tool",
]
