"""Stopping a run, from anywhere and in any state, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.engine import Engine, get_engine
from nbmastra.output import Batch, Ended, MastraModelOutput, Stream
from nbmastra.usage import Usage
from tests.support.feed import Feed
from tests.support.runs import finish, start, step_finish, step_start, text, usage

HELLO = [start(), step_start(), text("Hel"), text("lo"), step_finish(used=usage(3, 2)), finish(used=usage(3, 2))]
BEGUN = [start(), step_start(), text("Hel")]


def types(stream: Stream[Chunk]) -> list[str]:
    return [item.type for item in stream]


pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


# --- stopping --------------------------------------------------------------------------------------------------------


def test_cancelling_settles_everything_within_a_second_and_closes_the_source() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    begun = time.monotonic()
    out.cancel()
    assert feed.closed.wait(1)
    out.wait(1)
    assert time.monotonic() - begun < 1
    assert (out.status, out.status_reason) == ("cancelled", "stopped by you")
    assert (out.text.result(0), out.finish_reason.result(0), out.usage.result(0)) == ("Hel", None, Usage())
    assert [notice.code for notice in out.state.notices] == ["cancelled"]
    assert types(out.full_stream) == [item["type"] for item in BEGUN]


def test_cancelling_from_many_threads_and_twice_is_cancelling_once() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    threads = [threading.Thread(target=out.cancel, args=(f"reason {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    out.wait(5)
    out.cancel("too late")
    assert out.status_reason.startswith("reason ")
    assert len(out.state.notices) == 1
    assert feed.closed.wait(1)
    assert feed.closings == 1


def test_a_run_that_is_cancelled_before_it_starts_reads_nothing() -> None:
    feed = Feed(*HELLO)
    out = MastraModelOutput()
    out.cancel("changed my mind")
    out.start(feed).wait(5)
    assert (out.status, out.status_reason, len(out.log)) == ("cancelled", "changed my mind", 0)
    assert feed.closed.wait(1)


def test_a_long_list_of_chunks_can_be_cancelled_in_the_middle() -> None:
    """A source that never waits must not keep the engine's loop for itself."""
    out = MastraModelOutput.from_chunks([text("x")] * 200_000)
    next(iter(out.full_stream))
    out.cancel()
    out.wait(5)
    assert (out.status, len(out.log) < 200_000) == ("cancelled", True)


async def test_b10_closing_after_the_last_chunk_or_after_the_first_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    for stop_at in ("finish", "text-delta"):
        feed = Feed(*HELLO) if stop_at == "finish" else Feed(*BEGUN)
        out = feed.run()
        async for item in out.full_stream:
            if item.type == stop_at:
                break
        await out.aclose()
        await out.aclose()
        assert feed.closed.is_set()
        assert feed.closings == 1
        assert out.status == ("success" if stop_at == "finish" else "cancelled")
        assert asyncio.all_tasks() == before


class _Stubborn:
    """A source that doesn't let itself be cancelled, and whose closing hangs."""

    def __init__(self, deaf: bool) -> None:
        self.done = False
        self.deaf = deaf
        self.closing = threading.Event()
        self.release = asyncio.Event()

    async def batches(self) -> AsyncIterator[Batch]:
        yield None, [parse_chunk(item) for item in BEGUN]
        with anyio.CancelScope(shield=self.deaf):
            await self.release.wait()

    async def aclose(self) -> None:
        self.closing.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_stubborn_source_does_not_keep_anybody_waiting(deaf: bool) -> None:
    source = _Stubborn(deaf)
    out = MastraModelOutput().start(source)
    await anext(out.full_stream)
    begun = time.monotonic()
    out.cancel()
    assert await out.text == "Hel"
    assert time.monotonic() - begun < 1
    assert out.status == "cancelled"
    if not deaf:
        assert await asyncio.to_thread(source.closing.wait, 1)
    await out.aclose()
    assert time.monotonic() - begun < 3.5
    get_engine().call_soon(source.release.set)
    assert await asyncio.to_thread(source.closing.wait, 2)
    await out.aclose()


