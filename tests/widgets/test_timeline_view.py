"""The timeline: a lane for everything, at its time, sent once, growing with the run."""

from __future__ import annotations

import gc
import threading
import weakref
from datetime import timedelta
from typing import Any

import ipywidgets
import pytest
from hypothesis import given, settings

from nbmastra import Timeline, frames, load_recording, record
from nbmastra.engine import get_engine
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording import demo_recording, open_playback
from nbmastra.widgets.lanes import Lanes
from nbmastra.widgets.snapshot_timeline import timeline_snapshot
from tests.frames.test_plot import timed
from tests.support.feed import Feed
from tests.support.random_runs import Facts, runs
from tests.support.runs import Wire, call, chunk, finish, result, start, step_finish, step_start, text
from tests.support.timed_run import RIDE, feed, ride
from tests.widgets.asking import AFTER, Scripted, approval, settle
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.test_data import Copy, send
from tests.widgets.views import dangers


class SteppedTimeline(Timeline):
    """Draws when it is told to."""

    def _watch(self) -> None:
        pass

    def draw_now(self) -> None:
        self._frame()


def spans(lane: dict[str, Any]) -> list[tuple[str, float, float | None]]:
    return [tuple(span) for span in lane["spans"]]


def shown(view: Timeline) -> dict[str, dict[str, Any]]:
    """Lanes by key as a page has them that followed every message."""
    copy = Copy(view.boot())
    return {key: copy.rows[key] for key in copy.order}


def test_everything_has_a_lane_at_its_time() -> None:
    """One for each turn, step, call, task and what is in nested runs, below what it belongs to."""
    lanes = shown(Timeline(ride()))
    assert [("  " * lane["depth"]) + lane["name"] for lane in lanes.values()] == [
        "Turn 1",
        "  Step 1",
        "    get_forecast",
        "    get_wind",
        "  Step 2",
        "    route-scout",
        "      Step 1",
        "        search_routes",
        "        elevation",
        "  build_gpx",
        "Turn 2",
        "  Step 1",
        "    fetch_closures",
    ]
    assert spans(lanes["turn:0"]) == [("turn", 0.0, 9.8), ("gap", 9.8, 16.6)]
    assert lanes["turn:0"]["note"] == "waiting for build_gpx"
    assert spans(lanes["step:0.1"]) == [("step", 5.0, 9.8)]
    assert lanes["step:0.1"]["first"] == 5.48
    assert spans(lanes["c1"]) == [("tool", 2.2, 3.04)]
    assert spans(lanes["c3"]) == [("agent", 5.9, 9.1)]
    assert (lanes["c3"]["in"], lanes["c3"]["out"], lanes["c3"]["first"]) == (892, 312, 6.41)
    assert lanes["c3/step:0.0"]["first"] == 6.41
    assert lanes["d2"]["status"] == "error"
    assert spans(lanes["t1"]) == [("queued", 3.0, 3.6), ("task", 3.6, 16.4), ("suspended", 8.0, 12.2)]
    assert lanes["turn:1"]["in"] == 1590


def test_it_tells_the_time_to_the_first_token_and_the_longest_gap() -> None:
    facts = Timeline(ride()).boot()["facts"]
    assert (facts["first"], facts["gap"], facts["turns"], facts["end"]) == (0.62, 6.8, 2, 23.4)
    assert "now_since" not in facts


@pytest.mark.parametrize("name", ["background-until-idle.sse", "suspend-until-idle.sse", "supervisor.sse"])
def test_lanes_are_those_of_timeline_df(name: str) -> None:
    """Both are made of the fold's own stretches: they can't disagree."""
    out = timed(name)
    df = out.timeline_df()
    mains = df[~df["kind"].isin(["gap", "wait", "reasoning", "text"])]
    firsts = mains.drop_duplicates("lane")
    in_table = sorted(zip(firsts["name"], firsts["start_s"], strict=True))
    in_view = sorted((lane["name"], lane["spans"][0][1]) for lane in shown(Timeline(out)).values())
    assert [name for name, _ in in_view] == [name for name, _ in in_table]
    assert [at for _, at in in_view] == pytest.approx([at for _, at in in_table])
    assert len(in_view) == df["lane"].nunique() == len(frames.timeline_df(out)["lane"].unique())


