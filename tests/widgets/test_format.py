from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.fold import ErrorInfo
from nbmastra.widgets.format import as_json, error_line, gist, one_line, seconds, short_json, signature, size
from nbmastra.widgets.json_tree import growing_tree, image_source, path_words, result, tree
from tests.widgets.views import dangers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=8), inner, max_size=12),
    max_leaves=60,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.844, "0.84 s"), (9.99, "9.99 s"), (12.34, "12.3 s"), (65, "1:05"), (3725, "1:02:05"), (-1, "0.00 s")],
)
def test_times_read_the_same_everywhere(value: float, words: str) -> None:
    assert seconds(value) == words


@pytest.mark.parametrize(("count", "words"), [(812, "812 B"), (4100, "4.1 KB"), (12_000_000, "12 MB"), (0, "0 B")])
def test_sizes_have_two_digits(count: int, words: str) -> None:
    assert size(count) == words


def test_a_call_reads_like_python() -> None:
    assert signature("get_forecast", {"place": "Rouen", "days": 2, "ok": True, "x": None}) == (
        "get_forecast",
        '(place="Rouen", days=2, ok=True, x=None)',
    )
    assert signature("get_wind", {"hours": list(range(8, 17))}) == ("get_wind", "(hours=[8, 9, …, 16])")
    assert signature("f", None) == ("f", "()")
    assert signature("f", [1, 2]) == ("f", "([1, 2])")
    assert signature("get_wind", {"hours": [8, 9]}, open=True) == ("get_wind", "(hours=[8, 9")


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_value_fits_into_a_line(value: Any) -> None:
    _, rest = signature("f", value)
    for line in (rest, gist(value), short_json(value)):
        assert len(line) <= 300
        assert "\n" not in line
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", line)


def test_a_name_cannot_look_like_another() -> None:
    assert one_line("safe\u202egnp.exe\n\x1b[31m") == "safe\ufffdgnp.exe \ufffd[31m"


def test_an_error_says_its_kind_once() -> None:
    assert error_line(ErrorInfo("no answer", "TimeoutError")) == "TimeoutError: no answer"
    assert error_line(ErrorInfo("TimeoutError: no answer", "TimeoutError")) == "TimeoutError: no answer"
    assert error_line(ErrorInfo("no answer")) == "no answer"


def test_gists_count_what_is_many() -> None:
    assert gist([{"a": 1}]) == "1 record"
    assert gist([{"a": 1}] * 27) == "27 records"
    assert gist(list(range(9))) == "9 items"
    assert gist({"from": "Rouen", "km": 24, "wind": {"kmh": 3}}) == '{from: "Rouen", km: 24, wind: {…}}'


@settings(max_examples=60, deadline=None)
@given(JSON, st.text(max_size=5))
def test_trees_are_safe_and_bounded(value: Any, name: str) -> None:
    for html in (tree(value), growing_tree(value, ()), result(value, name).html):
        assert dangers(html) == []


def test_a_huge_value_gives_a_tree_that_a_browser_can_take() -> None:
    huge = {f"k{n}": [{"deep": list(range(100))}] * 100 for n in range(1000)}
    assert len(tree(huge)) < 300_000
    assert "… 9" in tree(list(range(1000)))
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert "<li>" in tree(deep)
    assert as_json(deep)


def test_a_growing_list_shows_its_end_and_changes_little() -> None:
    """Most frames differ behind a long common beginning, so most of them are small."""
    trees = [
        growing_tree({"items": [{"n": n} for n in range(count)]}, ("items", count - 1, "n")) for count in range(1, 200)
    ]
    assert max(map(len, trees)) < 4000
    changed = [
        len(b) - next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y) for a, b in pairwise(trees)
    ]
    assert sum(changed) / len(changed) < 600


def test_the_newest_place_is_named_and_lit() -> None:
    value = {"legs": [{"km": 24}, {"wind": {"gust_kmh": 2}}]}
    path = ("legs", 1, "wind", "gust_kmh")
    assert path_words(path) == "legs[1].wind.gust_kmh"
    assert re.search(r'class="is-new"><div><span class="nbm-k">gust_kmh', growing_tree(value, path))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"mimeType": "image/png", "data": "aGk="}, True),
        ({"mediaType": "image/webp", "base64": "aGk="}, True),
        ({"mimeType": "image/svg+xml", "data": "aGk="}, False),
        ({"mimeType": "image/png", "data": 'x" onerror="alert(1)'}, False),
        ({"mimeType": "image/png"}, False),
        ("image/png", False),
    ],
)
def test_only_raster_images_are_images(value: Any, found: bool) -> None:
    """B53"""
    assert (image_source(value) is not None) == found
