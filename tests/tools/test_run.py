"""Running tools: where they run, what they print and write, how they stop and wait; and results that are JSON."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import decimal
import enum
import gc
import io
import json
import subprocess
import sys
import textwrap
import threading
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, Field

from nbmastra.errors import SettingsError, ToolAborted, ToolResultError
from nbmastra.tools import AbortSignal, ToolContext, ToolSuspended, as_tool, to_json
from nbmastra.tools.printing import printing_to


class Heard:
    """What a tool's context was told, in order."""

    def __init__(self, **about: Any) -> None:
        self.said: list[tuple[str, Any]] = []
        self.threads: set[int] = set()
        self.context = ToolContext(
            write=lambda value: self._hear("write", value),
            custom=lambda value: self._hear("custom", value),
            printed=lambda value: self._hear("printed", value),
            **about,
        )

    def _hear(self, how: str, value: Any) -> None:
        self.threads.add(threading.get_ident())
        self.said.append((how, value))

    @property
    def printed(self) -> str:
        return "".join(value for how, value in self.said if how == "printed")


async def run(function: Any, context: ToolContext | None = None, **arguments: Any) -> Any:
    made = as_tool(function)
    return await made.run(made.parse(arguments), context or ToolContext())


# --- where ------------------------------------------------------------------------------------------------------------


async def test_sync_tools_run_in_threads_at_the_same_time_and_async_ones_on_the_loop() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def meet() -> int:
        barrier.wait()
        return threading.get_ident()

    async def here() -> int:
        return threading.get_ident()

    threads = await asyncio.gather(run(meet), run(meet))
    assert len({*threads, threading.get_ident()}) == 3
    assert await run(here) == threading.get_ident()


async def test_context_variables_reach_a_tools_thread() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ann")

    def who() -> str:
        return user.get()

    assert await run(who) == "ann"


async def test_a_sync_function_that_gives_an_awaitable_is_awaited() -> None:
    async def later() -> str:
        return "done"

    def start() -> Any:
        return later()

    assert await run(start) == "done"


