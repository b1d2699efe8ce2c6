"""A server's history: listing, filters, what is fetched, what the cache keeps."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tqdm.auto import tqdm

from nbmastra import frames
from nbmastra.client import History, MastraClient, run_history
from nbmastra.client.since import moment_of
from nbmastra.engine import Engine
from nbmastra.errors import NotFound, ServerError, ServerUnreachable, SettingsError, Unauthorized
from tests.client.tiny_server import Request, TinyServer, answer
from tests.support.mastra import MastraServer
from tests.support.traces import Wire, at, span, trace, weather

LIGHT = "/api/observability/traces/light"


class Traces:
    """What a server answers that keeps these traces, the first of them the newest."""

    def __init__(self, *traces: Wire) -> None:
        self.traces = {made["traceId"]: made for made in traces}
        self.asked: list[str] = []
        """Ids of the traces that were fetched."""
        self.pages: list[dict[str, str]] = []
        """Queries of the lists that were asked for."""
        self.filters = True
        self.light = True
        self.gone: dict[str, int] = {}
        """Traces that are listed, but answered with an error."""

    def __call__(self, request: Request) -> Iterable[bytes]:
        parts = urlsplit(request.target)
        if parts.path == LIGHT if self.light else parts.path == LIGHT.removesuffix("/light"):
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self.pages.append(query)
            if not self.filters and query.keys() & {"startedAt", "entityId"}:
                return [answer(400, '{"error": "Invalid query"}')]
            return [answer(200, json.dumps(self._page(query)))]
        id = unquote(parts.path.rpartition("/")[2])
        self.asked.append(id)
        status = 404 if id not in self.traces else self.gone.get(id, 200)
        return [answer(status, json.dumps(self.traces[id] if status == 200 else {"error": f"{id} failed"}))]

    def _page(self, query: dict[str, str]) -> Wire:
        rows = [one for made in self.traces.values() for one in made["spans"] if one.get("parentSpanId", "?") is None]
        if self.filters:
            span_ = json.loads(query.get("startedAt", "{}"))
            rows = [
                row
                for row in rows
                if query.get("entityId") in (None, row["entityId"])
                and query.get("runId") in (None, row["runId"])
                and span_.get("start", "") <= row["startedAt"] <= span_.get("end", "~")
            ]
        page, size = int(query["page"]), int(query["perPage"])
        shown = rows[page * size : (page + 1) * size]
        more = (page + 1) * size < len(rows)
        return {"spans": shown, "pagination": {"total": len(rows), "page": page, "perPage": size, "hasMore": more}}


def run(number: int, agent: str = "weather", days_ago: float = 10, **more: Any) -> Wire:
    """A run with ids of its own, some days ago."""
    began = datetime.now(UTC) - timedelta(days=days_ago)
    root = span("agent_run", f"a{number}", 0, 100, entity=agent, input="Hi", output={"text": "Ho"}, **more)
    moved = {"startedAt": at(0, began), "endedAt": at(100, began), "updatedAt": at(100, began), "runId": f"r{number}"}
    return trace({**root, **moved}, id=f"t{number}")


@pytest.fixture
def client(server: TinyServer, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MastraClient:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return MastraClient(server.url, token="very-secret-token", engine=engine)


def ids(history: History) -> list[str]:
    return [out.stream_id for out in history]


# --- what is fetched -------------------------------------------------------------------------------------------------


def test_only_what_is_new_is_fetched(server: TinyServer, client: MastraClient) -> None:
    kept = server.handler = Traces(run(2, days_ago=1), run(1, days_ago=2))
    history = client.history().result(10)
    assert (ids(history), history.fetched, history.traces) == (["a1", "a2"], 2, 2)
    assert sorted(kept.asked) == ["t1", "t2"]
    new = Traces(run(3, days_ago=0.5), *kept.traces.values())
    server.handler = new
    again = client.history().result(10)
    assert (ids(again), again.fetched, new.asked) == (["a1", "a2", "a3"], 1, ["t3"])
    assert again.usage_df().equals(frames.usage_df(list(again)))
    assert again.runs_df()["prompt"].tolist() == ["Hi"] * 3


@pytest.mark.parametrize("why", ["open", "just ended", "waits", "changed"])
def test_what_may_have_changed_is_fetched_again(why: str, server: TinyServer, client: MastraClient) -> None:
    made = run(1, days_ago=0 if why == "just ended" else 5)
    if why == "open":
        made["spans"][0]["endedAt"] = None
    if why == "waits":
        made["spans"][0]["output"] = {"status": "suspended", "toolCallId": "c1", "toolName": "deploy"}
    kept = server.handler = Traces(made)
    assert client.history().result(10).fetched == 1
    if why == "changed":
        made["spans"][0]["updatedAt"] = at(9_999_999)
    assert client.history().result(10).fetched == 1
    if why == "open":
        made["spans"][0]["endedAt"] = at(100)
        made["spans"][0]["startedAt"] = at(0)
        assert client.history().result(10)[0].status == "success"
        assert client.history().result(10).fetched == 0
    assert set(kept.asked) == {"t1"}


def test_traces_that_the_server_deleted_are_no_longer_shown(server: TinyServer, client: MastraClient) -> None:
    server.handler = Traces(run(2), run(1))
    client.history().result(10)
    server.handler = Traces(run(2))
    assert ids(client.history().result(10)) == ["a2"]


def test_traces_are_fetched_some_at_a_time(server: TinyServer, client: MastraClient) -> None:
    kept = Traces(*(run(number) for number in range(20)))
    together, most, lock, all_in = 0, 0, threading.Lock(), threading.Event()

    def handler(request: Request) -> Iterable[bytes]:
        nonlocal together, most
        if LIGHT in request.target:
            return kept(request)
        with lock:
            together += 1
            most = max(most, together)
            if together == run_history.AT_ONCE:
                all_in.set()
        all_in.wait(10)
        answers = list(kept(request))
        with lock:
            together -= 1
        return answers

    server.handler = handler
    assert len(client.history().result(30)) == 20
    assert most == run_history.AT_ONCE


def test_a_bar_shows_how_far_it_is(
    server: TinyServer, client: MastraClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.handler = Traces(run(1), run(2))
    monkeypatch.setattr(run_history, "tqdm", lambda **options: tqdm(**options | {"delay": 0, "leave": True}))
    client.history().result(10)
    told = capsys.readouterr().err
    assert "fetching traces: 100%" in told
    assert "reading runs: 100%" in told
    client.history(progress=False).result(10)
    assert capsys.readouterr().err == ""


# --- the cache -------------------------------------------------------------------------------------------------------


def test_the_cache_is_the_users_own_and_holds_no_token(
    server: TinyServer, client: MastraClient, tmp_path: Path
) -> None:
    server.handler = Traces(run(1))
    client.history().result(10)
    [file] = (tmp_path / "cache").rglob("*.sqlite")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert b"very-secret-token" not in file.read_bytes()
    assert server.url.encode() not in file.read_bytes()


def test_a_folder_takes_its_place_and_false_keeps_nothing(
    server: TinyServer, client: MastraClient, tmp_path: Path
) -> None:
    server.handler = Traces(run(1))
    assert client.history(cache=False).result(10).fetched == 1
    assert client.history(cache=tmp_path / "here").result(10).fetched == 1
    assert client.history(cache=tmp_path / "here").result(10).fetched == 0
    assert [path.suffix for path in (tmp_path / "here").iterdir()] == [".sqlite"]
    assert not (tmp_path / "cache").exists()


def test_servers_have_caches_of_their_own(client: MastraClient, engine: Engine, tmp_path: Path) -> None:
    other = MastraClient("http://127.0.0.1:9/other", engine=engine)
    paths = {run_history.trace_store(one.url, True).path for one in (client, other)}  # type: ignore[union-attr]
    assert len(paths) == 2


def test_a_damaged_cache_is_made_anew(server: TinyServer, client: MastraClient, tmp_path: Path) -> None:
    server.handler = Traces(run(1))
    client.history().result(10)
    [file] = (tmp_path / "cache").rglob("*.sqlite")
    file.write_bytes(b"no database at all" * 100)
    assert client.history().result(10).fetched == 1
    assert client.history().result(10).fetched == 0


def test_without_a_place_to_write_nothing_is_kept(server: TinyServer, client: MastraClient, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    server.handler = Traces(run(1))
    for _ in range(2):
        history = client.history().result(10)
        assert (len(history), history.fetched) == (1, 1)


# --- pages and filters -----------------------------------------------------------------------------------------------


def test_all_pages_are_read_and_a_limit_takes_the_newest(
    server: TinyServer, client: MastraClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_history, "PAGE", 10)
    kept = server.handler = Traces(*(run(number, days_ago=1 + number / 100) for number in range(23)))
    assert len(client.history().result(30)) == 23
    assert sorted(int(query["page"]) for query in kept.pages) == [0, 1, 2]
    newest = kept.traces["t0"]["spans"][0]["startedAt"]
    assert [json.loads(query.get("startedAt", "{}")).get("end") for query in kept.pages] == [None, newest, newest]
    kept.pages.clear()
    assert ids(client.history(limit=3).result(10)) == ["a2", "a1", "a0"]
    assert [query["perPage"] for query in kept.pages] == ["3"]


def test_a_limit_counts_traces_however_many_rows_each_has(
    server: TinyServer, client: MastraClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A durable run's parts are rows of one trace."""
    monkeypatch.setattr(run_history, "PAGE", 4)
    made = [run(number, days_ago=1 + number) for number in range(6)]
    for number, one in enumerate(made):
        one["spans"].append({**one["spans"][0], "spanId": f"part-{number}"})
    server.handler = Traces(*made)
    assert client.history(limit=3).result(10).traces == 3
    assert client.history(limit=5).result(10).traces == 5
    assert client.history(limit=9).result(10).traces == 6