@settings(max_examples=25, deadline=None)
@given(runs())
def test_lanes_that_grew_are_those_of_the_finished_run(facts: Facts) -> None:
    """Whatever came in whatever order: followed chunk by chunk, or looked at once in the end."""
    out, lanes = MastraModelOutput(), Lanes()
    lanes.begin(out.state)
    order: list[str] = []
    for event, item in enumerate(facts.chunks):
        feed(out, [(event / 10, item)])
        for lane, after in lanes.update():
            if after is not None:
                order.insert(order.index(after) + 1 if after else 0, lane.key)
    out.finish(Ended(True, at=len(facts.chunks) / 10))
    lanes.update()
    whole = Lanes()
    whole.begin(out.state)
    whole.update()
    assert order == [lane.key for lane in lanes]
    assert {lane.key: (lane.name, lane.stretches) for lane in lanes} == {
        lane.key: (lane.name, lane.stretches) for lane in whole
    }


def test_a_live_timeline_sends_only_what_changed_and_ends_like_a_finished_one() -> None:
    out = MastraModelOutput(agent="trip-weather")
    view = SteppedTimeline(out)
    copy, seen = Copy(view.boot()), 0
    for item in RIDE:
        feed(out, [item])
        view.draw_now()
        for message in view.comm.custom()[seen:]:  # type: ignore[union-attr]
            copy.apply(message["ops"])
            seen += 1
    assert copy.facts["now_since"] is not None  # it ticks in the browser
    assert copy.rows["turn:1"]["spans"] == [["turn", 16.6, 23.4], ["gap", 23.4, None]]  # who knows what comes
    out.finish(Ended(True, at=23.5))
    view.draw_now()
    copy.apply(view.comm.custom()[-1]["ops"])  # type: ignore[union-attr]
    assert copy.facts["now_since"] is None
    whole = Copy(Timeline(ride()).boot())
    assert copy.order == whole.order
    some = {key: {k: v for k, v in row.items() if v not in (None, "")} for key, row in copy.rows.items()}
    assert some == {key: {k: v for k, v in row.items() if v not in (None, "")} for key, row in whole.rows.items()}


def many_calls(count: int) -> list[Wire]:
    chunks = [start(), step_start()]
    for number in range(count):
        chunks += [call(f"c{number}"), result(f"c{number}", 1)]
    return [*chunks, step_finish(), finish()]


def test_a_run_of_thousands_of_calls_sends_what_its_parts_send() -> None:
    """The bytes grow with the calls: each is sent twice, whatever else there is."""
    sizes: dict[int, int] = {}
    for count in (600, 3000):
        out = MastraModelOutput()
        view = SteppedTimeline(out)
        chunks = many_calls(count)
        for first in range(0, len(chunks), 20):
            feed(out, [(event / 100, item) for event, item in enumerate(chunks[first : first + 20], first)])
            view.draw_now()
        sizes[count] = sum(len(str(message)) for message in view.comm.custom())  # type: ignore[union-attr]
        view.close()
    assert sizes[3000] <= 5.5 * sizes[600]


def test_calls_with_the_same_id_have_lanes_of_their_own() -> None:
    """Ids are unique within a step only."""
    out = MastraModelOutput()
    again = [step_start(), call("c1", "second"), result("c1", 2, "second"), step_finish(), finish()]
    chunks = [start(), step_start(), call("c1", "first"), result("c1", 1, "first"), step_finish(continued=True), *again]
    feed(out, list(enumerate(chunks)))
    out.finish(Ended(True, at=20))
    lanes = shown(Timeline(out))
    assert [lane["name"] for lane in lanes.values()][1:] == ["Step 1", "first", "Step 2", "second"]


def test_a_run_that_goes_on_after_an_answer_is_in_the_same_timeline() -> None:
    """The call that asked keeps its lane: asked, waited (hatched), ran."""
    out = MastraModelOutput(control=Scripted(AFTER))
    out.created_at -= timedelta(minutes=1)  # when it was asked
    feed(out, [(0.0, start()), (0.1, step_start()), (0.5, call("c1", "book_train", {"seats": 1})), (0.6, approval())])
    view = Timeline(out)
    out.finish(Ended(True, at=0.7))
    assert view.ended.wait(5)
    after = out.approve().result(5)
    after.wait(5)
    view.comm.wait_until(lambda: view.rows.fact("status") == "success")  # type: ignore[union-attr]
    lanes = shown(view)
    assert [lane["name"] for lane in lanes.values()].count("book_train") == 1
    kinds = [kind for kind, *_ in spans(lanes["c1"])]
    assert kinds == ["suspended", "suspended", "tool"]
    times = [at for _, *ends in spans(lanes["c1"]) for at in ends]
    assert times == sorted(times)  # type: ignore[type-var]
    assert times[-1] > 60  # type: ignore[operator]
    assert lanes["turn:0"]["note"] == "waiting for an answer"
    assert view.outs == [out, after]


