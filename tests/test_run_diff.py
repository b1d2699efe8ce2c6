"""Two runs beside each other: what answers to what, where they part, and how that is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra import MastraModelOutput, demo_recording, diff, load_recording, record
from nbmastra.cli import main
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames.align import align, json_changes
from nbmastra.frames.compare import DIFF
from nbmastra.frames.word_diff import similarity, word_diff
from nbmastra.run_diff import RunDiff
from tests.support.random_runs import runs
from tests.support.runs import (
    Wire,
    call,
    chunk,
    finish,
    inside,
    recorded,
    result,
    start,
    step_finish,
    step_start,
    text,
    usage,
)
from tests.widgets.views import dangers


def step(*items: Wire, said: str = "") -> list[Wire]:
    words = [text(said)] if said else []
    return [step_start(), *words, *items, step_finish("tool-calls", usage(10, 5))]


def asked(name: str, args: Any, answer: Any = "ok", id: str = "c1") -> list[Wire]:
    return [call(id, name, args), result(id, answer, name)]


def run(*steps: Iterable[Wire], prompt: str = "Go", **about: Any) -> MastraModelOutput:
    chunks = [start(), *(item for items in steps for item in items), finish()]
    return MastraModelOutput.from_chunks(chunks, prompt=prompt, **about).wait(10)


def parted(found: RunDiff) -> list[tuple[Any, ...]]:
    """What differs but tokens and times."""
    return [(row.item, row.step_a, row.step_b, row.name, row.field, row.change) for row in found.rows if row.parts]


# --- what answers to what --------------------------------------------------------------------------------------------


def test_a_run_is_the_same_as_itself() -> None:
    found = diff(demo_recording(), demo_recording())
    assert found.same
    assert found.first_difference is None
    assert set(found.df["change"]) == {"same"}
    assert "the same was asked, said and done" in repr(found)
    assert "The same was asked, said and done" in found._repr_html_()


def test_an_output_and_its_recording_are_the_same(tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks(recorded("tools.sse")[0]).wait(10)
    path = record(out, tmp_path / "run.jsonl").result(10)
    assert diff(out, path).same
    assert diff(str(path), load_recording(path)).same


def test_a_step_more_in_one_run_leaves_the_others_together() -> None:
    search, book = step(*asked("search", {"q": "bike"})), step(*asked("book", {"id": 7}))
    extra = step(*asked("weather", {"place": "Annecy"}), said="First the weather.")
    answer = step(said="All is booked for Saturday.")
    found = diff(run(search, book, answer), run(search, extra, book, answer))
    steps = {(row.step_a, row.step_b) for row in found.rows if row.item == "step"}
    assert steps == {(0, 0), (None, 1), (1, 2), (2, 3)}
    assert parted(found) == [
        ("step", None, 1, "", "step", "added"),
        ("tool-call", None, 1, "weather", "call", "added"),
    ]
    back = diff(run(search, extra, book, answer), run(search, book, answer))
    assert [row[-1] for row in parted(back)] == ["removed", "removed"]


def test_calls_of_a_step_answer_to_each_other_whatever_their_order() -> None:
    paris, rome = asked("weather", {"city": "Paris"}, 21, "c1"), asked("weather", {"city": "Rome"}, 30, "c2")
    bern = asked("weather", {"city": "Bern"}, 12, "c3")
    assert diff(run(step(*paris, *rome)), run(step(*rome, *paris))).same
    found = diff(run(step(*paris, *rome)), run(step(*bern, *rome, *paris)))
    assert parted(found) == [("tool-call", 0, 0, "weather", "call", "added")]
    assert found.first_difference is not None
    assert found.first_difference.tool_call_id_b == "c3"


def test_what_differs_in_a_call_is_named_by_its_path() -> None:
    one = run(step(*asked("book", {"days": 2, "legs": [{"km": 40}, {"km": 44}]}, {"price": 20})))
    two = run(step(*asked("book", {"days": 3, "legs": [{"km": 40}, {"km": 50}], "bike": True}, {"price": 20.0})))
    found = diff(one, two)
    assert [row[4:] for row in parted(found)] == [
        ("args.days", "changed"),
        ("args.legs[1].km", "changed"),
        ("args.bike", "added"),
    ]
    first = found.first_difference
    assert first is not None
    assert (first.a, first.b, first.delta, first.turn_a, first.step_a) == (2, 3, 1, 0, 0)


def test_a_failed_call_is_another_outcome() -> None:
    failed = [call("c1", "book", {}), chunk("tool-error", {"toolCallId": "c1", "toolName": "book", "error": "no room"})]
    found = diff(run(step(*asked("book", {}))), run(step(*failed)))
    fields = [row[4] for row in parted(found)]
    assert fields[:2] == ["status", "error"]
    assert "no room" in repr(found)


def test_runs_inside_of_a_call_are_compared_as_runs() -> None:
    def nested(words: str) -> list[Wire]:
        inner = [chunk("start", {"id": "sub"}, "n"), step_start("n"), text(words, run="n"), step_finish(run="n")]
        return [
            call("c1", "agent-sub", {"prompt": "x"}),
            *(inside("c1", item) for item in inner),
            result("c1", {"text": words}, "agent-sub"),
        ]

    found = diff(run(step(*nested("left at the church"))), run(step(*nested("right at the church"))))
    (first,) = [row for row in found.rows if row.parts]
    assert (first.path, first.depth, first.field, first.parent_tool_call_id) == ("a/agent-sub", 1, "text", "c1")


def test_turns_answer_to_each_other() -> None:
    more = [start(run="r2"), step_start("r2"), text("Later", run="r2"), step_finish(run="r2"), finish(run="r2")]
    one = MastraModelOutput.from_chunks([start(), *step(said="Hello there"), finish()], until_idle=True).wait(10)
    two = MastraModelOutput.from_chunks([start(), *step(said="Hello there"), finish(), *more], until_idle=True).wait(10)
    found = diff(one, two)
    assert {(row.turn_a, row.turn_b) for row in found.rows if row.item == "step"} == {(0, 0), (None, 1)}


def test_prompt_and_status_are_compared_and_numbers_are_no_parting() -> None:
    one = run(step(said="Hi"), prompt="Go to Annecy")
    two = MastraModelOutput.from_chunks([start(), *step(said="Hi")], prompt="Go to Lyon").wait(10)
    found = diff(one, two)
    assert [row[4] for row in parted(found)] == ["prompt", "status", "status_reason"]
    slow = MastraModelOutput.from_chunks(
        [start(), *step(said="Hi"), finish("stop", usage(99, 5))], prompt="Go to Annecy"
    )
    assert diff(one, slow.wait(10)).same


def test_long_runs_of_like_steps_are_aligned_in_time() -> None:
    steps = [step(*asked("search", {"q": number}), said=f"number {number}") for number in range(600)]
    started = time.process_time()
    found = diff(run(*steps), run(*steps[:300], step(said="an extra one"), *steps[300:]))
    assert time.process_time() - started < 20  # 2 s on a quiet machine
    assert [row[:3] for row in parted(found)] == [("step", None, 300)]


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_has_the_same_columns_whatever_the_runs() -> None:
    empty = MastraModelOutput.from_chunks([]).wait(10)
    frames = [diff(empty, empty).df, diff(demo_recording(), empty).df, diff(demo_recording(), demo_recording()).df]
    for frame in frames:
        assert list(frame.columns) == [column.name for column in DIFF.columns]
        assert list(frame.columns[:2]) == ["stream_id_a", "stream_id_b"]
        assert frame.dtypes.drop(["item", "aspect", "change"]).equals(
            frames[0].dtypes.drop(["item", "aspect", "change"])
        )
        assert all(isinstance(frame[name].dtype, pd.CategoricalDtype) for name in ("item", "aspect", "change"))


@settings(max_examples=20, deadline=None)
@given(runs(), runs())
def test_any_two_runs_can_be_compared_and_shown(one: Any, two: Any) -> None:
    a, b = (MastraModelOutput.from_chunks(facts.chunks).wait(10) for facts in (one, two))
    found = diff(a, b)
    assert diff(a, a).same
    assert len(found.df) == len(found.rows)
    assert dangers(found._repr_html_()) == []
    at = {(row.step_a, row.step_b) for row in found.rows if row.item == "step" and row.depth == 0}
    assert sorted(x for x, _ in at if x is not None) == list(range(len(a.state.steps)))
    assert sorted(y for _, y in at if y is not None) == list(range(len(b.state.steps)))


# --- how it is shown -------------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202eevil"


def test_what_a_model_wrote_can_do_no_harm_in_html_or_on_a_terminal() -> None:
    one = run(
        step(
            *asked("book", {"where": "here"}, "fine"), said="Some words that are long enough to be a text of their own."
        )
    )
    two = run(
        step(
            *asked("book", {"where": HOSTILE}, {HOSTILE: HOSTILE}), said=f"Some words that are long {HOSTILE} a text."
        ),
        prompt=HOSTILE,
        agent=HOSTILE,
    )
    found = diff(one, two)
    html = found._repr_html_()
    assert dangers(html) == []
    assert "<script" not in html
    assert "class=" not in html
    for shown in (html, repr(found)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_html_and_text_are_bounded_for_huge_texts() -> None:
    words = [f"word{number % 5000} " for number in range(60_000)]
    other = ["other " if number % 7 == 0 else word for number, word in enumerate(words)]
    started = time.process_time()
    found = diff(run(step(said="".join(words))), run(step(said="".join(other))))
    html, plain = found._repr_html_(), repr(found)
    assert time.process_time() - started < 20  # 1 s on a quiet machine
    assert len(html) < 30_000
    assert len(plain) < 2_000


def test_a_terminal_shows_where_the_runs_part() -> None:
    one = run(step(*asked("book", {"days": 2}), said="Ride round the lake on Saturday, and home on Sunday."))
    two = run(step(*asked("book", {"days": 3}), said="Ride round the lake on Friday, and home on Sunday."))
    lines = repr(diff(one, two)).splitlines()
    assert lines[2] == "they part at step 1 text"
    assert "  step 1 text: Ride round the lake on [-Saturday-]{+Friday+}, and home on Sunday." in lines
    assert "  step 1 book args.days: 2 → 3 (+1)" in lines


def test_the_command_tells_by_its_exit_code_whether_runs_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(demo_recording())
    assert main(["diff", path, path]) == 0
    assert "the same was asked" in capsys.readouterr().out
    other = tmp_path / "other.jsonl"
    record(run(step(said="Hi")), other).result(10)
    assert main(["diff", path, str(other)]) == 1
    assert "they part at" in capsys.readouterr().out
    assert main(["diff", path, str(other), "--json"]) == 1
    assert {row["change"] for row in json.loads(capsys.readouterr().out)} >= {"changed", "removed"}
    assert main(["diff", path, str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError):
        diff(tmp_path / "nowhere.jsonl", demo_recording())
    with pytest.raises(SettingsError, match="an output or a recording"):
        diff(demo_recording(), 3)  # type: ignore[arg-type]


# --- its parts -------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["a", "b", " ", ". ", "\n", "long word ", "é😀", "x." * 30]), max_size=40).map("".join)


@settings(max_examples=80, deadline=None)
@given(WORDS, WORDS)
def test_pieces_join_to_both_texts(a: str, b: str) -> None:
    pieces = word_diff(a, b)
    assert "".join(piece.text for piece in pieces if piece.kind != "added") == a
    assert "".join(piece.text for piece in pieces if piece.kind != "removed") == b
    assert 0 <= similarity(pieces) <= 1
    assert (similarity(pieces) == 1) == (a == b)


def test_a_changed_word_is_a_changed_word_in_a_text_of_any_length() -> None:
    sentences = [f"Sentence {number} says that the road is long. " for number in range(3000)]
    changed = sentences.copy()
    changed[1500] = changed[1500].replace("long", "short")
    del changed[2000]
    kinds = [(p.kind, p.text) for p in word_diff("".join(sentences), "".join(changed)) if p.kind != "same"]
    assert kinds == [("removed", "long"), ("added", "short"), ("removed", sentences[2000])] or (
        kinds[:2] == [("removed", "long"), ("added", "short")] and len(kinds) == 3
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_infinity=False) | st.text("ab", max_size=2),
    lambda kids: st.lists(kids, max_size=4) | st.dictionaries(st.sampled_from("xyz"), kids, max_size=3),
    max_leaves=10,
)


@settings(max_examples=80, deadline=None)
@given(JSON, JSON)
def test_json_differs_somewhere_or_nowhere(a: Any, b: Any) -> None:
    assert json_changes(a, a) == []
    there, back = json_changes(a, b), json_changes(b, a)
    assert bool(there) == bool(back)
    if json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True):
        assert there == []


def test_json_keeps_numbers_and_truth_apart_and_is_bounded() -> None:
    assert json_changes({"a": 1}, {"a": 1.0}) == []
    assert [change.path for change in json_changes({"a": 1}, {"a": True})] == ["a"]
    assert [c.path for c in json_changes([1, 2, 3, 4], [1, 9, 2, 3, 4])] == ["[1]"]
    many = json_changes(list(range(5000)), [-1 - number for number in range(5000)])
    assert (len(many), many[-1].path, many[-1].b) == (501, "…", "4500 more")
    deep_a: Any = 1
    deep_b: Any = 2
    for _ in range(200):
        deep_a, deep_b = [deep_a], [deep_b]
    assert len(json_changes(deep_a, deep_b)) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_every_item_stands_once_and_in_its_order(a: list[int], b: list[int]) -> None:
    pairs = align(a, b, lambda x, y: 1.0 if x == y else 0.1, lambda x: x)
    assert [x for x, _ in pairs if x is not None] == a
    assert [y for _, y in pairs if y is not None] == b
