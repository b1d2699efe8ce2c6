"""A replay can be paused, moved and paced, and stays like the live run in all it gives."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra import MastraModelOutput, demo_recording, load_recording, replay
from nbmastra.cli import main
from nbmastra.errors import SettingsError
from nbmastra.recording import ReplayedOutput

DEMO = load_recording(demo_recording())
TIMES = list(DEMO.state.times)
FAST = 1e6


def folded(count: int) -> MastraModelOutput:
    """The demo's first chunks, folded one by one."""
    out = MastraModelOutput()
    for chunk, at in list(zip(DEMO.log.items, TIMES, strict=True))[:count]:
        out.feed([chunk], at)
    return out


def come_to(out: ReplayedOutput) -> dict[str, Any]:
    """How far a run has come, in all that views and tables show."""
    state = out.state
    return {
        "chunks": len(out.log),
        "times": list(state.times),
        "parts": [(part.kind, part.step, part.started_at) for part in state.parts],
        "text": state.text,
        "calls": [(call.tool_name, call.status, call.args, call.result) for call in state.tool_calls],
        "usage": state.grand_usage,
    }


def write(path: Path, times: list[float], end: float | None = None) -> Path:
    chunk = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "x"}}
    lines: list[Any] = [{"nbmastra": 1}, *({"t": at, "chunk": chunk} for at in times)]
    lines += [] if end is None else [{"end": {"status": "truncated", "failure": "cut", "t": end}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# --- where it begins -------------------------------------------------------------------------------------------------


def test_what_came_before_the_start_is_there_at_once() -> None:
    start = TIMES[len(TIMES) // 2]
    out = replay(demo_recording(), start=start, paused=True)
    assert come_to(out) == come_to(folded(bisect_right(TIMES, start)))  # type: ignore[arg-type]
    assert (out.status, out.elapsed_s) == ("running", start)
    out.cancel()


def test_a_start_behind_the_end_gives_the_finished_run() -> None:
    out = replay(demo_recording(), start=1e9)
    assert out.done
    assert out.status == "success"
    assert out.text.result() == DEMO.text.result()


@pytest.mark.parametrize("start", [-1.0, float("nan"), "3", None])
def test_a_start_that_is_no_time_is_refused(start: Any) -> None:
    with pytest.raises(SettingsError, match="no time of a recording"):
        replay(demo_recording(), start=start)


@pytest.mark.parametrize("speed", [0, -1.0, float("nan"), float("inf"), "fast"])
def test_a_speed_that_is_none_is_refused(speed: Any) -> None:
    with pytest.raises(SettingsError, match="a number above 0"):
        replay(demo_recording(), speed)


def test_a_question_is_no_end_for_a_replay_however_long_it_is_silent(tmp_path: Path) -> None:
    """A live run is over soon after a question; a recording tells its own end."""
    payload = {"toolCallId": "c", "toolName": "book", "args": {}}
    lines = [
        {"nbmastra": 1},
        {"t": 0, "chunk": {"type": "tool-call", "runId": "r", "from": "AGENT", "payload": payload}},
        {"t": 0, "chunk": {"type": "tool-call-approval", "runId": "r", "from": "AGENT", "payload": payload}},
        {"end": {"done": True, "t": 1.0}},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = replay(path).wait(10)
    assert (out.status, out.ended and out.ended.at) == ("suspended", 1.0)


# --- pause, pace -----------------------------------------------------------------------------------------------------


async def test_a_paused_replay_stands_still_and_goes_on_when_resumed() -> None:
    out = replay(demo_recording(), FAST, paused=True)
    came = len(out.log)
    with anyio.move_on_after(0.1):
        await out.text
    assert (len(out.log), out.status, out.elapsed_s) == (came, "running", 0.0)
    out.playback.resume()
    assert await out.text == DEMO.text.result()


async def test_pausing_holds_what_comes_next() -> None:
    out = replay(demo_recording(), 5)
    async for _ in out.text_stream:
        out.playback.pause()
        break
    held = out.playback.position_s
    with anyio.move_on_after(0.1):
        await out.text
    assert out.playback.position_s == held == out.elapsed_s
    assert len(out.log) == bisect_right(TIMES, held)
    out.playback.speed = None
    out.playback.resume()
    await out.text
    assert out.status == "success"


async def test_the_speed_can_be_changed_while_it_runs() -> None:
    out = replay(demo_recording(), 0.001, start=1.0)
    async for _ in out.full_stream:
        out.playback.speed = FAST
    assert out.status == "success"
    assert out.playback.speed == FAST
    for speed in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="speed"):
            out.playback.speed = speed


def test_a_replay_is_steered_from_any_thread() -> None:
    out = replay(demo_recording(), 0.001)
    threads = [threading.Thread(target=out.playback.seek, args=(at,)) for at in (1.0, 2.0)]
    threads.append(threading.Thread(target=lambda: setattr(out.playback, "speed", None)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = out.playback.out.wait(10)
    assert last.status == "success"
    assert last.state.text == DEMO.state.text


# --- seek, step ------------------------------------------------------------------------------------------------------


def test_seeking_forward_keeps_the_output_and_its_readers() -> None:
    out = replay(demo_recording(), paused=True, start=1.0)
    reader = iter(out.full_stream)
    first = next(reader)
    assert out.playback.seek(4.0) is out
    assert out.elapsed_s == 4.0
    assert len(out.log) == bisect_right(TIMES, 4.0)
    assert first is out.log.items[0]
    out.playback.seek(out.playback.duration_s)
    assert out.done
    assert [first, *reader] == DEMO.log.items


def test_seeking_back_gives_another_output_that_plays_on_from_there() -> None:
    out = replay(demo_recording(), paused=True, start=5.0)
    again = out.playback.seek(2.0)
    assert again is not out
    assert again.playback is out.playback
    assert again.playback.out is again
    assert come_to(again) == come_to(folded(bisect_right(TIMES, 2.0)))  # type: ignore[arg-type]
    assert out.wait(10).status == "cancelled"
    assert "went back to 2.00 s" in out.status_reason
    assert out.stream_id == again.stream_id
    again.playback.speed = None
    again.playback.resume()
    assert again.wait(10).text.result() == DEMO.text.result()


def test_a_finished_replay_can_be_played_again() -> None:
    out = replay(demo_recording(), None)
    again = out.playback.seek(0)
    assert out.status == "success"
    assert again.wait(10).status == "success"
    assert again is not out


def test_a_cancelled_replay_goes_on_in_another_output() -> None:
    out = replay(demo_recording(), paused=True, start=2.0)
    out.cancel()
    out.wait(10)
    again = out.playback.seek(2.0)
    assert (again.status, len(again.log)) == ("running", len(out.log))
    again.cancel()


def test_steps_go_chunk_by_chunk_through_one_moment(tmp_path: Path) -> None:
    out = replay(write(tmp_path / "run.jsonl", [1.0, 1.0, 2.0], end=5.0))
    player = out.playback
    places = [(player.step().playback.chunk, player.position_s, player.out.done) for _ in range(5)]
    assert places == [(1, 1.0, False), (2, 1.0, False), (3, 2.0, False), (3, 5.0, True), (3, 5.0, True)]
    assert player.paused
    back = [(player.step(-1).playback.chunk, player.position_s, player.out.done) for _ in range(5)]
    assert back == [(3, 2.0, False), (2, 1.0, False), (1, 1.0, False), (0, 0.0, False), (0, 0.0, False)]
    player.step(-1).cancel()


def test_the_last_chunk_is_the_end_where_nothing_comes_after_it(tmp_path: Path) -> None:
    player = replay(write(tmp_path / "run.jsonl", [1.0, 2.0], end=2.0), paused=True).playback
    assert [player.step().done for _ in range(2)] == [False, True]
    assert not player.step(-1).done
    player.out.cancel()


def test_an_empty_recording_is_over_at_once(tmp_path: Path) -> None:
    out = replay(write(tmp_path / "run.jsonl", []), paused=True).wait(10)
    assert out.status == "truncated"
    assert out.playback.step().done
    assert out.playback.step(-1).done


moves = st.one_of(
    st.tuples(st.just("seek"), st.floats(0, 30)),
    st.tuples(st.just("step"), st.integers(-40, 40)),
    st.tuples(st.just("speed"), st.sampled_from([0.5, 1.0, 100.0])),
    st.tuples(st.just("pause"), st.none()),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(moves, max_size=6))
def test_however_it_is_moved_it_shows_the_run_of_that_moment(sequence: list[tuple[str, Any]]) -> None:
    player = replay(demo_recording(), paused=True).playback
    for name, value in sequence:
        if name == "speed":
            player.speed = value
        elif name == "pause":
            player.pause()
        else:
            getattr(player, name)(value)
        out = player.out
        assert come_to(out) == come_to(folded(player.chunk))  # type: ignore[arg-type]
        assert out.done == player.at_end
    player.out.cancel()


async def test_whoever_watches_is_told_of_every_change() -> None:
    player = replay(demo_recording(), paused=True).playback
    told = threading.Semaphore(0)
    player.on_change(told.release)  # type: ignore[arg-type]
    for change in (player.resume, player.pause, player.step, lambda: player.seek(3)):
        change()
        assert await anyio.to_thread.run_sync(lambda: told.acquire(timeout=5))
    player.out.cancel()


def test_tables_of_a_replay_at_its_end_are_those_of_the_recording() -> None:
    out = replay(demo_recording(), FAST).wait(10)
    for name in ("chunks_df", "steps_df", "usage_df", "tool_calls_df", "tasks_df"):
        assert getattr(out, name)().equals(getattr(DEMO, name)())


def test_the_command_replays_from_where_one_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(demo_recording()), "--start", "1e9", "--quiet"]) == 0
    assert "Ride round the lake on Saturday" in capsys.readouterr().out
    assert main(["replay", str(demo_recording()), "--start", "-1"]) == 2
    assert "no time of a recording" in capsys.readouterr().err
