"""Which calls run in the background, and how. Source: @mastra/core 1.71, `resolveBackgroundConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from nbmastra.errors import SettingsError
from nbmastra.fold.reading import as_dict
from nbmastra.runtime.background.executor import LocalExecutor

__all__ = [
    "BACKGROUND_SCHEMA",
    "AgentTools",
    "Disposition",
    "Plan",
    "check_tools",
    "lasting_settings",
    "make_plan",
    "may_run_in_background",
    "tool_prompt",
    "tool_settings",
]

Disposition = Literal["foreground", "deferred", "awaited"]
AgentTools = Mapping[str, "dict[str, Any] | None"] | Literal["all"]

_NAMES = ("enabled", "default_disposition", "timeout_s", "max_retries", "executor", "on_complete")
_MAX_RETRIES = 10
"""What a model may ask for at most."""

BACKGROUND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Optional: how this call runs (foreground, deferred or awaited), instead of the tool's default.",
    "properties": {
        "enabled": {"type": "boolean", "description": "true: deferred, false: foreground"},
        "disposition": {"type": "string", "enum": ["foreground", "deferred", "awaited"]},
        "timeoutMs": {"type": "number", "description": "Time-out of this call in milliseconds"},
        "maxRetries": {"type": "number", "description": "How often this call is tried again"},
    },
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a call runs; None where the manager's own settings hold."""

    disposition: Disposition
    timeout_s: float | None = None
    max_retries: int | None = None


def tool_settings(given: Any, where: str) -> dict[str, Any] | None:
    """The settings of `@tool(background=…)`, or of an agent for a tool. Raises SettingsError."""
    if given is None:
        return None
    if isinstance(given, bool):
        return {"enabled": given}
    if not isinstance(given, Mapping):
        raise SettingsError(f"{where} takes True, False or a dict of {', '.join(_NAMES)}, not {type(given).__name__}")
    made = {"enabled": True, **cast("Mapping[str, Any]", given)}
    unknown = [name for name in made if name not in _NAMES]
    if unknown:
        raise SettingsError(f"{where} has no {unknown[0]!r:.40}: there is {', '.join(_NAMES)}")
    if made.get("default_disposition", "deferred") not in ("deferred", "foreground"):
        raise SettingsError(f"{where}: default_disposition is deferred or foreground")
    if not hasattr(made.get("executor", LocalExecutor()), "run"):
        raise SettingsError(f"{where}: executor is a LocalExecutor, a ProcessExecutor or the like")
    if not callable(made.get("on_complete", print)):
        raise SettingsError(f"{where}: on_complete is a function of a task")
    return made


def may_run_in_background(name: str, of_tool: Any, of_agent: AgentTools) -> bool:
    """Whether a tool's calls can be tasks at all; a model can't make them so."""
    return make_plan(name, of_tool, of_agent, {"disposition": "deferred"}).disposition != "foreground"


def lasting_settings(name: str, of_tool: Any, of_agent: AgentTools) -> dict[str, Any]:
    """What holds for all tasks of a tool, those that an earlier kernel left too: executor, on_complete."""
    both = {**(tool_settings(of_tool, f"background of {name}") or {}), **_of_agent(name, of_agent)}
    return {key: both[key] for key in ("executor", "on_complete") if key in both}


def check_tools(given: Any) -> AgentTools:
    """An agent's `background_tools=`. Raises SettingsError."""
    if given == "all":
        return "all"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SettingsError('background_tools= takes "all", or a dict of tool names with True, False or settings')
    items = cast("Mapping[str, Any]", given).items()
    return {name: tool_settings(value, f"background_tools[{name!r:.40}]") for name, value in items}


def make_plan(name: str, of_tool: Any, of_agent: AgentTools, asked: Any) -> Plan:
    """The plan of a call: what the model asked for, then the agent's settings, then the tool's.

    A tool that neither makes eligible runs in the foreground, whatever the model says.
    """
    agent = _of_agent(name, of_agent)
    tool = tool_settings(of_tool, f"background of {name}") or {}
    model = as_dict(asked)
    eligible = agent.get("enabled", tool.get("enabled", False))
    default = agent.get("default_disposition", tool.get("default_disposition", "deferred"))
    wanted: Any = model.get("disposition")
    if wanted not in ("foreground", "deferred", "awaited"):
        wanted = {False: "foreground", True: "deferred"}[model["enabled"]] if _says(model) else default
    timeout_ms, retries = _number(model.get("timeoutMs")), _number(model.get("maxRetries"))
    return Plan(
        wanted if eligible else "foreground",
        timeout_ms / 1000 if timeout_ms else agent.get("timeout_s", tool.get("timeout_s")),
        min(int(retries), _MAX_RETRIES) if retries is not None else agent.get("max_retries", tool.get("max_retries")),
    )


def _says(model: dict[str, Any]) -> bool:
    return isinstance(model.get("enabled"), bool)


def _of_agent(name: str, of_agent: AgentTools) -> dict[str, Any]:
    if isinstance(of_agent, str):
        return {"enabled": True}
    return of_agent.get(name.removeprefix("agent-").removeprefix("workflow-")) or {}


def _number(value: Any) -> float | None:
    """What a model wrote, if it is a number that can be meant."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return value


def tool_prompt(defaults: Mapping[str, str]) -> str:
    """What the model is told of its tools that can run in the background, by name with their default disposition."""
    lines = [
        f"- {name} (default: {'background' if default == 'deferred' else 'foreground; ask for it with _background'})"
        for name, default in defaults.items()
    ]
    return _PROMPT.format("\n".join(lines))


_PROMPT = """Some of your tools can run in the background while the conversation goes on:
{}

In a call of one of these you may add the argument "_background", an object whose fields are all optional: \
"disposition" ("foreground", "deferred" or "awaited"), "timeoutMs" and "maxRetries" (numbers).
- deferred: you get a placeholder with a task id at once, and the result when the task is done.
- awaited: it runs as a task, and you wait for its result.
- foreground: it runs now, and you get its result.
Prefer the background for long or independent work, and the foreground where you need the result to go on."""
