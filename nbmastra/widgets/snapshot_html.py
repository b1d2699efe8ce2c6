"""A finished run as HTML that lives with what Jupyter's sanitiser leaves: literal inline styles, no classes, no script.

Everything that came from outside is escaped here, or rendered by `render_markdown`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from nbmastra.fold import (
    DataPart,
    ErrorInfo,
    FilePart,
    GoalPart,
    Notice,
    ObjectPart,
    Part,
    ReasoningPart,
    RunState,
    SourcePart,
    Task,
    TextPart,
    ToolCall,
    WorkflowStep,
)
from nbmastra.output import MastraModelOutput, Verdict, verdict
from nbmastra.widgets import json_tree
from nbmastra.widgets.cards import Facts, facts_of
from nbmastra.widgets.format import as_json, as_records, number, one_line, seconds, signature, size
from nbmastra.widgets.header import agent_name, status_of, used
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape, render_markdown
from nbmastra.widgets.pages import MAX_SHOWN
from nbmastra.widgets.parts import fact_words, source_words
from nbmastra.widgets.snapshot_timeline import timeline_html

__all__ = ["Entry", "entries", "html_snapshot", "mark", "plain_call"]

LINE = "1px solid #80808059"
CODE = "font-family:monospace;font-size:12px;background:none"
PRE = (
    "font-family:monospace;font-size:12px;margin:6px 0 4px;padding:6px 8px;white-space:pre-wrap;word-break:break-word;"
    f"border:{LINE}"
)
CELL = f"padding:3px 12px 3px 0;border:0;border-bottom:{LINE};white-space:nowrap;text-align:"
ROWS, LINES, CHARS = 20, 12, 2_000
MAX_LINES = 5_000
"""So many of the calls before those that are shown as cards are listed, a line each; the frames have all of them."""

_MARKS = {"check": "✓", "cross": "✕", "octagon": "✕", "clock": "✕", "ring-struck": "⊘", "bars": "‖", "line-broken": "⋯"}
_EDGES = {"error": "#d32f2f", "warning": "#f57c00"}

Entry = tuple[Part, RunState, Facts | None]


def mark(status: str) -> str:
    """A status as one character of text."""
    return _MARKS.get(look(status).shape, "·")


def plain_call(facts: Facts) -> str:
    """A call on a line of text, with its outcome."""
    name, rest = signature(facts.name, facts.args)
    return f"{mark(facts.status)} {name}{rest}" + (f" -> {one_line(facts.outcome)}" if facts.outcome else "")


def entries(outs: list[MastraModelOutput]) -> list[Entry]:
    """The parts to show, in order. A call that was answered stands once, where it was asked, with what came of it."""
    shown: list[Entry] = []
    waiting: dict[str, int] = {}
    for out in outs:
        for part in out.state.parts:
            facts = facts_of(part) if isinstance(part, ToolCall | Task | WorkflowStep) else None
            if isinstance(part, ToolCall | WorkflowStep) and facts is not None and part.tool_call_id in waiting:
                place = waiting.pop(part.tool_call_id)
                before = shown[place][2]
                facts.args = facts.args or (before.args if before is not None else None)
                shown[place] = part, out.state, facts
            elif _stands(part, out.state):
                shown.append((part, out.state, facts))
                if facts is not None and facts.asks and isinstance(part, ToolCall | WorkflowStep):
                    waiting[part.tool_call_id] = len(shown) - 1
    return shown


def _stands(part: Part, state: RunState) -> bool:
    if isinstance(part, Task):
        return not any(call.task_id == part.id for call in state.tool_calls)
    if isinstance(part, TextPart):
        step = state.steps[part.step]
        is_object = type(part) is TextPart and step.object is not None and step.object.value is not None
        return bool(part.pieces) and not is_object and not part.rejected
    if isinstance(part, ObjectPart):
        return not part.rejected and (part.done or part.value is not None)
    if isinstance(part, Notice):
        return part.tool_call_id is None and part.code != "cancelled"
    return True


def html_snapshot(outs: list[MastraModelOutput]) -> str:
    """The whole box: what ran, what it said and called, where the time went, what it took."""
    out = outs[-1]
    inner = "".join(_body(outs))
    return (
        f'<div style="border:{LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">{_head(out)}'
        f'<div style="padding:8px 12px">{inner}</div>{timeline_html([o.state for o in outs])}{_foot(out)}</div>'
    )


def _head(out: MastraModelOutput) -> str:
    status = status_of(out)
    words = escape(look(status).word)
    words = words if status == "success" else f"<b>{words}</b>"
    agent = escape(agent_name(out))
    facts = [one_line(out.state.model or "", 60), f"{out.created_at:%d %b %Y, %H:%M} UTC", seconds(out.elapsed_s)]
    about = escape(", ".join(filter(None, facts)))
    return (
        f'<div style="padding:6px 10px;border-bottom:{LINE}"><span aria-hidden="true">{mark(status)}</span> {words} '
        f'<b>{agent}</b> <span style="opacity:.8">{about}</span></div>'
    )


def _body(outs: list[MastraModelOutput]) -> Iterator[str]:
    if outs[0].prompt:
        yield f'<p style="margin:0 0 8px"><b>You</b> {escape(outs[0].prompt[:4000])}</p>'
    out, shown = outs[-1], entries(outs)
    cards = [place for place, (_, _, facts) in enumerate(shown) if facts is not None and not facts.asks]
    earlier = set(cards[:-MAX_SHOWN])  # a page needs half a minute for thousands of cards
    if earlier:
        yield _earlier([shown[place] for place in sorted(earlier)])
    yield from _parts([entry for place, entry in enumerate(shown) if place not in earlier], out)
    if out.status == "cancelled":
        reason = escape(one_line(out.status_reason[:1].upper() + out.status_reason[1:]))
        yield f'<p style="margin:0;opacity:.8">{reason}. What came is kept.</p>'


def _earlier(calls: list[Entry]) -> str:
    lines = [plain_call(facts) for _, _, facts in calls[:MAX_LINES] if facts is not None]
    if len(calls) > MAX_LINES:
        lines.append(f"… and {number(len(calls) - MAX_LINES)} more: .tool_calls_df() has all")
    words = f"{number(len(calls))} earlier call{'' if len(calls) == 1 else 's'}"
    return _fold(words, f'<pre style="{PRE}">{escape(chr(10).join(lines))}</pre>')


def _parts(shown: list[Entry], out: MastraModelOutput | None = None) -> Iterator[str]:
    sources: list[str] = []
    for before, entry in pairwise([None, *shown]):
        part, state, facts = cast("Entry", entry)
        if facts is not None:
            joined = before is not None and before[2] is not None
            yield _card(facts, part, joined=joined)
        elif isinstance(part, SourcePart):
            sources.append(_source(part))
        elif isinstance(part, ObjectPart):
            yield _object(part, verdict(out) if out is not None and part is out.state.object else None)
        else:
            yield _part(part, state)
    if sources:
        yield f'<p style="margin:0">Sources: {"; ".join(sources)}</p>'


def _part(part: Part, state: RunState) -> str:
    if isinstance(part, ReasoningPart):
        time = f", {seconds(part.ended_at - part.started_at)}" if part.ended_at is not None else ""
        text = render_markdown(part.text, snapshot=True)
        return _fold(f"Reasoning{time}", f'<div style="{_INDENT}">{text}</div>')
    if isinstance(part, TextPart):
        text = render_markdown(part.text, snapshot=True)
        return f'<div style="font-size:14px;line-height:1.6;max-width:640px;margin-top:10px">{text}</div>'
    if isinstance(part, FilePart):
        return _file(part)
    if isinstance(part, DataPart | GoalPart):
        name, words, value = fact_words(part)
        return _fold(f"{name} {words}".strip(), _json(value))
    if isinstance(part, Notice):
        return _notice(part)
    return ""


def _object(part: ObjectPart, judged: Verdict | None) -> str:
    value: Any = part.value
    words, why = "Object", ""
    if judged is not None:
        words += f' <span style="opacity:.8">{mark(judged.status)} {escape(one_line(judged.words))}</span>'
        why = "".join(
            f'<p style="margin:0;opacity:.8">{escape(one_line(reason))}</p>' for reason in judged.bad.values()
        )
    inner = _result(value, "Elements") if as_records(value) is not None else _json(value, 20_000)
    return f'<div style="margin:0 0 8px">{words}{why}{inner}</div>'


_INDENT = f"margin:4px 0 4px 4px;padding-left:11px;border-left:{LINE}"


def _fold(summary: str, inner: str) -> str:
    words = f'<span style="opacity:.8">{escape(summary)}</span>'
    return f'<details style="margin:0 0 8px"><summary style="cursor:pointer">{words}</summary>{inner}</details>'


def _card(facts: Facts, part: Part, *, joined: bool) -> str:
    name, rest = signature(facts.name, facts.args)
    word = (
        "" if facts.status in ("success", "completed") else f'<b style="font-weight:600">{look(facts.status).word}</b> '
    )
    about = [*facts.tags, one_line(facts.outcome), "" if facts.duration_s is None else seconds(facts.duration_s)]
    summary = (
        f'<span aria-hidden="true">{mark(facts.status)}</span> {word}<code style="{CODE}"><b>{escape(name)}</b>'
        f'{escape(rest)}</code> <span style="opacity:.8">{escape(", ".join(filter(None, about)))}</span>'
    )
    inner = "".join(_card_body(facts))
    top = "border-top:0;" if joined else ""
    return (
        f'<details style="border:{LINE};{top}padding:4px 8px"><summary style="cursor:pointer">{summary}</summary>'
        f"{inner}</details>"
    )


def _card_body(facts: Facts) -> Iterator[str]:
    if len(signature(facts.name, facts.args)[1]) > 80:
        yield _json(facts.args)
    if facts.outputs:
        yield _pre("\n".join(o if isinstance(o, str) else as_json(o) for o in facts.outputs[:50]))
    for run in facts.nested:
        inner = "".join(_parts([(p, run, facts_or_none(p)) for p in run.parts if _stands(p, run)]))
        yield f'<div style="margin:6px 0 4px 11px">{inner}</div>'
    if facts.error is not None:
        yield _error(facts.error)
    elif facts.has_result and not facts.nested:
        yield _result(facts.result, one_line(facts.name, 80))
    for remark in facts.remarks:
        yield f'<p style="margin:6px 0 4px;opacity:.8">{escape(one_line(remark, 500))}</p>'


def facts_or_none(part: Part) -> Facts | None:
    """What a card shows; None for a part that isn't shown as one."""
    return facts_of(part) if isinstance(part, ToolCall | Task | WorkflowStep) else None


