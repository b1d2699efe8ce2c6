"""A dashboard as plain output: a table of its runs, and each of them folded."""

from __future__ import annotations

from collections.abc import Sequence

from nbmastra.widgets.format import one_line, seconds
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.run_list import Listed
from nbmastra.widgets.snapshot import escaped, snapshot
from nbmastra.widgets.snapshot_html import CELL, LINE, mark

__all__ = ["dashboard_snapshot"]

MAX_ROWS, MAX_WHOLE = 200, 20


def dashboard_snapshot(runs: Sequence[Listed], title: str = "Runs") -> dict[str, str]:
    """As a mime bundle: text/html, text/markdown, text/plain; newest first, the newest 20 runs in full."""
    newest = list(reversed(runs))
    shown = newest[:MAX_ROWS]
    more = f"… and {len(newest) - MAX_ROWS} more" if len(newest) > MAX_ROWS else ""
    return {
        "text/html": _html(shown, title, more),
        "text/markdown": _markdown(shown, title, more),
        "text/plain": "\n".join(filter(None, [f"{title}: {len(newest)}", *map(_line, shown), more])),
    }


def _line(listed: Listed) -> str:
    word = look(listed.status).word
    return f"{mark(listed.status)} {word}  {listed.title} ({seconds(listed.elapsed_s)}; {listed.about})"


def _html(runs: Sequence[Listed], title: str, more: str) -> str:
    heads = ("Status", "Run", "Agent and tokens", "Time")
    style = f"{CELL}left;padding-left:10px;font-weight:400;opacity:.8"
    head = "".join(f'<th scope="col" style="{style}">{words}</th>' for words in heads)
    rows = "".join(map(_row, runs))
    whole = "".join(_whole(listed) for listed in runs[:MAX_WHOLE])
    none = "" if runs else '<div style="padding:6px 10px;opacity:.8">No runs.</div>'
    table = (
        '<div style="overflow-x:auto"><table style="table-layout:auto;width:100%;border-collapse:collapse;margin:0;'
        f'font-size:13px"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    return (
        f'<div style="border:{LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{LINE}"><b>{escape(title)}</b> '
        f'<span style="opacity:.8">{len(runs)}</span></div>'
        f"{table if runs else none}<div>{escape(more)}</div>{whole}</div>"
    )


def _row(listed: Listed) -> str:
    short = f"{CELL}left;padding-left:10px"
    long = f"{short};white-space:normal"
    word = f'<span aria-hidden="true">{mark(listed.status)}</span> {escape(look(listed.status).word)}'
    time = escape(seconds(listed.elapsed_s))
    cells = ((short, word), (long, escape(listed.title)), (long, escape(listed.about)), (short, time))
    inner = "".join(f'<td style="{style}">{words}</td>' for style, words in cells)
    return f"<tr>{inner}</tr>"


def _whole(listed: Listed) -> str:
    summary = f"{mark(listed.status)} {escape(one_line(listed.title, 100))}"
    inner = snapshot(listed.out, listed.first)["text/html"]
    return (
        f'<details style="border-top:{LINE};padding:4px 10px"><summary style="cursor:pointer">{summary}</summary>'
        f"{inner}</details>"
    )


def _markdown(runs: Sequence[Listed], title: str, more: str) -> str:
    lines = [f"**{escaped(title)}**", "", "| Status | Run | Agent and tokens | Time |", "|---|---|---|---:|"]
    for listed in runs:
        cells = (f"{mark(listed.status)} {look(listed.status).word}", listed.title, listed.about)
        lines.append(f"| {' | '.join(map(escaped, cells))} | {seconds(listed.elapsed_s)} |")
    return "\n".join([*lines, "", more])
