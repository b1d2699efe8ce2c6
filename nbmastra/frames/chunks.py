"""`chunks_df`: one row per chunk, its columns built in bulk, since there may be millions."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
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

__all__ = ["CHUNKS", "ChunkColumns"]


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
_SPARSE = ("tool_call_id", "task_id", "message_id")


class _Kinds(dict[Head, int]):
    """A number for each type, run and origin there is, by the head of a chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[str, str | None, str | None], int] = {}

    def number(self, type: str, run_id: str | None, from_: str | None) -> int:
        return self.found.setdefault((type, run_id, from_), len(self.found))

    def __missing__(self, head: Head) -> int:
        number = self.number(head.type, head.run_id, head.from_)
        if head.whole is None:  # others aren't shared, and hold a whole chunk
            self[head] = number
        return number


class ChunkColumns:
    """Collects the chunks of runs, a batch at a time, in arrays; `frame()` makes the table of them."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = columns
        self._raw = any(column.name == "payload" for column in columns)
        self._kinds = _Kinds()
        self._kind = array("i")
        self._size = array("i")
        self._length = array("i")
        """Of a delta's text; -1 for all else."""
        self._depth = array("b")
        self._tools: dict[str, int] = {}
        self._tool = array("i")
        self._parents: dict[str, int] = {}
        self._parent = array("i")
        self._ids: dict[str, dict[int, str]] = {name: {} for name in _SPARSE}
        self._payloads: list[str | None] = []
        self._runs: list[tuple[str | None, int]] = []
        self._times: list[np.ndarray[Any, Any]] = []
        self._places: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._starts: list[float] = []
        self._rows = 0
        """Those of runs that are read as far as they came."""

    # --- in ----------------------------------------------------------------------------------------------------------

    def take(self, run: Run, chunks: list[Chunk], first: int) -> None:
        """A batch of a run's chunks, the first of which has this number; the run has folded them."""
        row, count = len(self._kind), len(chunks)
        kinds, inner_of = self._kinds, run.state.inner_of
        self._kind.extend([kinds[chunk.head] for chunk in chunks])
        self._size.extend([len(c.head.prefix) + len(c.body) + (c.head.whole is None) for c in chunks])
        missing = array("i", [-1]) * count
        self._length.extend(missing)
        self._tool.extend(missing)
        self._parent.extend(missing)
        self._depth.extend(array("b", [0]) * count)
        if self._raw:
            self._payloads.extend(map(_payload_text, chunks))
        texts: list[int] = []
        for index, chunk in enumerate(chunks):
            if chunk.type in ("text-delta", "reasoning-delta"):
                texts.append(index)
            elif first + index in inner_of:
                inner = inner_of[first + index]
                parent = inner.parent_call.tool_call_id if inner.parent_call is not None else ""
                self._parent[row + index] = self._parents.setdefault(parent, len(self._parents))
                self._depth[row + index] = inner.depth
                carried = _carried(chunk, inner.depth)
                self._kind[row + index] = kinds.number(carried.type, carried.run_id, carried.from_)
                self._note(carried, row + index)
            else:
                self._note(chunk, row + index)
        self._note_lengths(chunks, texts, row)

    def _note_lengths(self, chunks: list[Chunk], texts: list[int], row: int) -> None:
        length = self._length
        try:
            deltas = _TEXTS(b"\n".join([chunks[index].body for index in texts]))
            sound = len(deltas) == len(texts)
        except (msgspec.DecodeError, UnicodeDecodeError):
            deltas, sound = [], False
        if sound:
            for index, delta in zip(texts, deltas, strict=True):
                length[row + index] = len(delta.text)
        else:
            for index in texts:
                length[row + index] = _delta_length(chunks[index])

    def _note(self, chunk: Chunk, row: int) -> None:
        if delta_key(chunk.type) is not None:
            self._length[row] = _delta_length(chunk)
        facts = _facts(chunk)
        if facts is None:
            return
        tool = as_text(facts.tool_name)
        if tool:
            self._tool[row] = self._tools.setdefault(tool, len(self._tools))
        for name in _SPARSE:
            id = getattr(facts, name)
            if isinstance(id, str):
                self._ids[name][row] = id

    def end(self, run: Run) -> None:
        """The run is read as far as it came. Raises SettingsError for a state, which has no chunks."""
        count = run.events
        if len(self._kind) != self._rows + count:
            raise SettingsError(
                "chunks_df needs the chunks, which a RunState doesn't keep: give the output or recording"
            )
        self._rows += count
        state = run.state
        # Slices are copies: an array that numpy looks at can't grow, and a live run's must.
        self._times.append(np.asarray(state.times[:count]))
        self._places.append((np.asarray(state.turn_of[:count]), np.asarray(state.step_of[:count])))
        self._runs.append((run.stream_id, count))
        self._starts.append(run.created_at.timestamp() if run.created_at is not None else np.nan)

    def undo(self) -> None:
        """Forget what was taken of a run that couldn't be read to its end."""
        for column in (self._kind, self._size, self._length, self._depth, self._tool, self._parent, self._payloads):
            del column[self._rows :]
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
                counts = [np.arange(count) for _, count in self._runs]
                return _whole(_joined(counts, np.int64), None)
            case "turn" | "step":
                numbers = _joined([place[column.name == "step"] for place in self._places], np.int32)
                return _whole(numbers, numbers < 0)
            case "depth":
                return _whole(np.asarray(self._depth), None)
            case "bytes":
                return _whole(np.asarray(self._size), None)
            case "text_len":
                lengths = np.asarray(self._length)
                return _whole(lengths, lengths < 0)
            case "at_s":
                return _float(_joined(self._times, np.float64), None)
            case "gap_s":
                return self._gaps()
            case "timestamp":
                return self._timestamps()
            case "tool_name":
                return _categorical(list(self._tools), np.asarray(self._tool))
            case "parent_tool_call_id":
                return _categorical(list(self._parents), np.asarray(self._parent))
            case "payload":
                return array_of(column, self._payloads)
            case name:
                return self._sparse(self._ids[name])

    def _spread(self, values: list[Any], dtype: Any = np.int32) -> np.ndarray[Any, Any]:
        """One value a run as one a row."""
        return np.repeat(np.array(values, dtype=dtype), [count for _, count in self._runs])

    def _of_kind(self, place: int, fixed: tuple[str, ...]) -> Any:
        names = [kind[place] for kind in self._kinds.found]
        categories = list(dict.fromkeys([*fixed, *(name for name in names if name is not None)]))
        codes = {name: code for code, name in enumerate(categories)}
        by_kind = np.array([codes[name] if name is not None else -1 for name in names], dtype=np.int32)
        return _categorical(categories, by_kind[np.asarray(self._kind)] if names else by_kind, len(fixed))

    def _gaps(self) -> Any:
        times = _joined(self._times, np.float64)
        gaps = np.diff(times, prepend=np.nan)
        counts = [count for _, count in self._runs if count]
        first = np.zeros(len(times), dtype=bool)
        first[np.cumsum([0, *counts[:-1]], dtype=np.int64)[: len(counts)]] = True
        gaps[first] = 0.0
        return _float(gaps, first)

    def _timestamps(self) -> Any:
        times = _joined(self._times, np.float64)
        starts = np.array([round(start * 1e6) if start == start else _NAT for start in self._starts], dtype=np.int64)
        start = np.repeat(starts, [count for _, count in self._runs])
        bad = (start == _NAT) | ~(np.abs(times) < _FAR_S)
        micros = np.where(bad, 0, np.rint(np.where(bad, 0.0, times) * 1e6).astype(np.int64) + start)
        micros[bad] = _NAT
        return pd.DatetimeIndex(micros.view("M8[us]")).tz_localize("UTC").astype(TIMESTAMP)

    def _sparse(self, values: dict[int, str]) -> Any:
        found = np.full(len(self._kind), np.nan, dtype=object)
        if values:
            texts = array_of(_ID, list(values.values()))
            found[np.fromiter(values, np.int64, len(values))] = np.asarray(texts, dtype=object)
        return pd.array(found, dtype="str")


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
