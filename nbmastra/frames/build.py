"""From a source to a table: the functions that users call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast, overload

import pandas as pd

from nbmastra.errors import RecordingError
from nbmastra.frames.bulk import ChunkReader, Engine
from nbmastra.frames.chunks import CHUNKS, ChunkColumns
from nbmastra.frames.columns import Column, Table, array_of
from nbmastra.frames.elements import elements_df
from nbmastra.frames.index import indexed_rows
from nbmastra.frames.kept import Unreadable
from nbmastra.frames.outcomes import ERRORS, RUNS, failure_rows, run_rows
from nbmastra.frames.runs import Run, Source, runs
from nbmastra.frames.spans import SPANS, span_rows, stray_spans
from nbmastra.frames.tables import (
    MESSAGES,
    SOURCES,
    STEPS,
    TASKS,
    THREADS,
    TOOL_CALLS,
    message_rows,
    source_rows,
    step_rows,
    task_rows,
    thread_rows,
    tool_call_rows,
)
from nbmastra.frames.timeline import TIMELINE, timeline_rows
from nbmastra.frames.usage import USAGE, By, Reconciliation, Spent, grouper, spent, together
from nbmastra.prices import OwnPrices

__all__ = [
    "FUNCTIONS",
    "TABLES",
    "UNREAD",
    "Columns",
    "chunks_df",
    "errors_df",
    "frame_of",
    "messages_df",
    "runs_df",
    "sources_df",
    "spans_df",
    "steps_df",
    "tasks_df",
    "threads_df",
    "timeline_df",
    "tool_calls_df",
    "usage_df",
]

Columns = str | Sequence[str] | None
"""Names or groups of columns; None for all of group "main"."""

Frame = pd.DataFrame
Both = tuple[pd.DataFrame, pd.DataFrame]

UNREAD = Table[tuple[str, str, str]](
    "errors",
    "What couldn't be read, with `strict=False`: one row per file, or per record of a server's.",
    (
        Column("source", "str", "The file or record.", lambda row: row[0]),
        Column("error_type", "category", "Name of the error.", lambda row: row[1]),
        Column("error_message", "str", "What is wrong with it.", lambda row: row[2]),
    ),
)


@dataclass
class _Rows:
    """The values of a table's columns, as they are collected."""

    columns: tuple[Column[Any], ...]
    values: list[list[Any]] = field(default_factory=list[list[Any]])

    def __post_init__(self) -> None:
        self.values = [[] for _ in self.columns]

    def add(self, row: Any, *, timed: bool = True) -> None:
        """A row; `timed` False leaves out the times that it would tell."""
        for column, values in zip(self.columns, self.values, strict=True):
            values.append(column.read(row) if timed or not column.timed else None)

    def add_values(self, row: dict[str, Any]) -> None:
        """A row that was read before, by the names of columns."""
        for column, values in zip(self.columns, self.values, strict=True):
            values.append(row[column.name])

    def frame(self) -> pd.DataFrame:
        """All of them."""
        arrays = zip(self.columns, self.values, strict=True)
        return pd.DataFrame({column.name: array_of(column, values) for column, values in arrays})


class _Unread:
    """What couldn't be read. A file is raised or counted, a record of a server's is always counted."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._rows = _Rows(UNREAD.columns)

    def note(self, path: Path, error: RecordingError) -> None:
        """A file that couldn't be read."""
        if self.strict:
            raise error
        self._rows.add((str(path), type(error).__name__, str(error)))

    def note_records(self, records: list[Unreadable]) -> None:
        """Records that couldn't be read."""
        for record in records:
            self._rows.add((record.where, RecordingError.__name__, record.problem))

    def with_frame(self, frame: pd.DataFrame) -> Frame | Both:
        """The frame, `.attrs["unread"]` with what couldn't be read; beside it the same as a frame, if not strict."""
        unread = self._rows.frame()
        if len(unread):
            frame.attrs["unread"] = cast("Any", unread).astype("object").to_dict("records")
        return frame if self.strict else (frame, unread)


@overload
def chunks_df(
    source: Source, columns: Columns = None, *, strict: Literal[True] = True, engine: Engine = "auto"
) -> Frame: ...
@overload
def chunks_df(source: Source, columns: Columns = None, *, strict: Literal[False], engine: Engine = "auto") -> Both: ...
def chunks_df(source: Source, columns: Columns = None, *, strict: bool = True, engine: Engine = "auto") -> Frame | Both:
    """One row per chunk. `columns=["main", "raw"]` adds the payload as JSON text; see `docs/frames.md`.

    `engine`: "fold" reads each chunk; "duckdb" (extra `big`) has SQL read what only makes a text longer, which gives
    the same table several times as fast; "auto" takes DuckDB for large plain recordings if it is there.
    `.attrs["engine"]` says what was taken, and why the fold where DuckDB was asked for (`docs/big.md`).
    Raises RecordingError for a file that is no recording; with `strict=False` gives the frame and what wasn't read.
    Raises SettingsError for an engine that isn't there.
    """
    chosen = CHUNKS.select(columns)
    collected, unread = ChunkColumns(chosen), _Unread(strict)
    reader = ChunkReader(collected, engine, raw=any(column.name == "payload" for column in chosen))

    def on_error(path: Path, error: RecordingError) -> None:
        collected.undo()
        unread.note(path, error)

    for run in runs(source, read=reader.read, on_error=on_error):
        del run  # a large state must not be kept beside the frame that is made next
    frame = collected.frame()
    frame.attrs["engine"] = reader.chosen
    return unread.with_frame(frame)


