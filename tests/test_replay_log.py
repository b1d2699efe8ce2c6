"""Readers of a log: late, early, slow, gone, on any loop or thread."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from nbmastra.replay_log import ReplayLog


def run_all(*functions: Callable[[], object]) -> None:
    """Run functions at once, each in a thread; AssertionError if one doesn't end or fails."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads), "a reader hangs"


@pytest.fixture
def often_switching() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switching")
def test_every_reader_reads_everything_however_its_waiting_and_the_writing_cross() -> None:
    chance = random.Random(2)
    for _ in range(60):
        log: ReplayLog[int] = ReplayLog()
        count = chance.randrange(0, 300)
        steps = [chance.randrange(1, 9) for _ in range(count)]
        read: dict[str, list[int]] = {}

        def write(log: ReplayLog[int] = log, count: int = count, steps: list[int] = steps) -> None:
            at = 0
            while at < count:
                log.extend(range(at, min(at + steps[at], count)))
                at += steps[at]
            log.close()

        def plain(name: str, log: ReplayLog[int] = log, read: dict[str, list[int]] = read) -> None:
            read[name] = list(log)

        def looped(name: str, log: ReplayLog[int] = log, read: dict[str, list[int]] = read) -> None:
            async def main() -> None:
                read[name] = [item async for item in log]

            asyncio.run(main())

        run_all(lambda: plain("1"), lambda: looped("2"), write, lambda: plain("3"), lambda: looped("4"))
        assert list(read.values()) == [list(range(count))] * 4


async def test_a_late_reader_gets_all_from_the_start() -> None:
    log: ReplayLog[int] = ReplayLog()
    log.extend([1, 2])
    log.extend([3])
    log.close()
    assert [item async for item in log] == list(log) == [1, 2, 3]


async def test_a_reader_that_starts_later_skips_what_it_is_told_to() -> None:
    log: ReplayLog[int] = ReplayLog()
    log.extend([1, 2, 3])
    log.close()
    assert [batch async for batch in log.batches(start=1)] == [[2, 3]]


async def test_a_gone_reader_leaves_no_waker_behind() -> None:
    log: ReplayLog[int] = ReplayLog()
    gone = asyncio.create_task(log.wait(0))
    await asyncio.sleep(0)
    assert len(log._wakers) == 1
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert not log._wakers
    assert not log.wait_blocking(0, timeout=0)
    assert not log._wakers


def test_waking_a_reader_whose_loop_is_closed_does_nothing() -> None:
    log: ReplayLog[int] = ReplayLog()
    wakers: list[Callable[[], None]] = []

    async def wait_for_ever() -> None:
        waiting = asyncio.create_task(log.wait(0))
        await asyncio.sleep(0)
        wakers.extend(log._wakers)
        waiting.cancel()

    asyncio.run(wait_for_ever())
    [waker] = wakers
    waker()


async def test_waiting_gives_other_tasks_a_turn_even_if_there_is_news() -> None:
    log: ReplayLog[int] = ReplayLog()
    log.extend([1])
    turns: list[str] = []

    async def other() -> None:
        turns.append("other")

    task = asyncio.create_task(other())
    await log.wait(0)
    turns.append("reader")
    await task
    assert turns == ["other", "reader"]


def test_waiting_with_a_time_out_says_whether_there_is_news() -> None:
    log: ReplayLog[int] = ReplayLog()
    assert not log.wait_blocking(0, timeout=0.01)
    log.extend([1])
    assert log.wait_blocking(0, timeout=0.01)
    assert not log.wait_blocking(1, timeout=0.01)
    log.close()
    assert log.wait_blocking(1)
    assert len(log) == 1
