"""The timeline in a snapshot: a table of lanes, its bars images, since Jupyter's sanitiser takes inline SVG away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import quote

from nbmastra.fold import RunState
from nbmastra.fold.stretches import Stretch
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.format import number, one_line, seconds
from nbmastra.widgets.header import agent_name, status_of
from nbmastra.widgets.icons import look
from nbmastra.widgets.lanes import Lane, Lanes
from nbmastra.widgets.markdown import escape

__all__ = ["timeline_html", "timeline_snapshot", "untimed"]

MAX_LANES, MAX_ALONE = 40, 200
"""Lanes shown of a timeline that is a part of something else, and of one that stands alone."""
_COLOURS = {  # seen on white and on black
    "step": "#64b5f6",
    "tool": "#1976d2",
    "agent": "#1976d2",
    "workflow-step": "#1976d2",
    "task": "#7e57c2",
}
_FAILED, _GREY, _WARN = "#d32f2f", "#808080", "#c77700"
_THIN = ("turn", "gap", "wait")
_HATCHED = {"queued": _GREY, "suspended": _WARN}
_HEAD = "font-weight:400;opacity:.8;padding:1px 8px 1px 0;border:0;white-space:nowrap;text-align:"
_CELL = "padding:1px 0 1px 12px;border:0;text-align:right;white-space:nowrap"
_CODE = "font-family:monospace;font-size:12px;background:none;white-space:nowrap;padding:0"
_LINE = "1px solid #80808059"
_PLAIN_WIDTH = 40


def timeline_html(states: Sequence[RunState]) -> str:
    """Runs that followed each other, folded; "" where there is nothing to compare."""
    legs: list[tuple[RunState, float]] = []
    total = 0.0
    for state in states:
        legs.append((state, total))
        total += state.ended_at or 0.0
    lanes = _lanes(legs)
    if sum(lane.kind == "turn" for lane in lanes) == 1:  # it says no more than the steps in it
        lanes = [replace(lane, depth=lane.depth - 1) for lane in lanes if lane.kind != "turn"]
    if len(lanes) < 2 or total <= 0:
        return ""
    gist = _gist(states)
    return (
        f'<details style="border-top:{_LINE};padding:5px 10px"><summary style="cursor:pointer">'
        f'Timeline <span style="opacity:.8">{gist}</span></summary>{_table(lanes, total, MAX_LANES)}</details>'
    )


def untimed(out: MastraModelOutput) -> bool:
    """True if nobody knows when its chunks came, as of what a server keeps of a thread."""
    return out.context.get("times") == "unknown"


def timeline_snapshot(outs: Sequence[MastraModelOutput], drawn: list[Lane] | None = None) -> dict[str, str]:
    """Outputs that followed each other, as a mime bundle: text/html, text/markdown, text/plain.

    `drawn`: their lanes, where they are known already.
    """
    out, first = outs[-1], outs[0]
    legs: list[tuple[RunState, float]] = []
    total = 0.0
    for each in outs:
        offset = max(total, (each.created_at - first.created_at).total_seconds()) if legs else 0.0
        legs.append((each.state, offset))
        total = offset + each.elapsed_s
    lanes = [] if untimed(first) else drawn if drawn is not None else _lanes(legs)
    gaps = [part.end - part.start for lane in lanes for part in lane.stretches if part.kind == "gap" and part.end]
    facts = [look(status_of(out)).word.lower(), seconds(total), _gist([each.state for each in outs])]
    gist = ", ".join(filter(None, [*facts, f"longest gap {seconds(max(gaps))}" if gaps else ""]))
    title = f"Timeline of {agent_name(out)}"
    empty = "Nobody knows when things happened." if untimed(first) else "Nothing happened."
    body = _table(lanes, total, MAX_ALONE) if lanes else f'<p style="margin:6px 0;opacity:.8">{empty}</p>'
    html = (
        f'<div style="border:{_LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{_LINE}"><b>{escape(title)}</b> '
        f'<span style="opacity:.8">{escape(gist)}</span></div><div style="padding:2px 10px 6px">{body}</div></div>'
    )
    shown = lanes[:MAX_ALONE]
    more = [f"… {number(len(lanes) - len(shown))} more"] if len(lanes) > len(shown) else []
    rows = [f"| {_dashes(lane)}{_marked(lane)} | {seconds(lane.start)} | {_took(lane, total)} |" for lane in shown]
    table = ["| Lane | Start | Duration |", "| --- | ---: | ---: |", *rows] if rows else []
    names = [f"{'  ' * min(lane.depth, 8)}{_name(lane)}"[:32] for lane in shown]
    lines = [
        f"{name:<32} |{_bar_text(lane, total)}| {_took(lane, total)}" for name, lane in zip(names, shown, strict=True)
    ]
    return {
        "text/html": html,
        "text/markdown": "\n".join([f"**{_marked_text(title)}** {gist}", "", *table, *more]) + "\n",
        "text/plain": "\n".join([f"{title}: {gist}", *lines, *more]),
    }


def _lanes(legs: Iterable[tuple[RunState, float]]) -> list[Lane]:
    lanes = Lanes()
    for state, offset in legs:
        lanes.begin(state, offset)
    lanes.update()
    return list(lanes)


def _gist(states: Sequence[RunState]) -> str:
    first = next((state.time_to_first_token_s for state in states if state.time_to_first_token_s is not None), None)
    return f"first token {seconds(first)}" if first is not None else ""


def _table(lanes: list[Lane], total: float, limit: int) -> str:
    shown = lanes[:limit]
    rows = "".join(_row(lane, total) for lane in shown)
    if len(lanes) > len(shown):
        rows += f'<tr><td colspan="4" style="{_HEAD}left">… {number(len(lanes) - len(shown))} more</td></tr>'
    columns = (("Lane", "left"), (f"0 to {seconds(total)}", "left"), ("Start", "right"), ("Duration", "right"))
    head = "".join(f'<th scope="col" style="{_HEAD}{align}">{words}</th>' for words, align in columns)
    return (
        '<table style="table-layout:auto;width:100%;border-collapse:collapse;margin:6px 0 2px;font-size:13px">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _name(lane: Lane) -> str:
    mark = "✕ " if _failed(lane) else "‖ " if lane.status in ("suspended", "needs-approval") else ""
    return f"{mark}{one_line(lane.name, 40)}"


def _row(lane: Lane, total: float) -> str:
    label = escape(_name(lane))
    if lane.kind not in ("turn", "step"):
        label = f'<code style="{_CODE}">{label}</code>'
    left = f"padding:1px 8px 1px {min(lane.depth, 8) * 12}px;border:0;text-align:left;white-space:nowrap"
    return (
        f'<tr style="background:none"><td style="{left}">{label}</td><td style="width:100%;padding:1px 0;border:0">'
        f'<img alt="" style="display:block;width:100%;height:14px" src="{_picture(lane, total)}"></td>'
        f'<td style="{_CELL}">{seconds(lane.start)}</td><td style="{_CELL}">{_took(lane, total)}</td></tr>'
    )


def _took(lane: Lane, total: float) -> str:
    return seconds((total if lane.end is None else lane.end) - lane.start)


def _failed(lane: Lane) -> bool:
    return look(lane.status).tone in ("failed", "timed_out") if lane.status else False


def _picture(lane: Lane, total: float) -> str:
    def x(at: float | None) -> int:
        return round(1000 * (total if at is None else at) / total) if total else 0

    shapes = ""
    for part in sorted(lane.stretches, key=_first_the_bar):
        left, right = x(part.start), x(part.end)
        if part.kind in _THIN or part.kind in _HATCHED:
            shapes += _stroke(part, left, max(right, left + 2))
        else:
            colour = _FAILED if _failed(lane) else _COLOURS.get(part.kind, _GREY)
            left = max(left, x(lane.first)) if part.kind == "step" and lane.first is not None else left
            shapes += f'<rect x="{left}" y="3" width="{max(right - left, 2)}" height="8" fill="{colour}"/>'
    if lane.kind == "step" and lane.first is not None:
        shapes += f'<path d="M{x(lane.first)} 0v14" stroke="{_GREY}" stroke-width="2" {_UNSCALED}/>'
    box = 'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 14" preserveAspectRatio="none"'
    return "data:image/svg+xml," + quote(f"<svg {box}>{shapes}</svg>".replace('"', "'"), safe="'/:=")


_UNSCALED = 'vector-effect="non-scaling-stroke"'


def _first_the_bar(part: Stretch) -> bool:
    return part.kind in _HATCHED


def _stroke(part: Stretch, left: int, right: int) -> str:
    hatched = _HATCHED.get(part.kind)
    if hatched is not None:
        return f'<path d="M{left} 7H{right}" stroke="{hatched}" stroke-width="8" stroke-dasharray="2 2" {_UNSCALED}/>'
    dashes = ' stroke-dasharray="4 3"' if part.kind == "gap" else ""
    ends = f"M{left} 11V5H{right}v6" if part.kind == "turn" else f"M{left} 7H{right}"
    return f'<path d="{ends}" fill="none" stroke="{_GREY}" stroke-width="1.5"{dashes} {_UNSCALED}/>'


def _bar_text(lane: Lane, total: float) -> str:
    """The bar in characters: waits and gaps dotted."""
    cells = [" "] * _PLAIN_WIDTH
    for part in lane.stretches:
        character = {"wait": "·", "queued": "·", "gap": "·", "suspended": "‖"}.get(part.kind, "━")
        end = total if part.end is None else part.end
        first = min(int(_PLAIN_WIDTH * part.start / total), _PLAIN_WIDTH - 1) if total else 0
        last = max(first + 1, min(round(_PLAIN_WIDTH * end / total), _PLAIN_WIDTH)) if total else 1
        cells[first:last] = character * (last - first)
    return "".join(cells)


def _dashes(lane: Lane) -> str:
    return "· " * min(lane.depth, 8)


def _marked(lane: Lane) -> str:
    return _marked_text(_name(lane))


def _marked_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~$!&])", r"\\\1", text)
