"""Options of a run: what `stream` takes, checked at once."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TypedDict, cast

from nbmastra.errors import SettingsError
from nbmastra.prices import OwnPrices
from nbmastra.runtime.model import ToolChoice
from nbmastra.runtime.step import StepResult
from nbmastra.tools import AbortSignal

__all__ = [
    "AnswerOptions",
    "Callback",
    "Instructions",
    "RunOptions",
    "StopWhen",
    "StreamOptions",
    "check_kind",
    "read_options",
    "run_options",
]

Callback = Callable[[Any], Any]
"""A plain or async function of one value; what it raises is logged and doesn't stop the run."""
StopWhen = Callable[[list[StepResult]], bool | Awaitable[bool]]
"""Asked after each step with all steps so far: True stops the run."""
Instructions = str | Mapping[str, Any] | Sequence[str] | Callable[[dict[str, Any]], Any]
"""A text, a system message, several, or a (maybe async) function of the request context that gives one of these."""

MAX_STEPS = 5
"""Source: @mastra/core 1.71, `stopWhen ?? stepCountIs(5)`."""


class AnswerOptions(TypedDict, total=False):
    """Options of a local agent's run that may be given with an answer too, to hold from there on; see StreamOptions."""

    tools: Any
    client_tools: Mapping[str, Mapping[str, Any]] | None
    active_tools: Sequence[str] | None
    max_steps: int | None
    stop_when: StopWhen | Sequence[StopWhen] | None
    model: Any
    model_settings: Mapping[str, Any] | None
    tool_choice: ToolChoice | None
    schema: Any
    structured_output: Any
    input_processors: Sequence[Any] | None
    output_processors: Sequence[Any] | None
    is_task_complete: Any
    goal: Any
    request_context: dict[str, Any] | None
    require_tool_approval: bool | Callable[..., Any] | None
    on_chunk: Callback | None
    on_step_finish: Callback | None
    on_finish: Callback | None
    on_error: Callback | None
    on_abort: Callback | None
    include_raw_chunks: bool
    tool_call_concurrency: int
    abort_signal: AbortSignal | None
    max_processor_retries: int | None
    until_idle: bool | Mapping[str, Any]
    idle_timeout: float | None
    max_seconds: float | None
    max_tokens: int | None
    max_cost_usd: float | None
    prices: OwnPrices | None


class StreamOptions(AnswerOptions, total=False):
    """Options of a run of a local agent.

    run_id: an id of your own. instructions: in place of the agent's. tools: besides the agent's.
    active_tools: names of those that may be used.
    client_tools: declared only, `{name: {"description", "inputSchema"}}`: a run that calls one ends there with reason
    tool-calls, and goes on when you stream again with the tool's message.
    max_steps: calls of the model at most, 5 by default; stop_when: a function of the steps so far, or several.
    model: in place of the agent's. model_settings: temperature, max_output_tokens, … tool_choice: auto, none, required
    or a tool's name.
    schema: what the object must be; structured_output: the same, or a dict of schema, model, instructions, mode (native
    or instruct), error_strategy (strict, warn or fallback) and fallback_value.
    input_processors, output_processors: in place of the agent's; see `nbmastra.runtime.processors`.
    goal: in place of the agent's, a dict of objective, judge, max_runs and prompt; False for none.
    is_task_complete: scorers, or a dict of scorers, strategy (all or any), parallel, timeout (seconds),
    suppress_feedback and on_complete.
    memory: `{"thread": id, "resource": owner, "last_messages": n}`.
    request_context: a dict that instructions and tools can read.
    require_tool_approval: True, or a function of a tool's name and arguments. tool_call_concurrency: tools at a time.
    on_chunk (Chunk), on_step_finish (Step), on_finish (FullOutput), on_error (RunError), on_abort (list of Step).
    include_raw_chunks: the provider's own events as `raw` chunks, and `response-metadata`.
    abort_signal: an AbortSignal that stops the run.
    max_processor_retries: how often in a row a processor may ask for another answer.
    until_idle: go on until background tasks are done; without a manager of such tasks a plain stream.
    idle_timeout, max_seconds, max_tokens, max_cost_usd, prices: see `nbmastra.output.Bounds`.
    """

    run_id: str | None
    instructions: Instructions | None
    memory: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the loop reads of the options."""

    run_id: str | None = None
    max_steps: int | None = None
    stop_when: tuple[StopWhen, ...] = ()
    model_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tool_choice: ToolChoice = "auto"
    active_tools: Sequence[str] | None = None
    request_context: dict[str, Any] = field(default_factory=dict[str, Any])
    require_tool_approval: bool | Callable[..., Any] = False
    include_raw_chunks: bool = False
    tool_call_concurrency: int = 10
    max_processor_retries: int | None = None

    async def stops(self, steps: list[StepResult]) -> bool:
        """Whether the run ends after these steps though the model wants to go on."""
        limit = self.max_steps if self.max_steps is not None or self.stop_when else MAX_STEPS
        if limit is not None and len(steps) >= limit:
            return True
        for stop in self.stop_when:
            answer = stop(steps)
            if await answer if inspect.isawaitable(answer) else answer:
                return True
        return False


NAMES = (*AnswerOptions.__annotations__, "run_id", "instructions", "memory")


def read_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> StreamOptions:
    """The options of a run over the agent's defaults, checked; None is as not given. Raises SettingsError."""
    merged = dict(defaults)
    for name, value in given.items():
        if value is not None or name not in merged:
            merged[name] = value
    for name in merged:
        _check_name(name)
    options = cast("StreamOptions", {name: value for name, value in merged.items() if value is not None})
    for name in ("max_steps", "tool_call_concurrency"):
        value: Any = merged.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SettingsError(f"{name}= takes a whole number above 0, not {value!r}")
    for name, value in options.items():
        check_kind(name, value)
    choice = merged.get("tool_choice")
    if isinstance(choice, Mapping):  # as the AI SDK writes it
        options["tool_choice"] = str(cast("Mapping[str, Any]", choice).get("toolName", "auto"))
    return options


