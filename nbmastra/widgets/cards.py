"""Cards of what a run called: tool calls, background tasks, workflow steps, and the runs inside of them.

Folded, a card reads like Python: `get_forecast(place="Rouen", days=2) → 2 records`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbmastra.fold import ErrorInfo, RunState, Task, ToolCall, WorkflowStep
from nbmastra.fold.reading import as_dict
from nbmastra.partial_json import PartialJson, PartialJsonError
from nbmastra.widgets import json_tree
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import as_json, error_line, gist, number, one_line, seconds, signature
from nbmastra.widgets.icons import CHEVRON, COPY, look, status_html
from nbmastra.widgets.live import Act
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.questions import ApprovalQuestion, DataQuestion
from nbmastra.widgets.stage import Stage

__all__ = ["MAX_COPY", "MAX_OUTPUTS", "Card", "Facts", "error_html", "facts_of"]

MAX_OUTPUTS = 200
MAX_COPY = 1_000_000


@dataclass(slots=True)
class Facts:
    """What a card shows, whatever it is about."""

    name: str
    args: Any
    status: str
    started_at: float
    duration_s: float | None
    has_result: bool = False
    result: Any = None
    error: ErrorInfo | None = None
    tags: list[str] = field(default_factory=list[str])
    outputs: list[Any] = field(default_factory=list[Any])
    nested: list[RunState] = field(default_factory=list[RunState])
    remarks: list[str] = field(default_factory=list[str])

    @property
    def open(self) -> bool:
        """True while something may still come."""
        return self.status in ("streaming", "running", "pending", "suspended", "needs-approval", "waiting", "paused")

    @property
    def outcome(self) -> str:
        """The result or the error in a line."""
        if self.error is not None:
            return error_line(self.error)
        if not self.has_result:
            return ""
        answer = as_dict(self.result).get("text") if self.nested else None
        return gist(answer if isinstance(answer, str) else self.result)

    @property
    def asks(self) -> bool:
        """True if it waits for the user."""
        return self.status in ("suspended", "needs-approval")


def facts_of(part: ToolCall | Task | WorkflowStep) -> Facts:
    """What there is to show of a call, a task or a step."""
    if isinstance(part, Task):
        duration = None if part.ended_at is None else part.ended_at - (part.running_at or part.started_at)
        facts = Facts(part.tool_name or "task", part.args, part.status, part.started_at, duration)
        facts.has_result, facts.result, facts.error = part.status == "completed", part.result, part.error
        facts.tags, facts.outputs = ["background"], part.outputs
        return facts
    if isinstance(part, WorkflowStep):
        facts = Facts(part.name or part.id, part.args, part.status, part.started_at, part.duration_s)
        facts.has_result, facts.tags = part.status == "success", ["step"]
    else:
        facts = Facts(part.tool_name, part.args, part.status, part.called_at or part.started_at, part.duration_s)
        facts.has_result = part.has_result or part.result is not None
        facts.tags = ["agent"] if part.nested else []
        facts.tags += ["background"] if part.background else []
        if part.args_error:
            facts.remarks.append(f"The arguments were not valid JSON: {part.args_error}")
        if part.denial_reason:
            facts.remarks.append(f"Declined: {part.denial_reason}")
    facts.result, facts.error = part.result, part.error
    facts.outputs, facts.nested = part.outputs, part.nested
    return facts


class Drawn(Protocol):
    """The parts of a nested run, as they are shown."""

    def update(self) -> None:
        """Show what is new."""
        ...


class Card:
    """One card. `new_parts` draws a nested run: it is given by the view of parts, which cards are a part of."""

    def __init__(
        self,
        stage: Stage,
        parent: str,
        part: ToolCall | Task | WorkflowStep,
        who: str,
        new_parts: Callable[[str, RunState], Drawn],
    ) -> None:
        self._stage = stage
        self._part = part
        self._who = who
        self._new_parts = new_parts
        doc = self._doc = stage.doc
        self._node = doc.add(parent, "details", "nbm-call")
        summary = doc.add(self._node, "summary")
        doc.add(summary, "span", "nbm-mark", html=CHEVRON)
        self._mark = doc.add(summary, "span", "nbm-mark", html="")
        self._sig = doc.add(summary, "span", "nbm-call__sig nbm-ellipsis", html="")
        self._tags = doc.add(summary, "span", html="", attrs={"hidden": ""})
        self._out = doc.add(summary, "span", "nbm-call__out nbm-ellipsis", html="")
        end = doc.add(summary, "span", "nbm-call__end")
        self._word = doc.add(end, "span", "nbm-mark", html="")
        self._time = doc.add(end, "span", html="")
        self._body = doc.add(self._node, "div", "nbm-call__body")
        self._columns = doc.add(self._body)
        self._args = _Arguments(stage, self._columns)
        self._result: _Result | None = None
        self._outputs: _Outputs | None = None
        self._remarks: str | None = None
        self._runs: list[tuple[RunState, str, Drawn]] = []
        self._question: ApprovalQuestion | DataQuestion | None = None
        self._known_args: Any = None

    def follow(self, part: ToolCall | WorkflowStep) -> None:
        """The run that goes on tells of the same call: it keeps its card, and the arguments that aren't told again."""
        self._known_args = self._part.args
        self._part = part

    def update(self) -> None:
        """Show what is new."""
        doc, part = self._doc, self._part
        facts = facts_of(part)
        if not facts.args and self._known_args:
            facts.args = self._known_args
        self._args.draw(part, facts)
        self._summary(facts)
        self._draw_result(facts)
        if facts.outputs:
            self._outputs = self._outputs or _Outputs(doc, self._body)
            self._outputs.draw(facts.outputs)
        if facts.remarks and self._remarks is None:
            self._remarks = doc.add(self._body, "p", "nbm-notice__text nbm-muted", html="")
        if self._remarks is not None:
            doc.set_text(self._remarks, one_line("; ".join(facts.remarks), 500))
        self._draw_runs(facts)
        self._draw_question(facts)
        wanted = facts.asks or (facts.open and bool(facts.nested))
        doc.set_attr(self._node, "open", "" if wanted else None)

    def _summary(self, facts: Facts) -> None:
        doc = self._doc
        streaming = facts.status == "streaming"
        doc.set_html(self._mark, status_html(facts.status, word=False))
        name, rest = self._args.signature(facts)
        doc.set_html(self._sig, f"<b>{escape(name)}</b>{escape(rest)}")
        doc.set_attr(self._sig, "data-nbm-caret", "" if streaming else None)
        doc.set_attr(self._tags, "hidden", None if facts.tags else "")
        doc.set_html(self._tags, " ".join(f'<span class="nbm-tag">{tag}</span>' for tag in facts.tags))
        doc.set_text(self._out, facts.outcome)
        tone = look("needs-input" if facts.status == "suspended" and isinstance(self._part, ToolCall) else facts.status)
        if streaming:
            word = "Writing arguments"
        elif facts.status == "pending":
            word = "With its caller" if isinstance(self._part, ToolCall) else "Waits"
        elif facts.status in ("success", "completed"):
            word = ""
        else:
            word = tone.word
        cls = "nbm-status" if tone.tone == "running" else f"nbm-status nbm-status--{tone.tone}"
        doc.set_html(self._word, f'<span class="{cls}">{word}</span>' if word else "")
        if facts.duration_s is not None:
            doc.since(self._time, None)
            doc.set_text(self._time, seconds(facts.duration_s))
        elif facts.status != "running" or self._stage.over:
            doc.since(self._time, None)
            doc.set_text(self._time, "")
        elif not doc.ticks(self._time):
            doc.since(self._time, max(0.0, self._stage.now - facts.started_at))

    def _draw_result(self, facts: Facts) -> None:
        # A nested run shows its own answer, so the call's arguments and result would say everything twice.
        self._doc.set_attr(self._columns, "hidden", "" if facts.nested and facts.error is None else None)
        if facts.error is None and (facts.nested or not facts.has_result):
            return
        if self._result is None:
            self._result = _Result(self._stage, self._columns)
            self._doc.set_cls(self._columns, "nbm-call__two")
            self._args.head()
        self._result.draw(facts)

    def _draw_runs(self, facts: Facts) -> None:
        doc = self._doc
        for run in facts.nested[len(self._runs) :]:
            nest = doc.add(self._body, "div", "nbm-call__nest")
            numbers = doc.add(nest, "dl", "nbm-metrics", html="")
            self._runs.append((run, numbers, self._new_parts(nest, run)))
        for run, numbers, parts in self._runs:
            doc.set_html(numbers, _run_numbers(run))
            parts.update()

    def _draw_question(self, facts: Facts) -> None:
        part = self._part
        if self._question is not None and not facts.asks:
            self._question.remove()
            self._question = None
        elif self._question is None and facts.asks and not isinstance(part, Task):
            if facts.status == "needs-approval":
                self._question = ApprovalQuestion(self._stage, self._body, part, self._who)
            else:
                self._question = DataQuestion(self._stage, self._body, part)


