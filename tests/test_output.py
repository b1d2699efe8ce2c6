"""The life of a run: its readers, how it ends, who is told, what answers give."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.errors import AlreadyResumed, ControlError, MastraStreamError, NotSuspended, StreamTruncated
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, Batch, Ended, Limits, MastraModelOutput, Stream, StreamEnded, hooks
from nbmastra.output.streams import BATCH
from nbmastra.usage import Usage
from tests.support.feed import Feed
from tests.support.runs import Wire, call, chunk, error, finish, inside, start, step_finish, step_start, text, usage

HELLO = [start(), step_start(), text("Hel"), text("lo"), step_finish(used=usage(3, 2)), finish(used=usage(3, 2))]
BEGUN = [start(), step_start(), text("Hel")]


def types(stream: Stream[Chunk]) -> list[str]:
    return [item.type for item in stream]


pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


# --- readers ---------------------------------------------------------------------------------------------------------


async def test_b28_closing_one_reader_leaves_the_others_alone() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    first, second = out.full_stream, out.text_stream
    answer = asyncio.ensure_future(out.text)
    assert [(await anext(first)).type for _ in range(2)] == ["start", "step-start"]
    assert await anext(second) == "Hel"
    await first.aclose()
    await first.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(first)
    feed.push(*HELLO[3:])
    feed.end(done=True)
    assert [piece async for piece in second] == ["lo"]
    assert await answer == "Hello"
    assert [item.type async for item in out.full_stream] == [item["type"] for item in HELLO]


async def test_a_slow_reader_does_not_hold_up_a_fast_one() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    slow = out.full_stream
    await anext(slow)
    feed.push(*HELLO[3:])
    feed.end(done=True)
    assert [piece async for piece in out.text_stream] == ["Hel", "lo"]
    assert out.status == "success"
    assert [item.type async for item in slow] == [item["type"] for item in HELLO[1:]]


async def test_a_reader_that_breaks_off_leaves_nothing() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    async for item in out.full_stream:
        if item.type == "text-delta":
            break
    for item in out.full_stream:
        if item.type == "step-start":
            break
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "aclose" in repr(task)] == []
    assert not out.log._wakers
    feed.end(done=True)
    await out.aclose()


def test_a_thread_and_a_loop_read_the_same_run_at_once() -> None:
    feed = Feed()
    out = feed.run()
    read: dict[str, list[str]] = {}

    def plain() -> None:
        read["thread"] = list(out.text_stream)

    async def looped() -> None:
        async def one(name: str) -> None:
            read[name] = [piece async for piece in out.text_stream]

        await asyncio.gather(one("first"), one("second"))

    threads = [threading.Thread(target=plain), threading.Thread(target=asyncio.run, args=(looped(),))]
    for thread in threads:
        thread.start()
    pieces = [str(number) for number in range(200)]
    for at in range(0, 200, 7):
        feed.push(*(text(piece) for piece in pieces[at : at + 7]))
    feed.push(finish())
    feed.end()
    for thread in threads:
        thread.join(10)
    assert read == dict.fromkeys(("thread", "first", "second"), pieces)


async def test_every_stream_tells_its_part_early_and_late() -> None:
    feed = Feed()
    out = feed.run()
    names = ["full_stream", "text_stream", "reasoning_stream", "object_stream", "element_stream"]

    async def read(name: str) -> list[Any]:
        return [getattr(item, "type", item) async for item in getattr(out, name)]

    early = [asyncio.create_task(read(name)) for name in names]
    await asyncio.sleep(0)
    thought = chunk("reasoning-delta", {"id": "r", "text": "Hm"})
    pieces = ['{"elements":[{"n":1}', ',{"n":2}', "]}"]
    shown = [{**chunk("object"), "object": [{"n": 1}]}, {**chunk("object"), "object": [{"n": 1}, {"n": 2}]}]
    feed.push(start(), thought, text(pieces[0]), shown[0], text(pieces[1]), shown[1], text(pieces[2]), finish())
    feed.end(done=True)
    told = [await task for task in early]
    late = [await read(name) for name in names]
    assert told == late
    assert told[1:3] == [pieces, ["Hm"]]
    assert told[3][-1] == [{"n": 1}, {"n": 2}]
    assert told[4] == [{"n": 1}, {"n": 2}]


async def test_a_late_reader_gives_its_loop_a_turn_now_and_then() -> None:
    out = MastraModelOutput()
    out.feed([parse_chunk(text("x"))] * 5000, 0.0)
    out.finish(Ended())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    read = 0
    most = 0
    at = 0
    async for _ in out.text_stream:
        read += 1
        if turns != at:
            at, most = turns, max(most, read)
            read = 0
    task.cancel()
    assert most <= BATCH + 1


def test_a_run_of_a_plain_iterable_is_read_item_by_item() -> None:
    """An item isn't held back until the next one comes."""
    seen = threading.Event()

    def slow() -> Iterator[Wire]:
        yield text("first")
        assert seen.wait(5)
        yield finish()

    out = MastraModelOutput.from_chunks(slow())
    assert next(iter(out.text_stream)) == "first"
    seen.set()
    assert out.wait(5).status == "success"


