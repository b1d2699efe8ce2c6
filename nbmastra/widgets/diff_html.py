"""Two runs beside each other as HTML that lives with what Jupyter's sanitiser leaves: no script, no classes.

Everything that came from outside is escaped here. What differs is marked by shape as well as by colour: underlined is
only in b, struck through only in a.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from nbmastra.widgets.format import as_json, number, one_line, plain, seconds
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.snapshot_html import LINE, mark

__all__ = ["diff_html"]


class DiffedRun(Protocol):
    """A run that was compared."""

    @property
    def agent_id(self) -> str | None: ...

    stream_id: str | None
    status: str
    elapsed_s: float | None
    created_at: datetime | None


class DiffedRow(Protocol):
    """One thing that was compared, of a run, a step, or a call."""

    @property
    def item(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def aspect(self) -> str: ...
    @property
    def change(self) -> str: ...
    @property
    def a(self) -> Any: ...
    @property
    def b(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def step_a(self) -> int | None: ...
    @property
    def step_b(self) -> int | None: ...
    @property
    def tool_call_id_a(self) -> str | None: ...
    @property
    def tool_call_id_b(self) -> str | None: ...
    @property
    def parent_tool_call_id(self) -> str | None: ...
    @property
    def delta(self) -> float | None: ...
    @property
    def unit(self) -> str: ...
    @property
    def parts(self) -> bool: ...
    @property
    def pieces(self) -> Sequence[tuple[str, str]]: ...


_CELL = f"padding:3px 12px 3px 0;border:0;border-bottom:{LINE};vertical-align:top;text-align:"
_CODE = "font-family:monospace;font-size:12px;background:none"
_ADDED = "text-decoration:underline;background:#388e3c33"
_REMOVED = "text-decoration:line-through;background:#d32f2f33"
_MAX_STEPS, _MAX_ROWS, _MAX_CHARS, _MAX_VALUE, _CONTEXT = 60, 40, 6_000, 300, 80


def diff_html(a: DiffedRun, b: DiffedRun, rows: Sequence[DiffedRow]) -> str:
    """The whole box: which runs, where they part, what sums them up, and each step with what differs in it."""
    summed = [row for row in rows if row.item == "run" and row.depth == 0]
    others = (row for row in rows if row.item != "run" or row.depth)
    steps = _grouped(others, lambda row: (row.path, row.parent_tool_call_id, row.step_a, row.step_b))
    shown = "".join(map(_step, steps[:_MAX_STEPS]))
    if len(steps) > _MAX_STEPS:
        more = number(len(steps) - _MAX_STEPS)
        shown += f'<p style="margin:4px 0;opacity:.8">… and {more} more steps: .df has all</p>'
    differing = sum(any(row.parts for row in step) for step in steps)
    all_ = f"{number(len(steps))} step{'' if len(steps) == 1 else 's'}"
    count = f"{number(differing)} of {all_} differ" if differing else f"{all_}, all alike in what they say and do"
    return (
        f'<div style="border:{LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{LINE}">{_head("a", a)}{_head("b", b)}</div>'
        f'<div style="padding:8px 12px">{_first(rows)}{_sums(summed)}'
        f'<p style="margin:8px 0 4px;opacity:.8">{count}. <del style="{_REMOVED}">Only in a</del>, '
        f'<ins style="{_ADDED}">only in b</ins>.</p>{shown}</div></div>'
    )


def _grouped(rows: Iterable[DiffedRow], key: Callable[[DiffedRow], Hashable]) -> list[list[DiffedRow]]:
    """Rows that belong together, where the first of them stands."""
    groups: dict[Hashable, list[DiffedRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def _head(letter: str, run: DiffedRun) -> str:
    facts = [
        f"{run.created_at:%d %b %Y, %H:%M} UTC" if run.created_at is not None else "",
        seconds(run.elapsed_s) if run.elapsed_s is not None else "",
        f"stream {one_line(run.stream_id[:8])}" if run.stream_id else "",
    ]
    status = look(run.status)
    about = escape(", ".join(filter(None, facts)))
    return (
        f'<div><b>{letter}</b> <span aria-hidden="true">{mark(run.status)}</span> {escape(status.word)} '
        f'<b>{escape(one_line(run.agent_id or "an agent", 60))}</b> <span style="opacity:.8">{about}</span></div>'
    )


def _first(rows: Iterable[DiffedRow]) -> str:
    first = next((row for row in rows if row.parts), None)
    if first is None:
        return '<p style="margin:0 0 6px"><b>The same was asked, said and done.</b></p>'
    call = first.name if first.tool_call_id_a or first.tool_call_id_b else ""
    words = f"{_step_words(first)} {call}".strip()
    field = f'<code style="{_CODE}">{escape(one_line(first.field, 120))}</code>'
    return f'<p style="margin:0 0 6px"><b>They part at {escape(one_line(words, 120))}</b> {field}</p>'


def _sums(rows: Sequence[DiffedRow]) -> str:
    """What sums the runs up: all that differs, and the numbers one looks for."""
    wanted = [row for row in rows if row.change != "same" or row.field in ("status", "total_tokens", "duration_s")]
    return _table(wanted)


def _step_words(row: DiffedRow) -> str:
    inside = row.path.partition("/")[2]
    number_ = row.step_a if row.step_a is not None else row.step_b
    words = "the run" if number_ is None else f"step {number_ + 1}"
    if row.step_a is None and row.step_b is not None:
        words += " of b"
    elif row.step_a is not None and row.step_b is not None and row.step_a != row.step_b:
        words += f" (step {row.step_b + 1} of b)"
    return f"{one_line(inside, 60)}: {words}" if inside else words


def _step(rows: Sequence[DiffedRow]) -> str:
    parts, title = sum(row.parts for row in rows), _step_words(rows[0])
    title = title[:1].upper() + title[1:]
    calls = [row.name for row in rows if row.item == "tool-call" and row.field in ("status", "call")]
    words = f"{parts} {'difference' if parts == 1 else 'differences'}" if parts else "same"
    tools = f' <code style="{_CODE}">{escape(one_line(", ".join(calls), 100))}</code>' if calls else ""
    summary = (
        f'<summary style="cursor:pointer"><b style="font-weight:600">{escape(title)}</b>{tools} '
        f'<span style="opacity:.8">{words}</span></summary>'
    )
    inner = "".join(_items(rows))
    opened = " open" if parts else ""
    return f'<details{opened} style="border:{LINE};padding:4px 8px;margin:0 0 4px">{summary}{inner}</details>'


def _items(rows: Sequence[DiffedRow]) -> Iterator[str]:
    for of_item in _grouped(rows, lambda row: (row.item, row.tool_call_id_a, row.tool_call_id_b)):
        first = of_item[0]
        changed = [row for row in of_item if row.change != "same"]
        numbers = [row for row in changed if row.aspect in ("tokens", "time")]
        counts = f' <span style="opacity:.8">{", ".join(map(_count, numbers))}</span>' if numbers else ""
        if changed and first.item in ("tool-call", "workflow-step", "task"):
            yield (
                f'<p style="margin:8px 0 2px"><code style="{_CODE}"><b>{escape(one_line(first.name, 100))}</b></code>'
                f"{' background task' if first.item == 'task' else ''}{_presence(first)}{counts}</p>"
            )
        elif counts:
            yield f'<p style="margin:6px 0 2px">{counts.strip()}</p>'
        texts = [row for row in changed if row.pieces and max(len(str(row.a)), len(str(row.b))) > 60]
        for row in texts:
            yield f'<p style="margin:6px 0 0;opacity:.8">{escape(one_line(row.field, 120))}</p>{_text(row.pieces)}'
        yield _table([row for row in changed if row not in numbers and row not in texts])


def _count(row: DiffedRow) -> str:
    """A number that differs, in words: duration 3.51 s → 4.57 s (+1.05 s)."""
    name = escape(one_line(row.field.removesuffix("_s").replace("_", " "), 60))
    a, b = (_amount(value, row.unit) if type(value) in (int, float) else "–" for value in (row.a, row.b))
    delta = _delta(row)
    return f"{name} {a} → {b} ({delta})" if delta else f"{name} {a} → {b}"


def _delta(row: DiffedRow) -> str:
    if row.delta is None or row.change == "same":
        return ""
    return f"{'+' if row.delta >= 0 else '−'}{_amount(abs(row.delta), row.unit)}"


def _presence(row: DiffedRow) -> str:
    if row.change in ("added", "removed") and row.aspect == "structure":
        tag, style = ("ins", _ADDED) if row.change == "added" else ("del", _REMOVED)
        return f' <{tag} style="{style}">only in {"b" if row.change == "added" else "a"}</{tag}>'
    return ""


def _text(pieces: Sequence[tuple[str, str]]) -> str:
    """What differs in a text, with a little around it."""
    inner, length = "", 0
    for place, (kind, text) in enumerate(pieces):
        if length > _MAX_CHARS:
            inner += " …"
            break
        if kind == "same":
            text = _around(text, first=place == 0, last=place == len(pieces) - 1)
        elif len(text) > _MAX_CHARS // 3:
            text = f"{text[: _MAX_CHARS // 3]}…"
        length += len(text)
        tag = {"added": f'<ins style="{_ADDED}">', "removed": f'<del style="{_REMOVED}">'}.get(kind, "")
        end = {"added": "</ins>", "removed": "</del>"}.get(kind, "")
        inner += f"{tag}{escape(plain(text))}{end}"
    style = f"white-space:pre-wrap;word-break:break-word;margin:2px 0 6px;padding:4px 8px;border:{LINE};max-width:720px"
    return f'<div style="{style}">{inner}</div>'


def _around(text: str, *, first: bool, last: bool) -> str:
    head = "" if first else text[:_CONTEXT]
    tail = "" if last else text[-_CONTEXT:]
    return text if len(text) <= len(head) + len(tail) + 3 else f"{head and head + ' '}…{tail and ' ' + tail}"


def _table(rows: Sequence[DiffedRow]) -> str:
    if not rows:
        return ""
    head = "".join(
        f'<th scope="col" style="{_CELL}{align};font-weight:400;opacity:.8">{word}</th>'
        for word, align in (("value", "left"), ("a", "left"), ("b", "left"), ("b − a", "right"))
    )
    body = "".join(_table_row(row) for row in rows[:_MAX_ROWS])
    more = len(rows) - _MAX_ROWS
    rest = f'<p style="margin:0;opacity:.8">… and {number(more)} more: .df has all</p>' if more > 0 else ""
    return (
        '<div style="overflow-x:auto" tabindex="0"><table style="table-layout:auto;border-collapse:collapse;'
        f'margin:2px 0 4px;font-size:13px"><thead><tr style="background:none">{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{rest}"
    )


def _table_row(row: DiffedRow) -> str:
    cells = [_cell(row.a, row.unit, row.change, _REMOVED, "del"), _cell(row.b, row.unit, row.change, _ADDED, "ins")]
    name = f'<code style="{_CODE}">{escape(one_line(row.field, 120))}</code>'
    return (
        f'<tr style="background:none"><td style="{_CELL}left;white-space:nowrap">{name}</td>'
        f'<td style="{_CELL}left">{cells[0]}</td><td style="{_CELL}left">{cells[1]}</td>'
        f'<td style="{_CELL}right;white-space:nowrap">{_delta(row)}</td></tr>'
    )


def _cell(value: Any, unit: str, change: str, style: str, tag: str) -> str:
    if value is None:
        return '<span style="opacity:.8">–</span>'
    if type(value) in (int, float):
        words = _amount(value, unit)
    else:
        words = one_line(value if isinstance(value, str) else as_json(value), _MAX_VALUE)
    words = escape(words)
    return words if change == "same" or unit else f'<{tag} style="{style}">{words}</{tag}>'


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return seconds(value)
    if unit == "USD":
        return f"${value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