async def test_a_tool_that_never_ends_holds_up_neither_its_run_nor_the_process() -> None:
    begun, left = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def forever(context: ToolContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        context.abort.wait_blocking(60)
        if context.abort.aborted:
            left.set()

    task = asyncio.create_task(run(forever))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(left.wait, 30)


def test_a_blocked_tool_does_not_hold_up_the_end_of_the_process() -> None:
    code = """
        import asyncio, threading
        from nbmastra.tools import ToolContext, as_tool
        def block(): begun.set(); threading.Event().wait()
        begun = threading.Event()
        async def main():
            task = asyncio.create_task(as_tool(block).run({}, ToolContext()))
            await asyncio.to_thread(begun.wait)
            task.cancel()
        asyncio.run(main())
        print("over")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "over\n", done.stderr


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), LookupError("no")])
async def test_nothing_that_a_tool_raises_ends_the_loop(error: BaseException) -> None:
    def in_thread() -> None:
        raise error

    async def on_loop() -> None:
        raise error

    for function in (in_thread, on_loop):
        with pytest.raises((RuntimeError, LookupError)) as caught:
            await run(function)
        assert type(error).__name__ in f"{type(caught.value).__name__} {caught.value}"


# --- printing and writing ---------------------------------------------------------------------------------------------


async def test_what_a_tool_prints_goes_to_its_run_and_nothing_else_does(capsys: pytest.CaptureFixture[str]) -> None:
    started, go_on = threading.Event(), threading.Event()

    def noisy(name: str) -> None:
        print("from", name)
        print("and this", file=sys.stderr)
        started.set()
        go_on.wait(30)
        print("no line end", end="")

    async def soft(name: str) -> None:
        print("soft", name)
        await asyncio.to_thread(print, "in its thread")

    before = sys.stdout
    one, two = Heard(), Heard()
    task = asyncio.create_task(run(noisy, one.context, name="one"))
    await asyncio.to_thread(started.wait, 30)
    print("a cell")
    assert sys.stdout.isatty() == before.isatty()
    await run(soft, two.context, name="two")
    print("still the cell")
    go_on.set()
    await task
    print("and after")
    assert sys.stdout is before
    assert one.printed == "from one\nand this\nno line end"
    assert two.printed == "soft two\nin its thread\n"
    assert one.threads == {threading.get_ident()}
    assert capsys.readouterr().out == "a cell\nstill the cell\nand after\n"


async def test_a_stream_that_was_replaced_meanwhile_is_left_alone() -> None:
    before, other = sys.stdout, io.StringIO()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await go_on.wait()

    task = asyncio.create_task(run(slow))
    await begun.wait()
    held, sys.stdout = sys.stdout, other  # as IPython's capture_output does
    try:
        go_on.set()
        await task
        assert sys.stdout is other
    finally:
        sys.stdout = held
    await run(slow)
    assert sys.stdout is before


async def test_a_print_that_is_under_way_when_the_last_tool_ends_finds_its_stream_alive(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # CPython's print() holds no reference to sys.stdout: if the stand-in were gone, the process would crash.
    printing = printing_to(lambda text: None)
    printing.__enter__()
    stand_in = weakref.ref(sys.stdout)

    class Ending:
        def __str__(self) -> str:
            printing.__exit__(None, None, None)
            gc.collect()
            return "ends"

    outside = contextvars.Context()
    outside.run(print, "a cell")
    print(Ending(), "and goes on")
    assert stand_in() is not None
    assert sys.stdout is not stand_in()
    assert capsys.readouterr().out.startswith("a cell\n")


async def test_endless_printing_is_cut_and_says_so() -> None:
    def chatter() -> None:
        for _ in range(400):
            print("x" * 999)

    heard = Heard()
    await run(chatter, heard.context)
    assert 200_000 < len(heard.printed) < 201_000
    assert "more than 200,000 characters" in heard.printed


async def test_writes_arrive_in_order_on_the_loop_from_any_thread() -> None:
    def sync(context: ToolContext) -> str:
        for number in range(50):
            context.writer.write({"number": number})
        context.writer.custom({"type": "data-x", "data": datetime.date(2026, 1, 2), "transient": True})
        return "end"

    async def awaits(context: ToolContext) -> None:
        await context.writer.write(1)
        await context.writer.custom({"type": "data-x"})

    heard = Heard()
    assert await run(sync, heard.context) == "end"
    assert heard.said == [
        *(("write", {"number": number}) for number in range(50)),
        ("custom", {"type": "data-x", "data": "2026-01-02", "transient": True}),
    ]
    assert heard.threads == {threading.get_ident()}
    soft = Heard()
    await run(awaits, soft.context)
    assert soft.said == [("write", 1), ("custom", {"type": "data-x", "data": None})]


async def test_what_is_written_after_the_end_is_dropped() -> None:
    go_on, done = threading.Event(), threading.Event()

    def leaves_a_thread(context: ToolContext) -> None:
        def late() -> None:
            go_on.wait(30)
            context.writer.write("late")
            done.set()

        threading.Thread(target=late, daemon=True).start()

    heard = Heard()
    await run(leaves_a_thread, heard.context)
    go_on.set()
    await asyncio.to_thread(done.wait, 30)
    await asyncio.sleep(0)
    assert heard.said == []


@pytest.mark.parametrize(
    "chunk",
    [
        5,
        {},
        {"type": "text-delta"},
        {"type": "data-"},
        {"type": "data-x", "payload": 1},
        {"type": "data-x", "transient": 1},
    ],
)
def test_a_chunk_of_ones_own_is_checked(chunk: Any) -> None:
    with pytest.raises(SettingsError, match="data-"):
        ToolContext().writer.custom(chunk)


def test_what_cannot_be_json_cannot_be_written() -> None:
    with pytest.raises(ToolResultError, match="what was written"):
        ToolContext().writer.write(object())


# --- stopping and waiting ---------------------------------------------------------------------------------------------


async def test_a_tool_waits_for_data_with_and_without_await_and_past_its_own_handlers() -> None:
    def sync(context: ToolContext) -> Any:
        try:
            return context.resume_data or context.suspend({"need": "date"})
        except Exception:
            return "swallowed"

    async def soft(context: ToolContext) -> Any:
        return context.resume_data or await context.suspend({"need": "date"})

    async def in_group(context: ToolContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(soft(context))

    for function in (sync, soft, in_group):
        with pytest.raises(ToolSuspended) as caught:
            await run(function)
        assert caught.value.data == {"need": "date"}
    assert await run(sync, ToolContext(resume_data="today")) == "today"
    assert await run(soft, ToolContext(resume_data="today")) == "today"


async def test_an_abort_reaches_a_tool_in_every_way() -> None:
    signal = AbortSignal()
    heard = Heard(abort=signal)
    begun = threading.Semaphore(0)

    def blocking(context: ToolContext) -> str:
        begun.release()
        assert context.abort.wait_blocking(30)
        with pytest.raises(ToolAborted, match="enough"):
            context.abort.raise_if_aborted()
        return context.abort.reason

    async def soft(context: ToolContext) -> str:
        begun.release()
        return await context.abort.wait()

    first = asyncio.create_task(run(blocking, heard.context))
    second = asyncio.create_task(run(soft, ToolContext(abort=signal)))
    for _ in range(2):
        await asyncio.to_thread(begun.acquire, timeout=30)
    signal.abort("enough")
    signal.abort("later")
    assert await asyncio.gather(first, second) == ["enough", "enough"]
    assert ToolContext(abort=signal).abort.aborted
    ToolContext().abort.raise_if_aborted()


async def test_stopping_one_call_does_not_stop_the_others() -> None:
    signal = AbortSignal()
    begun = asyncio.Event()

    async def wait(context: ToolContext) -> None:
        begun.set()
        await context.abort.wait()

    context = ToolContext(abort=signal)
    task = asyncio.create_task(run(wait, context))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert context.abort.aborted
    assert not signal.aborted


# --- results ----------------------------------------------------------------------------------------------------------


class Model(BaseModel):
    some_name: int = Field(1, alias="someName")


@dataclasses.dataclass
class Data:
    when: datetime.datetime


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Model(), {"someName": 1}),
        (Data(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)), {"when": "2026-01-02T00:00:00Z"}),
        (datetime.timedelta(seconds=90), "PT1M30S"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        (Color.RED, "red"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.bool_(True), True),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
        (pd.NaT, None),
        ({"a": [pd.NaT, pd.NA]}, {"a": [None, None]}),
        (pd.Series([1, 2], name="n"), [{"n": 1}, {"n": 2}]),
        (pd.Interval(0, 1), "(0, 1]"),
        (pd.DataFrame({"a": [1, None], "b": ["x", None]}), [{"a": 1.0, "b": "x"}, {"a": None, "b": None}]),
        (pd.DataFrame({"t": pd.to_datetime(["2026-01-02", None])}), [{"t": "2026-01-02T00:00:00"}, {"t": None}]),
        (pd.DataFrame({"a": [1]}, index=["r"]), [{"index": "r", "a": 1}]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), [{"a": 1, "a_2": 2}]),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), [{"a.b": 1}]),
        ("half \ud800", "half ?"),
        (2**70, 2**70),
        (None, None),
    ],
)
def test_results_are_json(value: Any, plain: Any) -> None:
    assert to_json(value) == plain
    json.dumps(to_json(value), allow_nan=False).encode()


def test_of_a_large_table_the_first_rows_are_given_with_a_note() -> None:
    told = to_json(pd.DataFrame({"n": range(1000)}))
    assert len(told["rows"]) == 200
    assert told["row_count"] == 1000
    assert "200 of 1,000" in told["note"]
    wide = to_json(pd.DataFrame(np.zeros((50, 2_000))))
    assert (len(wide["rows"]), wide["row_count"]) == (10, 50)


def _cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


def _numbers() -> Iterator[int]:
    yield from range(3)


@pytest.mark.parametrize(
    "value", [object(), _cycle(), _deep(), b"\xff", 10**5000, sys], ids=lambda value: type(value).__name__
)
async def test_a_result_that_cannot_be_json_is_a_clear_error(value: Any) -> None:
    def give() -> Any:
        return value

    with pytest.raises(ToolResultError, match=f"the result \\({type(value).__name__}\\) can't be JSON"):
        await run(give)


def test_a_generator_of_values_is_a_list() -> None:
    assert to_json(_numbers()) == [0, 1, 2]
