"""Inputs on which other systems failed in public, each by its id, through `MastraModelOutput.from_chunks`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from nbmastra.chunks import parse_chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.errors import MastraStreamError, NotSuspended, StreamTruncated
from nbmastra.output import MastraModelOutput
from tests.support.runs import (
    Wire,
    call,
    chunk,
    error,
    finish,
    fold,
    inside,
    result,
    start,
    step_finish,
    step_start,
    text,
    usage,
)


def run(*chunks: Wire, **about: Any) -> MastraModelOutput:
    """A finished run of these chunks, its connection closed after the last one."""
    return MastraModelOutput.from_chunks(list(chunks), **about).wait(10)


async def held_open(chunks: Sequence[Wire]) -> AsyncIterator[Wire]:
    """The chunks, and then a connection that nobody closes."""
    for item in chunks:
        yield item
    await asyncio.Event().wait()


def wait_held_open(*chunks: Wire, **about: Any) -> tuple[MastraModelOutput, float]:
    """A run whose server doesn't close, and how long it took to be over."""
    begun = time.monotonic()
    out = MastraModelOutput.from_chunks(held_open(chunks), **about).wait(10)
    return out, time.monotonic() - begun


def calls(out: MastraModelOutput) -> list[tuple[str, str, Any]]:
    return [(call.tool_call_id, call.status, call.args) for call in out.state.tool_calls]


def task_chunk(kind: str, id: str, **more: Any) -> Wire:
    about = {"taskId": f"task-{id}", "toolName": "f", "toolCallId": id}
    return chunk(f"background-task-{kind}", {**about, **more}, None)


def placeholder(id: str) -> Wire:
    return result(id, "started", providerMetadata={"mastra": {"backgroundTask": {"taskId": f"task-{id}"}}})


# --- endings ---------------------------------------------------------------------------------------------------------


def test_b07_a_stream_that_just_ends_is_truncated_and_its_text_is_partial() -> None:
    out = run(start(), step_start(), text("Hel"))
    assert out.status == "truncated"
    with pytest.raises(StreamTruncated) as caught:
        out.text.result()
    assert caught.value.partial == "Hel"
    assert [notice.code for notice in out.state.notices] == ["truncated"]


def test_b07_half_an_event_at_the_end_is_never_a_chunk() -> None:
    decoder = ChunkDecoder()
    chunks = decoder.feed(
        b'data: {"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"Hel"}}\n\n'
    )
    chunks += decoder.feed(b'data: {"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"lo')
    chunks += decoder.close()
    out = MastraModelOutput.from_chunks(chunks).wait()
    assert (out.status, out.state.text) == ("truncated", "Hel")
    assert decoder.pending


def test_b09_a_resumed_stream_may_replay_the_old_question() -> None:
    replayed = [start(), call("c1"), chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "f"})]
    goes_on = [result("c1", "ok"), text("done"), step_finish(), finish()]
    out = run(*replayed, *goes_on, answered=["c1"])
    assert (out.status, out.text.result(), calls(out)) == ("success", "done", [("c1", "success", {})])
    assert not out.waiting
    assert not out.state.notices
    # Somebody who doesn't know of the answer sees the question, and that it was answered.
    out = run(*replayed, *goes_on)
    assert (out.status, out.waiting) == ("success", [])


async def test_b09_the_replayed_question_does_not_end_the_stream() -> None:
    answered = asyncio.Event()

    async def source() -> AsyncIterator[Wire]:
        yield start()
        yield call("c1")
        yield chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "f"})
        await answered.wait()
        yield result("c1", "ok")
        yield finish()

    out = MastraModelOutput.from_chunks(source(), answered=["c1"])
    stream = out.full_stream
    for _ in range(3):
        await anext(stream)
    assert not out.state.settling
    out._engine.call_soon(answered.set)
    await out.consume_stream()
    assert out.status == "success"


def test_a_tool_that_asks_again_after_the_answer_waits_again() -> None:
    """B09's other side: the old question is passed over once, and only where the call is replayed too."""
    again = chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "ask", "suspendPayload": {"q": 2}})
    out = run(again, answered=["c1"])
    assert (out.status, out.suspend_payload.result()) == ("suspended", {"q": 2})
    replayed = [start(), call("c1"), chunk("tool-call-suspended", {"toolCallId": "c1"})]
    out = run(*replayed, again, answered=["c1"])
    assert (out.status, out.suspend_payload.result()) == ("suspended", {"q": 2})


