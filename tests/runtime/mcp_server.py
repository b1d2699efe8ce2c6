"""An MCP server over stdin and stdout, for tests: its tools come in two pages."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server


def text(words: str) -> list[Any]:
    return [types.TextContent(type="text", text=words)]


def describe(name: str, **properties: Any) -> types.Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.Tool(name=name, description=f"{name} it.", input_schema=schema)


PAGES = {
    None: ([describe("add", a={"type": "integer"}, b={"type": "integer"}), describe("fail")], "second"),
    "second": ([describe("weird.näme"), describe("wait"), describe("die"), describe("environment")], None),
}


async def list_tools(_context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools, following = PAGES[params.cursor if params is not None else None]
    return types.ListToolsResult(tools=tools, next_cursor=following)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    match params.name:
        case "add":
            total = arguments["a"] + arguments["b"]
            return types.CallToolResult(content=text(str(total)), structured_content={"total": total})
        case "fail":
            return types.CallToolResult(content=text("the disk is full"), is_error=True)
        case "wait":
            await asyncio.Event().wait()
        case "die":
            os._exit(3)
        case "environment":
            return types.CallToolResult(content=text(os.environ.get("SAID", "nothing")))
    return types.CallToolResult(content=text(params.name))


async def main() -> None:
    server = Server("tests", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if "--broken" in sys.argv:
        sys.exit("no licence file")
    asyncio.run(main())
