"""`chunks_df`: one row per chunk, its columns built in bulk, since there may be millions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.chunks.envelope import Head
from nbmastra.chunks.registry import EVENT_PREFIXES, delta_key
from nbmastra.errors import ChunkError, SettingsError
from nbmastra.fold.reading import ORIGINS, as_dict, as_text
from nbmastra.frames.columns import TIMESTAMP, Column, Table, array_of
from nbmastra.frames.runs import Run

__all__ = ["CHUNKS", "ChunkColumns", "Places", "Spread"]


def _bulk(_row: Any) -> None:
    raise NotImplementedError("chunks are read in bulk")


CHUNKS = Table[Any](
    "chunks_df",
    "One row per chunk, as it came. A chunk that carries one of a run inside of the run (a sub-agent's) is described "
    "by what it carries, with `depth` above 0; `seq`, `turn` and `step` are those of the stream.",
    (
        Column("stream_id", "category", "Id of the stream; one stream can hold several runs.", _bulk),
        Column("run_id", "category", "Id of the run; missing where the wire has none.", _bulk),
        Column("seq", "Int64", "Number of the chunk in its stream, from 0.", _bulk),
        Column("turn", "Int64", "Number of the turn in its stream, from 0.", _bulk),
        Column("step", "Int64", "Number of the step in its stream, from 0.", _bulk),
        Column("depth", "Int64", "0, or how deep inside of other runs.", _bulk),
        Column("parent_tool_call_id", "category", "The call or workflow step that the run is inside of.", _bulk),
        Column("type", "category", "What it is; docs/chunks.md lists them.", _bulk),
        Column("from", "category", "Who sent it.", _bulk, values=ORIGINS),
        Column("at_s", "Float64", "When it came, since the stream's start.", _bulk, "s"),
        Column("timestamp", "timestamp", "When it came.", _bulk),
        Column("gap_s", "Float64", "Time since the chunk before it.", _bulk, "s"),
        Column("text_len", "Int64", "Length of a delta's text, reasoning or arguments.", _bulk, "characters"),
        Column("bytes", "Int64", "Its size as it came.", _bulk, "bytes"),
        Column("tool_name", "category", "The tool that it speaks of.", _bulk),
        Column("tool_call_id", "str", "The call that it speaks of.", _bulk),
        Column("task_id", "str", "The background task that it speaks of.", _bulk),
        Column("message_id", "str", "The message that it belongs to.", _bulk),
        Column("payload", "str", "Its payload as JSON text; missing where it has none.", _bulk, group="raw"),
    ),
)


class _Text(msgspec.Struct, gc=False):
    text: str


_TEXTS = msgspec.json.Decoder(_Text).decode_lines


class _Facts(msgspec.Struct, gc=False, rename="camel"):
    """What a payload says of itself; all else in it is skipped."""

    tool_call_id: Any = None
    tool_name: Any = None
    task_id: Any = None
    message_id: Any = None


_FACTS = msgspec.json.Decoder(_Facts)
Ints = np.ndarray[Any, np.dtype[np.int32]]
_SPARSE = ("tool_call_id", "task_id", "message_id")


_TEXT_TYPES = ("text-delta", "reasoning-delta")  # nine of ten chunks; no other chunk rides on one


class _Kinds(dict[Head, int]):
    """A number for each type, run, origin and size of envelope there is, by the head of a chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[str, str | None, str | None, int], int] = {}
        self.envelopes: list[int] = []
        """Bytes around the payload, by number."""
        self.texts: list[bool] = []
        """True for deltas of text and reasoning, by number."""

    def number(self, type: str, run_id: str | None, from_: str | None, envelope: int = 0) -> int:
        """The number of what all these are the same for."""
        key = (type, run_id, from_, envelope)
        if key not in self.found:
            self.envelopes.append(envelope)
            self.texts.append(type in _TEXT_TYPES)
        return self.found.setdefault(key, len(self.found))

    def __missing__(self, head: Head) -> int:
        if head.whole is not None:  # it isn't shared, and holds a whole chunk: not to be kept
            return self.number(head.type, head.run_id, head.from_)
        number = self[head] = self.number(head.type, head.run_id, head.from_, len(head.prefix) + 1)
        return number


class _Batch:
    """Numbers of chunks that were taken together; -1 where one has none."""

    __slots__ = ("depth", "kind", "length", "parent", "size", "tool")

    def __init__(self, kind: Ints, size: Ints) -> None:
        count = len(kind)
        self.kind = kind
        self.size = size
        self.length: Ints = np.full(count, -1, np.int32)
        """Of a delta's text."""
        self.depth: Ints = np.zeros(count, np.int32)
        self.tool: Ints = np.full(count, -1, np.int32)
        self.parent: Ints = np.full(count, -1, np.int32)


