"""What a table is: a list of columns, each with its name, dtype, unit, meaning and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import pandas as pd

from nbmastra.errors import SettingsError

__all__ = ["Column", "Dtype", "Table", "array_of", "empty_frame"]

R = TypeVar("R")
Dtype = Literal["str", "category", "Int64", "Float64", "boolean", "timestamp", "object"]
"""`timestamp` is `datetime64[us, UTC]`; `object` holds JSON values (dicts, lists, text, numbers) as they came."""

TIMESTAMP = "datetime64[us, UTC]"
_LARGEST = 2**63


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column: `read` gives its value of a row, None where it is missing.

    `unit` is "" for what has none. A column of another `group` than "main" is only there if it is asked for by name or
    group. `values` are those of a category that has a fixed set.
    """

    name: str
    dtype: Dtype
    doc: str
    read: Callable[[R], Any]
    unit: str = ""
    group: str = "main"
    values: tuple[str, ...] = ()
    server_time: bool = False
    """True for a time that the server tells; others count from when chunks came, which isn't always known."""

    @property
    def timed(self) -> bool:
        """True if it is missing where nobody knows when chunks came."""
        return (self.dtype == "timestamp" or self.unit in ("s", "tokens/s")) and not self.server_time


@dataclass(frozen=True)
class Table(Generic[R]):
    """A table: its name, what one row is, and its columns in their order."""

    name: str
    doc: str
    columns: tuple[Column[R], ...]

    def select(self, wanted: str | Sequence[str] | None) -> tuple[Column[R], ...]:
        """The columns of these names or groups, in the table's order; None for all of group "main".

        `stream_id` is always there. Raises SettingsError for a name that the table doesn't have.
        """
        names = ["main"] if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
        known = {column.name for column in self.columns} | {column.group for column in self.columns}
        unknown = [name for name in names if name not in known]
        if unknown:
            groups = ", ".join(dict.fromkeys(column.group for column in self.columns))
            columns = ", ".join(column.name for column in self.columns)
            raise SettingsError(f"{self.name} has no column {unknown[0]!r}: groups are {groups}; columns are {columns}")
        return tuple(
            column
            for column in self.columns
            if column.name in names or column.group in names or column.name == "stream_id"
        )


def empty_frame(columns: Iterable[Column[Any]]) -> pd.DataFrame:
    """A frame without rows, with all its columns and dtypes."""
    return pd.DataFrame({column.name: array_of(column, []) for column in columns})


def array_of(column: Column[Any], values: list[Any]) -> Any:
    """The values, None where missing, as the pandas array of a column."""
    match column.dtype:
        case "str":
            return _strings(values)
        case "category":
            return _category(values, column.values)
        case "Int64":
            return pd.array([_whole(value) for value in values], dtype="Int64")
        case "Float64" | "boolean":
            return pd.array(values, dtype=column.dtype)
        case "timestamp":
            return pd.DatetimeIndex(values, tz="UTC").as_unit("us")
        case "object":
            objects = np.empty(len(values), dtype=object)
            for index, value in enumerate(values):
                objects[index] = pd.NA if value is None else value
            return objects


def _strings(values: list[Any]) -> Any:
    try:
        return pd.array(values, dtype="str")
    except UnicodeEncodeError:  # half an emoji, which a model may write and Arrow can't keep
        return pd.array([_whole_text(value) for value in values], dtype="str")


def _whole_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _category(values: list[Any], fixed: tuple[str, ...]) -> Any:
    values = [_whole_text(value) for value in values]
    found = sorted({value for value in values if value is not None} - set(fixed))
    return pd.Categorical(values, categories=pd.Index([*fixed, *found], dtype="str"))


def _whole(value: int | None) -> int | None:
    """A number that doesn't fit is missing: a hostile server may send any."""
    return value if value is None or -_LARGEST <= value < _LARGEST else None


def utc(value: object) -> datetime | None:
    """A time that a server tells: ISO text or milliseconds since 1970; None if it is neither."""
    try:
        if isinstance(value, str):
            return pd.Timestamp(value).tz_convert("UTC").to_pydatetime() if value else None
        if isinstance(value, int | float):
            return pd.Timestamp(value, unit="ms", tz="UTC").to_pydatetime()
    except (ValueError, TypeError, OverflowError):
        pass
    return None
