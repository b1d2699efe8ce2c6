from __future__ import annotations

import copy
import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.partial_json import PartialJson, recover_json
from tests.support.json_documents import PLAIN, SEEDS, documents, grows, pieces, values


def feed_by(size: int, parser: PartialJson, text: str) -> None:
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])


def shown(text: str) -> Any:
    """What the value shows after `text`."""
    return PartialJson().feed(text)


# ---- the finished value


@given(documents(), SEEDS)
@settings(max_examples=200, deadline=None)
def test_any_chunking_ends_with_what_json_loads_gives(text: str, seed: int) -> None:
    parser = PartialJson()
    for piece in pieces(text, random.Random(seed)):
        parser.feed(piece)
        parser.snapshot()
    # repr tells 1 from 1.0 and True, -0.0 from 0.0, and the order of keys
    assert repr(parser.close()) == repr(json.loads(text))
    assert repr(parser.snapshot()) == repr(json.loads(text))
    assert parser.complete
    assert parser.position == len(text)


CORPUS = [
    '{"a":"x\\ud83d\\ude00y\\\\z"}',
    '{"elements":[{"name":"Ann","tags":[]},{"name":"Bo","tags":["x"]}]}',
    " [ 1 , -0 , -0.0 , 1e5 , 1E+5 , 1.5e-3 , 123456789012345678901234567890 , 1e999 ] ",
    '{"a":1,"b":{"a":[{}]},"a":"last"}',
    '[[[["deep"]]],{"":{"":null}},true,false,null]',
    '"\\u00e9\\n\\/\\"\\u2028"',
    '["\\ud800","\\ud800x","\\udc00\\ud800","\\udc00\\ude00","\\ud800\\ud83d\\ude00",{"\\ud800":1,"\\ud801":2}]',
    "-12.5e+3",
    "true",
    "\n{}\t",
    "[]",
    '""',
]


@pytest.mark.parametrize("text", CORPUS)
def test_every_cut_gives_the_same_value(text: str) -> None:
    want = json.loads(text)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            parser = PartialJson()
            for piece in (text[:first], text[first:second], text[second:]):
                parser.feed(piece)
            assert repr(parser.close()) == repr(want)


# ---- the unfinished value


@given(documents(duplicates=False, strings=PLAIN))
@settings(max_examples=100, deadline=None)
def test_at_every_prefix_nothing_shown_is_taken_back(text: str) -> None:
    parser = PartialJson()
    before: Any = None
    for char in text:
        parser.feed(char)
        after = parser.snapshot()
        assert after == parser.value
        assert not parser.started or before is None or grows(before, after)
        if parser.started:
            before = after
    assert grows(before, parser.close()) or before is None


