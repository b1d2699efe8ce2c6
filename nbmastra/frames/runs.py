"""From a source (outputs, states, recordings, folders) to folded runs, one at a time."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tqdm.auto import tqdm

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.fold import RunState, TextPart, ToolCall, WorkflowStep
from nbmastra.frames.kept import Kept, Shelf, as_record, by_thread, kept_state
from nbmastra.output import MastraModelOutput
from nbmastra.prices import OwnPrices, price
from nbmastra.recording import Recording, open_recording
from nbmastra.usage import Usage

__all__ = [
    "Place",
    "Run",
    "Source",
    "about",
    "batches",
    "forget",
    "items",
    "places",
    "recordings",
    "run_of",
    "runs",
    "shown",
]

Source = MastraModelOutput | RunState | str | Path | Shelf | Mapping[str, Any] | BaseModel | Iterable["Source"]
"""An output (live or finished), a fold's state, a recording, a folder of them, a glob pattern, or several of these;
a server's store, or what its lists of threads, messages and background tasks give."""
Item = MastraModelOutput | RunState | Path
"""What a run is made of."""
Sink = Callable[["Run", list[Chunk], int], None]
"""Takes chunks of a run as they are read, and the number of the first one; they are folded already."""

_AT_ONCE = 50_000
"""Chunks of an output that are looked at together."""
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


@dataclass
class Run:
    """One stream, folded as far as it came, and what is known of it."""

    state: RunState
    stream_id: str | None = None
    agent: str | None = None
    prompt: str | None = None
    created_at: datetime | None = None
    status: str = "running"
    elapsed_s: float | None = None
    path: str | None = None
    previous: str | None = None
    prices: OwnPrices | None = None
    spans: Iterable[dict[str, Any]] = ()
    """Of the trace that it was read from, as they came."""
    events: int = 0
    """How many chunks the tables may look at; a live run has more by the time they do."""
    timed: bool = True
    """False if nobody knows when its chunks came."""
    kept: Kept | None = None
    """What a server keeps of a thread, if it is that and no stream."""
    costs: dict[tuple[Usage, str | None, str | None], float | None] = field(default_factory=dict[Any, "float | None"])

    def __post_init__(self) -> None:
        if self.created_at is not None:  # a recording's may be in any zone, or in none
            known = self.created_at.tzinfo is not None
            self.created_at = self.created_at.astimezone(UTC) if known else self.created_at.replace(tzinfo=UTC)

    @property
    def agent_id(self) -> str | None:
        """The agent that answered or, where the stream doesn't tell, the one that was asked."""
        return self.state.agent_id or self.agent

    @cached_property
    def total(self) -> Usage:
        """All its tokens, runs inside of it included, at the first time of asking."""
        return self.state.grand_usage

    def time(self, at: float | None) -> datetime | None:
        """The date of a moment of the stream; None if it or the stream's start isn't known."""
        if at is None or self.created_at is None:
            return None
        try:
            return self.created_at + timedelta(seconds=at)
        except OverflowError:
            return None

    def cost(self, usage: Usage, model: str | None, provider: str | None) -> float | None:
        """USD; None if there is no price or nothing was counted."""
        key = (usage, model, provider)
        if key not in self.costs:
            found = price(usage, model, provider, own=self.prices)
            self.costs[key] = None if found is None else float(found)
        return self.costs[key]


@dataclass(frozen=True)
class Place:
    """A run or one inside of it: how deep, in which call or workflow step, and its `path` of names."""

    run: Run
    state: RunState
    path: str

    @property
    def depth(self) -> int:
        """0 for the stream itself."""
        return self.state.depth

    @property
    def parent(self) -> ToolCall | WorkflowStep | None:
        """The call or workflow step that it runs in."""
        return self.state.parent_call

    @property
    def agent_id(self) -> str | None:
        """The agent or workflow that runs here."""
        if self.depth == 0:
            return self.run.agent_id
        return self.state.agent_id or (self.parent.tool_name if self.parent is not None else None)


def places(run: Run) -> Iterator[Place]:
    """The stream and all runs inside of it, each before those inside of it."""
    yield from _places(Place(run, run.state, run.agent_id or ""))


def _places(place: Place) -> Iterator[Place]:
    yield place
    for inner in list(place.state.nested):
        name = inner.parent_call.tool_name if inner.parent_call is not None else ""
        yield from _places(Place(place.run, inner, f"{place.path}/{name}" if place.path else name))


def runs(
    source: Source,
    *,
    sink: Sink | None = None,
    on_error: Callable[[Path, RecordingError], None] | None = None,
    prices: OwnPrices | None = None,
    progress: bool = True,
    read: Callable[[Item], Run] | None = None,
) -> Iterator[Run]:
    """The runs of a source, each folded, its chunks given to `sink`. A bar shows if it takes longer than a second.

    `read` makes the run of an item in another way than `run_of`. A file that is no recording goes to `on_error` if
    that is given. Raises RecordingError, SettingsError.
    """
    for item in shown(source, progress=progress):
        if isinstance(item, Shelf):
            yield from map(_of_thread, item.threads())
            continue
        try:
            run = read(item) if read is not None else run_of(item, sink, prices)
        except RecordingError as error:
            if on_error is None or not isinstance(item, Path):
                raise
            on_error(item, error)
        else:
            yield run


