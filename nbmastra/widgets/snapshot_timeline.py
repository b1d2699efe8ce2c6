"""The timeline in a snapshot: a table of lanes, its bars images, since Jupyter's sanitiser takes inline SVG away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from nbmastra.fold import RunState, ToolCall
from nbmastra.widgets.format import number, one_line, seconds
from nbmastra.widgets.markdown import escape

__all__ = ["timeline_html"]

MAX_LANES = 40
WAIT, STEP, CALL, FAILED = "#808080", "#64b5f6", "#1976d2", "#d32f2f"  # seen on white and on black
_HEAD = "font-weight:400;opacity:.8;padding:1px 8px 1px 0;border:0;white-space:nowrap;text-align:"
_CELL = "padding:1px 0 1px 12px;border:0;text-align:right;white-space:nowrap"
_CODE = "font-family:monospace;font-size:12px;background:none;white-space:nowrap"


class _Bar(NamedTuple):
    start: float
    end: float
    colour: str
    thin: bool = False


class _Lane(NamedTuple):
    label: str
    depth: int
    start: float
    end: float
    bars: list[_Bar]
    code: bool = False


def timeline_html(states: Sequence[RunState]) -> str:
    """Steps and calls of runs that followed each other; "" where there is nothing to compare."""
    lanes: list[_Lane] = []
    offset = 0.0
    for state in states:
        lanes += _lanes(state, offset, 0)
        offset += state.ended_at or 0.0
    if len(lanes) < 2 or offset <= 0:
        return ""
    rows = "".join(_row(lane, offset) for lane in lanes[:MAX_LANES])
    if len(lanes) > MAX_LANES:
        rows += f'<tr><td colspan="4" style="{_HEAD}left">… {number(len(lanes) - MAX_LANES)} more</td></tr>'
    head = "".join(
        f'<th scope="col" style="{_HEAD}{align}">{words}</th>'
        for words, align in (
            ("Lane", "left"),
            (f"0 to {seconds(offset)}", "left"),
            ("Start", "right"),
            ("Duration", "right"),
        )
    )
    first = next((state.time_to_first_token_s for state in states if state.time_to_first_token_s is not None), None)
    gist = f"first token {seconds(first)}" if first is not None else ""
    return (
        '<details style="border-top:1px solid #80808059;padding:5px 10px"><summary style="cursor:pointer">'
        f'Timeline <span style="opacity:.8">{gist}</span></summary><table style="table-layout:auto;width:100%;'
        f'border-collapse:collapse;margin:6px 0 2px;font-size:13px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></details>"
    )


def _lanes(state: RunState, offset: float, depth: int) -> Iterator[_Lane]:
    for step in state.steps:
        end = step.ended_at if step.ended_at is not None else state.last_at or step.started_at
        first = step.first_token_at if step.first_token_at is not None else end
        bars = [_Bar(step.started_at, first, WAIT, thin=True), _Bar(first, end, STEP)]
        if depth == 0:
            yield _lane(f"Step {step.index + 1}", depth, step.started_at, end, bars, offset)
        for call in step.tool_calls:
            yield from _call_lanes(call, state, offset, depth + 1)


def _call_lanes(call: ToolCall, state: RunState, offset: float, depth: int) -> Iterator[_Lane]:
    start = call.called_at if call.called_at is not None else call.started_at
    end = call.ended_at if call.ended_at is not None else state.last_at or start
    failed = call.status == "error"
    mark = "✕ " if failed else ""
    bars = [_Bar(start, end, FAILED if failed else CALL)]
    yield _lane(f"{mark}{one_line(call.tool_name, 40)}", depth, start, end, bars, offset, code=True)
    for run in call.nested:
        yield from _lanes(run, offset, depth)


def _lane(
    label: str, depth: int, start: float, end: float, bars: list[_Bar], offset: float, *, code: bool = False
) -> _Lane:
    moved = [bar._replace(start=bar.start + offset, end=bar.end + offset) for bar in bars]
    return _Lane(label, depth, start + offset, max(end, start) + offset, moved, code)


def _row(lane: _Lane, total: float) -> str:
    label = escape(lane.label)
    if lane.code:
        label = f'<code style="{_CODE}">{label}</code>'
    left = f"padding:1px 8px 1px {lane.depth * 12}px;border:0;text-align:left;white-space:nowrap"
    return (
        f'<tr style="background:none"><td style="{left}">{label}</td><td style="width:100%;padding:1px 0;border:0">'
        f'<img alt="" style="display:block;width:100%;height:14px" src="{_picture(lane.bars, total)}"></td>'
        f'<td style="{_CELL}">{seconds(lane.start)}</td><td style="{_CELL}">{seconds(lane.end - lane.start)}</td></tr>'
    )


def _picture(bars: list[_Bar], total: float) -> str:
    shapes = ""
    for bar in bars:
        x, width = round(1000 * bar.start / total), round(1000 * (bar.end - bar.start) / total)
        top, height = (6, 2) if bar.thin else (3, 8)
        if width > 0 or not bar.thin:
            shapes += f'<rect x="{x}" y="{top}" width="{max(width, 2)}" height="{height}" fill="{bar.colour}"/>'
    box = 'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 14" preserveAspectRatio="none"'
    return "data:image/svg+xml," + quote(f"<svg {box}>{shapes}</svg>".replace('"', "'"), safe="'/:=")
