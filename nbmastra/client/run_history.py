"""A server's runs from its traces: listed page by page, fetched where they aren't known yet, as finished outputs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

import anyio
import anyio.to_thread
from tqdm.auto import tqdm

from nbmastra.client.agent_routes import AgentRoutes, json_dict
from nbmastra.client.answers import RemoteControl
from nbmastra.client.http import Http
from nbmastra.client.refusals import clean
from nbmastra.client.since import When, span_of_time
from nbmastra.client.trace_store import TraceStore, store_path
from nbmastra.errors import BadRequest, ClientError, NotFound, ServerUnreachable, SettingsError, Unauthorized
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.output import MastraModelOutput
from nbmastra.output.frame_methods import Columns, FrameMethods
from nbmastra.recording.spans import moment
from nbmastra.recording.traces import runs_of_trace, settled_at

if TYPE_CHECKING:
    import pandas as pd  # only for its types

__all__ = ["History", "Wanted", "fetch_history", "trace_store", "wanted"]

AT_ONCE = 8
PAGE = 100
SETTLE_S = 30.0
"""How long after the end of a run its trace may still grow: servers write spans in batches, some seconds late."""
_TOGETHER = 20


class History(Sequence[MastraModelOutput], FrameMethods):
    """A server's runs as finished outputs, oldest first; a part after an answer is one of its own, with `.previous`.

    Its tables are those of all runs together. `traces`: how many there are; `fetched`: how many of them came from the
    server this time, the others were known. What couldn't be fetched or was odd is in `unread` (trace id: why) and
    `odd` (what: how often), and doesn't stop the rest. `other_spans`: those that belong to no run.
    """

    def __init__(self, url: str, traces: int = 0) -> None:
        self.url = url
        self.traces = traces
        self.fetched = 0
        self.unread: dict[str, str] = {}
        self.odd: Counter[str] = Counter()
        self.other_spans: list[dict[str, Any]] = []
        self._outputs: list[MastraModelOutput] = []

    def add(self, trace: dict[str, Any], http: Http) -> None:
        """Take in the runs of a trace; `sort` puts them in order."""
        found = runs_of_trace(trace, url=self.url, engine=http.engine)
        for out in found.outputs:
            if out.waiting and out.next is None and out.agent and not out.state.workflow_steps:
                about = {key: out.context[key] for key in ("thread", "resource") if key in out.context}
                options = {"memory": about} if len(about) == 2 else {}
                out.control = RemoteControl(AgentRoutes(http, out.agent), options)
        self._outputs += found.outputs
        self.other_spans += found.other_spans
        self.odd += found.odd

    def sort(self) -> None:
        """Oldest first."""
        self._outputs.sort(key=lambda out: out.created_at)

    def spans_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per span, of processors, memory and workflows too; `columns=["main", "raw"]` adds what it holds."""
        return self._frame("spans_df", columns=columns)

    @overload
    def __getitem__(self, index: int) -> MastraModelOutput: ...
    @overload
    def __getitem__(self, index: slice) -> list[MastraModelOutput]: ...
    def __getitem__(self, index: int | slice) -> MastraModelOutput | list[MastraModelOutput]:
        return self._outputs[index]

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def notes(self) -> list[str]:
        """What was odd, as sentences."""
        gone = [f"{len(self.unread)} traces couldn't be fetched: {clean(why, 120)}" for why in self.unread.values()]
        return gone[:1] + [f"{what}: {count}" for what, count in self.odd.most_common()]

    def __repr__(self) -> str:
        if not self:
            return f"<History of {self.url}: no runs>"
        first, last = (f"{out.created_at:%Y-%m-%d %H:%M}" for out in (self[0], self[-1]))
        notes = "".join(f"; {note}" for note in self.notes)
        said = f"{len(self)} runs, {first} to {last} UTC, {self.fetched} of {self.traces} traces fetched now{notes}"
        return f"<History of {self.url}: {said}; .runs_df(), .usage_df(), .spans_df()>"


