"""A function's signature as a JSON Schema, and a check of arguments against it, by pydantic."""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from nbmastra.errors import SettingsError, ToolInputError
from nbmastra.tools.context import ToolContext

__all__ = ["Signature"]


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    field: str
    """Its field's name in the model, since a model can't have all names that a function can."""
    default: Any
    positional: bool
    """True if it can't be given by name."""


class Signature:
    """What a function takes. Raises SettingsError for one that no model could call."""

    def __init__(self, name: str, function: Callable[..., Any], said: Mapping[str, str], *, strict: bool) -> None:
        self._tool = name
        self._parameters: list[_Parameter] = []
        self._context: _Parameter | None = None
        self._rest: str | None = None
        self._names: dict[str, str] = {}
        fields: dict[str, Any] = {}
        settled: Mapping[str, Any] = getattr(function, "keywords", {}) if _is_partial(function) else {}
        for place, parameter in enumerate(_signature(name, function).parameters.values()):
            if parameter.name not in settled:  # what a partial was given isn't the model's to choose
                self._add(place, parameter, said, fields)
        extra = "allow" if self._rest else "forbid" if strict else "ignore"
        config = ConfigDict(extra=extra, strict=strict, alias_generator=lambda field: self._names.get(field, field))
        try:
            self._model: type[BaseModel] = create_model(name, __config__=config, **fields)
            schema = self._model.model_json_schema(schema_generator=_Plain)
        except Exception as error:  # whatever pydantic makes of an annotation
            raise SettingsError(f"the parameters of {name} can't be described as JSON: {_reason(error)}") from None
        self.schema: dict[str, Any] = _cleaned(schema, more=self._rest is not None)

    def _add(self, place: int, parameter: inspect.Parameter, said: Mapping[str, str], fields: dict[str, Any]) -> None:
        name, kind = parameter.name, parameter.kind
        positional = kind is inspect.Parameter.POSITIONAL_ONLY
        if _is_context(parameter.annotation):
            self._context = _Parameter(name, "", None, positional)
            self._parameters.append(self._context)
            return
        if kind is inspect.Parameter.VAR_POSITIONAL:
            raise SettingsError(f"{self._tool} takes *{name}: a model gives arguments by name; take a list instead")
        annotation: Any = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        if kind is inspect.Parameter.VAR_KEYWORD:
            self._rest = name
            fields["__pydantic_extra__"] = (dict[str, annotation], Field(init=False))
            return
        field = f"p{place}"
        self._names[field] = name
        if name in said and not _has_description(annotation):
            # A default may be a `Field(…)` with a description of its own, which counts more than an annotation.
            annotation = Annotated[annotation, Field(description=said[name])]
        default = parameter.default
        fields[field] = (annotation, ... if default is inspect.Parameter.empty else default)
        if isinstance(default, FieldInfo):
            default = inspect.Parameter.empty
        self._parameters.append(_Parameter(name, field, default, positional))

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, as the function takes them; those with a default of Python are left out if not given.

        Raises ToolInputError.
        """
        try:
            # As JSON, which they were: strict models then take a text for a date.
            model = self._model.model_validate_json(json.dumps(arguments, allow_nan=False))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            problems = [(problem["loc"], problem["msg"]) for problem in found]
            raise ToolInputError(self._tool, problems, arguments=arguments) from None
        except (ValueError, TypeError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
            raise ToolInputError(self._tool, [((), f"not JSON: {reason[:200]}")], arguments=arguments) from None
        given = model.model_fields_set
        values = {
            parameter.name: getattr(model, parameter.field)
            for parameter in self._parameters
            if parameter.field and (parameter.field in given or parameter.default is inspect.Parameter.empty)
        }
        return {**values, **(model.model_extra or {})} if self._rest else values

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with."""
        positional: list[Any] = []
        named = dict(arguments)
        for parameter in self._parameters:
            if parameter is self._context:
                value: Any = context
            elif parameter.name in named:
                value = named.pop(parameter.name)
            elif parameter.positional:
                value = parameter.default
            else:
                continue
            if parameter.positional:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


class _Plain(GenerateJsonSchema):
    """Without the titles that only repeat a name, and silent about defaults that aren't JSON."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Never: a model is told no default then."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False


def _cleaned(schema: dict[str, Any], *, more: bool) -> dict[str, Any]:
    cleaned = {key: value for key, value in schema.items() if key not in ("title", "description")}
    cleaned.setdefault("properties", {})
    if not more:
        cleaned["additionalProperties"] = False
    return cleaned


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError as error:
        raise SettingsError(f"an annotation of {name} can't be found when the tool is made: {error}") from None
    except (TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise SettingsError(f"the parameters of {name} can't be told: {_reason(error)}") from None


def _is_partial(function: object) -> bool:
    return isinstance(function, functools.partial)


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(member) for member in get_args(annotation))
    return isinstance(annotation, type) and issubclass(cast("type[Any]", annotation), ToolContext)


def _has_description(annotation: Any) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    return any(isinstance(info, FieldInfo) and info.description for info in get_args(annotation)[1:])


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
