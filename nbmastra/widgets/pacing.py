"""When to draw: often enough to look live, never so often that drawing or the wire becomes the work."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio

from nbmastra.output import MastraModelOutput

__all__ = ["Pacer", "draw_run"]

# What is drawn grows with the pause before it: on a machine that is too busy, each pause would be longer still.
_LONGEST_PAUSE_S = 0.5
# A twentieth of the time goes to drawing, as long as ten frames a second remain; beyond that half of it, at most.
_SHARE = 20
_SMOOTH_S = 0.1


class Pacer:
    """Draws at the first news at once, then at most every `interval` seconds, more rarely where drawing is dear.

    `news` waits until something has changed since it last returned, and gives False when nothing will come any more;
    `over` waits for that end, so that the last frame doesn't wait for its turn. Both belong to the loop of `pump`.
    """

    def __init__(
        self,
        draw: Callable[[], object],
        news: Callable[[], Awaitable[bool]],
        over: Callable[[], Awaitable[object]],
        *,
        interval: float = 0.05,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._draw = draw
        self._news = news
        self._over = over
        self._interval = interval
        self._clock = clock

    async def pump(self) -> None:
        """Draw until the end; the last frame comes at once and shows everything."""
        more = True
        while more:
            more = await self._news()
            started = self._clock()
            self._draw()
            if more:
                cost = self._clock() - started
                wanted = max(self._interval, 2 * cost, min(_SHARE * cost, _SMOOTH_S))
                await self.rest(min(wanted, _LONGEST_PAUSE_S))

    async def rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        with anyio.move_on_after(seconds):
            await self._over()


async def draw_run(out: MastraModelOutput, draw: Callable[[], object], *, interval: float = 0.05) -> None:
    """Draw what comes of a run, from what is there on, until it is over; the last frame shows all of it."""
    over, seen = anyio.Event(), 0
    forget = out.on_done(over.set)

    async def news() -> bool:
        nonlocal seen
        if seen:
            await out.log.wait(seen)
        closed, seen = out.log.closed, max(1, len(out.log.items))
        return not closed

    try:
        await Pacer(draw, news, over.wait, interval=interval).pump()
    finally:
        forget()