@overload
def usage_df(
    source: Source,
    by: By = "step",
    columns: Columns = None,
    *,
    strict: Literal[True] = True,
    prices: OwnPrices | None = None,
) -> Frame: ...
@overload
def usage_df(
    source: Source, by: By = "step", columns: Columns = None, *, strict: Literal[False], prices: OwnPrices | None = None
) -> Both: ...
def usage_df(
    source: Source, by: By = "step", columns: Columns = None, *, strict: bool = True, prices: OwnPrices | None = None
) -> Frame | Both:
    """Tokens and cost by step, turn, run, model or agent; runs inside of a run have rows of their own, by `path`.

    Whatever the grouping, the rows sum to what the fold counts; `.attrs["reconciliation"]` has both, the turns whose
    own total differs from their steps, and the models without a price. Raises RecordingError, SettingsError.
    """
    grouper(by)
    rows, unread, sums = _Rows(USAGE.select(columns)), _Unread(strict), Reconciliation()
    for run in runs(source, on_error=unread.note, prices=prices):
        finest = _at_one_moment(run)
        sums.note(run, finest)
        for row in together(finest, by):
            rows.add(row)
    frame = rows.frame()
    frame.attrs["by"] = by
    frame.attrs["reconciliation"] = sums.to_dict()
    return unread.with_frame(frame)


class TableFunction(Protocol):
    """A function that gives a table of which each row is one item of a run."""

    @overload
    def __call__(
        self,
        source: Source,
        columns: Columns = None,
        *,
        strict: Literal[True] = True,
        prices: OwnPrices | None = None,
    ) -> Frame: ...
    @overload
    def __call__(
        self, source: Source, columns: Columns = None, *, strict: Literal[False], prices: OwnPrices | None = None
    ) -> Both: ...


def _nothing(_source: Source) -> Iterator[Any]:
    return iter(())


def _function(
    table: Table[Any], read: Callable[[Run], Iterator[Any]], beside: Callable[[Source], Iterator[Any]] = _nothing
) -> TableFunction:
    def function(
        source: Source, columns: Columns = None, *, strict: bool = True, prices: OwnPrices | None = None
    ) -> Frame | Both:
        rows, unread = _Rows(table.select(columns)), _Unread(strict)
        folder = Path(source).expanduser() if isinstance(source, str | Path) else None
        if table is RUNS and folder is not None and prices is None and folder.is_dir():
            for values in indexed_rows(folder, unread.note):
                rows.add_values(values)
        else:
            for run in runs(source, on_error=unread.note, prices=prices):
                for row in read(run):
                    rows.add(row, timed=run.timed)
                if run.kept is not None:  # now: what can't be read is found when it is
                    unread.note_records(run.kept.unread)
        for row in beside(source):
            rows.add(row)
        frame = rows.frame()
        if {"cost_usd", "model", "total_tokens"} <= set(frame.columns):
            frame.attrs["unpriced_models"] = _unpriced(frame)
        return unread.with_frame(frame)

    function.__name__ = function.__qualname__ = table.name
    function.__doc__ = f"""{table.doc}

    `source`: an output, a recording, a folder, a glob pattern, a server's store or lists, or several of these.
    `columns`: names or groups of columns. `prices`: own prices by model, as `nbmastra.prices` takes them. Raises
    RecordingError for a file that is no recording; with `strict=False` gives the frame and what wasn't read.
    `docs/frames.md` lists the columns.
    """
    return cast("TableFunction", function)


def _unpriced(frame: pd.DataFrame) -> list[str]:
    """The models of rows that spent something whose price isn't known."""
    rows = frame["cost_usd"].isna() & (frame["total_tokens"].fillna(0) > 0)
    return sorted(str(model) for model in frame["model"][rows].dropna().unique())


runs_df = _function(RUNS, run_rows)
steps_df = _function(STEPS, step_rows)
tool_calls_df = _function(TOOL_CALLS, tool_call_rows)
tasks_df = _function(TASKS, task_rows)
messages_df = _function(MESSAGES, message_rows)
sources_df = _function(SOURCES, source_rows)
errors_df = _function(ERRORS, failure_rows)
spans_df = _function(SPANS, span_rows, stray_spans)
threads_df = _function(THREADS, thread_rows)
timeline_df = _function(TIMELINE, timeline_rows)

TABLES: dict[str, Table[Any]] = {
    table.name: table
    for table in (RUNS, CHUNKS, STEPS, USAGE, TOOL_CALLS, TASKS, MESSAGES, SOURCES, ERRORS, TIMELINE, THREADS, SPANS)
}
"""All tables by the name of their function."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chunks_df": chunks_df,
    "errors_df": errors_df,
    "messages_df": messages_df,
    "runs_df": runs_df,
    "sources_df": sources_df,
    "spans_df": spans_df,
    "steps_df": steps_df,
    "tasks_df": tasks_df,
    "threads_df": threads_df,
    "timeline_df": timeline_df,
    "tool_calls_df": tool_calls_df,
    "usage_df": usage_df,
}


def _at_one_moment(run: Run) -> list[Spent]:
    """What was spent: of a live run, looked at again if tokens were reported meanwhile."""
    while True:
        reports = run.state.usage_reports
        run.total = run.state.grand_usage
        found = list(spent(run))
        if run.state.usage_reports == reports:
            return found


def frame_of(name: str, out: Any, options: dict[str, Any]) -> Any:
    """The table or picture of that name of an output: what the output's own methods call."""
    if name == "timeline_chart":
        from nbmastra.frames.plot import timeline  # an extra, and slow to import

        return timeline(timeline_df(out))
    if name == "elements_df":
        return elements_df(out)
    return FUNCTIONS[name](out, **options)