@dataclass(frozen=True)
class Spread:
    """Where chunks stand among more rows; those between them are further deltas of the head and call before them."""

    rows: Ints
    """The row of each chunk, from 0; the first has row 0."""
    size: Ints
    """Of each row, in bytes; any number where a chunk stands."""
    length: Ints
    """Of each row's text; any number where a chunk stands."""


@dataclass(frozen=True)
class Places:
    """When the rows of a run came, and in which turn and step, where its state has fewer chunks than that."""

    times: np.ndarray[Any, Any]
    turns: np.ndarray[Any, Any]
    steps: np.ndarray[Any, Any]


class ChunkColumns:
    """Collects the chunks of runs, a batch at a time, in arrays; `frame()` makes the table of them."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = columns
        self._raw = any(column.name == "payload" for column in columns)
        self._kinds = _Kinds()
        self._batches: list[_Batch] = []
        self._tools: dict[str, int] = {}
        self._parents: dict[str, int] = {}
        self._ids: dict[str, dict[int, str]] = {name: {} for name in _SPARSE}
        self._payloads: list[str | None] = []
        self._runs: list[tuple[str | None, int]] = []
        self._since: list[tuple[int, float]] = []
        """Number of a run's first row, and when the chunk before it came."""
        self._times: list[np.ndarray[Any, Any]] = []
        self._places: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._starts: list[float] = []
        self._taken = 0
        self._rows = 0
        """Those of runs that are read as far as they came."""
        self._sound = 0
        """The number of batches that these came in."""

    @property
    def taken(self) -> int:
        """Rows so far."""
        return self._taken

    # --- in ----------------------------------------------------------------------------------------------------------

    def take(self, run: Run, chunks: list[Chunk], first: int, spread: Spread | None = None) -> None:
        """A batch of a run's chunks, the first of which has this number; the run has folded them."""
        kinds, inner_of, row = self._kinds, run.state.inner_of, self._taken
        rows = spread.rows.tolist() if spread is not None else range(len(chunks))
        kind: Ints = np.array([kinds[chunk.head] for chunk in chunks], np.int32)
        bodies = [chunk.body for chunk in chunks]
        size: Ints = np.array(list(map(len, bodies)), np.int32) + np.array(kinds.envelopes, np.int32)[kind]
        batch = _Batch(kind, size)
        is_text: np.ndarray[Any, np.dtype[np.bool_]] = np.array(kinds.texts, bool)[kind]
        batch.length[is_text] = _text_lengths(list(compress(chunks, is_text)))
        for index in np.flatnonzero(~is_text).tolist():
            chunk = chunks[index]
            inner = inner_of.get(first + index)
            if inner is not None:
                parent = inner.parent_call.tool_call_id if inner.parent_call is not None else ""
                batch.parent[index] = self._parents.setdefault(parent, len(self._parents))
                batch.depth[index] = inner.depth
                chunk = _carried(chunk, inner.depth)
                kind[index] = kinds.number(chunk.type, chunk.run_id, chunk.from_)
            self._note(chunk, batch, index, row + rows[index])
        if self._raw:
            self._payloads.extend(map(_payload_text, chunks))
        if spread is not None:
            batch = self._spread_out(batch, spread, row)
        self._batches.append(batch)
        self._taken += len(batch.kind)

    def _spread_out(self, batch: _Batch, spread: Spread, first: int) -> _Batch:
        """The batch with a number for each row."""
        rows = spread.rows
        counts = np.diff(rows, append=len(spread.size))
        wide = _Batch(np.repeat(batch.kind, counts), spread.size)
        wide.length = spread.length
        wide.size[rows], wide.length[rows] = batch.size, batch.length
        for name in ("depth", "tool", "parent"):
            setattr(wide, name, np.repeat(getattr(batch, name), counts))
        for ids in self._ids.values():
            for index in np.flatnonzero(counts > 1).tolist():
                row = first + int(rows[index])
                if row in ids:
                    ids.update(dict.fromkeys(range(row + 1, row + int(counts[index])), ids[row]))
        return wide

    def _note(self, chunk: Chunk, batch: _Batch, index: int, row: int) -> None:
        if delta_key(chunk.type) is not None:
            batch.length[index] = _delta_length(chunk)
        facts = _facts(chunk)
        if facts is None:
            return
        tool = as_text(facts.tool_name)
        if tool:
            batch.tool[index] = self._tools.setdefault(tool, len(self._tools))
        for name in _SPARSE:
            id = getattr(facts, name)
            if isinstance(id, str):
                self._ids[name][row] = id

    def end(self, run: Run, places: Places | None = None, since: int = 0) -> None:
        """The run is read as far as it came, all but the first `since` rows of it taken by somebody else.

        Raises SettingsError for a state, which has no chunks.
        """
        state, end = run.state, run.events
        if self._taken != self._rows + end - since:
            raise SettingsError(
                "chunks_df needs the chunks, which a RunState doesn't keep: give the output or recording"
            )
        # Slices are copies: an array that numpy looks at can't grow, and a live run's must.
        if places is None:
            arrays = (state.times[since:end], state.turn_of[since:end], state.step_of[since:end])
            places = Places(*map(np.asarray, arrays))
        self._rows, self._sound = self._taken, len(self._batches)
        self._times.append(places.times if run.timed else np.full(end - since, np.nan))
        self._places.append((places.turns, places.steps))
        self._runs.append((run.stream_id, end - since))
        self._since.append((since, state.times[since - 1] if since and run.timed else np.nan))
        self._starts.append(run.created_at.timestamp() if run.created_at is not None else np.nan)

    def undo(self) -> None:
        """Forget what was taken of a run that couldn't be read to its end."""
        self._taken = self._rows
        del self._batches[self._sound :]
        del self._payloads[self._rows :]
        for ids in self._ids.values():
            for row in [row for row in ids if row >= self._rows]:
                del ids[row]

    # --- out ---------------------------------------------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """The table of all that was taken."""
        return pd.DataFrame({column.name: self._array(column) for column in self._columns}, copy=False)

    def _array(self, column: Column[Any]) -> Any:
        match column.name:
            case "stream_id":
                ids = {id: None for id, _ in self._runs if id is not None}
                codes = {id: code for code, id in enumerate(ids)} | {None: -1}
                return _categorical(list(ids), self._spread([codes[id] for id, _ in self._runs]))
            case "type":
                return self._of_kind(0, ())
            case "run_id":
                return self._of_kind(1, ())
            case "from":
                return self._of_kind(2, column.values)
            case "seq":
                parts = zip(self._since, self._runs, strict=True)
                numbers = [np.arange(since, since + count) for (since, _), (_, count) in parts]
                return _whole(_joined(numbers, np.int64), None)
            case "turn" | "step":
                numbers = _joined([place[column.name == "step"] for place in self._places], np.int32)
                return _whole(numbers, numbers < 0)
            case "depth":
                return _whole(self._numbers("depth"), None)
            case "bytes":
                return _whole(self._numbers("size"), None)
            case "text_len":
                lengths = self._numbers("length")
                return _whole(lengths, lengths < 0)
            case "at_s":
                times = _joined(self._times, np.float64)
                return _float(times, np.isnan(times))
            case "gap_s":
                return self._gaps()
            case "timestamp":
                return self._timestamps()
            case "tool_name":
                return _categorical(list(self._tools), self._numbers("tool"))
            case "parent_tool_call_id":
                return _categorical(list(self._parents), self._numbers("parent"))
            case "payload":
                return array_of(column, self._payloads)
            case name:
                return self._sparse(self._ids[name])

    def _numbers(self, name: str) -> Ints:
        return _joined([getattr(batch, name) for batch in self._batches], np.int32)

    def _spread(self, values: list[Any], dtype: Any = np.int32) -> np.ndarray[Any, Any]:
        """One value a run as one a row."""
        return np.repeat(np.array(values, dtype=dtype), [count for _, count in self._runs])

    def _of_kind(self, place: int, fixed: tuple[str, ...]) -> Any:
        names = [cast("str | None", kind[place]) for kind in self._kinds.found]
        categories = list(dict.fromkeys([*fixed, *(name for name in names if name is not None)]))
        codes = {name: code for code, name in enumerate(categories)}
        by_kind = np.array([codes[name] if name is not None else -1 for name in names], dtype=np.int32)
        return _categorical(categories, by_kind[self._numbers("kind")] if names else by_kind, len(fixed))

    def _gaps(self) -> Any:
        times = _joined(self._times, np.float64)
        gaps = np.diff(times, prepend=np.nan)
        counts = np.array([count for _, count in self._runs], dtype=np.int64)
        firsts = (np.cumsum(counts) - counts)[counts > 0]
        gaps[firsts] = times[firsts] - np.array([before for _, before in self._since], dtype=np.float64)[counts > 0]
        return _float(gaps, np.isnan(gaps))

    def _timestamps(self) -> Any:
        times = _joined(self._times, np.float64)
        starts = np.array([round(start * 1e6) if start == start else _NAT for start in self._starts], dtype=np.int64)
        start = np.repeat(starts, [count for _, count in self._runs])
        bad = (start == _NAT) | ~(np.abs(times) < _FAR_S)
        micros = np.where(bad, 0, np.rint(np.where(bad, 0.0, times) * 1e6).astype(np.int64) + start)
        micros[bad] = _NAT
        return pd.DatetimeIndex(micros.view("M8[us]")).tz_localize("UTC").astype(TIMESTAMP)

    def _sparse(self, values: dict[int, str]) -> Any:
        texts = array_of(_ID, list(values.values()))
        places = np.full(self._rows, -1, dtype=np.intp)
        places[np.fromiter(values, np.intp, len(values))] = np.arange(len(values))
        return texts.take(places, allow_fill=True)


