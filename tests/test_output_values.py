"""What is awaited of a run: which turn it comes from, when it raises, objects and their schemas."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nbmastra.errors import (
    MastraStreamError,
    RunCancelled,
    RunError,
    RunSuspended,
    RunTripwire,
    StreamTruncated,
)
from nbmastra.fold import TextPart
from nbmastra.output import MastraModelOutput
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
