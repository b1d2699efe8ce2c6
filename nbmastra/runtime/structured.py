"""Structured output of a local agent: the schema goes to the model, the object comes out of its text.

text-delta ─▶ `object` chunks ─▶ the answer is complete ─▶ it fits: `object-result`, or: error, warning, fallback
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic_core import to_jsonable_python

from nbmastra.chunks import Chunk
from nbmastra.chunks.built import build_chunk, encode_json
from nbmastra.errors import ObjectError, SettingsError
from nbmastra.output import ObjectSchema
from nbmastra.runtime.answer_object import NOTHING, AnswerObject, Kind, wrap_schema
from nbmastra.runtime.extend import Extension
from nbmastra.runtime.models import find_model
from nbmastra.runtime.object_chunks import ObjectGrowth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nbmastra.runtime.loop import AgentRun
    from nbmastra.runtime.model import Message, Model, ModelRequest
    from nbmastra.runtime.options import StreamOptions
    from nbmastra.runtime.step import ModelStep

__all__ = ["ObjectVerdict", "StructuredOutput", "StructuredSettings", "ask_for", "read_structured", "with_system"]

_logger = logging.getLogger("nbmastra")

Mode = Literal["native", "instruct"]
ErrorStrategy = Literal["strict", "warn", "fallback"]

_KEYS = ("schema", "model", "instructions", "mode", "error_strategy", "fallback_value")
_SCHEMA_WORDS = {"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "items", "$schema", "not"}
_CUT_OFF = ("length", "content-filter")
_INSTRUCTIONS = "Answer with JSON only, without any other text. It must fit this JSON schema:\n{}"


@dataclass(frozen=True, slots=True)
class StructuredSettings:
    """What `structured_output=` says, checked."""

    schema: ObjectSchema
    kind: Kind
    wire_schema: dict[str, Any]
    """The schema that a model is given."""
    model: Model | None = None
    """The model that makes the object of the answer; None: the agent's own answer is the object."""
    instructions: str = ""
    mode: Mode | None = None
    error_strategy: ErrorStrategy = "strict"
    fallback_value: Any = None

    def answer(self) -> AnswerObject:
        """A reader of an answer."""
        return AnswerObject(self.kind, self.schema.json_schema.get("enum") or ())

    def check(self, value: Any) -> None:
        """Raises ObjectError if a value isn't what is asked for."""
        if value is NOTHING:
            raise ObjectError("the answer holds no JSON")
        self.schema.validate(value)


def read_structured(options: StreamOptions) -> StructuredSettings | None:
    """What `structured_output=` and `schema=` say; None if nothing is asked for. Raises SettingsError."""
    given: Any = options.get("structured_output")
    schema: Any = options.get("schema")
    if given is None and schema is None:
        return None
    if isinstance(given, Mapping) and not _is_schema(cast("Mapping[str, Any]", given)):
        settings = dict(cast("Mapping[str, Any]", given))
    elif given is None:
        settings: dict[str, Any] = {}
    else:
        settings = {"schema": given}
    if schema is not None:
        settings["schema"] = schema
    return _settings(settings)


def _is_schema(given: Mapping[str, Any]) -> bool:
    return "schema" not in given and not _SCHEMA_WORDS.isdisjoint(given)


def _settings(given: dict[str, Any]) -> StructuredSettings:
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise SettingsError(f"structured_output= has no {unknown[0]!r}; it takes {', '.join(_KEYS)}")
    if given.get("schema") is None:
        raise SettingsError("structured_output= needs a schema: a pydantic model, a type or a JSON schema")
    schema = ObjectSchema(given["schema"])
    kind, wire_schema = wrap_schema(schema.json_schema)
    mode, strategy = given.get("mode"), given.get("error_strategy") or "strict"
    if mode not in (None, "native", "instruct"):
        raise SettingsError(f"mode= is native, instruct or None, not {mode!r}")
    if strategy not in ("strict", "warn", "fallback"):
        raise SettingsError(f"error_strategy= is strict, warn or fallback, not {strategy!r}")
    if strategy == "fallback" and "fallback_value" not in given:
        raise SettingsError('error_strategy="fallback" needs a fallback_value')
    instructions: Any = given.get("instructions") or ""
    if not isinstance(instructions, str):
        raise SettingsError(f"instructions= of structured_output is a text, not {type(instructions).__name__}")
    try:
        fallback = to_jsonable_python(given.get("fallback_value"), by_alias=True)
    except ValueError as error:
        raise SettingsError(f"fallback_value is no JSON: {error}") from None
    model = find_model(given["model"]) if given.get("model") is not None else None
    return StructuredSettings(schema, kind, wire_schema, model, instructions, mode, strategy, fallback)


