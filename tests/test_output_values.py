"""What is awaited of a run: which turn it comes from, when it raises, objects and their schemas."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from nbmastra.errors import (
    MastraStreamError,
    ObjectError,
    RunCancelled,
    RunError,
    RunSuspended,
    RunTripwire,
    SettingsError,
    StreamTruncated,
)
from nbmastra.fold import TextPart
from nbmastra.output import MastraModelOutput, ObjectSchema
from nbmastra.usage import Usage
from tests.support.feed import Feed
from tests.support.runs import (
    Wire,
    call,
    chunk,
    error,
    finish,
    recorded,
    result,
    start,
    step_finish,
    step_start,
    text,
    usage,
)

NAMES = """text object reasoning reasoning_parts reasoning_text tool_calls tool_results usage total_usage finish_reason
response request steps sources files warnings content provider_metadata suspend_payload resume_schema""".split()
TRIPWIRE = chunk("tripwire", {"reason": "pii"}, None)
SUSPENDED = chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "ask"})


def of(*chunks: Wire, **about: Any) -> MastraModelOutput:
    return MastraModelOutput.from_chunks(list(chunks), **about).wait(10)


def answer(*pieces: str, reason: str = "stop", **about: Any) -> MastraModelOutput:
    """A finished run whose answer is this text."""
    return of(start(), step_start(), *map(text, pieces), step_finish(reason), finish(reason), **about)


def shown(value: Any) -> list[Wire]:
    """A finished run that tells its object by chunks alone."""
    told = [{**chunk(kind), "object": value} for kind in ("object", "object-result")]
    return [start(), step_start(), *told, step_finish(), finish()]


# --- which values ----------------------------------------------------------------------------------------------------


async def test_the_values_of_a_recorded_run_are_those_of_its_recording() -> None:
    chunks, _ = recorded("text.sse")
    out = MastraModelOutput.from_chunks(chunks)
    assert (await out.text).startswith("# Hello")
    assert await out.reasoning == await out.reasoning_text == "Let me think about it."
    [thought] = await out.reasoning_parts
    assert thought.signature == "c2ln"
    assert await out.usage == await out.total_usage == Usage(10, 20, 30, 5, 3)
    assert [source.url for source in await out.sources] == ["https://example.com/a"]
    [file] = await out.files
    assert (file.mime_type, file.base64[:8]) == ("image/png", "iVBORw0K")
    assert await out.finish_reason == "stop"
    assert [part.kind for part in await out.content] == ["reasoning", "text", "source", "file"]
    assert await out.object is None
    assert await out.suspend_payload is None
    assert await out.warnings == []
    assert out.run_id == "59e922da-5409-48e6-aa5d-60f3c5864213"
    response = await out.response
    assert response.model_id == "scripted-1"
    assert [message["role"] for message in out.message_list] == ["user", "assistant"]
    assert (await out.request).keys() == (await out.steps)[0].start_chunk.payload.request.keys()  # type: ignore[union-attr]


async def test_calls_and_results_read_like_their_chunks() -> None:
    chunks, _ = recorded("tools.sse")
    out = MastraModelOutput.from_chunks(chunks)
    calls = await out.tool_calls
    results = await out.tool_results
    assert [(call.type, call.payload.tool_name, call.payload.args) for call in calls] == [
        ("tool-call", "weather", {"city": "Paris"}),
        ("tool-call", "weather", {"city": "Nowhere"}),
    ]
    assert [(item.type, item.payload.result, item.is_error) for item in results] == [
        ("tool-result", {"celsius": 21}, False),
        ("tool-result", None, True),
    ]
    assert results[1].error is not None
    assert results[1].error.message == "no such city"


async def test_values_are_there_again_and_again_on_any_loop_and_in_plain_code() -> None:
    out = answer("Hi")
    assert await out.text == await out.text == "Hi"
    assert await asyncio.gather(out.text, out.finish_reason) == ["Hi", "stop"]
    assert await asyncio.wait_for(out.text, 5) == "Hi"
    assert await asyncio.to_thread(out.text.result, 5) == "Hi"


def test_lists_grow_while_the_run_goes_on() -> None:
    feed = Feed(start(), step_start(), call("c1"))
    out = feed.run()
    assert [call.tool_call_id for call in out.tool_calls] == ["c1"]
    assert (len(out.tool_calls), out.tool_calls[0].status, out.tool_calls.done) == (1, "running", False)
    assert out.tool_calls[0:1] == [out.tool_calls[0]]
    feed.push(call("c2"), finish())
    feed.end()
    assert len(out.tool_calls.result(5)) == 2


def test_a_run_without_a_chunk_has_empty_values() -> None:
    """Truncated, so they raise; what they would have given is in the error."""
    out = of()
    for name in NAMES:
        with pytest.raises(StreamTruncated) as caught:
            getattr(out, name).result(0)
        assert caught.value.partial in ("", None, [], {}, Usage()) or name == "response"


# --- until idle: the first turn --------------------------------------------------------------------------------------


def _two_turns() -> tuple[list[Wire], list[Wire]]:
    first = [start(), step_start(), text('{"n":1}'), step_finish(used=usage(1, 1)), finish(used=usage(1, 1))]
    metadata = chunk("response-metadata", {"modelId": "other", "headers": {"x": "2"}}, "s")
    second = [
        start(run="s"),
        step_start("s"),
        metadata,
        text('{"n":2}', run="s"),
        step_finish(used=usage(5, 5), run="s"),
    ]
    return first, [*second, finish(used=usage(5, 5), run="s")]


async def test_until_idle_the_values_are_there_after_the_first_turn_and_stay_the_same() -> None:
    first, second = _two_turns()
    feed = Feed(*first)
    out = feed.run(until_idle=True, schema=dict[str, int])
    early = [await getattr(out, name) for name in NAMES if name != "response"]
    response = await out.response
    assert not out.done
    assert (await out.text, await out.usage, await out.object) == ('{"n":1}', Usage(1, 1, 2), {"n": 1})
    assert (await out.get_full_output()).text == '{"n":1}'
    feed.push(*second)
    feed.end(done=True)
    await out.consume_stream()
    late = [await getattr(out, name) for name in NAMES if name != "response"]
    assert late == early
    assert await out.response == response
    assert [turn.text for turn in out.turns] == ['{"n":1}', '{"n":2}']
    assert out.total.text == '{"n":1}{"n":2}'
    assert (out.total.usage.total_tokens, out.total.run_ids, out.total.finish_reason) == (12, ["r", "s"], "stop")
    assert "2 turns" in repr(out.total)


async def test_a_plain_stream_settles_when_it_is_over() -> None:
    first, _ = _two_turns()
    feed = Feed(*first)
    out = feed.run()
    assert not out.text.done
    feed.end()
    assert await out.text == '{"n":1}'


async def test_a_later_turn_that_fails_takes_nothing_from_the_first() -> None:
    first, second = _two_turns()
    told: list[RunError] = []
    out = of(*first, *second[:3], error("late"), until_idle=True)
    assert out.status == "failed"
    assert await out.text == '{"n":1}'
    await out.consume_stream(told.append)
    assert [str(failure) for failure in told] == ["late"]
    full = await out.get_full_output()
    assert (full.text, full.status, full.error and full.error.message) == ('{"n":1}', "failed", "late")


# --- who raises ------------------------------------------------------------------------------------------------------

BEGUN = [start(), step_start(), text("Hel")]
ENDINGS: dict[str, tuple[list[Wire], type[RunError] | None, type[RunError] | None]] = {
    "failed": ([*BEGUN, error("x")], MastraStreamError, MastraStreamError),
    "failed by its finish": ([*BEGUN, finish("error")], MastraStreamError, MastraStreamError),
    "truncated": (BEGUN, StreamTruncated, StreamTruncated),
    "tripwire": ([*BEGUN, TRIPWIRE], None, RunTripwire),
    "suspended": ([*BEGUN, call("c1"), SUSPENDED], None, RunSuspended),
    "aborted": ([*BEGUN, chunk("abort")], None, RunCancelled),
    "success": ([*BEGUN, finish()], None, None),
}


@pytest.mark.parametrize(("chunks", "for_all", "for_object"), ENDINGS.values(), ids=ENDINGS)
async def test_each_ending_raises_where_it_must_and_nowhere_else(
    chunks: list[Wire], for_all: type[RunError] | None, for_object: type[RunError] | None
) -> None:
    out = MastraModelOutput.from_chunks(chunks)
    for name in NAMES:
        raises = for_object if name == "object" else for_all
        if raises is None:
            await getattr(out, name)
        else:
            with pytest.raises(raises):
                await getattr(out, name)
    told: list[RunError] = []
    await out.consume_stream(told.append)
    assert [type(failure) for failure in told] == ([for_all] if for_all else [])
    full = await out.get_full_output()
    assert type(full.object_error) is (for_object or type(None))
    assert full.status == out.status == out.wait().status
    assert full.text == (out.turns[0].text)
    assert set(full.to_dict()) == {field.name for field in dataclasses.fields(full)}
    assert out.status in repr(full)


async def test_the_error_of_a_failed_run_may_be_handled_by_a_coroutine() -> None:
    told: list[str] = []

    async def tell(failure: RunError) -> None:
        await asyncio.sleep(0)
        told.append(failure.partial)

    await of(*BEGUN, error("x")).consume_stream(tell)
    await of(*BEGUN).consume_stream()
    assert told == ["Hel"]


async def test_a_cancelled_run_gives_what_it_had() -> None:
    feed = Feed(*BEGUN, call("c1"))
    out = feed.run(schema=dict[str, int])
    out.cancel()
    assert (await out.text, await out.finish_reason) == ("", None)  # what follows the last call
    assert [step.text for step in await out.steps] == ["Hel"]
    with pytest.raises(RunCancelled, match="stopped by you"):
        await out.object


# --- objects ---------------------------------------------------------------------------------------------------------


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


# --- odds and ends ---------------------------------------------------------------------------------------------------


def test_a_finish_whose_history_cannot_be_read_costs_only_the_history() -> None:
    out = of(*BEGUN, {**finish(), "payload": {"stepResult": {"reason": "stop"}, "messages": 5, "response": "x"}})
    assert out.message_list == []
    assert out.trace_id is None
    assert out.response.result().messages == []
    assert out.provider_metadata.result() is None
    assert out.request.result() == {}


def test_the_trace_of_a_run_is_found_where_the_server_notes_it() -> None:
    said = {"stepResult": {"reason": "stop"}, "response": {"uiMessages": [{"metadata": {"traceId": "t-1"}}, "odd"]}}
    out = of(*BEGUN, chunk("finish", said))
    assert out.trace_id == "t-1"
    assert len(out.response.result().ui_messages) == 1


def test_warnings_of_all_steps_are_there() -> None:
    warned = chunk("step-start", {"warnings": ["a"]})
    later = step_finish()
    later["payload"]["stepResult"]["warnings"] = ["b"]
    out = of(start(), warned, text("x"), later, finish())
    assert out.warnings.result() == ["a", "b"]


async def test_reading_while_the_fold_writes_never_shows_half_a_change() -> None:
    """Any thread may read the state of a run that goes on."""

    reading = threading.Event()

    async def many() -> AsyncIterator[Wire]:
        yield start()
        for number in range(3000):
            yield text("x", id=str(number % 7))
            if number % 50 == 0:
                await asyncio.to_thread(reading.wait)
                yield call(f"c{number}")
                yield result(f"c{number}", number)
        yield finish()

    out = MastraModelOutput.from_chunks(many())

    def read() -> int:
        looks = 0
        while not out.done:
            looks += 1
            reading.set()
            for turn in out.turns:
                assert set(turn.text) <= {"x"}
                assert len(turn.tool_calls) <= 60
            for part in list(out.state.parts):
                assert not isinstance(part, TextPart) or set(part.text) <= {"x"}
            repr(out)
            out.total.usage  # noqa: B018
        return looks

    assert await asyncio.to_thread(read) > 0
    assert len(await out.tool_calls) == 60
