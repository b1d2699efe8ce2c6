from __future__ import annotations

import anyio
import pytest

from nbmastra.widgets.pacing import Pacer

pytestmark = pytest.mark.anyio


class Script:
    """News by a list, on a clock that only drawing and resting move."""

    def __init__(self, news: list[bool], draw_s: float) -> None:
        self.news = iter(news)
        self.draw_s = draw_s
        self.now = 0.0
        self.drawn: list[float] = []
        self.rests: list[float] = []

    async def wait(self) -> bool:
        return next(self.news)

    def draw(self) -> None:
        self.drawn.append(self.now)
        self.now += self.draw_s


async def run(script: Script) -> None:
    class TestPacer(Pacer):
        async def rest(self, seconds: float) -> None:
            script.rests.append(seconds)
            script.now += seconds

    await TestPacer(script.draw, script.wait, anyio.sleep_forever, clock=lambda: script.now).pump()


async def test_the_first_news_is_drawn_at_once_and_the_next_after_the_interval() -> None:
    script = Script([True, True, False], draw_s=0.001)
    await run(script)
    assert script.drawn == pytest.approx([0, 0.051, 0.102])


async def test_drawing_takes_a_twentieth_of_the_time_as_long_as_ten_frames_a_second_remain() -> None:
    for draw_s, rest in ((0.002, 0.05), (0.004, 0.08), (0.02, 0.1)):
        script = Script([True, True, False], draw_s=draw_s)
        await run(script)
        assert script.rests == pytest.approx([rest, rest])


async def test_dear_drawing_makes_the_pauses_longer() -> None:
    script = Script([True, True, False], draw_s=0.2)
    await run(script)
    assert script.rests == pytest.approx([0.4, 0.4])


async def test_a_machine_that_cannot_keep_up_still_shows_progress() -> None:
    script = Script([True, True, True, False], draw_s=4)
    await run(script)
    assert script.rests == pytest.approx([0.5] * 3)


async def test_the_last_frame_does_not_wait_for_its_turn() -> None:
    over = anyio.Event()
    drawn = anyio.Event()
    frames = 0

    async def news() -> bool:
        if frames == 0:
            return True
        await over.wait()
        return False

    def draw() -> None:
        nonlocal frames
        frames += 1
        drawn.set()

    async with anyio.create_task_group() as group:
        group.start_soon(Pacer(draw, news, over.wait, interval=3600).pump)
        await drawn.wait()
        over.set()
    assert frames == 2