class _Arguments:
    """The arguments: raw text while they are written, a tree when they are complete."""

    def __init__(self, stage: Stage, parent: str) -> None:
        doc = self._doc = stage.doc
        self._column = doc.add(parent)
        self._head = doc.add(self._column, "p", "nbm-h", text="Arguments", attrs={"hidden": ""})
        self._node = doc.add(self._column, html="")
        self._json: PartialJson | None = PartialJson()
        self._read = 0
        self._drawn: Any = None

    def head(self) -> None:
        """There is a second column now."""
        self._doc.set_attr(self._head, "hidden", None)

    def signature(self, facts: Facts) -> tuple[str, str]:
        """Name and arguments, as far as they are known."""
        if facts.status != "streaming":
            return signature(facts.name, facts.args)
        return signature(facts.name, self._json.value if self._json is not None else None, open=True)

    def draw(self, part: ToolCall | Task | WorkflowStep, facts: Facts) -> None:
        """Follow the text while it comes; then show the value."""
        if isinstance(part, ToolCall) and facts.status == "streaming":
            text = "".join(part.args_pieces[self._read :])
            if text and self._read == 0:
                self._doc.set_html(self._node, '<pre class="nbm-pre">')
            self._read = len(part.args_pieces)
            if text:
                self._doc.patch(self._node, self._doc.end(self._node), escape(text))
            if self._json is not None and text:
                try:
                    self._json.feed(text)
                except PartialJsonError:
                    self._json = None
        elif facts.args is not self._drawn or self._read:
            self._drawn, self._read = facts.args, 0
            self._doc.set_html(self._node, "" if facts.args is None else json_tree.tree(facts.args))


