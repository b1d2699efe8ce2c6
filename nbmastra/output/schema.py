"""What an object must look like: a pydantic model, any type, a `TypeAdapter`, or a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Protocol, cast, get_args, get_origin

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from nbmastra.errors import ObjectError, SettingsError

__all__ = ["ObjectSchema"]


class ObjectSchema:
    """One schema, for the wire (`json_schema`) and for checking. Raises SettingsError for what isn't one."""

    def __init__(self, schema: Any) -> None:
        source: Any = schema.source if isinstance(schema, ObjectSchema) else schema
        self.source: Any = source
        is_json = isinstance(source, dict)
        self._check: _Check = _JsonSchema(cast("dict[str, Any]", source)) if is_json else _Typed(source)
        self.json_schema: dict[str, Any] = self._check.json_schema
        is_model = isinstance(source, type) and issubclass(source, BaseModel)
        self.name: str = cast("type[Any]", source).__name__ if is_model else str(self.json_schema.get("title") or "")

    @property
    def is_array(self) -> bool:
        """True if the object is an array, which servers wrap into `{"elements": […]}`."""
        return self.json_schema.get("type") == "array"

    @property
    def is_word(self) -> bool:
        """True if the object is one of several words, which servers wrap into `{"result": …}`."""
        return "enum" in self.json_schema and not self.is_array

    @property
    def element_properties(self) -> dict[str, dict[str, Any]]:
        """The schemas of the fields of an array's elements, by name, in their order; {} if it names none."""
        element = self._local(self.json_schema.get("items"))
        properties = element.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {name: self._local(schema) for name, schema in cast("dict[str, Any]", properties).items()}

    def _local(self, schema: Any) -> dict[str, Any]:
        """A schema, what it refers to within this one put in its place; {} for anything else."""
        for _ in range(8):
            reference = cast("dict[str, Any]", schema).get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            schema = self.json_schema
            for key in reference[2:].split("/"):
                inner = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
                schema = inner.get(key.replace("~1", "/").replace("~0", "~"))
        return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}

    def validate(self, value: Any) -> Any:
        """The checked object: an instance of the model, or the value itself for a JSON schema. Raises ObjectError."""
        return self._check.validate(value)

    def accept_element(self, value: Any) -> tuple[bool, Any]:
        """Whether one element of an array fits, and the checked element; bounds of the whole array don't count."""
        try:
            return True, self._check.element(value)
        except ObjectError:
            return False, value


class _Check(Protocol):
    json_schema: dict[str, Any]

    def validate(self, value: Any) -> Any: ...
    def element(self, value: Any) -> Any: ...


class _Typed:
    """A type, checked by pydantic."""

    def __init__(self, schema: Any) -> None:
        try:
            self._adapter = _adapter(schema)
            self.json_schema = self._adapter.json_schema()
        except Exception as error:  # whatever pydantic makes of what isn't a type
            message = str(error).splitlines()[0]
            raise SettingsError(
                f"a schema is a pydantic model, a type, a TypeAdapter or a JSON schema dict ({message})"
            ) from None
        element = _element_type(schema)
        self._element = _adapter(element) if element is not None else None

    def validate(self, value: Any) -> Any:
        return _validate(self._adapter, value)

    def element(self, value: Any) -> Any:
        if self._element is not None:
            return _validate(self._element, value)
        whole = self.validate([value])
        return cast("Sequence[Any]", whole)[0] if isinstance(whole, list | tuple) else value


def _adapter(schema: Any) -> TypeAdapter[Any]:
    return cast("TypeAdapter[Any]", schema) if isinstance(schema, TypeAdapter) else TypeAdapter(schema)


def _validate(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        # As JSON, which it was: strict models then take a text for a date.
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise _mismatch(errors[0]["loc"], errors[0]["msg"], len(errors), value) from None


def _element_type(schema: Any) -> Any:
    """The type of an array's elements; None if it can't be told."""
    if isinstance(schema, TypeAdapter):
        schema = getattr(cast("object", schema), "_type", None)
    if isinstance(schema, type) and issubclass(schema, RootModel):
        schema = schema.model_fields["root"].annotation
    while get_origin(schema) is Annotated:
        schema = get_args(schema)[0]
    origin, args = get_origin(schema), get_args(schema)
    if origin is tuple:
        return args[0] if len(args) == 2 and args[1] is Ellipsis else None
    is_array = isinstance(origin, type) and issubclass(origin, Iterable) and len(args) == 1
    return args[0] if is_array else None


class _JsonSchema:
    """A JSON schema, of the draft that it names."""

    def __init__(self, schema: dict[str, Any]) -> None:
        # Not at the top: with the format checkers that JupyterLab installs, it takes seconds to import.
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]  # it has none
        from referencing.exceptions import Unresolvable

        self.json_schema = schema
        validator: Any = validator_for(schema, default=Draft202012Validator)
        try:
            validator.check_schema(schema)
        except SchemaError as error:
            raise SettingsError(f"not a JSON schema: {error.message}") from None
        # With a registry of its own, it asks no server for what the schema refers to: schemas come in recordings too.
        self._validator = validator(schema, registry=REGISTRY)
        self._unresolvable = Unresolvable

    def validate(self, value: Any) -> Any:
        return self._accept(value, self._validator.iter_errors(value))

    def element(self, value: Any) -> Any:
        items = self.json_schema.get("items", True)
        return value if isinstance(items, list) else self._accept(value, self._validator.descend(value, items))

    def _accept(self, value: Any, errors: Iterable[Any]) -> Any:
        try:
            problems = list(errors)
        except self._unresolvable as error:
            raise ObjectError(f"the schema refers to something that isn't in it: {error}", partial=value) from None
        if problems:
            raise _mismatch(tuple(problems[0].absolute_path), problems[0].message, len(problems), value)
        return value


def _mismatch(loc: Sequence[str | int], message: str, count: int, value: Any) -> ObjectError:
    path = path_text(loc)
    more = f" ({count - 1} more)" if count > 1 else ""
    return ObjectError(
        f"the object doesn't fit its schema at {path or 'its root'}: {message}{more}", path=path, partial=value
    )


def path_text(path: Sequence[str | int]) -> str:
    """A path as people write it: `legs[1].km`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text
