"""What an object must look like: a pydantic model, any type, a `TypeAdapter`, or a JSON schema."""

from __future__ import annotations

from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as JsonProblem
from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from nbmastra.errors import ObjectError, SettingsError

__all__ = ["ObjectSchema"]


class ObjectSchema:
    """One schema, for the wire (`json_schema`) and for checking. Raises SettingsError for what isn't one."""

    def __init__(self, schema: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._validator: Draft202012Validator | None = None
        if isinstance(schema, ObjectSchema):
            schema = schema.source
        self.source: Any = schema
        if isinstance(schema, dict):
            self.json_schema = cast("dict[str, Any]", schema)
            try:
                Draft202012Validator.check_schema(self.json_schema)
            except SchemaError as error:
                raise SettingsError(f"not a JSON schema: {error.message}") from None
            self._validator = Draft202012Validator(self.json_schema)
            self.name = str(self.json_schema.get("title") or "")
        else:
            try:
                adapter = cast("TypeAdapter[Any]", schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema))
                self.json_schema = adapter.json_schema()
            except (PydanticSchemaGenerationError, TypeError, ValueError) as error:
                message = str(error).splitlines()[0]
                raise SettingsError(
                    f"a schema is a pydantic model, a type, a TypeAdapter or a JSON schema dict ({message})"
                ) from None
            self._adapter = adapter
            is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
            self.name = cast("type[Any]", schema).__name__ if is_model else str(self.json_schema.get("title") or "")

    @property
    def is_array(self) -> bool:
        """True if the object is an array, which servers wrap into `{"elements": […]}`."""
        return self.json_schema.get("type") == "array"

    def validate(self, value: Any) -> Any:
        """The checked object: an instance of the model, or the value itself for a JSON schema. Raises ObjectError."""
        if self._adapter is not None:
            try:
                return self._adapter.validate_python(value)
            except ValidationError as error:
                errors = error.errors(include_url=False, include_context=False, include_input=False)
                raise _mismatch(errors[0]["loc"], errors[0]["msg"], len(errors), value) from None
        assert self._validator is not None
        errors = self._validator.iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
        problems = cast("list[JsonProblem]", list(errors))
        if problems:
            first = problems[0]
            raise _mismatch(tuple(first.absolute_path), first.message, len(problems), value)
        return value

    def accept_element(self, value: Any) -> tuple[bool, Any]:
        """Whether one element of an array fits, and the checked element."""
        try:
            return True, self.validate([value])[0]
        except ObjectError:
            return False, value


def _mismatch(loc: tuple[str | int, ...], message: str, count: int, value: Any) -> ObjectError:
    path = path_text(loc)
    more = f" ({count - 1} more)" if count > 1 else ""
    return ObjectError(
        f"the object doesn't fit its schema at {path or 'its root'}: {message}{more}", path=path, partial=value
    )


def path_text(path: tuple[str | int, ...]) -> str:
    """A path as people write it: `legs[1].km`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text
