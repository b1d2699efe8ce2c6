"""What the incremental parser refuses, with the place, and what it costs."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra import partial_json
from nbmastra.partial_json import PartialJson, PartialJsonError, recover_json
from tests.support.json_documents import documents
from tests.test_partial_json import feed_by


def refuse(name: str) -> None:
    raise ValueError(name)


@given(documents(), st.data())
@settings(max_examples=200, deadline=None)
def test_it_refuses_what_json_refuses_at_the_same_place_for_any_chunking(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.sampled_from([*'"\\]},:x-0.e\x01', "", "t", "u12", "NaN", "Infinity", "-Infinity", "\xa0"]))
    text = text[:at] + junk + text[at + data.draw(st.integers(0, 1)) :]
    try:
        want = repr(json.loads(text, parse_constant=refuse))
    except ValueError:
        want = ""
    results: set[Any] = set()
    for size in (1, 3, len(text) + 1):
        parser = PartialJson()
        try:
            feed_by(size, parser, text)
            results.add(repr(parser.close()))
        except PartialJsonError as error:
            assert not want
            results.add((str(error), repr(parser.value)))
    assert len(results) == 1
    assert not want or results == {want}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("NaN", 0),
        ("[Infinity]", 1),
        ("[-Infinity]", 1),
        ("[1,]", 3),
        ('{"a":1,}', 7),
        ("{'a':1}", 1),
        ('["\t"]', 2),
        ('["\\x"]', 3),
        ('["\\u12g4"]', 6),
        ("[01]", 1),
        ("[1.]", 1),
        ("[.5]", 1),
        ("[+1]", 1),
        ("[trux]", 4),
        ("[1] 2", 4),
        ("[1}", 2),
        ('{"a" 1}', 5),
        ("\ufeff[]", 0),
        ("[" + "9" * 5000 + "]", 1),
    ],
)
def test_an_error_says_where_the_text_stops_being_json(text: str, position: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        json.loads(text, parse_constant=refuse)
    for size in (1, len(text)):
        parser = PartialJson()
        with pytest.raises(PartialJsonError, match=f"at character {position}$") as caught:
            feed_by(size, parser, text)
        assert parser.failed is caught.value
        assert parser.position == caught.value.position == position


def test_after_an_error_the_value_stays_and_every_feed_raises_it_again() -> None:
    parser = PartialJson()
    with pytest.raises(PartialJsonError) as first:
        parser.feed('{"a":[1,"b",}')
    for call in (lambda: parser.feed("]"), lambda: parser.feed(""), parser.close):
        with pytest.raises(PartialJsonError) as again:
            call()
        assert again.value is first.value
    assert parser.value == parser.snapshot() == {"a": [1, "b"]}
    assert parser.path == ("a", 1)
    assert parser.closed_items(("a",)) == 2
    assert not parser.complete


@pytest.mark.parametrize("text", ["", " ", "[", '"', '{"a"', '{"a":1', "[1", "-", "1e", "tru", '"\\u12'])
def test_close_raises_when_the_text_stopped_in_the_middle(text: str) -> None:
    parser = PartialJson()
    parser.feed(text)
    with pytest.raises(PartialJsonError):
        parser.close()


def test_close_in_the_middle_leaves_the_parser_usable() -> None:
    parser = PartialJson()
    parser.feed('{"a":"b')
    with pytest.raises(PartialJsonError, match="in the middle at character 7"):
        parser.close()
    assert parser.failed is None
    parser.feed('c"}')
    assert parser.close() == {"a": "bc"}


def test_depth_is_limited_without_recursion() -> None:
    parser = PartialJson()
    parser.feed("[" * 1000 + "]" * 1000)
    assert parser.complete
    with pytest.raises(PartialJsonError, match="deeper than 1000 at character 1000"):
        PartialJson().feed("[" * 100_000)
    with pytest.raises(PartialJsonError, match="deeper than 2"):
        PartialJson(max_depth=2).feed('{"a":[{')


# ---- cost


def steps_of(work: Callable[[], object]) -> int:
    """How many bytecodes of the parser `work` executes: its cost, without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != partial_json.__file__:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def report(rows: int) -> str:
    row = {"day": "Mon\n\u00e9\ud800", "hi": -1.5, "ok": True, "tags": ["x", None]}
    return json.dumps({"title": "Report", "sections": [{"id": i, "rows": [row] * 3} for i in range(rows)]})


def feed_all(text: str, size: int = 8) -> None:
    parser = PartialJson()
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])
        parser.snapshot()
        assert parser.path is not None
        parser.closed_items(("sections",))
    parser.close()


def test_b34_a_long_string_grows_in_place_and_is_not_copied_for_every_delta() -> None:
    parser = PartialJson()
    tracemalloc.start()
    try:
        parser.feed('{"answer":"' + "x" * 1_000_000)
        for _ in range(100):  # the interpreter appends in place once the code is warm
            parser.feed("word \\n")
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            parser.feed("word \\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 100_000  # a copy would need another million


@pytest.mark.parametrize(
    "make",
    [
        report,
        lambda n: '"' + "a\\ud800" * 25 * n + '"',
        lambda n: "[" + "12345678.5e-3, " * 15 * n + "0]",
        lambda n: '{"' + "k" * 200 * n + '":0.' + "1" * 200 * n + "}",
    ],
    ids=["nested", "string", "numbers", "tokens"],
)
def test_b34_work_grows_with_the_text_and_not_with_its_square(make: Callable[[int], str]) -> None:
    short, long = make(4), make(16)
    ratio = steps_of(lambda: feed_all(long)) / steps_of(lambda: feed_all(short))
    assert ratio < 1.1 * len(long) / len(short)


def test_b34_recovering_arguments_is_linear_too() -> None:
    for unit in ("{}", '{}{"a":1}', '{"a":[1,],', "[1,],"):
        short, long = steps_of(lambda u=unit: recover_json(u * 50)), steps_of(lambda u=unit: recover_json(u * 200))
        assert long < 4.4 * short