@dataclass(frozen=True)
class Wanted:
    """Which traces are wanted; times in UTC."""

    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    limit: int | None = None
    run_id: str | None = None

    def query(self, newest: str = "") -> dict[str, Any]:
        """The same as the server's filters; up to the start of the `newest` trace, so that pages stay as they are."""
        end = newest or (_iso(self.until) if self.until is not None else "")
        span = {key: value for key, value in (("start", _iso(self.since)), ("end", end)) if value}
        return {"entityId": self.agent, "startedAt": json.dumps(span) if span else None}

    def has(self, row: dict[str, Any]) -> bool:
        """Whether a listed trace is one of them, whatever the server made of its filters."""
        start = moment(row.get("startedAt"))
        if start is None:
            return False
        early = self.since is not None and start < self.since.timestamp()
        late = self.until is not None and start > self.until.timestamp()
        run_id = as_text(row.get("runId")) or as_text(as_dict(row.get("metadata")).get("runId"))
        named = self.agent in (None, row.get("entityId")) and self.run_id in (None, run_id)
        return named and not early and not late


def wanted(since: When | None, until: When | None, agent: str | None, limit: int | None, run_id: str | None) -> Wanted:
    """What the user asked for. Raises SettingsError."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may err
        raise SettingsError(f"limit={limit!r}: give a whole number above 0, or None for all")
    return Wanted(*span_of_time(since, until), agent, limit, run_id)


def trace_store(url: str, cache: bool | str | Path) -> TraceStore | None:
    """Where fetched traces are kept; None for nowhere."""
    if cache is False:
        return None
    path = store_path(url)
    return TraceStore(path if cache is True else Path(cache).expanduser() / path.name)


async def fetch_history(http: Http, which: Wanted, store: TraceStore | None, *, progress: bool) -> History:
    """The runs. Raises ClientError if traces can't be listed, or the server is gone in the middle."""
    listed = await _Listing(http, which).all()
    history = History(http.address.url, len(listed))
    known = await _in_thread(store.settled, listed.items()) if store is not None else set[str]()
    here = await _fetch(http, [id for id in listed if id not in known], listed, store, history, progress)
    with _bar(len(listed), "reading runs", progress) as bar:
        ids = list(listed)
        for begin in range(0, len(ids), _TOGETHER):
            await _in_thread(_read, http, history, ids[begin : begin + _TOGETHER], here, store)
            bar.update(min(_TOGETHER, len(ids) - begin))
    history.sort()
    return history


def _read(
    http: Http, history: History, ids: Sequence[str], here: dict[str, dict[str, Any]], store: TraceStore | None
) -> None:
    kept = [id for id in ids if id not in here and id not in history.unread]
    found = here if store is None else here | {id: trace for id, trace in store.read(kept) if trace is not None}
    for id in ids:
        if id in found:
            try:
                history.add(found[id], http)
            except RecursionError:
                history.unread[id] = "its values are nested too deep"
            here.pop(id, None)
        elif id not in history.unread:
            history.unread[id] = "the cache lost it: ask again"


# --- listing ---------------------------------------------------------------------------------------------------------

Page = tuple[list[dict[str, Any]], dict[str, Any]]
"""Topmost spans, newest first, and what is told of the page."""


