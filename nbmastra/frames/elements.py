"""The elements of a structured array as a table whose columns come from its schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pandas as pd
from pydantic_core import to_jsonable_python

from nbmastra.errors import SettingsError
from nbmastra.fold import ObjectPart, RunState
from nbmastra.frames.columns import Column, Dtype, array_of, utc
from nbmastra.output import MastraModelOutput

__all__ = ["elements_df"]

_DTYPES: dict[str, Dtype] = {"string": "str", "integer": "Int64", "number": "Float64", "boolean": "boolean"}


def elements_df(out: MastraModelOutput) -> pd.DataFrame:
    """One row per element of the array that an output is being written as: those complete by now that fit the schema.

    They are what `out.element_stream` gives. Columns and dtypes are those of the schema's fields whatever came so far
    (nested values stay as they are; fields it doesn't name come after them); elements that are no objects are in a
    column `value`. Raises SettingsError if the run was asked for something that is no array.
    """
    schema, part = out.schema, _object(out)
    value: Any = part.value if part is not None and not part.rejected else None
    if not (schema.is_array if schema is not None else isinstance(value, list | None)):
        raise SettingsError("elements_df is of an array: ask with schema=list[…]")
    closed = part.closed_elements if part is not None else 0
    elements: list[Any] = cast("list[Any]", value)[:closed] if isinstance(value, list) else []
    if schema is not None:
        judged = map(schema.accept_element, elements)
        elements = [to_jsonable_python(element, serialize_unknown=True) for fits, element in judged if fits]
    fields = schema.element_properties if schema is not None else {}
    columns: dict[str, Dtype] = {str(name): _dtype(field) for name, field in fields.items()}
    records = all(isinstance(element, dict) for element in elements)
    if not records or not (columns or elements):
        return pd.DataFrame({"value": _array("value", None, elements)})
    found = dict.fromkeys(key for element in elements for key in element)
    names = [*columns, *(name for name in found if name not in columns)]
    return pd.DataFrame({n: _array(n, columns.get(n), [row.get(n) for row in elements]) for n in names})


def _object(out: MastraModelOutput) -> ObjectPart | None:
    """The object as far as it has come; of a live run read again from the log, since the engine still writes it."""
    if out.done:
        return out.state.object
    state = RunState(expect_object=out.state.expect_object, array_object=out.state.array_object)
    for chunk in out.log.items[:]:
        state.apply(chunk, 0.0)
    return state.object


def _dtype(field: dict[str, Any]) -> Dtype:
    """The dtype that suits a field's schema; one that may also be null is as if it may not."""
    ways: Any = field.get("anyOf")
    if isinstance(ways, list):
        others = [way for way in cast("list[Any]", ways) if way != {"type": "null"}]
        field = cast("dict[str, Any]", others[0]) if len(others) == 1 and isinstance(others[0], dict) else {}
    kind = field.get("type")
    if kind == "string" and field.get("format") == "date-time":
        return "timestamp"
    return _DTYPES.get(kind, "object") if isinstance(kind, str) else "object"


def _array(name: str, dtype: Dtype | None, values: list[Any]) -> Any:
    dtype = dtype or _common(value for value in values if value is not None)
    try:
        read = [utc(value) for value in values] if dtype == "timestamp" else values
        return array_of(Column[Any](name, dtype, "", lambda row: row), read)
    except (TypeError, ValueError, OverflowError):  # no schema has looked at them, or it allows more than a dtype can
        return array_of(Column[Any](name, "object", "", lambda row: row), values)


def _common(values: Iterable[Any]) -> Dtype:
    kinds: set[type[Any]] = {type(value) for value in values}
    if kinds == {bool}:
        return "boolean"
    if kinds and kinds <= {int, float}:
        return "Int64" if kinds == {int} else "Float64"
    return "str" if kinds == {str} else "object"