@pytest.mark.parametrize("shape", ["dict", "text", "bytes", "chunk"])
async def test_chunks_may_come_in_any_shape_from_any_iterable(shape: str) -> None:
    shapes: dict[str, Callable[[Wire], Any]] = {
        "dict": lambda wire: wire,
        "text": lambda wire: parse_chunk(wire).to_json().decode(),
        "bytes": lambda wire: parse_chunk(wire).to_json(),
        "chunk": parse_chunk,
    }
    chunks = [shapes[shape](wire) for wire in HELLO]

    async def later() -> AsyncIterator[Any]:
        for item in chunks:
            yield item

    for source in (chunks, tuple(chunks), iter(chunks), later()):
        out = MastraModelOutput.from_chunks(source)
        assert await out.text == "Hello"
        assert [item.event for item in out.log.items] == list(range(6))


def test_what_is_no_chunk_is_counted_and_told() -> None:
    """B12: never a crash on JSON that is no chunk."""
    odd: list[Any] = [42, None, "{", b"\xff", {"runId": "r"}, [], *HELLO]
    out = MastraModelOutput.from_chunks(odd).wait()
    assert (out.status, out.text.result(), out.state.decode_errors) == ("success", "Hello", 6)
    assert [notice.code for notice in out.state.notices] == ["decode-error"] * 6


# --- endings ---------------------------------------------------------------------------------------------------------


def test_a_source_that_breaks_gives_its_reason() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    feed.end(OSError("reset by peer"))
    out.wait(5)
    assert out.status == "truncated"
    assert "reset by peer" in out.status_reason
    with pytest.raises(StreamTruncated) as caught:
        out.text.result()
    assert caught.value.partial == "Hel"


def test_a_source_that_breaks_after_the_finish_changes_nothing() -> None:
    feed = Feed(*HELLO)
    out = feed.run()
    feed.end(OSError("reset by peer"))
    assert out.wait(5).status == "success"


async def test_a_source_may_say_how_its_stream_ended_and_when() -> None:
    class Recorded(Feed):
        async def batches(self) -> AsyncIterator[Batch]:
            yield 1.5, [parse_chunk(item) for item in BEGUN]
            raise StreamEnded(Ended(cancelled="stopped by you", at=60.0))

    out = MastraModelOutput().start(Recorded())
    await out.text
    assert (out.status, out.status_reason, out.elapsed_s) == ("cancelled", "stopped by you", 60.0)
    assert out.turns[0].started_at == 1.5


def test_a_silent_run_ends_when_its_idle_time_is_over() -> None:
    out = Feed(*BEGUN).run(limits=Limits(idle_timeout_s=0.05)).wait(5)
    assert (out.status, out.status_reason) == ("cancelled", "nothing came for 0.05 s")
    assert [notice.code for notice in out.state.notices] == ["idle"]


