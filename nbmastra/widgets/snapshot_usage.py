"""Usage in a snapshot: a table of steps with bars as images, the sum, and the speed over the run."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from nbmastra.output import MastraModelOutput
from nbmastra.usage import Usage
from nbmastra.widgets.format import number, seconds
from nbmastra.widgets.header import agent_name, status_of, tokens_per_second
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.usage_rows import Spent, UsageRows

__all__ = ["usage_snapshot"]

MAX_ROWS = 200
_LINE = "1px solid #80808059"
_HEAD = (
    f"font-weight:400;opacity:.8;padding:2px 0 2px 12px;border:0;border-bottom:{_LINE};white-space:nowrap;text-align:"
)
_CELL = f"padding:2px 0 2px 12px;border:0;border-bottom:{_LINE};white-space:nowrap;text-align:"
_COLUMNS = ("Input", "Cached", "Output", "Reasoning", "tokens/s", "Cost")
_COLOURS = ("#808080", "#b0b0b0", "#1976d2", "#64b5f6")  # seen on white and on black
_PLAIN_BAR = " ▁▂▃▄▅▆▇█"


def usage_snapshot(
    out: MastraModelOutput, rows: UsageRows, points: Sequence[float], *, own_prices: bool
) -> dict[str, str]:
    """The usage as a mime bundle: text/html, text/markdown, text/plain. `points`: tokens per second over the run."""
    found = [rows.by_key[key] for key in rows.order]
    shown = found[:MAX_ROWS]
    turns = max((row.turn for row in found), default=0)
    title = f"Usage of {agent_name(out)}"
    facts = [look(status_of(out)).word.lower(), seconds(out.elapsed_s), _total_words(rows)]
    about = ", ".join(filter(None, facts))
    names = [("· " * row.depth) + _name(row, turns) for row in shown]
    table = [_cells(row.usage, row.speed, row.cost) for row in shown]
    total = _cells(rows.total, tokens_per_second(out.state), rows.cost)
    more = f"… {number(len(found) - len(shown))} more" if len(found) > len(shown) else ""
    notes = ["Cached is part of input, reasoning part of output.", _price_words(rows, own_prices)]
    widest = max((row.usage.total_tokens or 0 for row in shown), default=0)
    lines = [
        f"{name:<24}  {'  '.join(f'{cell:>9}' for cell in cells)}" for name, cells in zip(names, table, strict=True)
    ]
    return {
        "text/html": _html(title, about, shown, turns, table, total, more, notes, widest, points),
        "text/markdown": "\n".join(
            [
                f"**{_plain_markdown(title)}** {about}",
                "",
                f"| Step | {' | '.join(_COLUMNS)} |",
                f"| --- |{' ---: |' * len(_COLUMNS)}",
                *(f"| {_plain_markdown(n)} | {' | '.join(cells)} |" for n, cells in zip(names, table, strict=True)),
                f"| **Total** | {' | '.join(total)} |",
                *([more] if more else []),
                "",
                " ".join(filter(None, notes)),
            ]
        )
        + "\n",
        "text/plain": "\n".join(
            [
                f"{title}: {about}",
                _line("Step", _COLUMNS),
                *lines,
                *([more] if more else []),
                _line("Total", total),
                *([f"tokens/s  {_plain_spark(points)}"] if any(points) else []),
            ]
        ),
    }


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<24}  {'  '.join(f'{cell:>9}' for cell in cells)}"


def _name(row: Spent, turns: int) -> str:
    if row.agent:
        return row.agent
    turn = f"Turn {row.turn}, " if turns > 1 else ""
    words = f"{turn}{'step' if turn else 'Step'} {row.step}" if row.step is not None else f"{turn}beyond its steps"
    return words if turn else words[:1].upper() + words[1:]


def _cells(usage: Usage, speed: float | None, cost: float | None) -> list[str]:
    counts = (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, usage.reasoning_tokens)
    words = ["–" if count is None else number(count) for count in counts]
    return [*words, "–" if speed is None else f"{speed:.0f}", "–" if cost is None else f"${cost:.4f}"]


def _total_words(rows: UsageRows) -> str:
    total = rows.total.total_tokens
    words = "tokens not reported" if total is None else f"{number(total)} tokens"
    return words if rows.cost is None else f"{words}, ${rows.cost:.4f}"


def _price_words(rows: UsageRows, own_prices: bool) -> str:
    if rows.unpriced:
        return f"No price is known for {', '.join(list(rows.unpriced)[:3])}."
    return "" if rows.cost is None else "Cost at your prices." if own_prices else "Cost at list prices."


def _html(
    title: str,
    about: str,
    shown: Sequence[Spent],
    turns: int,
    table: list[list[str]],
    total: list[str],
    more: str,
    notes: list[str],
    widest: int,
    points: Sequence[float],
) -> str:
    head = "".join(f'<th scope="col" style="{_HEAD}right">{name}</th>' for name in _COLUMNS)
    body = ""
    for row, cells in zip(shown, table, strict=True):
        pad = f"padding:2px 0 2px {14 * row.depth}px"
        numbers = "".join(f'<td style="{_CELL}right">{cell}</td>' for cell in cells)
        bar = f'<img alt="" style="display:block;width:100%;height:10px" src="{_bar(row.usage, widest)}">'
        name = escape(_name(row, turns))
        body += (
            f'<tr style="background:none"><td style="{_CELL}left;{pad}">{name}</td>'
            f'<td style="{_CELL}left;width:40%;min-width:60px">{bar}</td>{numbers}</tr>'
        )
    if more:
        body += f'<tr style="background:none"><td colspan="8" style="{_CELL}left;opacity:.8">{more}</td></tr>'
    sums = "".join(f'<td style="{_CELL}right"><b>{cell}</b></td>' for cell in total)
    body += (
        f'<tr style="background:none"><td style="{_CELL}left;padding-left:0"><b>Total</b></td>'
        f'<td style="{_CELL}left"></td>{sums}</tr>'
    )
    spark = ""
    if any(points):
        peak = f"Tokens per second over the run, up to {max(points):.0f}"
        spark = (
            f'<p style="margin:6px 0 0;opacity:.8">{peak}</p><img alt="{peak}" '
            f'style="display:block;width:100%;max-width:420px;height:36px" src="{_spark(points)}">'
        )
    words = escape(" ".join(filter(None, notes)))
    return (
        f'<div style="border:{_LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{_LINE}"><b>{escape(title)}</b> '
        f'<span style="opacity:.8">{escape(about)}</span></div><div style="padding:2px 10px 8px;overflow-x:auto">'
        '<table style="table-layout:auto;width:100%;border-collapse:collapse;margin:6px 0 2px;font-size:13px">'
        f'<thead><tr><th scope="col" style="{_HEAD}left;padding-left:0">Step</th>'
        f'<th scope="col" style="{_HEAD}left">Tokens</th>{head}</tr></thead><tbody>{body}</tbody></table>'
        f'<p style="margin:6px 0 0;opacity:.8">{words}</p>{spark}</div></div>'
    )


def token_parts(usage: Usage) -> tuple[int, int, int, int]:
    """What is drawn: input that wasn't cached, cached, output that isn't reasoning, reasoning."""
    cached, reasoning = usage.cached_input_tokens or 0, usage.reasoning_tokens or 0
    return max((usage.input_tokens or 0) - cached, 0), cached, max((usage.output_tokens or 0) - reasoning, 0), reasoning


def _bar(usage: Usage, widest: int) -> str:
    at, shapes = 0.0, ""
    for count, colour in zip(token_parts(usage), _COLOURS, strict=True):
        width = 1000 * count / widest if widest else 0
        if width:
            shapes += f'<rect x="{at:.0f}" width="{max(width, 2):.0f}" height="10" fill="{colour}"/>'
        at += width
    return _data('viewBox="0 0 1000 10" preserveAspectRatio="none"', shapes)


def _spark(points: Sequence[float]) -> str:
    top, last = max(points), max(len(points) - 1, 1)
    line = " ".join(f"{1000 * i / last:.0f} {35 - 32 * point / top:.1f}" for i, point in enumerate(points))
    stroke = 'fill="none" vector-effect="non-scaling-stroke" stroke'
    shapes = f'<path d="M0 35.5H1000" {stroke}="#808080"/><path d="M{line}" {stroke}="#1976d2" stroke-width="1.5"/>'
    return _data('viewBox="0 0 1000 36" preserveAspectRatio="none"', shapes)


def _data(box: str, shapes: str) -> str:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{shapes}</svg>'
    return "data:image/svg+xml," + quote(svg.replace('"', "'"), safe="'/:=")


def _plain_spark(points: Sequence[float]) -> str:
    top = max(points)
    return "".join(_PLAIN_BAR[round(8 * point / top)] for point in points)


def _plain_markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~$!&" else c for c in text)
