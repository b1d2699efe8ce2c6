"""Tables as files: Parquet (extra `big`) or CSV, written a run at a time: a folder may be larger than memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from nbmastra._version import __version__
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames.build import FUNCTIONS, TABLES, Columns
from nbmastra.frames.columns import Column
from nbmastra.frames.runs import Source, items

__all__ = ["KEY", "export"]

KEY = "nbmastra"
"""Of a Parquet file's metadata: JSON with the name of its table."""

_GROUP = 100_000
"""Rows that are written at once."""


def export(
    source: Source, path: str | Path, table: str = "chunks_df", columns: Columns = None, *, strict: bool = True
) -> int:
    """Write a table of all runs to a `.parquet` or `.csv` file, and give the number of its rows.

    JSON values (arguments, results) become JSON text. `strict=False` leaves out files that are no recordings. A file
    that is there is replaced, at the end. Raises RecordingError, SettingsError.
    """
    path = Path(path).expanduser()
    if table not in TABLES:
        raise SettingsError(f"there is no table {table!r}: {', '.join(TABLES)}")
    writers = {".parquet": _parquet, ".csv": _csv}
    if path.suffix not in writers:
        raise SettingsError(f"{path.name}: give a name that ends in {' or '.join(writers)}")
    chosen = TABLES[table].select(columns)
    rows = 0
    with writers[path.suffix](path, TABLES[table].name, chosen) as write:
        for item in tqdm(list(items(source)), unit="run", delay=1, leave=False):
            try:
                frame: pd.DataFrame = FUNCTIONS[table](item, columns=columns)
            except RecordingError:
                if strict:
                    raise
                continue
            for column in chosen:
                if column.dtype == "object":
                    frame[column.name] = pd.array([_text(value) for value in frame[column.name]], dtype="str")
            write(frame)
            rows += len(frame)
    return rows


Write = Callable[[pd.DataFrame], None]


@contextmanager
def _parquet(path: Path, table: str, columns: tuple[Column[Any], ...]) -> Generator[Write]:
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
        from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise SettingsError("Parquet needs `pip install 'nbmastra[big]'`") from None
    arrow: Any = pa
    types = {
        "str": arrow.string(),
        "category": arrow.string(),
        "Int64": arrow.int64(),
        "Float64": arrow.float64(),
        "boolean": arrow.bool_(),
        "timestamp": arrow.timestamp("us", "UTC"),
        "object": arrow.string(),
    }
    names = arrow.dictionary(arrow.int32(), arrow.string())
    schema = arrow.schema(
        [(column.name, names if column.dtype == "category" else types[column.dtype]) for column in columns],
        metadata={KEY: json.dumps({"table": table, "version": __version__})},
    )
    waiting: list[Any] = []
    open_writer: Any = parquet.ParquetWriter

    with _replacing(path) as new, open_writer(new, schema, compression="zstd") as writer:

        def as_arrow(values: Any, column: Column[Any]) -> Any:
            named = column.dtype == "category"
            found = arrow.array(values.astype("str") if named else values, types[column.dtype], from_pandas=True)
            return found.dictionary_encode() if named else found

        def flush() -> None:
            writer.write_table(arrow.concat_tables(waiting).unify_dictionaries())
            waiting.clear()

        def write(frame: pd.DataFrame) -> None:
            arrays = [as_arrow(frame[column.name], column) for column in columns]
            waiting.append(arrow.Table.from_arrays(arrays, schema=schema))
            if sum(part.num_rows for part in waiting) >= _GROUP:
                flush()

        yield write
        if waiting:
            flush()


@contextmanager
def _csv(path: Path, _table: str, columns: tuple[Column[Any], ...]) -> Generator[Write]:
    with _replacing(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        pd.DataFrame(columns=[column.name for column in columns]).to_csv(file, index=False)
        yield lambda frame: frame.to_csv(file, index=False, header=False)


@contextmanager
def _replacing(path: Path) -> Generator[Path]:
    """A file beside it, which takes its place if all goes well."""
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield new
        new.replace(path)
    except OSError as error:
        raise SettingsError(f"can't write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            new.unlink()


def _text(value: Any) -> str | None:
    return None if value is pd.NA else json.dumps(value)
