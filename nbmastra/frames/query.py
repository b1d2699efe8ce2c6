"""SQL over a folder of Parquet files, which DuckDB reads as far as the query needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from nbmastra.errors import SettingsError
from nbmastra.frames.build import TABLES
from nbmastra.frames.duck import connect
from nbmastra.frames.files import export
from nbmastra.frames.parquet import as_frame, older, parquet_files, short_name, warn_of_older
from nbmastra.frames.runs import recordings

__all__ = ["query"]

Parameters = Sequence[Any] | Mapping[str, Any] | None


def query(folder: str | Path, sql: str, parameters: Parameters = None, *, convert: bool = False) -> pd.DataFrame:
    """The answer to a SQL query over a folder's Parquet files, none of which is loaded as a whole.

    Tables are called `chunks`, `steps`, `usage`, `tool_calls`, `runs` …; each has the rows of all files that `export`
    wrote of it in or below the folder. `parameters` fill `?` or `$name` in the query. `convert` first writes the tables
    that the query names from the folder's recordings, if no file right in it has them or a recording is newer; without
    it, a file that is older than a recording beside it gives a warning.
    The query sees these files and nothing else: no other file, no network, no extensions, no variables of the program.
    Raises RecordingError, and SettingsError for a query that can't be answered or without the extra `big`.
    """
    path = Path(folder).expanduser()
    if convert:
        _convert(path, sql)
    files = parquet_files(path)
    if not convert:
        warn_of_older(path, chain.from_iterable(files.get(table, []) for table in _named(sql)))
    duckdb, connection = connect()
    with connection:
        for table, paths in files.items():
            names = ", ".join(_quoted(str(file)) for file in paths)
            connection.execute(f"create view {short_name(table)} as from read_parquet([{names}], union_by_name = true)")
        allowed = ", ".join(_quoted(str(file)) for paths in files.values() for file in paths)
        connection.execute(f"set allowed_paths = [{allowed}]")
        for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"set {setting}")
        try:
            relation = connection.sql(sql, params=parameters)
            if relation is None:
                raise SettingsError("the query is empty")
            return as_frame(relation.to_arrow_table())
        except duckdb.CatalogException as error:
            raise SettingsError(_missing(path, sql, files) or f"{_message(error)}\n{_there_is(files)}") from None
        except duckdb.Error as error:
            raise SettingsError(_message(error)) from None


def _convert(folder: Path, sql: str) -> None:
    found = recordings(folder) if folder.is_dir() else []
    if not found:
        return
    held = parquet_files(folder)
    for table in _named(sql):
        target = folder / f"{short_name(table)}.parquet"
        files = [path for path in held.get(table, []) if path.parent == folder] or [
            target
        ]  # below: of other recordings
        old = older(folder, files)
        if old not in ([], [target]):  # a file more would have each row twice
            raise SettingsError(
                f"{old[0]} is older than a recording: delete it, for convert=True to write {target.name}"
            )
        if old:
            export(found, target, table)


def _named(sql: str) -> list[str]:
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [table for table in TABLES if short_name(table) in words]


def _missing(folder: Path, sql: str, files: dict[str, list[Path]]) -> str | None:
    """What to do about a table that the query names and the folder doesn't have."""
    for table in _named(sql):
        if table not in files:
            name = short_name(table)
            how = f"`nbmastra export {folder} {folder / name}.parquet --table {table}`"
            has = f"recordings, not yet as Parquet: {how}, or convert=True" if recordings(folder) else f"none: {how}"
            return f"there is no Parquet of {name} in {folder}; it has {has}"
    return None


def _there_is(files: dict[str, list[Path]]) -> str:
    return f"Tables that are there: {', '.join(map(short_name, files)) or 'none'}"


def _message(error: Exception) -> str:
    return str(error).strip()[:1000]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
