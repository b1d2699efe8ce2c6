"""The index of a run folder: one line a recording with its row of `runs_df`, so that a file is read once.

{"nbmastra_index": 1, "made_by": …, "columns": […], "prices": …}    what the lines were made with
{"name": "a.jsonl", "size": 5123, "mtime_ns": …, "row": […]}        a recording, as it was when it was read

A recording whose size or time has changed is read again. An index of another version of nbmastra, whose fold may count
otherwise, of other columns or prices is made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from nbmastra._version import __version__
from nbmastra.errors import RecordingError
from nbmastra.frames.columns import Column
from nbmastra.frames.outcomes import RUNS
from nbmastra.frames.runs import SUFFIXES, run_of

__all__ = ["INDEX", "indexed_rows"]

INDEX = ".nbmastra-index"  # no name that a pattern for recordings matches
_VERSION = 1
_COLUMNS: tuple[Column[Any], ...] = tuple(column for column in RUNS.columns if column.name != "recording")

Row = dict[str, Any]


def indexed_rows(folder: Path, on_error: Callable[[Path, RecordingError], None]) -> Iterator[Row]:
    """The rows of `runs_df` of a folder's recordings, by name; what is new or has changed is read.

    A file that is no recording goes to `on_error`. A folder that can't be written has no index.
    """
    known = _read(folder / INDEX)
    files = _files(folder)
    changed = [name for name, stamp in files.items() if name not in known or known[name][0] != stamp]
    bar = tqdm(changed, unit="run", delay=1, leave=False)
    try:
        for name in bar:
            known.pop(name, None)
            try:
                run = run_of(folder / name)
            except RecordingError as error:
                on_error(folder / name, error)
            else:
                known[name] = files[name], [_plain(column.read(run)) for column in _COLUMNS]
    finally:  # also when one stops it half-way: what was read needn't be read again
        bar.close()
        if changed or known.keys() - files.keys():
            _write(folder / INDEX, {name: known[name] for name in files if name in known})
    for name in files:
        if name in known:
            values = zip(_COLUMNS, known[name][1], strict=True)
            yield {column.name: _value(column, value) for column, value in values} | {"recording": str(folder / name)}


Stamp = tuple[int, int]
"""Size in bytes and time of the last change in ns."""


def _files(folder: Path) -> dict[str, Stamp]:
    with os.scandir(folder) as entries:
        found = {
            entry.name: (stat.st_size, stat.st_mtime_ns)
            for entry in entries
            if entry.name.endswith(SUFFIXES) and not entry.name.startswith(".") and (stat := entry.stat())
        }
    return dict(sorted(found.items()))


def _header() -> Row:
    try:
        prices = metadata.version("genai-prices")
    except metadata.PackageNotFoundError:
        prices = None
    columns = [column.name for column in _COLUMNS]
    return {"nbmastra_index": _VERSION, "made_by": __version__, "columns": columns, "prices": prices}


def _read(path: Path) -> dict[str, tuple[Stamp, list[Any]]]:
    """Rows by file name; none if there is no index, or none that can be used."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        with path.open(encoding="utf-8") as file:
            if json.loads(file.readline()) != _header():
                return {}
            entries = [json.loads(line) for line in file]
        return {
            entry["name"]: ((entry["size"], entry["mtime_ns"]), entry["row"])
            for entry in entries
            if len(entry["row"]) == len(_COLUMNS)
        }
    return {}


def _write(path: Path, rows: dict[str, tuple[Stamp, list[Any]]]) -> None:
    lines = [json.dumps(_header())]
    for name, ((size, mtime_ns), row) in rows.items():
        lines.append(json.dumps({"name": name, "size": size, "mtime_ns": mtime_ns, "row": row}))
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new.replace(path)  # at once: another process may read it
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _value(column: Column[Any], value: Any) -> Any:
    return datetime.fromisoformat(value) if column.dtype == "timestamp" and value is not None else value
