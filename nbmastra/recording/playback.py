"""Playing a recording: its chunks in memory, and where one is in them.

pause, resume, speed, seek, step ──▶ Playback ──chunks that are due──▶ ReplayedOutput
        from any thread                  │
                                         └── back: a new output, which plays on from there
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio

from nbmastra.chunks import Chunk
from nbmastra.engine import get_engine
from nbmastra.errors import SettingsError
from nbmastra.output import Batch, Ended, MastraModelOutput, StreamEnded

__all__ = ["Playback", "ReplayedOutput"]


class ReplayedOutput(MastraModelOutput):
    """A recorded run, once more: like the live one in all it gives; `playback` pauses, moves and paces it."""

    def __init__(self, playback: Playback, **about: Any) -> None:
        super().__init__(endless=True, **about)  # the recording knows its end, however long it is silent
        self.playback = playback

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run's start, as it was recorded."""
        ended = self.state.ended_at
        if ended is not None:
            return ended
        return self.playback.position_s if self.playback.out is self else self.state.last_at or 0.0


class Playback:
    """Where a replay is, and how it goes on; from any thread. Times are seconds of the recording.

    `out` is the output that plays. What a run's readers have read can't be taken back, so going back makes another one;
    the one before is cancelled.
    """

    def __init__(
        self,
        make: Callable[[Playback], ReplayedOutput],
        times: list[float],
        chunks: list[Chunk],
        ended: Ended,
        *,
        speed: float | None = 1.0,
        start: float = 0.0,
        paused: bool = False,
    ) -> None:
        self._make = make
        self._times = [round(at, 6) for at in times]  # as runs keep them
        self._chunks = chunks
        self._ended = ended
        self._last = times[-1] if times else 0.0
        self.duration_s = max(self._last, ended.at or 0.0)
        """From the first moment to the end of the run."""
        self._speed = _checked_speed(speed)
        self._paused = paused
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], None]] = []
        self.changed = asyncio.Event()
        """Set on the engine's loop at the next change of pace or place, and then replaced."""
        self._given = 0
        self._place(self._clipped(start))
        self.out = self._begin()

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def position_s(self) -> float:
        """Where it is."""
        if self._paused:
            return self._at
        if self._speed is None:
            return self.duration_s
        return min(self._at + (time.perf_counter() - self._since) * self._speed, self.duration_s)

    @property
    def chunk(self) -> int:
        """How many chunks have come."""
        return self._given

    @property
    def chunks(self) -> int:
        """How many there are."""
        return len(self._chunks)

    @property
    def paused(self) -> bool:
        """True if time stands still."""
        return self._paused

    @property
    def at_end(self) -> bool:
        """True if all has come and the run is over."""
        return self._given == len(self._chunks) and self.position_s >= self.duration_s

    @property
    def speed(self) -> float | None:
        """How many times its own pace; may be set while it plays. None: all that is left, at once."""
        return self._speed

    @speed.setter
    def speed(self, speed: float | None) -> None:
        with self._change():
            self._speed = _checked_speed(speed)

    @property
    def rate(self) -> float:
        """How fast time passes on the screen: 0 while it stands still, 1 where all that is left comes at once."""
        return 0.0 if self._paused or self.at_end else self._speed or 1.0

    # --- what is done ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let time stand still."""
        with self._change():
            self._paused = True

    def resume(self) -> None:
        """Let it go on."""
        with self._change():
            self._paused = False

    def seek(self, at: float) -> ReplayedOutput:
        """Go to `at` seconds: what comes before is there when this returns. Raises SettingsError for what is no time.

        Gives the output that plays on from there: forward the same one, back another one.
        """
        return self._on_loop(lambda: self._go(self._clipped(at)))

    def step(self, chunks: int = 1) -> ReplayedOutput:
        """Pause, and go on by so many chunks, or back (negative); the end is one step further if it came later."""
        return self._on_loop(lambda: self._step(chunks))

    def whole(self) -> ReplayedOutput:
        """The finished run, whatever plays."""
        out = self._make(self)
        self._fold(out, 0, len(self._times))
        out.finish(self._ended)
        return out

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of pace or place, on the engine's loop. Gives what takes it back."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    # --- on the engine's loop ----------------------------------------------------------------------------------------

    def wait_s(self) -> float | None:
        """Seconds until something is due; None while time stands still."""
        at = self._times[self._given] if self._given < len(self._times) else self.duration_s
        left = at - self.position_s
        if left <= 0:
            # Chunks of one moment may be parted by `step`; the rest waits with the time.
            return None if self._paused and not self.at_end else 0.0
        return None if self._paused or self._speed is None else left / self._speed

    def take(self) -> Batch:
        """The chunks of the next moment. Raises StreamEnded."""
        first, times = self._given, self._times
        if first == len(times):
            raise StreamEnded(self._ended)
        at = times[first]
        self._given = bisect_right(times, at, first)
        return at, self._chunks[first : self._given]

    def _on_loop(self, work: Callable[[], ReplayedOutput]) -> ReplayedOutput:
        engine = get_engine()
        return work() if engine.on_own_thread else engine.portal().call(work)

    @contextmanager
    def _change(self) -> Generator[None]:
        with self._lock:
            self._place(self.position_s)
            yield
        get_engine().call_soon(self._tell)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
        for callback in list(self._callbacks):
            callback()

    def _place(self, at: float) -> None:
        self._at, self._since = at, time.perf_counter()

    def _clipped(self, at: float) -> float:
        seconds = _as_float(at)
        if not seconds >= 0:
            raise SettingsError(f"{at!r} is no time of a recording: give seconds since its start")
        return min(seconds, self.duration_s)

    def _step(self, chunks: int) -> ReplayedOutput:
        count, late = len(self._times), self.duration_s > self._last
        place = self._given + (late and self.at_end)
        place = min(max(place + chunks, 0), count + late)
        given = min(place, count)
        at = self.duration_s if place > count else self._times[given - 1] if given else 0.0
        with self._lock:
            self._paused = True
        return self._go(at, given)

    def _go(self, at: float, given: int | None = None) -> ReplayedOutput:
        given = bisect_right(self._times, at) if given is None else given
        before = self.out
        cut = before.ended is not None and before.ended.cancelled != self._ended.cancelled
        back = given < self._given or cut or (before.done and at < self.duration_s)
        with self._lock:
            self._place(at)
        if back:
            self._given = 0
            self.out = self._begin(given)
            before.cancel(f"the replay went back to {at:.2f} s")
        elif not before.done:
            self._feed(before, given)
        self._tell()
        return self.out

    def _begin(self, given: int | None = None) -> ReplayedOutput:
        """An output that has come as far as the time has, and plays on."""
        out = self._make(self)
        self.out = out
        self._feed(out, bisect_right(self._times, self.position_s) if given is None else given)
        return out if out.done else _started(out)

    def _fold(self, out: ReplayedOutput, first: int, end: int) -> None:
        """Some of the chunks at once, each at its time; cheaper than to feed each moment."""
        if first < end:
            chunks, times = self._chunks[first:end], self._times[first:end]
            for chunk, at in zip(chunks, times, strict=True):
                out.state.apply(chunk, at)
            out.log.extend(chunks)
            out.feed([], times[-1])  # looks whether its first turn is over

    def _feed(self, out: ReplayedOutput, given: int) -> None:
        self._fold(out, self._given, given)
        self._given = max(self._given, given)
        if self.at_end:
            out.finish(self._ended)


def _started(out: ReplayedOutput) -> ReplayedOutput:
    out.start(_PacedSource(out))
    return out


class _PacedSource:
    """A recording's chunks when they are due, then its ending."""

    def __init__(self, out: ReplayedOutput) -> None:
        self._out = out
        self.done = False

    async def batches(self) -> AsyncIterator[Batch]:
        """The chunks as they once came; raises StreamEnded."""
        playback = self._out.playback
        while playback.out is self._out:
            wait = playback.wait_s()
            if wait == 0:
                yield playback.take()
            elif wait is None:
                await playback.changed.wait()
            else:
                with anyio.move_on_after(wait):
                    await playback.changed.wait()

    async def aclose(self) -> None:
        """Nothing is open."""


def _as_float(value: object) -> float:
    """A number; NaN for what is none, of callers that err."""
    return float(value) if isinstance(value, int | float) else float("nan")


def _checked_speed(speed: float | None) -> float | None:
    if speed is not None and not 0 < _as_float(speed) < float("inf"):
        raise SettingsError(f"speed={speed!r}: give a number above 0, or None for all at once")
    return speed