def shown(source: Source, *, progress: bool = True) -> Iterable[Item | Shelf]:
    """The items of a source; a bar shows if what is done with them takes longer than a second."""
    found = list(items(source))
    return tqdm(found, unit="run", delay=1, leave=False, disable=not progress or len(found) < 2)


def run_of(item: Item, sink: Sink | None = None, prices: OwnPrices | None = None) -> Run:
    """One output, state or recording as a folded run. Raises RecordingError."""
    if isinstance(item, RunState):
        return Run(item, item.run_id, status=item.status, elapsed_s=item.ended_at, prices=prices, events=item.events)
    run: Run | None = None
    for run, chunks, first in batches(item, prices):
        if sink is not None:
            sink(run, chunks, first)
    assert run is not None
    return run


def batches(item: MastraModelOutput | Path, prices: OwnPrices | None = None) -> Iterator[tuple[Run, list[Chunk], int]]:
    """The run with each batch of its chunks, folded up to them, and the number of the first; at least one batch.

    Of a recording, what was folded is forgotten as far as no table tells it: it may be larger than memory.
    """
    if isinstance(item, Path):
        yield from _read(item, prices)
        return
    run = about(item, prices)
    chunks = item.log.items[:]  # first: what is in the log is folded already
    if not chunks:
        yield run, [], 0
    for first in range(0, len(chunks), _AT_ONCE):
        part = chunks[first : first + _AT_ONCE]
        run.events += len(part)
        yield run, part, first


def _of_thread(kept: Kept) -> Run:
    return Run(kept_state(kept), kept.id, created_at=kept.created_at, status="success", kept=kept)


def _read(path: Path, prices: OwnPrices | None) -> Iterator[tuple[Run, list[Chunk], int]]:
    recording = open_recording(path)
    out = recording.output(None)
    run = about(out, prices, recording)
    apply = out.state.apply
    yield run, [], 0
    with tqdm(desc=path.name, unit="chunk", unit_scale=True, delay=1, leave=False) as bar:
        for times, chunks in recording.lines:
            for chunk, at in zip(chunks, times, strict=True):
                apply(chunk, at)
            first, run.events = run.events, run.events + len(chunks)
            yield run, chunks, first
            forget(out.state)
            bar.update(len(chunks))
    out.finish(recording.lines.ended)
    run.status, run.elapsed_s = out.status, out.elapsed_s


def forget(state: RunState) -> None:
    """Drop what no table tells of what has come: texts, and the history that each finish repeats."""
    for part in state.changes:
        if isinstance(part, TextPart):
            del part.pieces[1:]  # that it has some is told by the first
        elif isinstance(part, ToolCall | WorkflowStep):
            for run in part.nested:
                forget(run)
    state.changes.clear()
    state.text_pieces.clear()
    state.reasoning_pieces.clear()
    for done in (state.steps, state.turns):
        for item in reversed(done):
            if item.finish_chunk is _FORGOTTEN:
                break
            if item.finish_chunk is not None:
                item.finish_chunk = _FORGOTTEN


_FORGOTTEN = parse_chunk({"type": "forgotten"})
"""In the place of a finish: that there was one counts."""


def about(out: MastraModelOutput, prices: OwnPrices | None = None, recording: Recording | None = None) -> Run:
    """What an output, or the recording that it is read from, says of its run."""
    run = Run(
        out.state,
        out.stream_id,
        out.agent,
        out.prompt,
        out.created_at,
        out.status,
        out.elapsed_s,
        path=out.context.get("recording"),
        timed=out.context.get("times") != "unknown",
        previous=out.previous.stream_id if out.previous is not None else None,
        spans=out.context.get("spans", ()),
        prices=prices,
    )
    if recording is not None:
        previous = recording.header.get("previous")
        run.path = str(recording.path)
        run.previous = previous if isinstance(previous, str) else None
    return run


def items(source: Source) -> Iterator[MastraModelOutput | RunState | Path | Shelf]:
    """The outputs, states, files and stores of a source, none of them read. Raises RecordingError, SettingsError."""
    records: list[dict[str, Any]] = []
    for item in _items(source):
        if isinstance(item, dict):
            records.append(item)
        else:
            yield item
    if records:
        yield by_thread(records)


def _items(source: Source) -> Iterator[MastraModelOutput | RunState | Path | Shelf | dict[str, Any]]:
    if isinstance(source, MastraModelOutput | RunState | Shelf):
        yield source
    elif (record := as_record(source)) is not None:
        yield record
    elif isinstance(source, str | Path):
        yield from _paths(source)
    elif isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may err
        for item in source:
            yield from _items(item)
    else:
        raise SettingsError(
            f"expected an output, a recording, a folder, a pattern like 'runs/*.jsonl' or a list of these; "
            f"not {type(source).__name__}"
        )


def _paths(source: str | Path) -> Iterator[Path]:
    path = Path(source).expanduser()
    if path.is_dir():
        yield from recordings(path)
    elif path.exists():
        yield path
    else:
        matches = sorted(glob.glob(str(path), recursive=True))
        if not matches:
            raise RecordingError(f"there is no {path}")
        for match in map(Path, matches):
            yield from recordings(match) if match.is_dir() else [match]


def recordings(folder: Path) -> list[Path]:
    """The recordings right in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and not path.name.startswith("."))