_NAT = np.iinfo(np.int64).min
_FAR_S = 1e11  # three thousand years
_ID = Column[Any]("id", "str", "", _bulk)


def _joined(parts: list[np.ndarray[Any, Any]], dtype: Any) -> np.ndarray[Any, Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _whole(values: np.ndarray[Any, Any], missing: np.ndarray[Any, Any] | None) -> Any:
    mask = np.zeros(len(values), dtype=bool) if missing is None else missing
    return pd.arrays.IntegerArray(values.astype(np.int64), mask)


def _float(values: np.ndarray[Any, Any], missing: np.ndarray[Any, Any] | None) -> Any:
    mask = np.zeros(len(values), dtype=bool) if missing is None else missing
    return pd.arrays.FloatingArray(values, mask)


def _categorical(categories: list[str], codes: np.ndarray[Any, Any], fixed: int = 0) -> Any:
    """A category from codes; all but the fixed categories are sorted, and those that no row has are left out."""
    used = np.zeros(len(categories) + 1, dtype=bool)
    used[codes] = True
    used[:fixed] = True
    clean = array_of(_ID, categories)
    kept = sorted((index for index in range(len(categories)) if used[index] and index >= fixed), key=lambda i: clean[i])
    order = [*range(fixed), *kept]
    names: dict[str, int] = {}
    renumber = np.full(len(categories) + 1, -1, dtype=np.int32)  # the last one is for -1, what is missing
    for index in order:
        renumber[index] = names.setdefault(clean[index], len(names))
    index: Any = pd.Index(list(names), dtype="str")
    return cast("Any", pd.Categorical).from_codes(renumber[codes], categories=index)


def _text_lengths(chunks: list[Chunk]) -> list[int]:
    """Lengths of deltas of text or reasoning."""
    try:
        deltas = _TEXTS(b"\n".join([chunk.body for chunk in chunks]))
        if len(deltas) == len(chunks):
            return [len(delta.text) for delta in deltas]
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # half an emoji, keys behind the payload, or no text: one by one
    return list(map(_delta_length, chunks))


def _delta_length(chunk: Chunk) -> int:
    try:
        return len(chunk.delta)
    except ChunkError:
        return -1


def _carried(chunk: Chunk, depth: int) -> Chunk:
    """The chunk that this one carries, so many runs deep; the fold has read it before."""
    for _ in range(depth):
        payload = as_dict(chunk.raw_payload())
        chunk = parse_chunk(payload if chunk.type.startswith(EVENT_PREFIXES) else as_dict(payload.get("output")))
    return chunk


def _facts(chunk: Chunk) -> _Facts | None:
    try:
        if chunk.head.whole is None:
            return _FACTS.decode(chunk.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # no object, half an emoji, or keys behind the payload
    try:
        return msgspec.convert(chunk.raw_payload(), _Facts)
    except (msgspec.ValidationError, ChunkError):
        return None


def _payload_text(chunk: Chunk) -> str | None:
    whole = chunk.head.whole
    try:
        if whole is None and _is_alone(chunk.body):
            return chunk.body.decode()
        wire = whole if whole is not None else chunk.to_wire()
        return json.dumps(wire["payload"], ensure_ascii=False) if "payload" in wire else None
    except (ChunkError, ValueError):
        return chunk.body.decode("utf-8", "replace")


def _is_alone(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
