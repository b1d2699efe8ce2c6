"""Tables of many recordings as Dask DataFrames: read where the work is done, a part at a time (extra `dask`)."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames.build import FUNCTIONS, TABLES, Columns
from nbmastra.frames.columns import Column, empty_frame
from nbmastra.frames.duck import installed
from nbmastra.frames.parquet import as_frame, parquet_files, table_named, warn_of_older
from nbmastra.frames.runs import recordings

__all__ = ["dask"]

Part = tuple[str, int]
"""A recording and -1, or a Parquet file and the number of one of its groups of rows."""


def dask(folder: str | Path, table: str = "chunks", columns: Columns = None) -> Any:
    """A table of a folder as a Dask DataFrame: of its Parquet files where it has some, else of its recordings.

    A part is a recording, or a group of rows of a Parquet file; workers read them by the same path. Columns are those
    of the table's function, but categories are text, and JSON values are JSON text. Warns of a Parquet file that is
    older than a recording beside it. Raises RecordingError, SettingsError for a table that there isn't, and without the
    extra `dask`.
    """
    name = table_named(table)
    if find_spec("dask") is None or find_spec("distributed") is None:
        raise SettingsError("Dask needs `pip install 'nbmastra[dask]'`")
    frames: Any = import_module("dask.dataframe")
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise RecordingError(f"there is no folder {path}")
    chosen = TABLES[name].select(columns)
    files = parquet_files(path).get(name, []) if installed() else []
    warn_of_older(path, files)
    parts = _groups(files) or [(str(file), -1) for file in recordings(path)]
    meta = _plain(empty_frame(chosen), chosen)
    if not parts:
        return frames.from_pandas(meta, npartitions=1)
    return frames.from_map(_read, parts, table=name, columns=[column.name for column in chosen], meta=meta)


def _groups(files: list[Path]) -> list[Part]:
    if not files:
        return []
    read_metadata: Any = import_module("pyarrow.parquet").read_metadata
    return [(str(file), number) for file in files for number in range(read_metadata(file).num_row_groups)]


def _read(part: Part, *, table: str, columns: list[str]) -> pd.DataFrame:
    path, group = part
    chosen = TABLES[table].select(columns)
    if group < 0:
        return _plain(FUNCTIONS[table](Path(path), columns=columns), chosen)
    file: Any = import_module("pyarrow.parquet").ParquetFile(path)
    with file:
        return as_frame(file.read_row_group(group, columns=[column.name for column in chosen]))


def _plain(frame: pd.DataFrame, columns: tuple[Column[Any], ...]) -> pd.DataFrame:
    """The frame with the same dtypes whatever its values: text for categories and for JSON."""
    for column in columns:
        values: Any = frame[column.name]
        if column.dtype == "object":
            values = pd.array([None if value is pd.NA else json.dumps(value) for value in values], dtype="str")
        if column.dtype in ("category", "object"):
            frame[column.name] = values.astype("str")
    return frame
