"""A table as plain output, made of the rows that it has: it lives with what Jupyter's sanitiser leaves."""

from __future__ import annotations

from typing import Any

from nbmastra.widgets.data import Rows
from nbmastra.widgets.format import number, seconds
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.snapshot_html import CELL, CODE, LINE, mark

__all__ = ["ROWS", "table_snapshot"]

ROWS = 50
_RIGHT = ("started", "elapsed", "attempts")


def table_snapshot(rows: Rows, limit: int = ROWS) -> dict[str, str]:
    """The mime bundle: the first rows, and how many there are."""
    columns = [(name, words) for name, words in rows.fact("columns") if name != "acts"]
    keys = rows.keys()
    shown = [{name: rows.get(key, name) for name in (*_FIELDS, "status", "depth")} for key in keys[:limit]]
    columns = [(name, words) for name, words in columns if name != "attempts" or any(row[name] for row in shown)]
    title = str(rows.fact("title"))
    count = f"{number(len(shown))} of {number(len(keys))}" if len(keys) > len(shown) else number(len(keys))
    return {
        "text/html": _html(title, count, columns, shown),
        "text/markdown": _markdown(title, count, columns, shown),
        "text/plain": "\n".join([f"{title}: {count}", *(_plain(row) for row in shown)]),
    }


_FIELDS = ("status", "tool", "args", "started", "elapsed", "since", "attempts", "says")


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if name == "status":
        return f"{mark(str(value))} {look(str(value)).word}"
    if name == "elapsed":
        since = row.get("since")
        return seconds(value) if value is not None else f"{seconds(since)}, goes on" if since is not None else ""
    if name == "started" and isinstance(value, str):
        return value[:19].replace("T", " ")
    return "" if value is None else str(value)


def _html(title: str, count: str, columns: list[tuple[str, str]], shown: list[dict[str, Any]]) -> str:
    head = "".join(f'<th scope="col" style="{_style(name)};font-weight:400;opacity:.8">{w}</th>' for name, w in columns)
    body = "".join(f"<tr>{''.join(_td(row, name) for name, _ in columns)}</tr>" for row in shown)
    return (
        f'<div style="border:{LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{LINE}"><b>{escape(title)}</b> '
        f'<span style="opacity:.8">{count}</span></div><div style="overflow-x:auto;padding:0 10px 6px">'
        '<table style="table-layout:auto;border-collapse:collapse;margin:0;font-size:13px">'
        f"<thead><tr>{head.replace('Started', 'Started (UTC)')}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _style(name: str) -> str:
    style = f"{CELL}{'right' if name in _RIGHT else 'left'}"
    if name in ("args", "says"):  # these may be long, and are better read than scrolled to
        style = style.replace("white-space:nowrap", "white-space:normal;word-break:break-word;min-width:120px")
    return style


def _td(row: dict[str, Any], name: str) -> str:
    text = escape(_cell(row, name))
    if name == "tool":
        depth = row.get("depth") or 0
        text = f'<span style="padding-left:{14 * min(int(depth), 20)}px"><code style="{CODE}">{text}</code></span>'
    elif name in ("args", "says") and text:
        text = f'<code style="{CODE}">{text}</code>'
    return f'<td style="{_style(name)};vertical-align:top">{text}</td>'


def _markdown(title: str, count: str, columns: list[tuple[str, str]], shown: list[dict[str, Any]]) -> str:
    lines = [f"**{title}** {count}", ""]
    lines.append("| " + " | ".join(words for _, words in columns) + " |")
    lines.append("|" + "---|" * len(columns))
    for row in shown:
        lines.append("| " + " | ".join(_code(_cell(row, name)) for name, _ in columns) + " |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """As code, in which nothing is markup; a bar would end the cell."""
    text = text.replace("`", "'").replace("|", "¦").replace("<", "‹")
    return f"`{text}`" if text else ""


def _plain(row: dict[str, Any]) -> str:
    said = f" -> {row['says']}" if row.get("says") else ""
    return f"{mark(str(row['status']))} {'  ' * int(row.get('depth') or 0)}{row['tool']}({row['args'] or ''}){said}"