ODD_ERRORS = {
    "an object": ({"message": "429", "statusCode": 429, "name": "APICallError"}, "429", 429),
    "a string": ("429 Too Many Requests", "429 Too Many Requests", None),
    "null": (None, "the server gave no reason", None),
    "nothing in it": ({}, "the server gave no reason", None),
    "a number": (5, "5", None),
    "a list": ([1], "[1]", None),
    "blank": (" ", "the server gave no reason", None),
    "a cause": ({"name": "Error", "cause": {"message": "no such city", "statusCode": 404}}, "no such city", 404),
    "nested": ({"error": {"message": "inner"}}, "inner", None),
}


@pytest.mark.parametrize(("value", "message", "status"), ODD_ERRORS.values(), ids=ODD_ERRORS)
def test_b19_an_error_chunk_ends_the_run_though_the_connection_stays_open(
    value: Any, message: str, status: int | None
) -> None:
    out, took = wait_held_open(start(), step_start(), text("a"), error(value))
    assert took < 5  # the server would have kept it open for ever
    assert [item.type for item in out] == ["start", "step-start", "text-delta", "error"]
    for value in (out.text, out.usage, out.object, out.finish_reason, out.tool_calls, out.response):
        with pytest.raises(MastraStreamError) as caught:
            value.result(0)
        assert (caught.value.message, caught.value.status_code) == (message, status)
    with pytest.raises(MastraStreamError) as caught:
        out.text.result()
    assert caught.value.partial == "a"


def test_b19_an_error_chunk_without_an_error_is_an_error() -> None:
    out = run(start(), chunk("error"))
    assert (out.status, out.status_reason) == ("failed", "the server gave no reason")


TRIPWIRE = chunk("tripwire", {"reason": "pii", "retry": True, "processorId": "p", "metadata": {"k": 1}}, None)


def test_b21_a_block_is_told_and_the_rejected_text_is_gone_everywhere() -> None:
    out = run(start(), step_start(), text("secret"), TRIPWIRE)
    assert (out.status, out.status_reason, out.finish_reason.result()) == ("tripwire", "pii", "tripwire")
    assert out.tripwire == {"reason": "pii", "retry": True, "processorId": "p", "metadata": {"k": 1}}
    assert out.text.result() == ""
    assert [step.text for step in out.steps.result()] == [""]
    [notice] = out.state.notices
    assert ("p" in notice.title, "pii" in notice.text) == (True, True)


def test_b21_a_retry_that_succeeds_leaves_only_its_own_text() -> None:
    out = run(
        *[start(), step_start(), text("secret"), TRIPWIRE],
        *[step_start(), text("fine"), step_finish(), finish()],
    )
    assert (out.status, out.text.result(), out.tripwire) == ("success", "fine", None)
    assert [step.text for step in out.steps.result()] == ["", "fine"]


def test_b21_a_retry_may_take_its_time_but_a_final_block_ends_the_run() -> None:
    final = chunk("tripwire", {"reason": "pii"}, None)
    state = fold([start(), step_start(), text("x")])
    assert not _settling([start(), step_start(), text("x"), TRIPWIRE])
    assert _settling([start(), step_start(), text("x"), final])
    assert not state.settling
    out, _ = wait_held_open(start(), step_start(), text("x"), final)
    assert out.status == "tripwire"


def _settling(chunks: list[Wire]) -> bool:
    out = MastraModelOutput()
    out.feed([parse_chunk(item) for item in chunks], 0.0)
    return out.state.settling


@pytest.mark.parametrize("held", [False, True], ids=["closed without an end", "held open"])
def test_b41_a_suspension_ends_the_run(held: bool) -> None:
    asked = {"toolCallId": "c1", "toolName": "ask", "suspendPayload": {"q": "ok?"}, "resumeSchema": '{"type":"object"}'}
    chunks = [start(), step_start(), text("One moment."), call("c1", "ask"), chunk("tool-call-suspended", asked)]
    out = wait_held_open(*chunks)[0] if held else run(*chunks)
    assert (out.status, out.finish_reason.result()) == ("suspended", "suspended")
    assert out.suspend_payload.result() == {"q": "ok?"}
    assert out.resume_schema.result() == {"type": "object"}
    assert [step.text for step in out.steps.result()] == ["One moment."]
    assert "ask" in out.status_reason
    assert [notice.code for notice in out.state.notices] == ["suspension"]
    assert [item.type for item in out][-1] == "tool-call-suspended"


def test_b41_other_calls_of_the_step_may_finish_first() -> None:
    suspended = chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "ask"})
    assert not _settling([start(), step_start(), call("c1", "ask"), call("c2"), suspended])
    assert _settling([start(), step_start(), call("c1", "ask"), call("c2"), suspended, result("c2", 1)])


