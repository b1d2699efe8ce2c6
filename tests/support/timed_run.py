"""A run with known times: two turns with a gap, a nested agent, a task that was suspended; seconds as in the chunks."""

from __future__ import annotations

from collections.abc import Iterable

from nbmastra.chunks import parse_chunk
from nbmastra.output import Ended, MastraModelOutput
from tests.support.runs import Wire, call, chunk, finish, inside, result, start, step_finish, step_start, text, usage

__all__ = ["RIDE", "feed", "ride"]

END_S = 23.5
_TASK = {"taskId": "t1", "toolName": "build_gpx", "toolCallId": "c9", "args": {}}
_FIRST = usage(642, 211, reasoningTokens=164)
_SECOND = usage(1124, 186, cachedInputTokens=512)
_INNER = usage(892, 312, cachedInputTokens=640)
_LAST = usage(1590, 125, cachedInputTokens=1024)


def _inner(kind: Wire) -> Wire:
    return inside("c3", {**kind, "runId": "n1"})


RIDE: list[tuple[float, Wire]] = [
    (0.0, start("trip-weather", "r1")),
    (0.0, step_start("r1")),
    (0.62, text("Let me look", run="r1")),
    (2.2, call("c1", "get_forecast", {"place": "Rouen"})),
    (2.3, call("c2", "get_wind", {"place": "Rouen"})),
    (3.0, chunk("background-task-started", _TASK)),
    (3.04, result("c1", {"rain": 1}, "get_forecast")),
    (3.6, chunk("background-task-running", _TASK)),
    (4.9, result("c2", {"wind": 14}, "get_wind")),
    (5.0, step_finish("tool-calls", _FIRST, True, "r1")),
    (5.0, step_start("r1")),
    (5.48, text("I ask", run="r1")),
    (5.9, call("c3", "route-scout", {"q": 1})),
    (6.0, _inner(start("route-scout"))),
    (6.0, _inner(step_start())),
    (6.41, _inner(text("Hm"))),
    (6.8, _inner(call("d1", "search_routes"))),
    (7.9, _inner(result("d1", [1], "search_routes"))),
    (8.0, _inner(call("d2", "elevation"))),
    (8.0, chunk("background-task-suspended", {**_TASK, "suspendPayload": {}})),
    (8.3, _inner(chunk("tool-error", {"toolCallId": "d2", "toolName": "elevation", "error": {"message": "no"}}))),
    (9.0, _inner(step_finish("stop", _INNER))),
    (9.0, _inner(finish(used=_INNER))),
    (9.1, result("c3", "ok", "route-scout")),
    (9.3, text("Saturday is better", run="r1")),
    (9.8, step_finish("stop", _SECOND, run="r1")),
    (9.8, finish(used=usage(1766, 397, cachedInputTokens=512, reasoningTokens=164), run="r1")),
    (12.2, chunk("background-task-resumed", _TASK)),
    (16.4, chunk("background-task-completed", {**_TASK, "result": 1})),
    (16.6, start("trip-weather", "r2")),
    (16.6, step_start("r2")),
    (17.02, text("Here is the file", run="r2")),
    (19.4, {**call("c4", "fetch_closures"), "runId": "r2"}),
    (23.0, {**result("c4", "none", "fetch_closures"), "runId": "r2"}),
    (23.4, step_finish("stop", _LAST, run="r2")),
    (23.4, finish(used=_LAST, run="r2")),
]


def feed(out: MastraModelOutput, chunks: Iterable[tuple[float, Wire]]) -> None:
    """Let chunks come at their times."""
    for event, (at, item) in enumerate(chunks, len(out.log.items)):
        out.feed([parse_chunk(item, event=event)], at)


def ride(upto: float | None = None) -> MastraModelOutput:
    """The run, finished or as of a moment."""
    out = MastraModelOutput(agent="trip-weather")
    feed(out, [(at, item) for at, item in RIDE if upto is None or at <= upto])
    if upto is None:
        out.finish(Ended(True, at=END_S))
    return out
