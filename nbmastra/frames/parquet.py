"""Parquet files of tables: which table a file holds, and their types as the frames have them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames.build import TABLES
from nbmastra.frames.duck import installed
from nbmastra.frames.files import KEY
from nbmastra.frames.runs import recordings

__all__ = ["as_frame", "older", "parquet_files", "short_name", "table_named", "warn_of_older"]


def short_name(table: str) -> str:
    """A table's name in SQL and of its file: without `_df`."""
    return table.removesuffix("_df")


def table_named(name: str) -> str:
    """The table of a name with or without `_df`. Raises SettingsError."""
    table = f"{short_name(name)}_df"
    if table not in TABLES:
        raise SettingsError(f"there is no table {name!r}: {', '.join(map(short_name, TABLES))}")
    return table


def parquet_files(folder: Path) -> dict[str, list[Path]]:
    """The Parquet files in and below a folder by the table they hold: as `export` notes it in them, or by their name.

    Files of other things are left out. Raises SettingsError without the extra `big`, RecordingError for a damaged file.
    """
    if not installed():
        raise SettingsError("Parquet needs `pip install 'nbmastra[big]'`")
    if not folder.is_dir():
        raise RecordingError(f"there is no folder {folder}")
    read_schema: Any = import_module("pyarrow.parquet").read_schema
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            metadata: dict[bytes, bytes] = read_schema(path).metadata or {}
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            raise RecordingError(f"{path.name} is no Parquet file: {str(error)[:200]}") from None
        table = _noted(metadata) or _by_name(path)
        if table is not None:
            found.setdefault(table, []).append(path)
    return found


def older(folder: Path, files: Iterable[Path]) -> list[Path]:
    """The files right in a folder that aren't there yet, or that are older than a recording beside them."""
    newest = max((path.stat().st_mtime_ns for path in recordings(folder)), default=0)
    beside = (path for path in files if path.parent == folder)
    return [path for path in beside if not path.exists() or path.stat().st_mtime_ns < newest]


def warn_of_older(folder: Path, files: Iterable[Path]) -> None:
    """Warn if some of the files lack what was recorded since."""
    for path in older(folder, files):
        warnings.warn(f"{path} is older than a recording beside it, which it lacks: export it again", stacklevel=3)


def _noted(metadata: dict[bytes, bytes]) -> str | None:
    try:
        table = json.loads(metadata[KEY.encode()])["table"]
    except (KeyError, ValueError, TypeError):
        return None
    return table if isinstance(table, str) and table in TABLES else None


def _by_name(path: Path) -> str | None:
    return next((table for table in TABLES if path.stem in (table, short_name(table))), None)


def as_frame(table: Any) -> pd.DataFrame:
    """An Arrow table as pandas, with the dtypes of the other tables: missing stays missing, whatever the type."""
    arrow: Any = import_module("pyarrow")
    types: Any = arrow.types

    def dtype(kind: Any) -> Any:
        if types.is_integer(kind):
            return pd.Int64Dtype()
        if types.is_floating(kind):
            return pd.Float64Dtype()
        if types.is_boolean(kind):
            return pd.BooleanDtype()
        if types.is_string(kind) or types.is_large_string(kind):
            return pd.StringDtype(na_value=float("nan"))
        return None

    for index, field in enumerate(table.schema):
        kind = field.type
        if types.is_dictionary(kind):
            kind = kind.value_type
        elif types.is_decimal(kind):  # sums of whole numbers, and 1.5 as SQL writes it
            kind = arrow.int64() if kind.scale == 0 and _fits(table.column(index)) else arrow.float64()
        elif types.is_timestamp(kind):
            kind = arrow.timestamp("us", kind.tz and "UTC")
        if kind != field.type:
            table = table.set_column(index, field.name, table.column(index).cast(kind))
    return table.to_pandas(types_mapper=dtype)


def _fits(column: Any) -> bool:
    least_most: Any = import_module("pyarrow.compute").min_max(column).as_py()
    return all(value is None or -(2**63) <= value < 2**63 for value in least_most.values())
