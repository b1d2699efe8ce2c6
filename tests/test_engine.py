"""The engine: runs in the background, cancelled from anywhere, gone with the process; interrupts of who waits."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

from nbmastra.engine import Engine, get_engine, interrupted_at_end, interruptible

NAME = "nbmastra-test-engine"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(NAME)
    yield engine
    engine.close()


def run_script(code: str) -> str:
    """Output of a Python process, errors included; AssertionError if it fails or doesn't end."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def forever() -> None:
    await asyncio.Event().wait()


# --- jobs ------------------------------------------------------------------------------------------------------------


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise LookupError("lost")


def test_a_job_gives_its_result_to_plain_code(engine: Engine) -> None:
    job = engine.start(double, 21)
    assert job.result(5) == job.result() == 42
    assert job.done
    assert "done" in repr(job)


async def test_a_job_gives_its_result_on_any_loop(engine: Engine) -> None:
    job = engine.start(double, 21)
    assert await job == 42
    assert await asyncio.to_thread(asyncio.run, _awaited(job)) == 42


async def _awaited(job: object) -> object:
    return await job  # type: ignore[misc]


async def test_a_failed_job_raises_for_everyone_who_asks(engine: Engine) -> None:
    job = engine.start(fail)
    for _ in range(2):
        with pytest.raises(LookupError, match="lost"):
            await job
    with pytest.raises(LookupError, match="lost"):
        job.result()