class _Listing:
    """The traces that are wanted, newest first, with when each of them changed."""

    def __init__(self, http: Http, which: Wanted) -> None:
        self._http = http
        self._which = which
        self._path = "/observability/traces/light"
        self._filtered = True
        self._per_page = min(PAGE, which.limit or PAGE)

    async def all(self) -> dict[str, str]:
        """Their ids, with when they changed."""
        rows, about = await self._first()
        newest = as_text(rows[0].get("startedAt")) if rows else ""
        total, last = about.get("total"), 0
        more = about.get("hasMore") is True
        if more and isinstance(total, int) and self._filtered:
            last = max(-(-min(total, self._which.limit or total) // self._per_page) - 1, 0)
            pages = {0: (rows, about)}

            async def get(page: int) -> None:
                pages[page] = await self._page(page, newest)

            await _at_once(get, range(1, last + 1))
            rows = [row for page in sorted(pages) for row in pages[page][0]]
            more = pages[last][1].get("hasMore") is True
        while more and not self._enough(rows):  # traces of several rows, or that came late, need further pages
            last += 1
            found, about = await self._page(last, newest)
            rows += found
            more = about.get("hasMore") is True and bool(found)
        return self._of(rows)

    def _enough(self, rows: list[dict[str, Any]]) -> bool:
        limit, since = self._which.limit, self._which.since
        last = moment(rows[-1].get("startedAt")) if rows else None
        past = since is not None and last is not None and last < since.timestamp()
        return past or (limit is not None and len(self._of(rows)) >= limit)

    def _of(self, rows: list[dict[str, Any]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for row in rows:
            id = as_text(row.get("traceId"))
            if not id or not self._which.has(row):
                continue
            if id not in found and len(found) == self._which.limit:
                break
            # A durable run's parts are topmost spans of one trace.
            found[id] = max(found.get(id, ""), as_text(row.get("updatedAt")) or as_text(row.get("endedAt")))
        return found

    async def _first(self) -> Page:
        """The first page, of the route that the server knows."""
        try:
            return await self._page(0)
        except NotFound:  # an older server
            self._path = "/observability/traces"
            return await self._page(0)

    async def _page(self, page: int, newest: str = "") -> Page:
        """A page; without filters from a server that refuses them."""
        filters = self._which.query(newest) if self._filtered else {}
        try:
            return await self._ask(page, filters)
        except BadRequest:
            if not filters:
                raise
            self._filtered = False
            return await self._ask(page, {})

    async def _ask(self, page: int, filters: dict[str, Any]) -> Page:
        query = {"page": page, "perPage": self._per_page, "runId": self._which.run_id, **filters}
        answer = json_dict(self._http, self._path, await self._http.get(self._path, query))
        return [as_dict(row) for row in as_list(answer.get("spans"))], as_dict(answer.get("pagination"))


# --- fetching --------------------------------------------------------------------------------------------------------


async def _fetch(
    http: Http,
    ids: Sequence[str],
    listed: dict[str, str],
    store: TraceStore | None,
    history: History,
    progress: bool,
) -> dict[str, dict[str, Any]]:
    """Ask for traces; those that couldn't be kept are given."""
    here: dict[str, dict[str, Any]] = {}
    writing = anyio.Lock()
    with _bar(len(ids), "fetching traces", progress) as bar:

        async def get(id: str) -> None:
            path = f"/observability/traces/{quote(id, safe='')}"
            try:
                trace = json_dict(http, path, await http.get(path))
            except (ServerUnreachable, Unauthorized):
                raise
            except ClientError as error:
                history.unread[id] = str(error)
            else:
                history.fetched += 1
                settled = settled_at(trace)
                done = settled is not None and time.time() - settled > SETTLE_S
                async with writing:
                    kept = store is not None and await _in_thread(store.put, id, trace, done, listed[id])
                if not kept:
                    here[id] = trace
            bar.update()

        await _at_once(get, ids)
    return here


async def _at_once(function: Callable[[Any], Coroutine[Any, Any, None]], items: Iterable[Any]) -> None:
    """Call it for each, some at a time; the first error ends the rest and is raised as it is."""
    waiting = iter(items)
    failed: list[Exception] = []

    async def work() -> None:
        try:
            for item in waiting:
                await function(item)
        except Exception as error:
            failed.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(work)
    if failed:
        raise failed[0]


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call what reads or writes files, or takes long, beside the engine's loop."""
    return await anyio.to_thread.run_sync(function, *args)


def _bar(total: int, what: str, progress: bool) -> Any:
    return tqdm(total=total, desc=what, unit="trace", delay=1, leave=False, disable=not progress)


def _iso(when: datetime | None) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" if when is not None else ""
