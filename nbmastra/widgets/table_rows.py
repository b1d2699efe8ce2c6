"""What a table shows of a call or a task: its cells as short text, and its details as safe HTML when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nbmastra.fold import ErrorInfo, RunState, Task, ToolCall, WorkflowStep
from nbmastra.fold.reading import as_dict
from nbmastra.partial_json import PartialJson, PartialJsonError
from nbmastra.widgets import json_tree
from nbmastra.widgets.cards import MAX_COPY, MAX_OUTPUTS, Facts, error_html
from nbmastra.widgets.format import as_json, gist, one_line, signature
from nbmastra.widgets.questions import ask_fields, asked_words

__all__ = [
    "WAITS",
    "Writing",
    "args_words",
    "copied",
    "details",
    "output_lines",
    "progress_of",
    "says",
    "tail_words",
]

WAITS = ("suspended", "needs-approval")
_PERCENT = ("percent", "pct", "percentage")
_DONE = ("done", "completed", "current", "step")
_WORDS = ("message", "text", "status", "label", "note")
_LINE = 500


def args_words(args: Any, *, open: bool = False) -> str:
    """Arguments as Python writes them: place="Rouen", days=2."""
    text = signature("", args, open=open, limit=200)[1]
    return text[1:] if open else text[1:-1]


class Writing:
    """Arguments while they are written: the text so far, and what is known of its value."""

    def __init__(self) -> None:
        self._json: PartialJson | None = PartialJson()
        self._read = 0

    def words(self, call: ToolCall) -> str:
        """As far as they are known."""
        pieces = call.args_pieces[self._read :]
        self._read += len(pieces)
        if self._json is not None and pieces:
            try:
                self._json.feed("".join(pieces))
            except PartialJsonError:
                self._json = None
        return args_words(self._json.value, open=True) if self._json is not None else one_line(call.args_text, 200)


def progress_of(value: Any) -> float | None:
    """How far a tool says that it is, in percent: {"percent": 40}, {"progress": 0.4}, {"done": 4, "total": 10}."""
    fields = as_dict(value)
    for name in _PERCENT:
        if (percent := _number(fields.get(name))) is not None:
            return _within(percent)
    if (part := _number(fields.get("progress"))) is not None:
        return _within(100 * part if part <= 1 else part)
    total = _number(fields.get("total"))
    done = next((n for name in _DONE if (n := _number(fields.get(name))) is not None), None)
    return _within(100 * done / total) if total and done is not None else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _within(percent: float) -> float | None:
    return round(min(max(percent, 0.0), 100.0), 1) if percent == percent else None


def tail_words(value: Any) -> str:
    """What a tool wrote last, in a line."""
    if isinstance(value, str):
        lines = value[-4 * _LINE :].strip().splitlines()
        return one_line(lines[-1]) if lines else ""
    fields = as_dict(value)
    words = next((fields[name] for name in _WORDS if isinstance(fields.get(name), str)), None)
    if words is None and fields and not fields.keys() - {*_PERCENT, *_DONE, "progress", "total"}:
        return ""  # the bar says it
    return one_line(words) if words is not None else gist(value)


def says(facts: Facts, asked: Any = None) -> dict[str, Any]:
    """The last column: result or error, what it waits for, or how far it is and what it wrote."""
    if facts.error is not None:
        return {"says": facts.outcome, "tone": "bad", "progress": None}
    if facts.status == "needs-approval":
        return {"says": "asks before it runs", "tone": "", "progress": None}
    if facts.status == "suspended":
        return {"says": _needs(asked), "tone": "", "progress": None}
    if facts.has_result and not facts.open:
        return {"says": facts.outcome, "tone": "", "progress": None}
    if facts.open:
        last = facts.outputs[-1] if facts.outputs else None
        words = tail_words(last) if last is not None else _heard(facts.nested)
        return {"says": words, "tone": "muted", "progress": progress_of(last)}
    return {"says": "; ".join(facts.remarks), "tone": "muted", "progress": None}


def _needs(asked: Any) -> str:
    words = asked_words(asked)
    return one_line(words) if words else f"needs {gist(asked)}" if asked else "waits for input"


def _heard(nested: list[RunState]) -> str:
    """The end of what a sub-agent says."""
    pieces = nested[-1].text_pieces[-30:] if nested else []
    return one_line("".join(pieces)[-200:])


def output_lines(outputs: list[Any]) -> str:
    """What a tool wrote, a line each; the oldest of very many are left out, and counted."""
    shown = outputs[-MAX_OUTPUTS:]
    lines = [value if isinstance(value, str) else as_json(value) for value in shown]
    text = "\n".join(one_line(part, _LINE) for line in lines for part in line[: 20 * _LINE].splitlines() or [""])
    left = len(outputs) - len(shown)
    return f"… {left:,} earlier\n{text}" if left else text


def details(
    part: ToolCall | Task | WorkflowStep | None,
    facts: Facts,
    *,
    times: Mapping[str, float | None],
    ids: Mapping[str, str | None],
    can: frozenset[str],
    schema: dict[str, Any] | None = None,
    asked: Any = None,
    whole: bool = False,
) -> dict[str, Any]:
    """What a row opens to; `times` in seconds. Fields ending in `_html` are safe."""
    name = one_line(facts.name, 80)
    found: dict[str, Any] = {
        "args_html": "" if facts.args in (None, {}) else json_tree.tree(facts.args),
        "times": [[label, round(value, 3)] for label, value in times.items() if value is not None],
        "ids": [[label, one_line(value, 80)] for label, value in ids.items() if value],
        "remarks": [one_line(remark, 500) for remark in facts.remarks],
    }
    if isinstance(part, ToolCall) and facts.status == "streaming":
        found["args_text"] = part.args_text[-5000:]
    if facts.error is not None:
        found["error_html"] = error_html(facts.error)
    elif facts.has_result:
        shown = json_tree.result(facts.result, f"Result of {name}", whole=whole)
        found |= {"result_html": shown.html, "result_words": shown.words, "cut": shown.cut and not whole}
    if facts.status in WAITS:
        found["ask"] = _question(facts, can, schema, asked)
    return found


def _question(facts: Facts, can: frozenset[str], schema: dict[str, Any] | None, asked: Any) -> dict[str, Any]:
    if facts.status == "needs-approval":
        able = {"approve", "decline"} <= can
        return {"kind": "approval", "words": "It has not run yet. It waits for your answer.", "able": able}
    data = asked
    if isinstance(data, dict):
        data = {key: value for key, value in cast("Any", data).items() if value != asked_words(asked)}
    more = json_tree.tree(data, label="What it says") if data and not isinstance(data, str) else ""
    form = ask_fields(schema)
    return {"kind": "data", "words": asked_words(asked), "more_html": more, "fields": form, "able": "resume" in can}


def copied(facts: Facts, what: str) -> str:
    """The whole of a part, as text to paste: args, result, output, error."""
    if what == "args":
        value: Any = facts.args
    elif what == "output":
        value = "\n".join(o if isinstance(o, str) else as_json(o) for o in facts.outputs)
    else:
        value = facts.error.message if isinstance(facts.error, ErrorInfo) else facts.result
    return (value if isinstance(value, str) else as_json(value, indent=2))[:MAX_COPY]