def test_a_failed_job_that_nobody_asks_for_is_silent(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    async def start_inside() -> None:
        inner = engine.start(fail)
        ended = asyncio.Event()
        inner.on_done(ended.set)
        await ended.wait()

    engine.start(start_inside).result(5)
    failed = engine.start(fail)
    with pytest.raises(LookupError):
        failed.result(5)
    del failed
    gc.collect()
    assert not caplog.records


def test_a_job_is_cancelled_from_another_thread(engine: Engine) -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.set()

    job = engine.start(work)
    job.cancel()
    job.cancel()
    assert ended.wait(1)
    assert job.done


def test_a_job_started_on_the_engine_itself_works_alike(engine: Engine) -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.set()
            raise RuntimeError("while it is cancelled")  # never to be heard of

    async def outer() -> int:
        job = engine.start(work)
        await asyncio.sleep(0)
        job.cancel()
        return await engine.start(double, 4)

    assert engine.start(outer).result(5) == 8
    assert ended.wait(1)
    gc.collect()


async def test_one_who_awaits_a_cancelled_job_is_cancelled(engine: Engine) -> None:
    job = engine.start(forever)
    waiting = asyncio.create_task(_awaited(job))
    await asyncio.sleep(0)
    job.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_who_stops_awaiting_does_not_stop_the_job(engine: Engine) -> None:
    release = asyncio.Event()

    async def work() -> str:
        await release.wait()
        return "ended"

    job = engine.start(work)
    waiting = asyncio.create_task(_awaited(job))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    engine.call_soon(release.set)
    assert await job == "ended"


def test_a_job_sees_the_context_of_its_caller(engine: Engine) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    async def who() -> str:
        seen = user.get()
        user.set("the job")
        return seen

    user.set("ada")
    job = engine.start(who)
    user.set("bob")
    assert job.result(5) == "ada"
    assert user.get() == "bob"


def test_blocking_on_the_engines_own_thread_is_refused_at_once(engine: Engine) -> None:
    async def block() -> None:
        engine.start(forever).result()

    with pytest.raises(RuntimeError, match="use await here"):
        engine.start(block).result(5)


def test_waiting_for_a_result_can_be_bounded(engine: Engine) -> None:
    with pytest.raises(TimeoutError):
        engine.start(forever).result(0.01)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_closing_cancels_every_job_and_ends_the_thread() -> None:
    engine = Engine(NAME)
    seen: list[bool] = []

    async def work() -> None:
        try:
            await forever()
        finally:
            seen.append(engine.closing)

    async def close_pool() -> None:
        seen.append(engine.closing)

    async def close_badly() -> None:
        raise OSError("no")

    async def never_close() -> None:
        await forever()

    started = [engine.start(work), engine.start(work)]
    engine.start(double, 1).result(5)
    for closer in (close_badly, never_close, close_pool):
        engine.on_close(closer)
    engine.resources["pool"] = object()
    engine.close(deadline_s=0.05)
    assert seen == [True] * 3
    assert all(job.done for job in started)
    assert not engine.resources
    assert NAME not in [thread.name for thread in threading.enumerate()]
    engine.call_soon(lambda: seen.append(False))
    engine.close()
    assert len(seen) == 3


def test_a_closed_engine_starts_again_when_it_is_needed(engine: Engine) -> None:
    assert engine.start(double, 1).result(5) == 2
    engine.close()
    assert engine.start(double, 2).result(5) == 4


def test_a_process_with_open_runs_ends_at_once_and_prints_nothing() -> None:
    assert (
        run_script(
            """
            import asyncio, itertools, threading
            from nbmastra.output import MastraModelOutput

            def blocked():
                yield {"type": "start", "runId": "r", "from": "AGENT", "payload": {}}
                threading.Event().wait()

            async def waiting():
                yield {"type": "start", "runId": "r", "from": "AGENT", "payload": {}}
                await asyncio.Event().wait()

            outs = [MastraModelOutput.from_chunks(source()) for source in (blocked, waiting)]
            for out in outs:
                next(iter(out.full_stream))
            MastraModelOutput.from_chunks([]).wait()
            pending = outs[0].text
            """
        )
        == ""
    )


def test_a_forked_child_has_an_engine_of_its_own() -> None:
    printed = run_script(
        """
        import os, warnings
        from nbmastra.engine import get_engine
        warnings.simplefilter("ignore")  # Python warns of forking with threads, which is what is tested

        async def pid(): return os.getpid()

        parent = get_engine().start(pid).result(10)
        child = os.fork()
        if not child:
            os._exit(0 if get_engine().start(pid).result(10) == os.getpid() != parent else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert printed == "0\n"


# --- interrupts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def handled() -> Iterator[list[str]]:
    """What the process's own handler of interrupts saw."""
    seen: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("own"))
    yield seen
    signal.signal(signal.SIGINT, before)


def note(seen: list[str], what: str) -> Callable[[], None]:
    return lambda: seen.append(what)


def test_an_interrupt_tells_who_waits_and_then_the_handler_that_was_there(handled: list[str]) -> None:
    own = signal.getsignal(signal.SIGINT)
    with interruptible(note(handled, "a")):
        signal.raise_signal(signal.SIGINT)
    assert handled == ["a", "own"]
    assert signal.getsignal(signal.SIGINT) is own


async def test_waits_that_overlap_leave_the_handler_as_it_was(handled: list[str]) -> None:
    own = signal.getsignal(signal.SIGINT)
    for _ in range(3):
        first, second = interruptible(note(handled, "a")), interruptible(note(handled, "b"))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        signal.raise_signal(signal.SIGINT)
        second.__exit__(None, None, None)
        assert signal.getsignal(signal.SIGINT) is own
    assert handled == ["b", "own"] * 3


def test_a_blocking_wait_is_what_the_interrupt_was_meant_for(handled: list[str]) -> None:
    with (
        interruptible(note(handled, "a coroutine of an earlier cell")),
        interruptible(note(handled, "b"), blocking=True),
    ):
        signal.raise_signal(signal.SIGINT)
    assert handled == ["b", "own"]


def test_a_handler_that_somebody_sets_meanwhile_stays(handled: list[str]) -> None:
    with interruptible(note(handled, "a")):
        signal.signal(signal.SIGINT, lambda *_: handled.append("new"))
    signal.raise_signal(signal.SIGINT)
    assert handled == ["new"]


def test_ignored_interrupts_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(lambda: pytest.fail("interrupted")):
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_when_the_block_has_ended_and_a_second_one_at_once() -> None:
    own = signal.getsignal(signal.SIGINT)
    said: list[str] = []

    def interrupt(times: int) -> None:
        with interrupted_at_end(lambda: said.append("cancel")):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            said.append("rest")

    with pytest.raises(KeyboardInterrupt):
        interrupt(1)
    assert said == ["cancel", "rest"]
    with pytest.raises(KeyboardInterrupt):
        interrupt(2)
    assert said == ["cancel", "rest", "cancel"]
    assert signal.getsignal(signal.SIGINT) is own


async def test_other_threads_leave_signals_alone() -> None:
    own = signal.getsignal(signal.SIGINT)

    def wait() -> object:
        with interruptible(lambda: None):
            return signal.getsignal(signal.SIGINT)

    assert await asyncio.to_thread(wait) is own


def test_all_runs_share_one_engine() -> None:
    assert get_engine() is get_engine()
