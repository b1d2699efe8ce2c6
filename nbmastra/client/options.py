"""What a user writes about a run, as the server wants it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from nbmastra.client.budgets import Bounds
from nbmastra.errors import SettingsError
from nbmastra.messages import Messages, wire_messages
from nbmastra.output import ObjectSchema

__all__ = ["UntilIdle", "answer_options", "camel", "schema_options", "stream_body"]

UntilIdle = bool | Mapping[str, Any]

# Of the request's body; source: @mastra/server agentExecutionBodySchema, @mastra/core AgentExecutionOptions.
KNOWN = (
    "active_tools",
    "auto_resume_suspended_tools",
    "client_tools",
    "close_on_suspend",
    "context",
    "eager_tool_execution",
    "include_raw_chunks",
    "instructions",
    "is_task_complete",
    "max_processor_retries",
    "max_steps",
    "memory",
    "model",
    "model_settings",
    "provider_options",
    "request_context",
    "require_tool_approval",
    "return_scorer_data",
    "run_id",
    "save_per_step",
    "schema",
    "scorers",
    "stop_when",
    "structured_output",
    "system",
    "tool_call_concurrency",
    "tool_choice",
    "toolsets",
    "tracing_options",
    "until_idle",
    "versions",
)
_FLAT = frozenset(("model_settings", "structured_output", "tracing_options"))


def stream_body(messages: Messages, until_idle: UntilIdle, options: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON body of a stream request: None is left out, names become camelCase. Raises SettingsError."""
    return {"messages": wire_messages(messages), **_body(until_idle, options)}


def _body(until_idle: UntilIdle, options: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in options.items():
        _refuse_typo(name)
        if value is not None:
            body[camel(name)] = _camel_keys(value) if name in _FLAT else value
    if until_idle is not False:
        body["untilIdle"] = True if until_idle is True else _camel_keys(until_idle)
    return body


def answer_options(options: Mapping[str, Any]) -> tuple[ObjectSchema | None, dict[str, Any], Bounds]:
    """Schema, body and bounds of what is given with an answer to a suspended run. Raises SettingsError."""
    left = dict(options)
    bounds = cast("Bounds", {name: left.pop(name) for name in Bounds.__annotations__ if name in left})
    checked, structured = schema_options(left.pop("schema", None), left.pop("structured_output", None))
    until_idle: UntilIdle = left.pop("until_idle", False)
    return checked, _body(until_idle, {**left, "structured_output": structured}), bounds


def schema_options(
    schema: Any, structured_output: Mapping[str, Any] | None
) -> tuple[ObjectSchema | None, dict[str, Any] | None]:
    """The schema to check by, and the request's `structured_output`. Raises SettingsError.

    `schema` alone is the short form; `structured_output` holds it beside further keys (model, instructions …).
    """
    options = dict(structured_output or {})
    if schema is not None and "schema" in options:
        raise SettingsError("give the schema once: as schema=, or within structured_output=")
    schema = options.pop("schema", schema)
    if schema is None:
        if options:
            raise SettingsError("structured_output= needs a schema")
        return None, None
    checked = ObjectSchema(schema)
    return checked, {"schema": checked.json_schema, **options}


def camel(name: str) -> str:
    """`max_steps` as `maxSteps`; a name that is camelCase already stays as it is."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _camel_keys(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {camel(key): item for key, item in cast("Mapping[str, Any]", value).items()}


def _refuse_typo(name: str) -> None:
    # What isn't known is passed on (a newer server may know it), unless it looks like a slip: servers ignore those.
    if name in KNOWN or camel(name) in map(camel, KNOWN):
        return
    close = get_close_matches(name, KNOWN, 1, cutoff=0.85)
    if close:
        raise SettingsError(f"there is no option {name}: did you mean {close[0]}?")