def test_a_run_ends_when_its_time_is_used_up() -> None:
    out = Feed(*BEGUN).run(limits=Limits(max_seconds=0.05, idle_timeout_s=100)).wait(5)
    assert (out.status, out.status_reason) == ("cancelled", "the budget of 0.05 s is used up")
    assert [notice.code for notice in out.state.notices] == ["budget"]


def test_a_run_ends_when_its_tokens_are_used_up_nested_ones_included() -> None:
    feed = Feed(start(), step_start(), call("c1"), step_finish("tool-calls", usage(40, 10), True))
    out = feed.run(limits=Limits(max_tokens=59))
    assert not out.done
    feed.push(inside("c1", step_finish(used=usage(5, 5), run="child")))
    out.wait(5)
    assert out.status_reason == "60 tokens are more than the budget of 59"


def test_a_run_ends_when_its_money_is_used_up_each_run_at_its_models_price() -> None:
    prices = {"big": 0.01, "small": 0.001}

    def price(used: Usage, model: str | None) -> float | None:
        return prices[model] * (used.total_tokens or 0) if model else None

    def step(model: str, run: str) -> Wire:
        finished = step_finish("tool-calls", usage(50, 50), True, run)
        finished["payload"]["metadata"] = {"modelId": model}
        return finished

    feed = Feed(start(), step_start(), call("c1"), step("big", "r"))
    out = feed.run(limits=Limits(max_cost_usd=1.05, price=price))
    assert not out.done
    feed.push(inside("c1", step("small", "child")))
    assert out.wait(5).status_reason == "$1.1000 is more than the budget of $1.05"


def test_chunks_that_come_late_do_not_count_as_silence() -> None:
    limits = Limits(max_seconds=10, idle_timeout_s=3)
    assert limits.wait_s(8.0) == 2.0
    assert limits.wait_s(1.0) == 3
    assert limits.wait_s(20.0) == 0
    assert Limits().wait_s(5.0) is None


# --- callbacks, context, silence -------------------------------------------------------------------------------------


