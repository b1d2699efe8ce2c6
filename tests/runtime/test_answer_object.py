"""Reading an object out of a model's text: shown when it has changed, at a cost linear in the text."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmastra.runtime.answer_object as answer_object
from nbmastra.partial_json import PartialJson, PartialJsonError
from nbmastra.runtime.answer_object import NOTHING, AnswerObject, Kind, wrap_schema
from nbmastra.runtime.object_chunks import ObjectGrowth

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text('ab"\\{}[],\n é', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=4),
    max_leaves=12,
)


def cut(text: str, sizes: list[int]) -> list[str]:
    """The text in pieces."""
    pieces: list[str] = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [piece for piece in [*pieces, text] if piece]


def read(text: str) -> tuple[Any, bool]:
    """What a beginning of a JSON text shows, and whether it is complete."""
    parser = PartialJson()
    with contextlib.suppress(PartialJsonError):
        parser.feed(text)
    return (parser.snapshot() if parser.started else NOTHING), parser.complete


def shown_by_the_rules(kind: Kind, pieces: list[str]) -> list[Any]:
    """What Mastra shows, done as it does: all anew for each piece, compared with what it was. Source: core 1.71."""
    shown: list[Any] = []
    text, previous, filtered_before, began = "", NOTHING, [], False
    for piece in pieces:
        text += piece
        value, complete = read(text)
        if value is NOTHING or (previous is not NOTHING and _same(value, previous)):
            continue
        if kind == "object":
            if isinstance(value, dict | list):
                previous = value
                shown.append(value)
            continue
        elements = value.get("elements") if isinstance(value, dict) else value
        elements = elements if isinstance(elements, list) else []
        filtered = elements if complete else elements[:-1] + [one for one in elements[-1:] if _is_something(one)]
        first, began = not began, True
        if (first and not filtered) or not _same(filtered, filtered_before):
            previous, filtered_before = value, filtered
            shown.append(filtered)
    return shown


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def _is_something(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def shown(answer: AnswerObject, pieces: list[str]) -> list[Any]:
    """What is shown of an answer."""
    return [answer.value for piece in pieces if answer.feed(piece)]


@settings(max_examples=40)
@given(value=st.dictionaries(st.text("abc", max_size=2), VALUES, max_size=4), sizes=st.lists(st.integers(1, 7)))
def test_an_object_shows_when_it_has_changed_and_only_then(value: Any, sizes: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    pieces = cut(text, sizes * 9)
    answer = AnswerObject("object")
    assert shown(answer, pieces) == shown_by_the_rules("object", pieces)
    assert answer.result() == value


@settings(max_examples=40)
@given(value=st.lists(VALUES, max_size=5), sizes=st.lists(st.integers(1, 7)), bare=st.booleans())
def test_a_list_shows_when_what_is_complete_of_it_has_changed(value: Any, sizes: list[int], bare: bool) -> None:
    text = json.dumps(value if bare else {"elements": value}, ensure_ascii=False, separators=(",", ":"))
    pieces = cut(text, sizes * 9)
    answer = AnswerObject("array")
    assert shown(answer, pieces) == shown_by_the_rules("array", pieces)
    assert answer.result() == value


@settings(max_examples=40)
@given(value=st.dictionaries(st.text("abc", max_size=2), VALUES, max_size=3), sizes=st.lists(st.integers(1, 5)))
def test_fences_and_prose_around_an_object_change_nothing_of_it(value: Any, sizes: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    for around in ("```json\n{}\n```", "```json{}\n```\nBye.", "I say: {} and no more.", "\n\n {}\n"):
        answer = AnswerObject("object")
        seen = shown(answer, cut(around.replace("{}", text), sizes * 9))
        assert answer.result() == value
        assert seen[-1] == value


@settings(max_examples=50)
@given(text=st.text('{}[]":,\\ `json\n12tfn<|message>'), sizes=st.lists(st.integers(1, 5)))
def test_no_text_breaks_the_reader(text: str, sizes: list[int]) -> None:
    for kind in ("object", "array", "enum"):
        answer = AnswerObject(kind, ["a"])
        shown(answer, cut(text, sizes * 9))
        answer.result()


@pytest.mark.parametrize("text", ["", "  ", "Hello", "```json", "the answer", "```js\n{", "{{", "<|message|>"])
def test_what_holds_no_object_gives_nothing(text: str) -> None:
    answer = AnswerObject("array")
    shown(answer, list(text))
    assert answer.result() is NOTHING


def test_an_array_s_schema_is_wrapped_with_its_definitions() -> None:
    schema = {"$defs": {"X": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/X"}, "minItems": 1}
    assert wrap_schema(schema) == (
        "array",
        {
            "$defs": {"X": {"type": "integer"}},
            "type": "object",
            "properties": {"elements": {"type": "array", "items": {"$ref": "#/$defs/X"}}},
            "required": ["elements"],
            "additionalProperties": False,
        },
    )
    words = {"type": "string", "enum": ["a"]}
    assert wrap_schema(words)[1]["properties"] == {"result": words}
    assert wrap_schema({"type": "object"}) == ("object", {"type": "object"})


# --- chunks that know their place ------------------------------------------------------------------------------------


def growth(kind: Kind = "object") -> ObjectGrowth:
    return ObjectGrowth({"from": "AGENT", "runId": "r"}, lambda: AnswerObject(kind))


def test_each_chunk_keeps_the_object_of_its_moment_in_whatever_order_they_are_read() -> None:
    text = json.dumps({"name": "Ada", "tags": ["math", "code"], "born": {"year": 1815}})
    whole = growth()
    chunks = [(chunk, index + 1) for index, piece in enumerate(text) if (chunk := whole.feed(piece)) is not None]
    expected = [read(text[:count])[0] for _, count in chunks]
    assert [chunk.object for chunk, _ in chunks] == expected
    assert [chunk.object for chunk, _ in reversed(chunks)] == expected[::-1]
    assert [json.loads(chunk.to_json())["object"] for chunk, _ in chunks] == expected
    assert chunks[0][0].to_json() == b'{"from":"AGENT","runId":"r","type":"object","object":{}}'
    assert (chunks[0][0].type, chunks[0][0].run_id, chunks[0][0].from_) == ("object", "r", "AGENT")


def test_metadata_stands_behind_the_object_as_on_the_server() -> None:
    whole = ObjectGrowth({"from": "AGENT", "metadata": {"from": "x"}, "runId": "r"}, lambda: AnswerObject("object"))
    chunk = whole.feed("{")
    assert chunk is not None
    assert chunk.to_json() == b'{"from":"AGENT","runId":"r","type":"object","object":{},"metadata":{"from":"x"}}'


def calls_of(work: Callable[[], Any]) -> int:
    """Calls of Python functions in these modules, which grow as the work does."""
    count = 0
    files = (answer_object.__file__, sys.modules["nbmastra.partial_json"].__file__)

    def trace(frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename in files

    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["object", "array", "prose", "string"])
def test_the_cost_of_a_piece_does_not_grow_with_the_answer(kind: str) -> None:
    def work(count: int) -> Callable[[], None]:
        items = ",".join(f'{{"n":{index},"s":"x"}}' for index in range(count))
        text = {
            "object": f'{{"a":[{items}]}}',
            "array": f'{{"elements":[{items}]}}',
            "prose": f'I think: {{"a":[{items}]}} is it.',
            "string": '{"a":"' + "word \\n" * count + '"}',
        }[kind]
        pieces = [text[start : start + 4] for start in range(0, len(text), 4)]

        def run() -> None:
            whole = growth("array" if kind == "array" else "object")
            for piece in pieces:
                whole.feed(piece)

        return run

    small, large = calls_of(work(100)), calls_of(work(800))
    assert large < small * 8 * 1.3


def test_reading_all_chunks_in_their_order_reads_the_text_once() -> None:
    def work(count: int) -> Callable[[], None]:
        text = '{"a":"' + "word " * count + '"}'
        whole = growth()
        chunks = [chunk for start in range(0, len(text), 5) if (chunk := whole.feed(text[start : start + 5]))]

        def run() -> None:
            for chunk in chunks:
                assert chunk.object is not None

        return run

    small, large = calls_of(work(100)), calls_of(work(800))
    assert large < small * 8 * 1.3