def test_an_approval_is_answered_only_where_somebody_asks() -> None:
    out = run(start(), text("a"), finish())
    with pytest.raises(NotSuspended, match="nothing waits"):
        out.approve()


# --- usage -----------------------------------------------------------------------------------------------------------

CACHED = [usage(10, 2, 12, cacheCreationInputTokens=900), usage(30, 4, 34, cacheCreationInputTokens=4)]


def _two_steps(*used: Wire | None) -> list[Wire]:
    first, second, whole = used
    steps = [step_start(), step_finish("tool-calls", first, True), step_start(), step_finish("stop", second)]
    return [start(), *steps, finish("stop", whole)]


def test_b14_steps_and_turn_tell_the_same_tokens_once() -> None:
    whole = usage(40, 6, 46, cacheCreationInputTokens=904)
    told = {
        "finish without the cache": _two_steps(*CACHED, usage(40, 6, 46)),
        "only the finish": _two_steps(None, None, whole),
        "only the steps": _two_steps(*CACHED, None),
        "at payload.usage": [*_two_steps(*CACHED, None)[:-1], chunk("finish", {"usage": usage(40, 6, 46)})],
        "at payload.totalUsage": [*_two_steps(*CACHED, None)[:-1], chunk("finish", {"totalUsage": usage(40, 6, 46)})],
        "at stepResult.totalUsage": [
            *_two_steps(*CACHED, None)[:-1],
            chunk("finish", {"stepResult": {"reason": "stop", "totalUsage": usage(40, 6, 46)}}),
        ],
    }
    for how, chunks in told.items():
        used = run(*chunks).usage.result()
        assert used.to_dict() == {
            "input_tokens": 40,
            "output_tokens": 6,
            "total_tokens": 46,
            "cache_creation_input_tokens": 904,
        }, how


def test_b14_a_second_finish_of_the_turn_counts_nothing() -> None:
    chunks = _two_steps(*CACHED, usage(40, 6, 46))
    assert run(*chunks, chunks[-1]).total.usage.total_tokens == 46


def test_zeros_of_an_aborted_run_do_not_hide_what_its_steps_reported() -> None:
    aborted = [chunk("abort"), finish("tripwire", usage(0, 0))]
    out = run(start(), step_start(), step_finish("tool-calls", usage(7, 3), True), step_start(), text("x"), *aborted)
    assert (out.status, out.finish_reason.result(), out.usage.result().total_tokens) == ("cancelled", "abort", 10)


def test_b15_the_tokens_of_a_sub_agent_count_once_and_apart() -> None:
    child = usage(7, 3)
    out = run(
        *[start(), step_start(), call("c1")],
        *[inside("c1", start("sub", "child")), inside("c1", text("inner", run="child"))],
        *[inside("c1", step_finish(used=child, run="child")), inside("c1", finish(used=child, run="child"))],
        *[result("c1", "told"), step_finish("stop", usage(50, 5)), finish("stop", usage(50, 5))],
    )
    assert out.usage.result().total_tokens == 55
    [nested] = out.total.nested
    assert (nested.usage.total_tokens, nested.text, nested.status, nested.agent_id) == (10, "inner", "success", "sub")
    assert out.total.grand_usage.total_tokens == 65
    assert list(out.text_stream) == []


def test_b15_a_finish_that_rides_on_a_tool_call_is_a_nested_run_too() -> None:
    """Mastra adds it to the parent's usage; here it has a row of its own, as all nested runs have."""
    riding = finish(used=usage(7, 3), run="child")
    out = run(start(), step_start(), call("c1", output=riding), result("c1"), step_finish(used=usage(50, 5)), finish())
    assert (out.usage.result().total_tokens, out.total.grand_usage.total_tokens) == (55, 65)


def test_b16_the_providers_total_is_kept_and_a_missing_one_is_summed_up() -> None:
    thinking = usage(10, 5, 115, reasoningTokens=100)
    out = run(*_two_steps(thinking, {"inputTokens": 1, "outputTokens": 1}, None))
    assert out.usage.result().total_tokens == 117
    assert [step.usage.total_tokens for step in out.steps.result()] == [115, 2]


# --- text and objects ------------------------------------------------------------------------------------------------


