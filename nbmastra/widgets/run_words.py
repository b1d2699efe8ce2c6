"""A run in a few words, where it stands among others: what it says, and its numbers."""

from __future__ import annotations

import html
import re

from nbmastra.fold import RunState, TextPart
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.comparison import Cell
from nbmastra.widgets.format import number, one_line
from nbmastra.widgets.header import tokens_per_second
from nbmastra.widgets.markdown import render_markdown

__all__ = ["facts_words", "said_words", "text_of"]

_TAG = re.compile(r"<[^>]*>")
_CHARS = 600
_BAD = ("failed", "truncated", "tripwire")
_PLACES = ("first", "second", "third")


def text_of(state: RunState) -> str:
    """The beginning of what it says last, without marks of markdown, on one line."""
    part = next((p for p in reversed(state.parts) if type(p) is TextPart and p.pieces and not p.rejected), None)
    if not isinstance(part, TextPart):
        return ""
    text = ""
    for piece in part.pieces:
        text += piece
        if len(text) > _CHARS:
            break
    return one_line(html.unescape(_TAG.sub(" ", render_markdown(text[:_CHARS]))), _CHARS)


def said_words(cell: Cell) -> tuple[str, bool]:
    """What stands in a cell, and whether it tells of a failure."""
    out = cell.out
    if out is None:
        return one_line(cell.problem, 300), bool(cell.problem)
    if cell.status in _BAD:
        return one_line(out.status_reason, 300), True
    asked = asked_words(out)
    return asked or text_of(out.state), False


def asked_words(out: MastraModelOutput) -> str:
    """What a run that waits asks for; "" if it doesn't."""
    if not out.done or not out.waiting:
        return ""
    call = out.waiting[0]
    what = "asks for your approval" if call.status == "needs-approval" else "waits for your input"
    return f"{one_line(call.tool_name, 60)} {what}"


def facts_words(cell: Cell, place: int | None = None) -> str:
    """The numbers of a cell: tokens, cost, calls; while it runs its speed; in the queue its place."""
    out = cell.out
    if out is None:
        if cell.status != "queued":
            return ""
        return "queued" if place is None or place >= len(_PLACES) else f"queued, {_PLACES[place]}"
    running = cell.status == "running"
    if running and not out.state.first_token_at and not out.state.parts:
        return "waiting for the first token"
    facts: list[str] = []
    if cell.tokens is not None:
        facts.append(f"{number(cell.tokens)} tokens")
    speed = tokens_per_second(out.state) if running else None
    if speed is not None:
        facts.append(f"{speed:.0f} tokens/s")
    if cell.cost_usd is not None:
        facts.append(f"${cell.cost_usd:.4f}")
    calls = len({call.tool_call_id for one in cell.chain for call in one.state.tool_calls})
    if calls:
        facts.append(f"{number(calls)} call{'' if calls == 1 else 's'}")
    return ", ".join(facts)