async def test_a_finished_run_stays_as_it_is() -> None:
    out = MastraModelOutput.from_chunks(HELLO)
    await out.text
    out.cancel()
    await out.aclose()
    assert (out.status, out.status_reason) == ("success", "stop")
    loaded = MastraModelOutput()
    loaded.feed([parse_chunk(item) for item in HELLO], 0.0)
    loaded.finish(Ended(done=True))
    await loaded.aclose()
    assert loaded.wait().status == "success"


def test_waiting_can_be_bounded_though_chunks_keep_coming() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()
    over = threading.Event()

    def keep_coming() -> None:
        while not over.wait(0.002):
            feed.push(text("x"))

    thread = threading.Thread(target=keep_coming)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            out.wait(0.05)
        with pytest.raises(TimeoutError):
            out.text.result(0.05)
    finally:
        over.set()
        thread.join()
        out.cancel()
    out.wait(5)


def test_blocking_on_the_engines_own_loop_is_refused() -> None:
    feed = Feed(*BEGUN)
    out = feed.run()

    async def block(how: Callable[[], Any]) -> None:
        how()

    for how in (out.wait, out.text.result, lambda: next(iter(out)), lambda: next(iter(out.text_stream))):
        with pytest.raises(RuntimeError, match="use await"):
            get_engine().start(block, how).result(5)
    out.cancel()
    out.wait(5)


async def test_a_run_can_be_awaited_on_the_engines_own_loop() -> None:
    async def nested() -> str:
        inner = MastraModelOutput.from_chunks(HELLO)
        pieces = [piece async for piece in inner.text_stream]
        return "|".join([*pieces, await inner.text])

    assert await get_engine().start(nested) == "Hel|lo|Hello"


def test_closing_the_engine_ends_its_runs() -> None:
    engine = Engine("nbmastra-test-engine")
    feed = Feed(*BEGUN)
    out = feed.run(engine=engine)
    engine.close()
    assert (out.status, out.status_reason) == ("cancelled", "the kernel is shutting down")
    assert feed.closed.is_set()


# --- interrupts, in a process of their own ---------------------------------------------------------------------------

_INTERRUPTED = """
import asyncio, os, signal, sys, threading, time
from nbmastra.output import MastraModelOutput

BEGUN = [
    {"type": "start", "runId": "r", "from": "AGENT", "payload": {"id": "a"}},
    {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "Hel"}},
]
held = []

async def source():
    for item in BEGUN:
        yield item
    held.append(1)
    await asyncio.Event().wait()

out = MastraModelOutput.from_chunks(source())

def interrupt():
    while not held or not any(log._wakers for log in (out.log, out._settled, out._over)):  # until somebody waits
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

def blocking(wait):
    threading.Thread(target=interrupt).start()
    wait()

async def looped(wait):
    threading.Thread(target=interrupt).start()
    await wait()

async def read():
    async for _ in out.full_stream:
        pass

async def text():
    await out.text

try:
    {how}
except KeyboardInterrupt:
    print("interrupted", end=" ")
out.wait(5)
print(out.status, out.state.text, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize(
    "how",
    [
        "blocking(out.wait)",
        "blocking(out.text.result)",
        "blocking(lambda: list(out.text_stream))",
        "blocking(lambda: list(out))",
        "asyncio.run(looped(text))",
        "asyncio.run(looped(read))",
        "asyncio.run(looped(out.consume_stream))",
        "asyncio.run(looped(out.get_full_output))",
    ],
)
def test_an_interrupt_while_one_waits_cancels_the_run(how: str) -> None:
    """B43, as plain Python has it; the kernel's side is tested there."""
    code = textwrap.dedent(_INTERRUPTED).replace("{how}", how)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted cancelled Hel True\n", "")
