"""Usage as it grows: rows that sum to the fold's total, cost where it is known, what is missing stays missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from nbmastra import UsageView, load_recording
from nbmastra.errors import SettingsError
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording import demo_recording
from nbmastra.usage import sum_usage
from nbmastra.widgets.token_speed import TokenSpeed
from nbmastra.widgets.usage_rows import UsageRows
from tests.support.random_runs import Facts, runs
from tests.support.runs import EXPECTED, call, finish, recorded, result, start, step_finish, step_start, text
from tests.support.runs import usage as used
from tests.support.timed_run import RIDE, feed, ride
from tests.widgets.asking import AFTER, Scripted, approval
from tests.widgets.test_data import Copy
from tests.widgets.views import dangers

PRICES = {"mini": {"input": 1.0, "output": 4.0, "cached_input": 0.5}, "nano": {"input": 0.1, "output": 0.4}}


class SteppedUsage(UsageView):
    """Draws when it is told to."""

    def _watch(self) -> None:
        pass

    def draw_now(self) -> None:
        self._frame()


def priced(out: MastraModelOutput) -> MastraModelOutput:
    """The run with models that have prices."""
    for step in out.state.steps:
        step.model = "mini"
    for run in out.state.nested:
        for step in run.steps:
            step.model = "nano"
    return out


def shown(view: UsageView) -> Copy:
    return Copy(view.boot())


def numbers(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("input", "cached", "output", "reasoning"))


def test_steps_and_nested_agents_have_rows_and_sum_to_the_total() -> None:
    copy = shown(UsageView(priced(ride()), PRICES))
    rows = [(row["turn"], row.get("step"), row["agent"], *numbers(row)) for row in map(copy.rows.get, copy.order)]  # type: ignore[index, union-attr]
    assert rows == [
        (1, 1, "", 642, None, 211, 164),
        (1, 2, "", 1124, 512, 186, None),
        (1, None, "route-scout", 892, 640, 312, None),
        (2, 1, "", 1590, 1024, 125, None),
    ]
    assert numbers(copy.facts["total"]) == (4248, 2176, 834, 164)
    costs = [row["cost"] for row in map(copy.rows.get, copy.order)]  # type: ignore[index]
    assert copy.facts["cost"] == pytest.approx(sum(costs))
    assert costs[2] == pytest.approx((892 * 0.1 + 312 * 0.4) / 1e6)
    assert (copy.facts["own_prices"], copy.facts["first"], copy.facts["turns"]) == (True, 0.62, 2)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_rows_sum_to_the_folds_total_at_any_moment(facts: Facts) -> None:
    """Nested runs, turns that tell more than their steps, reports that come late: nothing is lost or counted twice."""
    out, rows = MastraModelOutput(), UsageRows()
    rows.begin(out.state)
    order: list[str] = []

    def look() -> None:
        for row, after in rows.update():
            if after is not None:
                order.insert(order.index(after) + 1 if after else 0, row.key)
        whole = out.state.grand_usage
        assert rows.total == whole == sum_usage(rows.by_key[key].usage for key in order)

    for event, item in enumerate(facts.chunks):
        feed(out, [(event / 10, item)])
        if event % 3 == 0:
            look()
    out.finish(Ended(True, at=len(facts.chunks) / 10))
    look()
    assert order == rows.order


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recorded_run_adds_up(name: str) -> None:
    out = MastraModelOutput()
    feed(out, enumerate([chunk.to_wire() for chunk in recorded(name)[0]]))
    out.finish(Ended(True, at=1000))
    rows = UsageRows()
    rows.begin(out.state)
    rows.update()
    total = sum(out.usage_df()["total_tokens"].fillna(0))
    assert (rows.total.total_tokens or 0) == (out.state.grand_usage.total_tokens or 0) == total


def test_what_nobody_reported_is_missing_and_not_0() -> None:
    out = MastraModelOutput()
    feed(out, list(enumerate([start(), step_start(), text("Hi"), step_finish(), finish()])))
    out.finish(Ended(True, at=5))
    view = UsageView(out)
    copy = shown(view)
    assert numbers(copy.facts["total"]) == (None, None, None, None)
    assert "cost" not in copy.facts
    bundle = view.snapshot()
    assert "tokens not reported" in bundle["text/html"]
    assert "| Step 1 | – | – | – | – | – | – |" in bundle["text/markdown"]


def test_a_model_without_a_price_is_named_and_makes_the_total_unknown() -> None:
    out = priced(ride())
    out.state.nested[0].steps[0].model = "home-made"
    view = UsageView(out, PRICES)
    copy = shown(view)
    assert "cost" not in copy.facts
    assert copy.facts["unpriced"] == ["home-made"]
    assert copy.rows["step:0.0"]["cost"] == pytest.approx((642 + 4 * 211) / 1e6)
    assert "No price is known for home-made." in view.snapshot()["text/markdown"]
    with pytest.raises(SettingsError, match="expected"):
        UsageView(out, {"mini": {"in": 1.0}})


def test_a_live_view_sends_what_differs_and_ends_like_a_finished_one() -> None:
    out = MastraModelOutput(agent="trip-weather")
    view = SteppedUsage(out)
    copy, seen = Copy(view.boot()), 0
    for item in RIDE:
        feed(out, [item])
        view.draw_now()
        for message in view.comm.custom()[seen:]:  # type: ignore[union-attr]
            copy.apply(message["ops"])
            seen += 1
        if item[0] == 17.02:
            assert copy.rows["step:1.0"]["open"] is True
            assert copy.facts["spoke_since"] is not None
    out.finish(Ended(True, at=23.5))
    view.draw_now()
    copy.apply(view.comm.custom()[-1]["ops"])  # type: ignore[union-attr]
    whole = shown(UsageView(ride()))
    assert copy.order == whole.order
    assert {key: numbers(row) for key, row in copy.rows.items()} == {k: numbers(row) for k, row in whole.rows.items()}
    assert copy.facts["spark"] == whole.facts["spark"]


def test_speed_is_measured_from_the_stream_and_fits_the_reported_tokens() -> None:
    """The area below the curve is what the steps reported, reasoning that nobody saw left out."""
    out = ride()
    speed = TokenSpeed()
    speed.update(out)
    points = speed.points(23.5)
    assert sum(points) * speed.width_s == pytest.approx(211 - 164 + 186 + 125, rel=0.01)
    assert len(points) <= 96
    assert speed.now(23.5) == 0.0
    live = TokenSpeed()
    live.update(ride(upto=17.5))
    assert live.now(17.5) is not None
    assert live.now(17.5) > 0  # type: ignore[operator]
    long = MastraModelOutput()
    feed(long, [(0, start()), (0, step_start()), *((float(at), text("word ")) for at in range(0, 10_000, 100))])
    wide = TokenSpeed()
    wide.update(long)
    assert len(wide.points(10_000)) <= 96


def test_an_answered_run_counts_on_in_the_turn_that_asked() -> None:
    out = MastraModelOutput(control=Scripted(AFTER))
    asked = [start(), step_start(), call("c1", "book_train"), approval()]
    feed(out, list(enumerate(asked)))
    view = UsageView(out)
    out.finish(Ended(True, at=3))
    assert view.ended.wait(5)
    after = out.approve().result(5)
    after.wait(5)
    view.comm.wait_until(lambda: view.rows.fact("status") == "success")  # type: ignore[union-attr]
    copy = shown(view)
    places = [(row["turn"], row["step"]) for row in map(copy.rows.get, copy.order)]  # type: ignore[index]
    assert places == [(1, 1), (1, 2), (1, 3)]


def test_the_snapshot_is_a_table_that_needs_no_kernel() -> None:
    evil = "<script>alert(1)</script>"
    out = priced(ride())
    out.agent = evil
    out.state.steps[0].model = evil
    bundle = UsageView(out, PRICES).snapshot()
    assert dangers(bundle["text/html"]) == []
    assert [word for word in ("var(", "<svg", "<style", "<script") if word in bundle["text/html"]] == []
    assert bundle["text/html"].count("data:image/svg+xml,") == 4 + 1
    assert "| · route-scout | 892 | 640 | 312 | – |" in bundle["text/markdown"]
    assert "4,248" in bundle["text/plain"]
    assert "tokens/s" in bundle["text/plain"]
    demo = UsageView(load_recording(demo_recording())).snapshot()
    assert "Usage of trip" in demo["text/html"]


def test_a_run_of_many_steps_sends_each_of_them_once_or_twice() -> None:
    out = MastraModelOutput()
    view = SteppedUsage(out)
    feed(out, [(0, start())])
    for number in range(300):
        at = number + 1.0
        end = step_finish("tool-calls", used(100, 10), continued=True)
        steps = [step_start(), text("a"), call(f"c{number}"), result(f"c{number}"), end]
        feed(out, [(at + i / 10, item) for i, item in enumerate(steps)])
        view.draw_now()
    told = [op for message in view.comm.custom() for op in message["ops"] if op[0] in "+="]  # type: ignore[union-attr]
    assert len(told) <= 2 * 300
    assert view.boot()["facts"]["total"]["all"] == 300 * 110