def _result(value: Any, name: str) -> str:
    source = json_tree.image_source(value)
    if source is not None:
        return f'<img alt="Result of {escape(name)}" style="max-width:100%;margin:6px 0 4px" src="{source}">'
    records = as_records(value)
    if records is None:
        return _pre(value) if isinstance(value, str) else _json(value)
    columns = list(dict.fromkeys(key for record in records[:ROWS] for key in record))[: json_tree.COLUMNS]
    numeric = {c for c in columns if all(type(record.get(c)) in (int, float) for record in records[:ROWS])}
    align = {column: "right" if column in numeric else "left" for column in columns}
    head = "".join(
        f'<th scope="col" style="{CELL}{align[c]};font-weight:400;opacity:.8">{escape(one_line(str(c), 60))}</th>'
        for c in columns
    )
    body = ""
    for record in records[:ROWS]:
        cells = "".join(f'<td style="{CELL}{align[c]}">{json_tree.cell(record.get(c))}</td>' for c in columns)
        body += f"<tr>{cells}</tr>"
    more = f'<p style="margin:0;opacity:.8">{ROWS} of {number(len(records))} records</p>' if len(records) > ROWS else ""
    return (
        '<div style="overflow-x:auto" tabindex="0"><table style="table-layout:auto;border-collapse:collapse;'
        f'margin:6px 0 4px;font-size:13px"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    )


def _json(value: Any, limit: int = CHARS) -> str:
    compact = as_json(value)
    return _pre(compact if len(compact) < 80 else as_json(value, indent=2), limit)


def _pre(text: str, limit: int = CHARS) -> str:
    lines = text[:limit].split("\n")
    shown = "\n".join(lines[:LINES] if limit == CHARS else lines)
    more = "…" if len(shown) < len(text) else ""
    return f'<pre style="{PRE}">{escape(shown)}{more}</pre>'


def _error(error: ErrorInfo) -> str:
    style = f"border:{LINE};border-left:3px solid #d32f2f;padding:6px 10px;margin:6px 0 4px"
    return f'<div style="{style}">{escape(error.message[:CHARS])}</div>'


def _notice(notice: Notice) -> str:
    edge = _EDGES.get(notice.level, "#808080")
    style = f"border:{LINE};border-left:3px solid {edge};padding:6px 10px;margin:8px 0 0"
    text = f"<br>{escape(notice.text[:CHARS])}" if notice.text and notice.text != notice.title else ""
    return f'<div style="{style}"><b>{escape(one_line(notice.title))}</b>{text}</div>'


def _source(part: SourcePart) -> str:
    words, url, host = source_words(part)
    if not url:
        return escape(words)
    return f'<a href="{escape(url)}" rel="noopener noreferrer" target="_blank">{escape(words)}</a> {escape(host)}'


def _file(part: FilePart) -> str:
    data, mime = part.base64, one_line(part.mime_type, 60)
    source = json_tree.image_source(None, part.mime_type, data)
    if source is not None:
        return f'<img alt="File, {escape(mime)}" style="display:block;max-width:100%;margin:8px 0" src="{source}">'
    words = f"File, {mime}" + (f", {size(len(data) * 3 // 4)}" if data else "")
    return f'<p style="margin:0 0 8px;opacity:.8">{escape(words)}</p>'


def _foot(out: MastraModelOutput) -> str:
    total = out.state.usage.total_tokens
    facts = [] if total is None else [f"{number(total)} tokens"]
    facts += [f"{value} {word}".strip() for value, word in used(out.state)]
    run = f' Run</span> <code style="{CODE}">{escape(one_line(out.run_id, 36))}</code>' if out.run_id else "</span>"
    words = escape(", ".join(facts))
    return f'<div style="border-top:{LINE};padding:5px 10px"><span style="opacity:.8">{words}.{run}</div>'
