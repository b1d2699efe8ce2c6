"""`chunks_df` of large recordings (extra `big`): DuckDB reads the deltas, the fold reads all else.

Nine of ten chunks are further deltas of what the chunk before them began: they change neither turn nor step, and their
row differs from the one before in time, size and length only. Those three come from SQL; every other chunk, also the
first delta after one, is read and folded as always, and what it says of turn, step, run and call holds up to the next.
So the fold decides, for any stream, and there are no rules in SQL that could differ from its own.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from tqdm.auto import tqdm

from nbmastra.errors import SettingsError
from nbmastra.frames.chunks import ChunkColumns, Places, Spread
from nbmastra.frames.duck import connect, installed
from nbmastra.frames.runs import Item, Run, about, batches, forget
from nbmastra.output import MastraModelOutput
from nbmastra.recording import open_recording
from nbmastra.recording.chunk_lines import ChunkLines
from nbmastra.recording.lines import is_json

__all__ = ["ENGINES", "ChunkReader", "Engine", "Untold", "read_by_sql"]

Engine = Literal["auto", "fold", "duckdb"]
ENGINES = get_args(Engine)

LARGE = 16_000_000
"""Bytes of a recording from which on DuckDB is worth its start."""
_ROWS = 50_000
"""Rows that are read at once."""
_LONGEST = 8_000_000
"""Bytes of the longest line that DuckDB takes, and of each buffer it reads into."""
_THREADS = 4
"""More would wait for the fold, and take memory."""

# What a delta's line is if nothing about it is unusual: JSON for certain, and its text has no escape longer than two.
_PLAIN = r'[^"\\\x00-\x1f]*'
_TEXT = r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*'
_METADATA = rf'(?:,"providerMetadata":\{{"{_PLAIN}":\{{"{_PLAIN}":"{_PLAIN}"\}}\}})?'
_TIME = r'\{"t":((?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,12})?),"chunk":'
_ENVELOPE = rf'"runId":"{_PLAIN}","from":"[A-Z]*","payload":'
_TEXT_DELTA = (
    rf'^{_TIME}(\{{"type":"(?:text|reasoning)-delta",{_ENVELOPE})'
    rf'\{{"id":"{_PLAIN}","text":"({_TEXT})"{_METADATA}\}}\}}\}}$'
)
_ARGS_DELTA = (
    rf'^{_TIME}(\{{"type":"tool-call-delta",{_ENVELOPE})'
    rf'\{{"argsTextDelta":"({_TEXT})"(,"toolCallId":"{_PLAIN}","toolName":"{_PLAIN}")\}}\}}\}}$'
)

_SQL = r"""
with lines as (
    from read_csv($path, columns = {line: 'VARCHAR'}, header = false, auto_detect = false, delim = e'\x01',
        quote = '', escape = '', new_line = '\n', max_line_size = $longest, buffer_size = $longest)
),
texts as (select line, regexp_extract(line, $text, ['t', 'head', 'delta']) as text from lines),
found as (
    select line, text, case when text.t = '' and contains(line, '"tool-call-delta"')
        then regexp_extract(line, $args, ['t', 'head', 'delta', 'call']) end as args
    from texts
),
deltas as (
    select strlen(line) as line_size, coalesce(args.t, text.t) as t, coalesce(args.delta, text.delta) as delta,
        -- 64 bits: that neighbours differ and have the same isn't to be expected
        case when text.t <> '' then hash(text.head) when args.t <> '' then hash(args.head || args.call) end as kind
    from found
)
select coalesce(line_size, 0)::integer as line_size, coalesce(kind, 0)::ubigint as kind,
    coalesce(try_cast(t as double), 0) as at,
    (coalesce(line_size - strlen(t), 0) - strlen('{"t":,"chunk":}'))::integer as size,
    case when contains(delta, '\') then length(regexp_replace(delta, '\\.', '_', 'g'))
        else coalesce(length(delta), 0) end::integer as length
from deltas
"""


class Untold(Exception):
    """A recording has what SQL can't tell; the message says what."""


@dataclass
class ChunkReader:
    """Reads runs into columns, by the fold or by SQL; `chosen` says which it was how often, and why."""

    collected: ChunkColumns
    engine: Engine
    raw: bool

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise SettingsError(f"engine={self.engine!r}: give one of {', '.join(ENGINES)}")
        self.installed = installed()
        if self.engine == "duckdb" and not self.installed:
            raise SettingsError("engine='duckdb' needs `pip install 'nbmastra[big]'`")
        self.chosen: dict[str, Any] = {"fold": 0, "duckdb": 0, "why_fold": {}}

    def read(self, item: Item) -> Run:
        """The run of an output or recording, its chunks taken. Raises RecordingError."""
        with uncollected():
            return self._read(item)

    def _read(self, item: Item) -> Run:
        why = self._why_fold(item)
        if why is None and isinstance(item, Path):
            try:
                run = read_by_sql(item, self.collected)
            except Untold as untold:
                self.collected.undo()
                why = str(untold)
            else:
                self.chosen["duckdb"] += 1
                return run
        run = self._fold(item)
        self.chosen["fold"] += 1
        if why:
            self.chosen["why_fold"][run.path or run.stream_id] = why
        return run

    def _fold(self, item: Item) -> Run:
        if not isinstance(item, MastraModelOutput | Path):
            self.collected.end(run := Run(item, events=item.events))  # raises: a state has no chunks
            return run
        run: Run | None = None
        for run, chunks, first in batches(item):
            self.collected.take(run, chunks, first)
        assert run is not None
        self.collected.end(run)
        return run

    def _why_fold(self, item: Item) -> str | None:
        """Why SQL isn't to be tried, "" where nobody would expect it; None if it is."""
        if self.engine == "fold" or not isinstance(item, Path):
            return ""
        large = item.is_file() and item.stat().st_size >= LARGE
        if self.engine == "auto" and not large:
            return ""
        if not self.installed:
            return "for more speed: `pip install 'nbmastra[big]'`"
        if self.raw:
            return "SQL doesn't read payloads"
        return None


@contextmanager
def uncollected() -> Generator[None]:
    """Without garbage collection, which would look at all that is read again and again; none of it is garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_by_sql(path: Path, collected: ChunkColumns) -> Run:
    """The run of a plain recording, its chunks taken. Raises Untold, RecordingError."""
    recording = open_recording(path)
    out = recording.output(None)
    run, state = about(out, recording=recording), out.state
    waiting: list[_Rows] = []
    lines = ChunkLines(_lines_to_fold(path, waiting))
    times, turns, steps = list[Any](), list[Any](), list[Any]()
    for at, chunks in lines:
        rows = _only(waiting).up_to(len(chunks))
        if any(chunk.type == "decode-error" for chunk in chunks):
            raise Untold("a line is broken")
        first = state.events
        for chunk, moment in zip(chunks, at, strict=True):
            state.apply(chunk, moment)
        collected.take(run, chunks, first, rows.spread)
        counts = np.diff(rows.spread.rows, append=len(rows.at))
        rows.at[rows.spread.rows] = at
        times.append(rows.at)
        turns.append(np.repeat(np.asarray(state.turn_of[first:]), counts))
        steps.append(np.repeat(np.asarray(state.step_of[first:]), counts))
        run.events += len(rows.at)
        forget(state)
    for rows in waiting:
        rows.up_to(0)
    collected.end(run, Places(_never_back(times), _joined(turns, np.int32), _joined(steps, np.int32)))
    out.finish(lines.ended)
    run.status, run.elapsed_s = out.status, out.elapsed_s
    return run


@dataclass
class _Rows:
    """Lines that were read together: what SQL says of each, and those that the fold reads."""

    spread: Spread
    at: np.ndarray[Any, np.dtype[np.float64]]
    lines: list[bytes]

    def up_to(self, chunks: int) -> _Rows:
        """Those of so many folded chunks. Raises Untold if that isn't all, unless the run ended there."""
        if chunks == len(self.lines):
            return self
        if not self.lines[chunks].startswith(b'{"end"'):
            raise Untold("a line is blank")
        end = int(self.spread.rows[chunks])
        spread = Spread(self.spread.rows[:chunks], self.spread.size[:end], self.spread.length[:end])
        return _Rows(spread, self.at[:end], self.lines[:chunks])


def _only(waiting: list[_Rows]) -> _Rows:
    if len(waiting) > 1:  # one gave no chunk
        raise Untold("a line is blank")
    return waiting.pop()


def _lines_to_fold(path: Path, waiting: list[_Rows]) -> Iterator[list[bytes]]:
    """The lines of each batch that the fold must read, once the batch is in `waiting`."""
    with (
        path.open("rb") as file,
        tqdm(total=path.stat().st_size, desc=path.name, unit="B", unit_scale=True, delay=1, leave=False) as bar,
    ):
        first = True
        for size, kind, at, text_size, length in _scan(path):
            ends = np.cumsum(size.astype(np.int64) + 1)
            data = file.read(int(ends[-1]))
            bar.update(len(data))
            count = len(size) - _torn(data, ends, size)
            _check_ends(data, ends[:count])
            begun = 1 if first else 0  # the first line is the header
            first = False
            if count <= begun:
                continue
            kind = kind[begun:count]
            alike = np.zeros(len(kind), bool)
            alike[1:] = (kind[1:] == kind[:-1]) & (kind[1:] != 0)
            rows = np.flatnonzero(~alike).astype(np.int32)
            starts, stops = ends - size - 1, ends - 1
            lines = [
                data[start:stop]
                for start, stop in zip(
                    starts[begun:count][rows].tolist(), stops[begun:count][rows].tolist(), strict=True
                )
            ]
            spread = Spread(rows, text_size[begun:count].copy(), length[begun:count].copy())
            waiting.append(_Rows(spread, at[begun:count].copy(), lines))
            yield lines


def _torn(data: bytes, ends: Any, size: Any) -> int:
    """1 if the last line of the file was being written when its writer died, else 0."""
    missing = ends[-1] - len(data)
    if missing == 0:
        return 0
    if missing != 1:
        raise Untold("the file changes while it is read")
    last = data[len(data) - int(size[-1]) :]
    return 0 if is_json(last) else 1


def _check_ends(data: bytes, ends: Any) -> None:
    """What SQL calls a line must be one. Raises Untold."""
    ends = ends[ends <= len(data)]
    if not (np.frombuffer(data, np.uint8)[ends - 1] == 10).all():
        raise Untold("its lines end in other ways than by a line feed")


def _scan(path: Path) -> Iterator[tuple[Any, ...]]:
    """Arrays of what SQL says of each line: its size, what is equal for deltas alike, time, size, length of text."""
    duckdb, connection = connect(_THREADS)
    values = {"path": str(path), "text": _TEXT_DELTA, "args": _ARGS_DELTA, "longest": _LONGEST}
    with connection:
        try:
            for batch in connection.sql(_SQL, params=values).to_arrow_reader(_ROWS):
                if batch.num_rows:
                    yield tuple(column.to_numpy(zero_copy_only=False) for column in batch.columns)
        except duckdb.Error as error:  # no text, lines of 8 MB, other line ends, a compressed file
            raise Untold(f"DuckDB can't read its lines: {str(error).partition(chr(10))[0][:160]}") from None


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _never_back(parts: list[Any]) -> Any:
    times = _joined(parts, np.float64)
    if np.isnan(times).any():
        raise Untold("a time is no number")
    return np.maximum.accumulate(np.maximum(times, 0.0)) if len(times) else times