def _retry(kind: str) -> list[Wire]:
    rejected = [TRIPWIRE] if kind == "tripwire" else [step_finish("retry", continued=True)]
    return [
        *[start(), step_start(), {**chunk("object-result"), "object": {"n": 1}}, text('{"n":1}'), *rejected],
        *[step_start(), text('{"n":2}'), {**chunk("object-result"), "object": {"n": 2}}, step_finish(), finish()],
    ]


@pytest.mark.parametrize("kind", ["tripwire", "step-finish"])
@pytest.mark.parametrize("schema", [None, dict[str, int]])
async def test_b17_the_object_is_that_of_the_accepted_attempt(kind: str, schema: Any) -> None:
    chunks = _retry(kind)
    go_on = asyncio.Event()

    async def source() -> AsyncIterator[Wire]:
        for item in chunks:
            if item["type"] == "text-delta" and "2" in item["payload"]["text"]:
                await go_on.wait()
            yield item

    out = MastraModelOutput.from_chunks(source(), schema=schema)
    early = asyncio.ensure_future(out.object)
    stream = out.full_stream
    for _ in range(5):
        await anext(stream)
    out._engine.call_soon(go_on.set)
    assert await early == await out.object == {"n": 2}
    assert await out.text == '{"n":2}'
    assert [step.text for step in await out.steps] == ["", '{"n":2}']
    assert [value async for value in out.object_stream][-1] == {"n": 2}


def test_b22_talk_between_tool_calls_is_not_the_answer() -> None:
    first = [step_start(), text("Let me look."), call("c1"), result("c1", 4), step_finish("tool-calls", None, True)]
    out = run(start(), *first, step_start(), text("It is 4."), step_finish(), finish())
    assert list(out.text_stream) == ["Let me look.", "It is 4."]
    assert out.text.result() == "It is 4."
    assert [step.text for step in out.steps.result()] == ["Let me look.", "It is 4."]


def test_b22_steps_that_go_on_without_a_call_stay_joined() -> None:
    first = [step_start(), text("One, "), step_finish("stop", None, True)]
    out = run(start(), *first, step_start(), text("two."), step_finish(), finish())
    assert out.text.result() == "One, two."


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_client_tool_run_that_stops_between_its_halves_is_not_a_success() -> None:
    first = [start(), step_start(), call("k1"), step_finish("tool-calls"), finish("tool-calls")]

    def broken() -> Any:
        yield from first
        raise OSError("the second request failed")

    out = MastraModelOutput.from_chunks(broken()).wait()
    assert (out.status, calls(out)[0][1]) == ("truncated", "cancelled")
    with pytest.raises(StreamTruncated, match="the second request failed"):
        out.text.result()
    out = MastraModelOutput.from_chunks(held_open(first))
    stream = iter(out.full_stream)
    for _ in first:
        next(stream)
    out.cancel()
    assert out.wait(5).status == "cancelled"
    assert calls(out)[0][1] == "cancelled"


def test_a_connection_that_breaks_before_the_continuation_is_no_success() -> None:
    def broken() -> Any:
        yield from [
            start(),
            call("t1"),
            task_chunk("started", "t1"),
            placeholder("t1"),
            text("x"),
            step_finish(),
            finish(),
        ]
        raise OSError("reset by peer")

    out = MastraModelOutput.from_chunks(broken(), until_idle=True).wait()
    assert (out.status, out.text.result()) == ("truncated", "x")


def test_steps_may_begin_without_their_start_and_calls_without_their_step() -> None:
    out = run(text("a"), finish(), text("b"), finish())
    assert [turn.text for turn in out.turns] == ["a", "b"]


# --- workflows -------------------------------------------------------------------------------------------------------


def _step(kind: str, id: str, **more: Any) -> Wire:
    return {**chunk(f"workflow-step-{kind}", {"id": id, "stepName": id, **more}), "from": "WORKFLOW"}


def test_a_sub_agent_of_a_failed_step_failed_too() -> None:
    inner = _step("output", "s1", output=start("sub", "child"))
    state = fold([_step("start", "s1"), inner, _step("result", "s1", status="failed", error={"message": "boom"})])
    assert (state.workflow_steps[0].status, state.nested[0].status) == ("error", "failed")


def test_steps_that_never_came_back_are_cancelled() -> None:
    out = run(_step("start", "s1"), _step("start", "s2"), _step("waiting", "s2"))
    assert out.status == "truncated"
    assert [step.status for step in out.state.workflow_steps] == ["cancelled", "cancelled"]


def test_a_paused_workflow_waits() -> None:
    state = fold([chunk("workflow-start", {"workflowId": "w"}), chunk("workflow-paused")])
    assert (state.status, state.turns[0].finish_reason) == ("suspended", "suspended")
