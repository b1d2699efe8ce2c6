"""Structured answers: partial, final, elements of arrays, and what doesn't fit."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from nbmastra.errors import (
    MastraStreamError,
    ObjectError,
    SettingsError,
)
from nbmastra.output import MastraModelOutput, ObjectSchema
from tests.support.feed import Feed
from tests.support.runs import (
    chunk,
    finish,
    recorded,
    start,
    step_finish,
    step_start,
    text,
)
from tests.test_output_values import answer, of, shown


class Leg(BaseModel):
    city: str
    km: int


class Trip(BaseModel):
    name: str
    legs: list[Leg]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date


class Legs(RootModel[list[Leg]]):
    pass


TRIP = '{"name":"A","legs":[{"city":"Ulm","km":90}]}'
JSON_TRIP = Trip.model_json_schema()


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        (Trip, TRIP, Trip(name="A", legs=[Leg(city="Ulm", km=90)])),
        (TypeAdapter(Trip), TRIP, Trip(name="A", legs=[Leg(city="Ulm", km=90)])),
        (JSON_TRIP, TRIP, {"name": "A", "legs": [{"city": "Ulm", "km": 90}]}),
        (dict[str, Any], '{"a":null}', {"a": None}),
        (list[Leg], '{"elements":[{"city":"Ulm","km":90}]}', [Leg(city="Ulm", km=90)]),
        (list[Leg], '[{"city":"Ulm","km":90}]', [Leg(city="Ulm", km=90)]),
        (Legs, '{"elements":[{"city":"Ulm","km":90}]}', Legs([Leg(city="Ulm", km=90)])),
        ({"type": "array", "items": {"type": "integer"}}, '{"elements":[1,2]}', [1, 2]),
        (list[int], '{"elements":[]}', []),
        (Strict, '{"day":"2026-05-01"}', Strict(day=datetime.date(2026, 5, 1))),
        (ObjectSchema(Trip), TRIP, Trip(name="A", legs=[Leg(city="Ulm", km=90)])),
        (None, "Just talk.", None),
    ],
    ids=str,
)
def test_the_object_is_what_the_schema_makes_of_it(schema: Any, written: str, value: Any) -> None:
    cut = len(written) // 2
    out = answer(written[:cut], written[cut:], schema=schema)
    assert out.object.result() == value
    assert out.text.result() == written


@pytest.mark.parametrize("schema", [Trip, TypeAdapter(Trip), JSON_TRIP], ids=["model", "adapter", "JSON schema"])
@pytest.mark.parametrize(
    ("written", "path", "more"),
    [
        ('{"name":"A","legs":[{"city":"Ulm","km":90},{"city":"Jena","km":"far"}]}', "legs[1].km", False),
        ('{"name":5,"legs":[{"city":"Ulm","km":"far"}]}', "", True),
        ("[1]", "", False),
    ],
)
def test_an_object_that_does_not_fit_says_where(schema: Any, written: str, path: str, more: bool) -> None:
    out = answer(written, schema=schema)
    with pytest.raises(ObjectError) as caught:
        out.object.result()
    assert caught.value.path == path or more
    assert (path or "its root" if not more else "more") in str(caught.value)
    assert caught.value.partial == out.state.object.value  # type: ignore[union-attr]
    assert out.status == "success"


@pytest.mark.parametrize("value", [False, 0, [], "", None, {}], ids=repr)
def test_falsy_objects_are_objects(value: Any) -> None:
    out = of(*shown(value))
    assert out.object.result() == value
    assert out.state.object is not None
    assert out.state.object.done


@pytest.mark.parametrize("prose", ["Here it is: one two.", ""], ids=["prose", "no text"])
def test_an_object_that_the_text_does_not_have_is_that_of_the_chunks(prose: str) -> None:
    """A structuring model of its own: the answer is prose, the object comes beside it."""
    partial = [{**chunk("object"), "object": value} for value in ({}, {"n": 1}, {"n": 1, "m": 2})]
    talk = [text(prose)] if prose else []
    out = of(start(), step_start(), *talk, *partial, step_finish(), finish(), schema=dict[str, int])
    assert out.object.result() == {"n": 1, "m": 2}
    assert list(out.object_stream) == [{}, {"n": 1}, {"n": 1, "m": 2}]


def test_prose_without_an_object_says_so() -> None:
    out = answer("I can't do that.", schema=Trip)
    with pytest.raises(ObjectError, match="isn't JSON") as caught:
        out.object.result()
    assert caught.value.partial == "I can't do that."


@pytest.mark.parametrize("schema", [dict[str, str], None])
def test_an_object_that_was_cut_is_never_given_as_whole(schema: Any) -> None:
    """`{"name":"Ad` would fit a schema of strings."""
    cut = [start(), step_start(), {**chunk("object"), "object": {}}, text('{"name":"Ad'), step_finish("length")]
    out = of(*cut, finish("length"), schema=schema)
    assert out.status == "success"
    with pytest.raises(ObjectError, match="incomplete") as caught:
        out.object.result()
    assert caught.value.partial == {"name": "Ad"}
    assert list(out.object_stream)[-1] == {"name": "Ad"}


def test_an_error_of_the_server_about_the_object_is_the_runs_error() -> None:
    chunks, _ = recorded("object-invalid.sse")
    out = MastraModelOutput.from_chunks(chunks, schema=Trip).wait()
    with pytest.raises(MastraStreamError, match="Structured output validation failed"):
        out.object.result()


async def test_partial_objects_are_equal_to_those_of_the_server() -> None:
    chunks, _ = recorded("object.sse")
    out = MastraModelOutput.from_chunks(chunks, schema=dict[str, Any])
    grown = [value async for value in out.object_stream]
    assert grown[-1] == await out.object == {"name": "Ada", "age": 36, "tags": ["math", "code"]}
    sizes = [len(repr(value)) for value in grown]
    assert sizes == sorted(sizes)
    assert all(a != b for a, b in pairwise(grown))


ELEMENTS = '{"elements":[{"name":"Ann","tags":[]},{"name":"Bo","tags":["x"]}]}'


class Person(BaseModel):
    name: str
    tags: list[str]


@pytest.mark.parametrize("schema", [list[Person], None], ids=["schema", "no schema"])
async def test_b32_partial_objects_only_grow_and_elements_come_once_when_closed(schema: Any) -> None:
    told = [{**chunk("object"), "object": []}] if schema is None else []
    feed = Feed(start(), step_start(), *told)
    out = feed.run(schema=schema)
    elements = out.element_stream
    first = asyncio.ensure_future(anext(elements))
    closed_at = ELEMENTS.index("},{") + 1
    feed.push(*(text(letter) for letter in ELEMENTS[: closed_at - 1]))
    await asyncio.sleep(0)
    assert not first.done()
    feed.push(text(ELEMENTS[closed_at - 1]))
    ann = await asyncio.wait_for(first, 5)
    assert (ann.name if schema else ann["name"]) == "Ann"
    feed.push(*(text(letter) for letter in ELEMENTS[closed_at:]), step_finish(), finish())
    feed.end()
    assert [(item.name if schema else item["name"]) async for item in elements] == ["Bo"]
    grown = [value async for value in out.object_stream]
    assert None not in grown
    assert [len(repr(value)) for value in grown] == sorted(len(repr(value)) for value in grown)
    assert all(a != b for a, b in pairwise(grown))


def test_b32_no_elements_are_no_items_and_an_empty_list() -> None:
    out = answer('{"elements":', "[]}", schema=list[Person])
    assert list(out.element_stream) == []
    assert out.object.result() == []
    assert list(out.object_stream) == [[]]


BOUNDED = {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        list[int],
        Sequence[int],
        tuple[int, ...],
        Annotated[list[int], Field(min_length=2)],
        TypeAdapter(list[int]),
        RootModel[list[int]],
        BOUNDED,
    ],
    ids=str,
)
def test_elements_that_do_not_fit_are_left_out_and_bounds_of_the_list_do_not_matter_yet(schema: Any) -> None:
    out = answer('{"elements":[1,', '"two",3]}', schema=schema)
    assert list(out.element_stream) == [1, 3]
    with pytest.raises(ObjectError, match=r"\[1\]"):
        out.object.result()


def test_the_last_element_of_a_list_that_was_cut_is_not_an_element() -> None:
    cut = [start(), step_start(), text('{"elements":[{"n":1},{"n":2'), step_finish("length"), finish("length")]
    for schema in (list[dict[str, int]], {"type": "array"}):
        out = of(*cut, schema=schema)
        assert list(out.element_stream) == [{"n": 1}]


def test_elements_that_only_chunks_tell_come_when_the_next_one_begins() -> None:
    told = [{**chunk("object"), "object": value} for value in ([], [{"n": 1}], [{"n": 1}, {"n": 2}])]
    feed = Feed(start(), step_start(), *told)
    out = feed.run(schema=list[dict[str, int]])
    elements = iter(out.element_stream)
    assert next(elements) == {"n": 1}
    feed.push({**chunk("object-result"), "object": [{"n": 1}, {"n": 2}]}, finish())
    feed.end()
    assert list(elements) == [{"n": 2}]


def test_a_retry_begins_its_object_and_its_elements_anew() -> None:
    """B17's streams."""
    first = [step_start(), text("[1,2]"), step_finish("retry", continued=True)]
    out = of(start(), *first, step_start(), text("[3]"), step_finish(), finish(), schema=list[int])
    assert list(out.element_stream) == [1, 2, 3]
    assert list(out.object_stream)[-1] == [3]
    assert out.object.result() == [3]


@pytest.mark.parametrize("schema", [5, "a model", {"type": "nonsense"}, object()], ids=str)
def test_what_is_no_schema_is_refused_before_anything_is_sent(schema: Any) -> None:
    with pytest.raises(SettingsError, match=r"schema"):
        MastraModelOutput(schema=schema)


def test_a_schema_says_what_goes_over_the_wire() -> None:
    assert ObjectSchema(Trip).json_schema == ObjectSchema(TypeAdapter(Trip)).json_schema == JSON_TRIP
    assert (ObjectSchema(Trip).name, ObjectSchema(JSON_TRIP).name, ObjectSchema(list[int]).name) == ("Trip", "Trip", "")
    assert ObjectSchema(list[Trip]).is_array
    assert not ObjectSchema(Trip).is_array


def test_a_json_schema_of_an_older_draft_is_read_as_it_says() -> None:
    draft = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "maximum": 5}
    schema = ObjectSchema({**draft, "exclusiveMaximum": True})
    assert schema.validate(4) == 4
    with pytest.raises(ObjectError):
        schema.validate(5)