class _Result:
    """What came back, with copying and, where it was cut, all of it."""

    def __init__(self, stage: Stage, parent: str) -> None:
        doc = self._doc = stage.doc
        self._column = doc.add(parent)
        head = doc.add(self._column, "div", "nbm-h")
        self._words = doc.add(head, "span", html="")
        self._copy = doc.add(head, "button", "nbm-btn nbm-btn--plain", html=f"{COPY}Copy", attrs={"type": "button"})
        self._node = doc.add(self._column, html="")
        self._more: str | None = None
        self._stage = stage
        self._facts: Facts | None = None
        self._whole = False
        stage.on(self._copy, self._send_copy)

    def draw(self, facts: Facts) -> None:
        """Show the newest result."""
        doc, before = self._doc, self._facts
        if before is not None and (before.result, before.error) == (facts.result, facts.error):
            return
        self._facts = facts
        name = one_line(facts.name, 80)
        what = "error" if facts.error is not None else "result"
        for attribute, value in (
            ("aria-label", f"Copy the {what} of {name}"),
            ("data-nbm-act", "copy"),
            ("data-nbm-repeat", ""),
            ("data-nbm-copy", None),
        ):
            doc.set_attr(self._copy, attribute, value)
        self._show(facts)

    def _show(self, facts: Facts) -> None:
        doc = self._doc
        if facts.error is not None:
            doc.set_text(self._words, "Error")
            doc.set_html(self._node, error_html(facts.error))
            return
        shown = json_tree.result(facts.result, f"Result of {one_line(facts.name, 80)}", whole=self._whole)
        doc.set_text(self._words, f"Result, {shown.words}" if shown.words else "Result")
        doc.set_html(self._node, shown.html)
        if shown.cut and not self._whole and self._more is None:
            self._more = doc.add(self._column, "p", "nbm-more")
            attrs = {"type": "button", "data-nbm-act": "all", "aria-label": f"Show all of {one_line(facts.name, 80)}"}
            button = doc.add(self._more, "button", "nbm-btn nbm-btn--plain", text="Show all", attrs=attrs)
            self._stage.on(button, self._show_all)

    def _show_all(self, _act: Act) -> None:
        self._whole = True
        if self._more is not None:
            self._doc.remove(self._more)
            self._more = None
        if self._facts is not None:
            self._show(self._facts)

    def _send_copy(self, _act: Act) -> None:
        # Sent when asked for: most results are never copied, and then cost nothing twice.
        facts = self._facts
        if facts is not None:
            text = facts.error.message if facts.error is not None else facts.result
            whole = text if isinstance(text, str) else as_json(text, indent=2)
            self._doc.set_attr(self._copy, "data-nbm-copy", whole[:MAX_COPY])


class _Outputs:
    """What a tool wrote while it ran: a line each."""

    def __init__(self, doc: Document, parent: str) -> None:
        self._doc = doc
        self._node = doc.add(parent, "pre", "nbm-pre", html="", attrs={"aria-label": "Output"})
        self._count = 0
        self._lines = 0  # where they end

    def draw(self, outputs: list[Any]) -> None:
        """Add the new lines."""
        for value in outputs[self._count : MAX_OUTPUTS]:
            text = value if isinstance(value, str) else as_json(value)
            self._doc.patch(self._node, self._doc.end(self._node), escape(one_line(text, 500)) + "\n")
            self._lines = self._doc.end(self._node)
        if len(outputs) > MAX_OUTPUTS:
            self._doc.patch(self._node, self._lines, f"… {number(len(outputs) - MAX_OUTPUTS)} more")
        self._count = len(outputs)


def error_html(error: ErrorInfo) -> str:
    """What an error says, and what else it tells."""
    html = f'<pre class="nbm-pre">{escape(error.message[:5000])}</pre>'
    details = {k: v for k, v in as_dict(error.details).items() if k not in ("message", "name") and v not in (None, "")}
    return html + json_tree.tree(details, label="Details") if details else html


def _run_numbers(run: RunState) -> str:
    numbers: list[tuple[str, str]] = []
    total = run.usage.total_tokens
    if total is not None:
        numbers.append((number(total), "tokens"))
    if run.first_token_at is not None and run.times:
        numbers.append((seconds(run.first_token_at - run.times[0]), "to first token"))
    if run.tool_calls:
        numbers.append((number(len(run.tool_calls)), "tool call" if len(run.tool_calls) == 1 else "tool calls"))
    return "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for value, words in numbers)
