"""Agents of the tests: local ones whose scripts are those of the real server's (`tests/mastra_server/server.mjs`)."""

from __future__ import annotations

from typing import Any

from nbmastra.runtime import Agent
from nbmastra.testing import ScriptedModel, call, call_raw, fail, file, say, source, think, usage
from nbmastra.tools import ToolContext, tool

ANSWER = (
    "# Hello\n\nA **bold** word, é漢字🎉, `code` and\n\n"
    '```python\nprint("hi")\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n'
)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Error(Exception):
    """Named as JavaScript's."""


@tool
async def weather(city: str) -> dict[str, Any]:
    """Current temperature of a city."""
    if city == "Nowhere":
        raise Error("no such city")
    return {"celsius": 21}


@tool
async def build(n: int, context: ToolContext) -> dict[str, Any]:
    """Emits custom data chunks."""
    for i in range(1, n + 1):
        context.writer.custom({"type": "data-build-log", "data": {"line": f"module {i} of {n}"}, "transient": True})
    return {"ok": True}


@tool(require_approval=True)
async def deploy(target: str) -> dict[str, Any]:
    """Needs approval."""
    return {"deployed": target}


@tool
async def ask(question: str, context: ToolContext) -> dict[str, Any]:
    """Ask the user, in the foreground."""
    if context.resume_data is None:
        context.suspend({"question": question}, resume_schema={"type": "object"})
    return {"answer": context.resume_data["answer"]}


SCRIPTS: dict[str, list[Any]] = {
    "text": [
        [
            think("Let me think about it.", metadata={"anthropic": {"signature": "c2ln"}}),
            say(ANSWER),
            source("https://example.com/a", "Example"),
            file("image/png", PNG),
            usage(10, 20, reasoning_tokens=5, cached_input_tokens=3),
        ]
    ],
    "tools": [
        [
            say("Let me look that up."),
            call("weather", city="Paris"),
            call("weather", city="Nowhere"),
            usage(15, 8),
        ],
        [say("It is 21 °C in Paris."), usage(30, 12)],
    ],
    "bad-args": [
        [call_raw("weather", '{"city":"Lima"}<|call|>'), usage(9, 4)],
        [say("done"), usage(12, 3)],
    ],
    "error": [[say("partial"), fail(Error("provider went away"))]],
    "error-first": [[fail(Error("no such model"))]],
    "data": [[call("build", "d1", n=3), usage(7, 3)], [say("Built."), usage(9, 2)]],
    "supervisor": [
        [call("agent-sub", "d1", prompt="say hi"), usage(15, 8)],
        [say("The sub-agent said hi."), usage(30, 12)],
    ],
    "approve": [[call("deploy", "a1", target="prod"), usage(7, 3)], [say("Deployed."), usage(9, 2)]],
    "ask": [[call("ask", "q1", question="Which city?"), usage(7, 3)], [say("Thanks, noted."), usage(9, 2)]],
}


def agent(name: str, **options: Any) -> Agent:
    """The local agent that does what the server's of that name does."""
    tools = {"tools": [weather], "bad-args": [weather], "data": [build], "approve": [deploy], "ask": [ask]}
    if name == "supervisor":
        options["agents"] = {"sub": Agent("sub", model=ScriptedModel([[say("sub-agent says hi"), usage(5, 5)]]))}
    return Agent(name, model=ScriptedModel(SCRIPTS[name]), tools=tools.get(name, ()), **options)