@given(documents(), SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_snapshot_never_changes_later(text: str, seed: int) -> None:
    parser = PartialJson()
    taken: list[tuple[Any, str]] = []
    for piece in pieces(text, random.Random(seed)):
        parser.feed(piece)
        snapshot = parser.snapshot()
        assert repr(snapshot) == repr(parser.value)
        taken.append((snapshot, repr(snapshot)))
    parser.close()
    assert all(repr(snapshot) == then for snapshot, then in taken)


# One lone surrogate only: two keys that show alike would replace a value by an equal one, and that is a change.
@given(documents(duplicates=False, strings=PLAIN | st.just("\ud83dx")))
@settings(max_examples=100, deadline=None)
def test_a_snapshot_returns_as_the_same_object_while_nothing_changes(text: str) -> None:
    parser = PartialJson()
    for char in text:
        value, snapshot = repr(parser.value), parser.snapshot()
        parser.feed(char)
        assert parser.snapshot() is parser.snapshot()
        if repr(parser.value) == value:
            assert parser.snapshot() is snapshot


def test_snapshots_share_what_is_closed() -> None:
    parser = PartialJson()
    parser.feed('{"a":[{"b":1},{"c":2}],"d":["')
    first = parser.snapshot()
    parser.feed("x")
    second = parser.snapshot()
    assert first == {"a": [{"b": 1}, {"c": 2}], "d": [""]}
    assert second["a"] is first["a"]
    assert second["d"] is not first["d"]


def test_the_live_value_grows_in_place() -> None:
    parser = PartialJson()
    value = parser.feed('{"a":[1,')
    assert parser.feed("2,") is value
    assert value == {"a": [1, 2]}
    assert parser.feed('"\\ud800x"') is value
    assert value == {"a": [1, 2, "\ufffdx"]}


@given(documents())
@settings(max_examples=100, deadline=None)
def test_an_unfinished_value_can_always_be_encoded(text: str) -> None:
    parser = PartialJson()
    for char in text:
        parser.feed(char)
        if not parser.complete:
            json.dumps([parser.value, parser.snapshot()], ensure_ascii=False).encode()
            repr(parser.path).encode()


def test_lone_surrogates_show_as_replacement_characters_until_the_end() -> None:
    parser = PartialJson()
    parser.feed('{"k\\ud800":["\\udc00\\ud83d')
    assert parser.value == {"k\ufffd": ["\ufffd"]}
    parser.feed('\\ud83d\\ude00\ud800"]')
    assert parser.value == {"k\ufffd": ["\ufffd\ufffd😀\ufffd"]}
    before = parser.snapshot()
    parser.feed("}")
    assert parser.close() == parser.snapshot() == {"k\ud800": ["\udc00\ud83d😀\ud800"]}
    assert before == {"k\ufffd": ["\ufffd\ufffd😀\ufffd"]}


def test_keys_that_look_alike_while_unfinished_stay_apart() -> None:
    parser = PartialJson()
    parser.feed('{"\\ud800":1,"\\ud801":2,"\ufffd":3')
    assert parser.value == {"\ufffd": 3}
    parser.feed("}")
    assert list(parser.close().items()) == [("\ud800", 1), ("\ud801", 2), ("\ufffd", 3)]


def test_b29_no_prefix_of_an_escape_makes_a_string_shrink() -> None:
    text = '{"a":"x\\ud83d\\ude00y\\\\z"}'
    seen = [shown(text[:end]) for end in range(1, len(text) + 1)]
    assert all(isinstance(value, dict) for value in seen)
    strings = [value["a"] for value in seen if "a" in value]
    assert list(dict.fromkeys(strings)) == ["", "x", "x😀", "x😀y", "x😀y\\", "x😀y\\z"]
    assert strings == sorted(strings, key=len)
    assert all(text[:end].count('"') < 3 or "a" in shown(text[:end]) for end in range(1, len(text) + 1))
    for string in strings:
        string.encode()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("[1, 2", [1, 2]),
        ('{"n":1.2e', {"n": 1.2}),
        ('{"n":1.2e-', {"n": 1.2}),
        ('{"n":-', {}),
        ('{"n":1.', {"n": 1}),
        ('{"n":tru', {}),
        ('{"n":nul', {}),
    ],
)
def test_b30_a_number_shows_as_far_as_it_is_one_and_a_word_when_it_is_complete(text: str, seen: Any) -> None:
    assert shown(text) == seen
    value, error = recover_json(text)
    assert repr(value) == repr(seen)
    assert error


@pytest.mark.parametrize(
    "text", ["[1, 2]", '{"n":1.2e1}', '{"n":1.2e-1}', '{"n":-1}', '{"n":1.5}', '{"n":true}', "[null]"]
)
def test_b30_the_full_text_equals_json_loads(text: str) -> None:
    parser = PartialJson()
    for char in text:
        parser.feed(char)
    assert repr(parser.close()) == repr(json.loads(text))


def test_b32_partial_objects_only_get_richer_and_elements_come_once_when_closed() -> None:
    text = '{"elements":[{"name":"Ann","tags":[]},{"name":"Bo","tags":["x"]}]}'
    parser = PartialJson()
    objects: list[Any] = []
    elements: list[Any] = []
    for char in text:
        parser.feed(char)
        if not objects or parser.snapshot() is not objects[-1]:
            objects.append(parser.snapshot())
        for index in range(len(elements), parser.closed_items(("elements",))):
            elements.append(copy.deepcopy(parser.value["elements"][index]))
    assert elements == [{"name": "Ann", "tags": []}, {"name": "Bo", "tags": ["x"]}]
    assert objects[0] == {}
    assert objects[-1] == json.loads(text)
    assert all(grows(before, after) and before != after for before, after in pairwise(objects))