def test_traces_that_come_while_pages_are_read_push_none_out(
    server: TinyServer, client: MastraClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers write spans some seconds late, so a trace may appear behind newer ones."""
    monkeypatch.setattr(run_history, "PAGE", 2)
    kept = Traces(*(run(number, days_ago=1 + number) for number in range(4)))
    late = Traces(run(0, days_ago=1), run(9, days_ago=1.5), *(run(number, days_ago=1 + number) for number in (1, 2, 3)))
    late.traces["t0"] = kept.traces["t0"]

    def handler(request: Request) -> Iterable[bytes]:
        return (late if kept.pages else kept)(request)

    server.handler = handler
    assert "a3" in ids(client.history(cache=False).result(10))


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("light", [True, False])
def test_filters_hold_whatever_the_server_makes_of_them(
    filters: bool, light: bool, server: TinyServer, client: MastraClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_history, "PAGE", 2)
    kept = server.handler = Traces(
        run(1, days_ago=1),
        run(2, agent="ops", days_ago=2),
        run(3, days_ago=3),
        run(4, agent="ops", days_ago=4),
        run(5, days_ago=5),
    )
    kept.filters, kept.light = filters, light
    assert ids(client.history(agent="ops").result(10)) == ["a4", "a2"]
    assert ids(client.history(since="3.5d").result(10)) == ["a3", "a2", "a1"]
    assert ids(client.history(until=timedelta(days=3.5)).result(10)) == ["a5", "a4"]
    assert ids(client.history(since="4.5d", until="2.5d", agent="weather").result(10)) == ["a3"]
    assert ids(client.history(run_id="r4").result(10)) == ["a4"]
    assert ids(client.history(agent="ops", limit=1).result(10)) == ["a2"]
    assert ids(client.history(agent="nobody").result(10)) == []


def test_moments_are_dates_times_and_how_long_ago() -> None:
    now = datetime.now(UTC)
    for text, ago in {"7d": 7 * 86400, "24h": 86400, "30m": 1800, "2w": 14 * 86400, "90 s": 90, "1.5h": 5400}.items():
        assert abs((now - moment_of(text, "since")).total_seconds() - ago) < 5
    local = datetime(2026, 11, 30).astimezone()
    assert moment_of("2026-11-30", "since") == moment_of(date(2026, 11, 30), "since") == local
    assert moment_of("2026-11-30", "until", end_of_day=True) == local + timedelta(days=1, microseconds=-1)
    assert moment_of("2026-11-30T09:30", "since") == local + timedelta(hours=9.5)
    aware = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
    assert moment_of("2026-11-30T09:30:00Z", "since") == moment_of(aware, "since") == aware
    assert moment_of(timedelta(days=1), "since") < now


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"since": "last week"}, "since='last week': give a datetime, a date"),
        ({"until": 7}, "until='7'"),
        ({"since": "1h", "until": "2h"}, "exchange them"),
        ({"since": "999999w"}, "since="),
        ({"limit": 0}, "limit=0"),
    ],
)
def test_bad_times_and_limits_are_refused(asked: dict[str, Any], words: str, client: MastraClient) -> None:
    with pytest.raises(SettingsError, match=words):
        client.history(**asked)


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_trace_that_cant_be_fetched_is_counted_and_the_rest_is_there(
    server: TinyServer, client: MastraClient
) -> None:
    kept = server.handler = Traces(run(3), run(2), run(1))
    kept.gone = {"t2": 500}
    history = client.history().result(10)
    assert sorted(ids(history)) == ["a1", "a3"]
    assert history.unread.keys() == {"t2"}
    assert "1 traces couldn't be fetched" in repr(history)
    kept.gone = {}
    assert client.history().result(10).fetched == 1


def test_odd_spans_are_told(server: TinyServer, client: MastraClient) -> None:
    made = weather()
    made["spans"] += [{"spanId": 3}]
    server.handler = Traces(made)
    history = client.history().result(10)
    assert history.notes == ["a span without an id or a start: 1"]
    assert "a span without an id or a start: 1" in repr(history)
    assert len(history.spans_df()) == len(made["spans"]) - 1


def test_spans_outside_of_runs_are_in_the_table_too(server: TinyServer, client: MastraClient) -> None:
    server.handler = Traces(trace(span("tool_call", "x", 0, 5, entity="look"), id="t7"), weather())
    history = client.history().result(10)
    assert (len(history), history.traces) == (1, 2)
    strays = history.spans_df().query("stream_id.isna()")
    assert strays["span_id"].tolist() == ["x"]


def test_a_server_that_keeps_no_traces_says_so(server: TinyServer, client: MastraClient) -> None:
    server.handler = lambda _: [answer(500, '{"error": "Observability storage is not available"}')]
    with pytest.raises(ServerError, match="Observability storage is not available"):
        client.history().result(10)
    server.handler = lambda _: [answer(404, '{"error": "Not Found"}')]
    with pytest.raises(NotFound):
        client.history().result(10)


def test_a_refusal_in_the_middle_ends_it(server: TinyServer, client: MastraClient) -> None:
    kept = server.handler = Traces(run(2), run(1))
    kept.gone = {"t1": 401, "t2": 401}
    with pytest.raises(Unauthorized):
        client.history().result(10)


def test_a_server_that_goes_away_in_the_middle_ends_it(server: TinyServer, client: MastraClient) -> None:
    kept = Traces(*(run(number) for number in range(20)))

    def handler(request: Request) -> Iterable[bytes]:
        if len(kept.asked) > 5:
            raise ConnectionAbortedError
        return kept(request)

    server.handler = handler
    with pytest.raises(ServerUnreachable):
        client.history().result(30)
    server.handler = kept
    assert client.history().result(30).fetched < 20  # what came before was kept


# --- the real server -------------------------------------------------------------------------------------------------


@pytest.fixture
def real(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


@pytest.mark.server
def test_a_streams_run_is_found_by_its_id_and_fetched_once(
    real: MastraClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_history, "SETTLE_S", 0.0)
    began = datetime.now(UTC)
    outs = [real.agent("tools").stream("Weather?").result(10).wait(20) for _ in range(3)]
    for out in outs:
        while not (found := real.history(run_id=out.run_id, cache=tmp_path).result(10)):
            pass  # servers write spans some seconds late
        assert [item.run_id for item in found] == [out.run_id]
    asked = {"since": began, "agent": "tools", "cache": tmp_path}
    while real.history(**asked).result(10).fetched:
        pass
    history = real.history(**asked).result(10)
    assert [out.run_id for out in history] == [out.run_id for out in outs]
    assert history.fetched == 0
    assert ids(real.history(**asked, limit=2).result(10)) == ids(history)[1:]
    newest = real.agent("tools").stream("Weather?").result(10).wait(20)
    while len(history := real.history(**asked).result(10)) == 3:
        assert history.fetched == 0
    assert history[-1].run_id == newest.run_id
    assert history.fetched == 1
    assert history.usage_df()["total_tokens"].sum() == 4 * 65


@pytest.mark.server
def test_a_run_that_waits_in_the_history_can_be_answered(real: MastraClient, tmp_path: Path) -> None:
    memory = {"thread": "history-waits", "resource": "history"}
    out = real.agent("approve").stream("Deploy", memory=memory).result(10).wait(20)
    while not (found := real.history(run_id=out.run_id, cache=tmp_path).result(10)) or not found[0].waiting:
        pass
    after = found[0].approve().result(10).wait(20)
    assert after.text.result(1) == "Deployed."
    assert after.previous is found[0]
    while len(found := real.history(run_id=out.run_id, cache=tmp_path).result(10)) == 1:
        pass
    assert [out.status for out in found] == ["suspended", "success"]


@pytest.mark.server
def test_pages_and_filters_of_the_real_server(
    real: MastraClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_history, "PAGE", 2)
    began = datetime.now(UTC)
    for agent in ("text", "tools", "text", "tools", "text"):
        real.agent(agent).stream("Hi").result(10).wait(20)
    while len(history := real.history(since=began, cache=tmp_path).result(20)) < 5:
        pass
    assert [out.agent for out in history] == ["text", "tools", "text", "tools", "text"]
    assert [out.agent for out in real.history(since=began, agent="tools", cache=tmp_path).result(20)] == ["tools"] * 2
    middle = history[2].created_at
    assert ids(real.history(since=began, until=middle, cache=tmp_path).result(20)) == ids(history)[:3]
    assert ids(real.history(since=middle, cache=tmp_path).result(20)) == ids(history)[2:]
    assert len(real.history(until=began - timedelta(days=1), cache=tmp_path).result(20)) == 0