def check_kind(name: str, value: Any) -> None:
    """Whether an option is of a kind that can be right. Raises SettingsError."""
    fits, expected = _KINDS.get(name, (None, ""))
    if fits is not None and not fits(value):
        raise SettingsError(f"{name}= takes {expected}, not {value!r:.60}")
    if name == "memory":
        unknown = [key for key in value if key not in _MEMORY_KEYS]
        if unknown:
            raise SettingsError(f"memory= has no {unknown[0]!r:.60}; it takes {', '.join(_MEMORY_KEYS[:3])}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


_FUNCTION = (callable, "a function")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("on_chunk", "on_step_finish", "on_finish", "on_error", "on_abort"), _FUNCTION),
    "instructions": (
        lambda value: callable(value) or isinstance(value, str | Mapping) or _is_list(value),
        "a text, several, or a function of the request context",
    ),
    "active_tools": (_is_list, "a list of names of tools"),
    "memory": (lambda value: isinstance(value, Mapping), 'a dict such as {"thread": id, "resource": owner}'),
    "model_settings": (lambda value: isinstance(value, Mapping), "a dict"),
    "request_context": (lambda value: isinstance(value, dict), "a dict"),
    "require_tool_approval": (lambda value: isinstance(value, bool) or callable(value), "True, False or a function"),
    "run_id": (lambda value: isinstance(value, str), "a text"),
    "stop_when": (
        lambda value: (
            callable(value) or (isinstance(value, list | tuple) and all(map(callable, cast("Sequence[Any]", value))))
        ),
        "a function of the steps so far, or several",
    ),
    "tool_choice": (lambda value: isinstance(value, str | Mapping), "auto, none, required or a tool's name"),
    "abort_signal": (lambda value: isinstance(value, AbortSignal), "an AbortSignal"),
}
_MEMORY_KEYS = ("thread", "resource", "last_messages", "lastMessages", "options")


def _check_name(name: str) -> None:
    if name not in NAMES:
        close = get_close_matches(name, NAMES, 1)
        hint = f"did you mean {close[0]}?" if close else "see help(nbmastra.runtime.StreamOptions)"
        raise SettingsError(f"there is no option {name}: {hint}")


def run_options(options: AnswerOptions, base: RunOptions | None = None) -> RunOptions:
    """What the loop reads of checked options; `base` has what holds where nothing is given."""
    stop: Any = options.get("stop_when")
    stops = tuple(cast("Sequence[StopWhen]", stop)) if isinstance(stop, list | tuple) else (stop,)
    given: dict[str, Any] = {name: options[name] for name in RunOptions.__slots__ if name in options}  # type: ignore[literal-required]
    if stop is not None:
        given["stop_when"] = stops
    return replace(base or RunOptions(), **given)