def ask_for(settings: StructuredSettings, model: Model, request: ModelRequest) -> ModelRequest:
    """The request with the schema in it: by the provider's own means if it has any, else as instructions."""
    mode = settings.mode or ("native" if model.native_schema else "instruct")
    if mode == "native":
        made = replace(request, response_schema=settings.wire_schema)
        text = settings.instructions
    else:
        made = request
        text = settings.instructions or _INSTRUCTIONS.format(encode_json(settings.wire_schema).decode())
    return replace(made, messages=with_system(made.messages, text)) if text else made


def with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with another system message behind those that are there."""
    place = next((index for index, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return [*messages[:place], {"role": "system", "content": text}, *messages[place:]]


class StructuredOutput(Extension):
    """The agent's own answer is the object. Stands behind the processors of chunks, before those of steps."""

    sees_chunks = True

    def __init__(self, settings: StructuredSettings) -> None:
        self.settings = settings
        self.verdict = ObjectVerdict(settings)
        self._growth: ObjectGrowth | None = None

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """A new answer."""
        self._growth = ObjectGrowth({"from": "AGENT", "runId": run.run_id}, self.settings.answer)
        self.verdict.error = None

    async def chunk(self, run: AgentRun, step: ModelStep | None, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """A text delta may bring more of the object, which is told before it."""
        if self._growth is not None and chunk.get("type") == "text-delta":
            grown = self._growth.feed(str(chunk["payload"].get("text", "")))
            if grown is not None:
                run.emit(grown)
        return [chunk]

    async def after_model(self, run: AgentRun, step: ModelStep) -> None:
        """Is it the object?"""
        growth, self._growth = self._growth, None
        if growth is None or not growth.text.strip():
            return
        value = growth.answer.result()
        try:
            if step.reason in _CUT_OFF:
                raise ObjectError(f"the answer was cut off ({step.reason})", partial=growth.text)
            self.settings.check(value)
        except ObjectError as error:
            # What is said beside tool calls needn't be the object: a later step gives it.
            if not step.pending or step.reason in _CUT_OFF:
                self.verdict.error = error
                self.verdict.value = growth.text if value is NOTHING or step.reason in _CUT_OFF else value
            return
        run.emit(result_chunk(run, value))
        keep_object(step, value)


class ObjectVerdict(Extension):
    """Asks for the object, and says that the answer isn't one: both when all processors are through with the step."""

    def __init__(self, settings: StructuredSettings) -> None:
        self.settings = settings
        self.error: ObjectError | None = None
        self.value: Any = None

    async def before_step(self, run: AgentRun, step: ModelStep) -> None:
        """Ask for the object."""
        step.request = ask_for(self.settings, run.model, step.request)

    async def after_model(self, run: AgentRun, step: ModelStep) -> None:
        """Deal with an error as the strategy says."""
        error, self.error = self.error, None
        if error is None:
            return
        match self.settings.error_strategy:
            case "warn":
                _logger.warning("the answer of %s isn't the object that was asked for: %s", run.agent_id, error)
            case "fallback":
                run.emit(result_chunk(run, self.settings.fallback_value, {"fallback": True}))
                keep_object(step, self.settings.fallback_value)
            case _:
                run.emit(self._error_chunk(run, step, error))
                step.error, step.reason = error, "error"
                run.failure = error

    def _error_chunk(self, run: AgentRun, step: ModelStep, error: ObjectError) -> Chunk:
        value = self.value if isinstance(self.value, str) else encode_json(self.value).decode()
        told: dict[str, Any] = {
            "message": f"Structured output validation failed: {error}",
            "domain": "AGENT",
            "category": "SYSTEM",
            "code": "STRUCTURED_OUTPUT_SCHEMA_VALIDATION_FAILED",
            "details": {"value": value},
        }
        if step.reason in _CUT_OFF:
            told["message"] = f"Structured output was truncated: {error}"
            told["code"] = "STRUCTURED_OUTPUT_TRUNCATED"
            told["details"] = {"finishReason": step.reason, "value": value}
        return build_chunk({"from": "AGENT", "runId": run.run_id, "type": "error", "payload": {"error": told}})


def keep_object(step: ModelStep, value: Any) -> None:
    """Note the object for `step-finish`, which leaves out what JavaScript takes for false."""
    if value is not None and value is not False and value != "" and value != 0:
        step.object, step.has_object = value, True


def result_chunk(run: AgentRun, value: Any, metadata: dict[str, Any] | None = None) -> Chunk:
    """The finished object."""
    wire: dict[str, Any] = {"from": "AGENT", "runId": run.run_id, "type": "object-result", "object": value}
    return build_chunk({**wire, "metadata": metadata} if metadata else wire)