def test_callbacks_are_called_once_late_ones_too_and_a_failing_one_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = Feed(*HELLO)
    out = feed.run()
    called: list[str] = []

    def fail() -> None:
        raise RuntimeError("a view broke")

    out.on_done(fail)
    out.on_done(lambda: called.append(threading.current_thread().name))
    feed.end()
    out.wait(5)
    assert feed.closed.wait(5)
    out.on_done(lambda: called.append("late"))
    assert called == ["nbmastra-engine", "late"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize("shape", ["plain", "async"])
def test_a_run_sees_the_context_of_its_caller(shape: str) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    def plain() -> Iterator[Wire]:
        yield text(user.get())
        yield finish()

    async def looped() -> AsyncIterator[Wire]:
        yield text(user.get())
        yield finish()

    user.set("ada")
    out = MastraModelOutput.from_chunks(plain() if shape == "plain" else looped())
    user.set("bob")
    assert out.text.result(5) == "ada"


def test_a_failed_run_that_nobody_asks_is_silent(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings are errors here, and pytest turns what can't be raised into one."""
    for chunks in ([*BEGUN, error("x")], BEGUN, [*BEGUN, chunk("tripwire", {"reason": "no"}, None)]):
        out = MastraModelOutput.from_chunks(chunks)
        pending = [out.text, out.object, out.usage, out.tool_calls]
        out.wait(5)
        del out, pending
    gc.collect()
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_two_waits_at_once_in_the_main_loop_leave_signals_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT)
    feed = Feed()

    async def main() -> None:
        out = feed.run()

        async def read() -> int:
            return len([piece async for piece in out.text_stream])

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(30):
            await asyncio.to_thread(feed.push, text(str(number)))
        await asyncio.to_thread(feed.push, finish())
        feed.end()
        assert await asyncio.gather(*readers) == [30] * 3

    asyncio.run(main())
    assert signal.getsignal(signal.SIGINT) is before


# --- answers ---------------------------------------------------------------------------------------------------------

ASKED = [*BEGUN, call("c1", "deploy"), chunk("tool-call-approval", {"toolCallId": "c1", "toolName": "deploy"})]


class _Asker:
    """A control that answers with a run; `fail` is what it raises first."""

    can = frozenset({"approve", "decline", "resume"})

    def __init__(self, *fail: Exception) -> None:
        self.fail = list(fail)
        self.answers: list[tuple[str, Answer, str | None, Any]] = []

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        self.answers.append((call.tool_call_id, answer, reason, data))
        if self.fail:
            raise self.fail.pop()
        return MastraModelOutput.from_chunks(HELLO, answered=[call.tool_call_id])


async def test_an_answer_gives_a_new_output_linked_to_the_old_one() -> None:
    control = _Asker()
    out = Feed(*ASKED).run(control=control)
    await out.text
    assert [call.tool_name for call in out.waiting] == ["deploy"]
    told: list[MastraModelOutput] = []
    out.on_next(told.append)
    after = await out.approve()
    out.on_next(told.append)
    assert told == [after, after]
    assert (after.previous, out.next, await after.text) == (out, after, "Hello")
    assert control.answers == [("c1", "approve", None, None)]
    assert out.waiting == []
    assert out.status == "suspended"


async def test_the_second_answer_is_refused_at_once() -> None:
    """B40: a double click."""
    out = Feed(*ASKED).run(control=_Asker())
    await out.text
    first = out.approve()
    with pytest.raises(AlreadyResumed, match="deploy"):
        out.decline(reason="changed my mind")
    assert await (await first).text == "Hello"


async def test_an_answer_that_was_not_accepted_may_be_given_again() -> None:
    control = _Asker(OSError("no connection"))
    out = Feed(*ASKED).run(control=control)
    await out.text
    with pytest.raises(OSError, match="no connection"):
        await out.resume({"ok": True})
    assert await (await out.decline("c1", reason="Friday")).text == "Hello"
    assert control.answers == [("c1", "resume", None, {"ok": True}), ("c1", "decline", "Friday", None)]


async def test_an_answer_needs_a_question_and_a_source_that_can_take_it() -> None:
    feed = Feed(*BEGUN, call("c1"), call("c2"), ASKED[-1])
    out = feed.run(control=_Asker())
    with pytest.raises(NotSuspended, match="still goes on"):
        out.approve()
    feed.push(chunk("tool-call-suspended", {"toolCallId": "c2", "toolName": "ask"}))
    await out.text
    with pytest.raises(NotSuspended, match="several calls wait"):
        out.approve()
    with pytest.raises(NotSuspended, match="no call 'c9'"):
        out.approve("c9")
    assert await (await out.approve("c2")).text == "Hello"
    with pytest.raises(ControlError, match="only a list of chunks"):
        await MastraModelOutput.from_chunks(ASKED).wait(5).approve()


# --- shown -----------------------------------------------------------------------------------------------------------


def test_its_repr_is_one_line_at_any_moment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hooks, "display", None)
    feed = Feed(*BEGUN)
    out = feed.run(agent="weather")
    assert "weather running" in repr(out)
    assert "await .text" in repr(out)
    assert "await it" in repr(out.text)
    assert "async for" in repr(out.text_stream)
    feed.end(done=True)
    out.wait(5)
    assert "weather success" in repr(out)
    assert "ready" in repr(out.text)
    out._ipython_display_()
    assert capsys.readouterr().out.startswith("<MastraModelOutput")


def test_a_failure_says_what_the_server_said() -> None:
    out = MastraModelOutput.from_chunks([start(), error({"message": "no such model", "name": "E", "statusCode": 404})])
    with pytest.raises(MastraStreamError) as caught:
        out.text.result(5)
    assert (str(caught.value), caught.value.name) == ("no such model (HTTP 404)", "E")
    assert out.error is not None
    assert out.error.message == "no such model"
