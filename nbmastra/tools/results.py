"""What tools give, as JSON: it goes to a model, into chunks and into recordings."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from nbmastra.errors import ToolResultError

__all__ = ["MAX_ROWS", "to_json"]

MAX_ROWS = 200
"""Rows of a table that a model gets; more would only fill its context."""
_MAX_CELLS = 20_000


def to_json(value: Any, *, what: str = "the result") -> Any:
    """The value as plain JSON: pydantic models, dataclasses, dates, sets, enums, numpy and pandas included.

    NaN and infinities are null, as JavaScript writes them; of a DataFrame or Series at most 200 rows are given, with a
    note that says so. Raises ToolResultError for what can't be JSON; `what` names it.
    """
    try:
        plain = _jsonable(value)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # half a character, which no wire carries
            return json.loads(text.encode("utf-8", "replace"))
    except (PydanticSerializationError, TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolResultError(f"{what} ({type(value).__name__}) can't be JSON: {reason[:200]}") from None
    return plain


def _jsonable(value: Any) -> Any:
    try:
        return to_jsonable_python(value, by_alias=True, inf_nan_mode="null", fallback=_plain)
    except TypeError:
        pandas = sys.modules.get("pandas")
        if pandas is None:
            raise
        # NaT calls itself a datetime, and then isn't one.
        return to_jsonable_python(_without_nat(pandas, value), by_alias=True, inf_nan_mode="null", fallback=_plain)


def _without_nat(pandas: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nat(pandas, inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_nat(pandas, inner) for inner in cast("list[Any]", value)]
    return None if value is pandas.NaT else value


class _NotJson(ValueError):
    """A value of a kind that isn't JSON."""


def _plain(value: Any) -> Any:
    # Only what is imported already can be met.
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    if pandas is not None:
        if isinstance(value, pandas.DataFrame):
            return _records(pandas, value)
        if isinstance(value, pandas.Series | pandas.Index):
            return _records(pandas, value.to_frame(name=value.name if value.name is not None else "value"))
        if isinstance(value, pandas.Interval | pandas.Period) or value is pandas.NA:
            return None if value is pandas.NA else str(value)
    if numpy is not None:
        if isinstance(value, numpy.generic):
            return value.item() if not isinstance(value.item(), numpy.generic) else str(value)
        if isinstance(value, numpy.ndarray):
            return value.tolist()
    raise _NotJson(f"a {type(value).__name__} isn't text, a number, a list or a dict")


def _records(pandas: Any, frame: Any) -> Any:
    total = len(frame)
    given = max(1, min(MAX_ROWS, _MAX_CELLS // max(frame.shape[1], 1)))
    frame = frame.iloc[:given]
    plain_index = isinstance(frame.index, pandas.RangeIndex) and frame.index.name is None
    index: list[tuple[str, list[Any]]] = []
    if not plain_index:
        for level in range(frame.index.nlevels):
            name = frame.index.names[level]
            index.append(("index" if name is None else str(name), list(frame.index.get_level_values(level))))
    columns = index + [(_label(label), list(frame.iloc[:, place])) for place, label in enumerate(frame.columns)]
    names = _unique([name for name, _ in columns])
    rows = [
        {name: _cell(pandas, values[row]) for name, (_, values) in zip(names, columns, strict=True)}
        for row in range(len(frame))
    ]
    if total <= given:
        return rows
    return {"rows": rows, "row_count": total, "note": f"only the first {given:,} of {total:,} rows are given"}


def _label(label: Any) -> str:
    return ".".join(str(part) for part in cast("tuple[Any, ...]", label)) if isinstance(label, tuple) else str(label)


def _unique(names: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        candidate, number = name, 2
        while candidate in found:
            candidate, number = f"{name}_{number}", number + 1
        found[candidate] = None
    return list(found)


def _cell(pandas: Any, value: Any) -> Any:
    return None if value is pandas.NaT else value
