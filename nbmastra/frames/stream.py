"""Recordings larger than memory: their chunks as frames of some rows each, and sums over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from nbmastra.errors import SettingsError
from nbmastra.fold import RunState
from nbmastra.frames.build import Columns
from nbmastra.frames.chunks import CHUNKS, ChunkColumns
from nbmastra.frames.kept import Shelf
from nbmastra.frames.runs import Source, batches, shown

__all__ = ["aggregate", "iter_chunks_df"]


def iter_chunks_df(source: Source, columns: Columns = None, *, rows: int = 50_000) -> Iterator[pd.DataFrame]:
    """`chunks_df` as frames of at least `rows` rows (the last may have fewer), none of them kept.

    Together they are the same table, but for categories, which are those of each frame. Memory is that of one frame and
    of what the runs' other tables hold, however long a recording is. Raises RecordingError, SettingsError.
    """
    if rows < 1:
        raise SettingsError(f"rows={rows!r}: give a number above 0")
    chosen = CHUNKS.select(columns)
    collected = ChunkColumns(chosen)
    for item in shown(source):
        if isinstance(item, Shelf):
            continue  # what a server keeps of a thread has no chunks
        if isinstance(item, RunState):
            raise SettingsError("a RunState doesn't keep its chunks: give the output or recording")
        since, run = 0, None
        for run, chunks, first in batches(item):
            collected.take(run, chunks, first)
            if collected.taken >= rows:
                collected.end(run, since=since)
                yield collected.frame()
                collected, since = ChunkColumns(chosen), run.events
        if run is not None:
            collected.end(run, since=since)
    if collected.taken:
        yield collected.frame()


_HOW = {
    "chunks": ("seq", "count", "sum"),
    "text_len": ("text_len", "sum", "sum"),
    "bytes": ("bytes", "sum", "sum"),
    "gap_s": ("gap_s", "sum", "sum"),
    "longest_gap_s": ("gap_s", "max", "max"),
    "first_at_s": ("at_s", "min", "min"),
    "last_at_s": ("at_s", "max", "max"),
}
"""Of each column: what of a frame, how, and how those of several frames are put together."""


def aggregate(source: Source, by: str | Sequence[str] = "type") -> pd.DataFrame:
    """Sums over the chunks of a source of any size, one row per value (or combination of values) of `by`.

    `by`: columns of `chunks_df`. Further columns: `chunks`, `text_len` (characters), `bytes`, `gap_s` (all the time
    that was waited for these chunks), `longest_gap_s`, `first_at_s` and `last_at_s` (since their streams' starts).
    Raises RecordingError, SettingsError.
    """
    names = [by] if isinstance(by, str) else list(by)
    known = [column.name for column in CHUNKS.columns if column.group == "main" and column.name not in _HOW]
    for name in names or [""]:
        if name not in known:
            raise SettingsError(f"by={name!r}: give columns of chunks_df: {', '.join(known)}")
    wanted = list(dict.fromkeys([*names, *(source for source, _, _ in _HOW.values())]))
    first = {new: (old, how) for new, (old, how, _) in _HOW.items()}
    again = {new: (new, how) for new, (_, _, how) in _HOW.items()}
    total = _grouped(ChunkColumns(CHUNKS.select(wanted)).frame(), names, first)
    for frame in iter_chunks_df(source, wanted):
        part = _grouped(frame, names, first)
        total = _grouped(pd.concat([total, part], ignore_index=True), names, again) if len(total) else part
    return total


def _grouped(frame: pd.DataFrame, names: list[str], how: dict[str, tuple[str, str]]) -> pd.DataFrame:
    plain: Any = frame.copy(deep=False)
    for name in names:
        if isinstance(plain[name].dtype, pd.CategoricalDtype):  # each frame has its own
            plain[name] = plain[name].astype("str")
    return plain.groupby(names, dropna=False).agg(**how).reset_index()