def test_b32_an_empty_array_has_no_elements() -> None:
    parser = PartialJson()
    parser.feed('{"elements":[]}')
    assert parser.close() == {"elements": []}
    assert parser.closed_items(("elements",)) == 0


def test_started_tells_a_null_from_nothing() -> None:
    parser = PartialJson()
    parser.feed(" nul")
    assert (parser.started, parser.value, parser.complete) == (False, None, False)
    parser.feed("l")
    assert (parser.started, parser.value, parser.complete) == (True, None, True)


def test_a_number_at_the_root_is_complete_when_closed() -> None:
    parser = PartialJson()
    parser.feed("12")
    parser.feed("34")
    assert (parser.started, parser.complete) == (True, False)
    assert parser.close() == 1234
    assert (parser.started, parser.complete, parser.position) == (True, True, 4)
    assert parser.close() == 1234


# ---- path and closed items


class Follower:
    """The naive model: writes a value character by character and knows what is newest and closed after each."""

    def __init__(self, value: Any) -> None:
        self.closed: dict[tuple[Any, ...], int] = {}
        self.path: tuple[Any, ...] = ()
        self.steps: list[tuple[str, tuple[Any, ...], dict[tuple[Any, ...], int]]] = []
        self.write(value, ())

    def emit(self, text: str, path: tuple[Any, ...] | None = None) -> None:
        for char in text:
            self.path = self.path if path is None else path
            self.steps.append((char, self.path, dict(self.closed)))

    def write(self, value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, str):
            self.emit(json.dumps(value)[:-1], path)
        elif isinstance(value, list):
            self.closed[path] = 0
            self.emit("[", path)
            for index, item in enumerate(value):
                if index:
                    self.emit(",")
                self.write(item, (*path, index))
            self.emit("]", path)
        elif isinstance(value, dict):
            self.emit("{", path)
            for index, (key, item) in enumerate(value.items()):
                if index:
                    self.emit(",")
                self.emit(json.dumps(key) + ":")
                self.write(item, (*path, key))
            self.emit("}", path)
        else:
            text = json.dumps(value)
            if isinstance(value, bool) or value is None:
                self.emit(text[:-1])
                self.count(path)
                self.emit(text[-1], path)
            else:  # it shows from its first digit on, the next character ends it
                sign = text[: text.startswith("-")]
                self.emit(sign)
                self.emit(text[len(sign) :], path)
                self.count(path)
            return
        last = '"' if isinstance(value, str) else ""
        self.count(path)
        if last:
            self.emit(last, path)
        else:
            char, newest, _ = self.steps.pop()
            self.steps.append((char, newest, dict(self.closed)))

    def count(self, path: tuple[Any, ...]) -> None:
        if path and isinstance(path[-1], int):
            self.closed[path[:-1]] += 1


@given(values(PLAIN))
@settings(max_examples=200, deadline=None)
def test_path_and_closed_items_agree_with_a_naive_model(value: Any) -> None:
    parser = PartialJson()
    for char, path, closed in Follower(value).steps:
        parser.feed(char)
        assert parser.path == path
        assert {at: parser.closed_items(at) for at in closed} == closed
        assert parser.closed_items((*path, "no such key")) == parser.closed_items((*path, 99)) == 0
    parser.close()
    assert parser.path == ()


def test_path_leads_to_the_value_that_came_last() -> None:
    parser = PartialJson()
    parser.feed('{"legs":[{"wind":{}},{"wind":{"knots":1,"gust_kmh":"4')
    assert parser.path == ("legs", 1, "wind", "gust_kmh")
    parser.feed('"},"next')
    assert parser.path == ("legs", 1, "wind")


def test_closed_items_of_a_list_at_the_root_and_of_no_list() -> None:
    parser = PartialJson()
    assert parser.closed_items(()) == 0
    parser.feed('["a",["b')
    assert parser.closed_items(()) == 1
    assert parser.closed_items((1,)) == 0
    assert parser.closed_items((0,)) == parser.closed_items(("x",)) == parser.closed_items((0, 0, 0)) == 0
    parser.feed('"],3')
    assert parser.closed_items(()) == 2
    parser.feed("]")
    assert parser.closed_items(()) == 3
