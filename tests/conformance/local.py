"""The same scenarios by our own runtime."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from nbmastra.runtime import Agent, BackgroundTaskManager
from nbmastra.runtime.memory import Memory
from nbmastra.testing import Part, ScriptedModel, call, call_raw, fail, file, finish, say, source, think, usage
from nbmastra.tools import ToolContext, tool
from tests.conformance.extras import PROCESSORS, scorer

Wire = dict[str, Any]


@tool(description="Current temperature of a city")
def weather(city: str) -> dict[str, float]:
    """Current temperature of a city"""
    if city == "Nowhere":
        raise ValueError("no such city")
    return {"celsius": 21}


@tool(require_approval=True)
def deploy(target: str) -> dict[str, str]:
    """Needs approval"""
    return {"deployed": target}


ANSWER: Wire = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@tool
def ask(question: str, context: ToolContext) -> dict[str, str]:
    """Ask the user, in the foreground"""
    if context.resume_data is None:
        context.suspend({"question": question}, resume_schema=ANSWER)
    return {"answer": context.resume_data["answer"]}


@tool
def build(n: int, context: ToolContext) -> dict[str, bool]:
    """Emits custom data chunks"""
    for i in range(1, n + 1):
        context.writer.custom({"type": "data-build-log", "data": {"line": f"module {i} of {n}"}, "transient": True})
    return {"ok": True}


@tool
def count(to: int, context: ToolContext) -> dict[str, int]:
    """Counts"""
    for n in range(1, to + 1):
        context.writer.write({"type": "counted", "n": n})
    return {"counted": to}


@tool(description="Slow research", background=True)
async def research(topic: str, context: ToolContext) -> dict[str, str]:
    """Slow research"""
    if topic == "fail":
        raise RuntimeError("source offline")
    context.writer.write({"type": "progress", "pct": 50})
    await asyncio.sleep(2)  # after the first turn, as on the server, on a slow machine too
    return {"summary": f"notes on {topic}"}


@tool(description="Ask a person", background=True)
def review(draft: str, context: ToolContext) -> dict[str, str]:
    """Ask a person"""
    if context.resume_data is None:
        context.suspend({"awaiting": "approval", "draft": draft})
    return {"approvedBy": context.resume_data["reviewer"]}


TOOLS = {one.name: one for one in (weather, deploy, ask, build, count, research, review)}


async def play(scenario: dict[str, Any]) -> list[list[Wire]]:
    """The chunks of each of the scenario's steps."""
    memory = Memory("sqlite://")
    manager = BackgroundTaskManager(memory.store)
    try:
        return await _play(scenario, memory, manager)
    finally:
        await manager.shutdown()


async def _play(scenario: dict[str, Any], memory: Memory, manager: BackgroundTaskManager) -> list[list[Wire]]:
    agents: dict[str, Agent] = {}
    stops = any(step.get("stop") for step in scenario["steps"])
    for name, spec in reversed(scenario["agents"].items()):
        agents[name] = _agent(scenario["id"], name, spec, agents, memory, manager, delay_s=0.002 if stops else 0)
    streams: list[list[Wire]] = []
    out: Any = None
    for step in scenario["steps"]:
        if "ask" in step:
            out = await agents["main"].stream(step["ask"], **snake(step.get("options", {})))
            if step.get("stop"):
                async for _ in out.full_stream:
                    if len(out.log) > 30:
                        out.cancel()
        elif "approve" in step:
            out = await out.approve(step["approve"])
        elif "decline" in step:
            out = await out.decline(step["decline"])
        else:
            out = await out.resume(step["data"], tool_call_id=step["resume"])
        streams.append([chunk.to_wire() async for chunk in out.full_stream])
    return streams


def _agent(
    scenario: str,
    name: str,
    spec: Wire,
    others: dict[str, Agent],
    memory: Memory,
    manager: BackgroundTaskManager,
    *,
    delay_s: float,
) -> Agent:
    more: Wire = {}
    if {"research", "review"} & set(spec.get("tools", [])):
        more["background_tasks"], delay_s = manager, 0.04
    if "goal" in spec:
        goal = spec["goal"]
        more["goal"] = {
            "objective": goal["objective"],
            "judge": scorer(goal["scorer"]),
            "max_runs": goal["maxRuns"],
        }
    if "isTaskComplete" in spec:
        scorers = [scorer(spec["isTaskComplete"]["scorer"])]
        more["default_options"] = {"is_task_complete": {"scorers": scorers}}
    full = f"cf-{scenario}-{name}"
    return Agent(
        full,
        id=full,
        model=ScriptedModel([[_part(part) for part in turn] for turn in spec["script"]], delay_s=delay_s),
        instructions="Answer.",
        description=spec.get("description", full),
        tools=[TOOLS[key] for key in spec.get("tools", [])],
        agents={key: others[key] for key in spec.get("agents", [])},
        memory=memory if spec.get("memory") else None,
        input_processors=[PROCESSORS[key] for key in spec.get("inputProcessors", [])],
        output_processors=[PROCESSORS[key] for key in spec.get("outputProcessors", [])],
        max_processor_retries=spec.get("maxProcessorRetries"),
        **more,
    )


def _part(part: Wire) -> Part:
    match part:
        case {"say": str(text)}:
            return say(text * part.get("repeat", 1))
        case {"think": str(text)}:
            return think(text, metadata=part.get("metadata"))
        case {"call": str(name), "raw": str(text)}:
            return call_raw(name, text, part.get("id"))
        case {"call": str(name)}:
            return call(name, part.get("id"), **part["args"])
        case {"source": str(url)}:
            return source(url, part["title"])
        case {"file": str(mime)}:
            return file(mime, part["data"])
        case {"usage": [inputs, outputs, *more]}:
            return usage(inputs, outputs, **{key: value for extra in more for key, value in snake(extra).items()})
        case {"reason": str(reason)}:
            return finish(reason)
        case {"fail": str(message)}:
            return fail(RuntimeError(message))
        case _:
            raise ValueError(f"unknown part {part}")


def snake(options: Wire) -> Wire:
    """The option names as Python has them; values of `schema` and tools stay as they are."""
    made: Wire = {}
    for key, value in options.items():
        name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)
        made[name] = snake(value) if key == "structuredOutput" else value
    return made