def test_selecting_calls_back_with_the_keys_that_tables_have() -> None:
    view = Timeline(ride())
    heard: list[str] = []
    news = threading.Event()
    end = view.on_select(lambda key: (heard.append(key), news.set()))
    view.on_select(lambda key: 1 / 0)  # a callback that fails disturbs nobody
    for key in ("c1", "c1", "t1", "step:0.1"):
        news.clear()
        send(view, act="select", node=key)
        assert news.wait(5)
    assert heard == ["c1", "c1", "t1", "step:0.1"]
    assert view.selected == "step:0.1"
    end()
    view.select("c2")
    assert (view.selected, view.boot()["facts"]["selected"], heard[-1]) == ("c2", "c2", "step:0.1")
    send(view, act="select", node="nobody")
    assert view.selected == "c2"


def test_recordings_and_replays_are_drawn_and_a_replay_may_go_back(tmp_path: Any) -> None:
    loaded = load_recording(demo_recording())
    whole = shown(Timeline(loaded))
    player = open_playback(demo_recording(), 1.0, paused=True)
    view = Timeline(player.out)
    counts: list[int] = []

    async def after() -> None:
        pass

    for at in (player.duration_s, player.duration_s / 3, player.duration_s):
        player.seek(at)
        get_engine().start(after).result(5)
        view.comm.wait_until(lambda: view.out is player.out)  # type: ignore[union-attr]
        counts.append(len(view.boot()["rows"]))
    assert counts[0] == counts[2] == len(whole)
    assert counts[1] < counts[0]
    assert view.boot()["facts"]["rate"] == 0.0
    view.close()
    path = tmp_path / "ride.jsonl"
    record(ride(), path).result(5)
    assert list(shown(Timeline(load_recording(path)))) == list(shown(Timeline(ride())))


EVIL = "<img src=x onerror=alert(1)>\u202e\x1b[2J"


def test_names_are_hostile_and_only_ever_text() -> None:
    """B52"""
    out = MastraModelOutput(agent=EVIL)
    feed(out, list(enumerate([start(), step_start(), call("c", EVIL), result("c", 1, EVIL), step_finish(), finish()])))
    out.finish(Ended(True, at=9))
    view = Timeline(out)
    assert not {"\u202e", "\x1b"} & set("".join(row["name"] for row in shown(view).values()))
    bundle = view.snapshot()
    assert dangers(bundle["text/html"]) == []
    assert "<img src=x" not in bundle["text/html"]
    assert "<img" not in bundle["text/markdown"].replace("\\<img", "")
    assert "\x1b" not in bundle["text/plain"]


def test_the_snapshot_has_every_lane_with_its_times_and_bars() -> None:
    bundle = Timeline(ride()).snapshot()
    html = bundle["text/html"]
    assert html.count("<tr") == 1 + 13
    assert html.count("data:image/svg+xml,") == 13
    assert [word for word in ("var(", "<svg", "<style") if word in html] == []
    assert "first token 0.62 s, longest gap 6.80 s" in html
    assert "✕ elevation" in html
    assert "| · · get\\_forecast | 2.20 s | 0.84 s |" in bundle["text/markdown"]
    assert "build_gpx" in bundle["text/plain"]
    many = MastraModelOutput()
    feed(many, [(event / 100, item) for event, item in enumerate(many_calls(1000))])
    many.finish(Ended(True, at=100))
    assert "… 802 more" in timeline_snapshot([many])["text/html"]
    assert "Nothing happened." in timeline_snapshot([MastraModelOutput()])["text/html"]
    kept = ride()
    kept.context["times"] = "unknown"
    assert "Nobody knows when" in timeline_snapshot([kept])["text/html"]
    assert Timeline(kept).boot()["rows"] == []


def test_closed_timelines_are_freed_and_their_runs_go_on(comms: list[RecordingComm]) -> None:
    """B49: 100 times made, drawn and closed leave no widget, no task, no listener that holds one."""
    source = Feed(start(), step_start(), text("Hello"))
    out = source.run()
    before, views = len(ipywidgets.widgets.widget._instances), []
    for _ in range(100):
        view = Timeline(out)
        view.close()
        views.append(weakref.ref(view))
        del view
    get_engine().start(settle).result(5)
    comms.clear()
    source.push(text(" and on"), chunk("text-end", {"id": "t"}))
    source.end(done=True)
    out.wait(5)
    gc.collect()
    assert len(ipywidgets.widgets.widget._instances) == before
    assert [ref for ref in views if ref() is not None] == []
