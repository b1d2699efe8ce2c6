"""The parts of a run in their order: each kind has a small view that follows its part."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

from nbmastra.fold import (
    DataPart,
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
from nbmastra.fold.reading import as_dict
from nbmastra.output import ObjectSchema, Verdict
from nbmastra.widgets import json_tree
from nbmastra.widgets.cards import Card
from nbmastra.widgets.format import as_json, gist, number, one_line, size
from nbmastra.widgets.icons import CHEVRON, COPY, icon
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.object_view import ObjectView
from nbmastra.widgets.pages import MAX_SHOWN, Pages, is_settled
from nbmastra.widgets.prose import ReasoningView, TextView
from nbmastra.widgets.stage import Stage

__all__ = ["PartsView", "fact_words", "source_words"]

MAX_LIKE = 5
"""So many notices of one kind are shown; the rest is counted."""
_MANY = (ToolCall, TextPart, WorkflowStep, DataPart, FilePart)


class View(Protocol):
    """What follows one part."""

    def update(self) -> None:
        """Show what is new."""
        ...


class PartsView:
    """All parts of one run, or of a run within a call. `update` looks at those that changed, and only at those."""

    def __init__(
        self,
        stage: Stage,
        parent: str,
        state: RunState,
        who: str | None = None,
        cards: dict[str, Card] | None = None,
        schema: ObjectSchema | None = None,
    ) -> None:
        self._stage = stage
        self._parent = parent
        self._state = state
        self._who = who
        self._schema = schema
        self._waiting = cards or {}  # cards of the calls that this run goes on with, by id
        self._seen = 0
        self._views: dict[Part, View] = {}
        self._cards: dict[ToolCall | WorkflowStep, Card] = {}
        self._sources: str | None = None
        self._turn = 0
        self._notices: dict[str, _Notices] = {}
        self._pages = Pages(stage, parent, self._draw, self._drop)

    def update(self) -> None:
        """Show what is new."""
        changes = self._state.changes
        new = changes[max(0, self._seen - 1) :]  # the last one may have changed again
        self._seen = len(changes)
        parts = list(dict.fromkeys(new))
        for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
            if part in self._pages and is_settled(part):
                continue  # a line stands for it
            if left > MAX_SHOWN and self._may_pass(part):
                self._divide(part)
                self._pages.pass_by(part, self._sources)
                continue
            self._draw(part)
            step = self._step_object(part)
            if step is not None:
                self._draw(step)
        self._pages.fold()

    def _may_pass(self, part: Part) -> bool:
        """True for what need not be drawn when more than a page can show has come after it."""
        has_card = isinstance(part, ToolCall | WorkflowStep) and part.tool_call_id in self._waiting
        return part not in self._views and not has_card and isinstance(part, _MANY) and is_settled(part)

    def settle(self) -> None:
        """The run is over: show the last state of everything."""
        self.update()
        for view in self._views.values():
            view.update()

    def judge(self, verdict: Verdict) -> None:
        """Say of the finished object whether it fits its schema, and mark the places that don't."""
        view = self._views.get(self._state.object) if self._state.object is not None else None
        if isinstance(view, ObjectView):
            view.judge(verdict)

    def waiting_cards(self) -> dict[str, Card]:
        """The cards of calls that wait for an answer, by id, for the run that goes on."""
        return {call.tool_call_id: self._cards[call] for call in self._state.waiting.values() if call in self._cards}

    def _step_object(self, part: Part) -> Part | None:
        """An object is read from text: whatever touches one of them may change how the other is shown."""
        if not isinstance(part, ObjectPart) or part.step < 0:
            return None
        return next((p for p in self._state.steps[part.step].parts if type(p) is TextPart), None)

    def _draw(self, part: Part) -> None:
        view = self._views.get(part)
        if view is None:
            view = self._new_view(part)
            if view is None:
                return
            self._views[part] = view
        view.update()

    def _drop(self, part: Part) -> None:
        self._views.pop(part, None)
        if isinstance(part, ToolCall | WorkflowStep):
            self._cards.pop(part, None)

    def _new_view(self, part: Part) -> View | None:
        stage, state = self._stage, self._state
        if isinstance(part, Task):
            return self._task_view(part)
        if isinstance(part, Notice) and (part.tool_call_id is not None or part.code in ("approval", "suspension")):
            return None  # the call's card asks
        self._divide(part)
        if isinstance(part, Notice):
            return self._notice(part)
        if isinstance(part, SourcePart):
            return _Source(stage, self._source_list(), part)
        if isinstance(part, ToolCall | WorkflowStep):
            return self._card(part)
        parent = self._pages.place(part, self._sources)
        if isinstance(part, ReasoningPart):
            return ReasoningView(stage, parent, part, state)
        if isinstance(part, TextPart):
            return TextView(stage, parent, part, state)
        if isinstance(part, ObjectPart):
            return ObjectView(stage, parent, part, self._schema)
        if isinstance(part, FilePart):
            return _File(stage, parent, part)
        if isinstance(part, DataPart | GoalPart):
            return _Facts(stage, parent, part)
        return None

    def _divide(self, part: Part) -> None:
        """A line where a continuation begins."""
        if not 0 <= part.step < len(self._state.steps):
            return
        turn = self._state.steps[part.step].turn
        if turn > self._turn:
            self._turn = turn
            self._pages.divide()
            self._stage.doc.add(self._parent, "p", "nbm-step", text=f"Turn {turn + 1}", before=self._sources)

    def _card(self, part: ToolCall | WorkflowStep) -> View:
        card = self._waiting.pop(part.tool_call_id, None)
        if card is not None:
            card.follow(part)
        else:
            card = self._new_card(part)
        self._cards[part] = card
        return card

    def _new_card(self, part: ToolCall | Task | WorkflowStep) -> Card:
        who = one_line(self._who or self._state.agent_id or "The agent", 60)
        return Card(self._stage, self._pages.place(part, self._sources), part, who, self._nested)

    def _nested(self, parent: str, run: RunState) -> PartsView:
        return PartsView(self._stage, parent, run)

    def _task_view(self, task: Task) -> View | None:
        call = next((call for call in self._state.tool_calls if call.task_id == task.id), None)
        return None if call is not None else self._new_card(task)

    def _source_list(self) -> str:
        if self._sources is None:
            doc = self._stage.doc
            self._sources = doc.add(self._parent, "ul", "nbm-sources", attrs={"aria-label": "Sources"})
            doc.add(self._sources, "li", text="Sources")
        return self._sources

    def _notice(self, notice: Notice) -> View:
        kind = self._notices.get(notice.code)
        if kind is None:
            kind = self._notices[notice.code] = _Notices(self._stage, self._parent, self._state)
        if kind.adds:
            self._pages.divide()
        return kind.add(notice, self._sources)


class _Source:
    """A source, as a link that names its host; any other address is text."""

    def __init__(self, stage: Stage, parent: str, part: SourcePart) -> None:
        doc = stage.doc
        item = doc.add(parent, "li")
        words, url, host = source_words(part)
        if url:
            doc.add(item, "a", "nbm-link", text=words, attrs={"href": url})
        else:
            doc.add(item, "span", text=words)
        doc.add(item, "span", text=f" {host}" if host else "")

    def update(self) -> None:
        """A source never changes."""


def source_words(part: SourcePart) -> tuple[str, str, str]:
    """A source's title, its address ("" if it isn't one for the web), and its host."""
    try:
        parts = urlsplit(part.url)
        web = parts.scheme in ("http", "https") and not any(c <= " " or c == "\x7f" for c in part.url)
        host = parts.hostname or ""
    except ValueError:
        web, host = False, ""
    words = one_line(part.title or part.url or part.id or "untitled", 120)
    return (words, part.url, one_line(host, 80)) if web and host else (words, "", "")


class _File:
    """A file: a raster image is shown, anything else is named."""

    def __init__(self, stage: Stage, parent: str, part: FilePart) -> None:
        doc = stage.doc
        data = part.base64
        source = json_tree.image_source(None, part.mime_type, data)
        mime = one_line(part.mime_type, 60)
        if source is not None:
            doc.add(parent, "img", "nbm-image", attrs={"src": source, "alt": f"File, {mime}"})
        else:
            words = f"File, {mime}" + (f", {size(len(data) * 3 // 4)}" if data else "")
            doc.add(parent, "p", "nbm-muted nbm-line", text=words)

    def update(self) -> None:
        """A file never changes."""


class _Facts:
    """Data that a tool or workflow wrote, a goal's evaluation: its gist, and all of it when opened."""

    def __init__(self, stage: Stage, parent: str, part: DataPart | GoalPart) -> None:
        doc = self._doc = stage.doc
        self._part = part
        node = doc.add(parent, "details", "nbm-fold")
        summary = doc.add(node, "summary")
        doc.add(summary, "span", "nbm-mark", html=CHEVRON)
        self._name = doc.add(summary, "span", html="")
        self._gist = doc.add(summary, "span", "nbm-ellipsis", html="")
        self._tree = doc.add(node, "div", "nbm-fold__body", html="")

    def update(self) -> None:
        """Show what is new."""
        doc = self._doc
        name, words, value = fact_words(self._part)
        doc.set_text(self._name, name)
        doc.set_text(self._gist, words)
        doc.set_html(self._tree, json_tree.tree(value))


def fact_words(part: DataPart | GoalPart) -> tuple[str, str, Any]:
    """A datum or an evaluation as its name, its gist, and all of it."""
    if isinstance(part, GoalPart):
        verdict = "being judged" if part.pending else "passed" if part.passed else "not yet"
        iteration = f" {part.iteration}" if isinstance(part.iteration, int) else ""
        name = f"{'Goal' if part.type == 'goal' else 'Completion check'}{iteration}: {verdict}"
        payload = part.payload
        words = next((payload[k] for k in ("reason", "feedback") if isinstance(payload.get(k), str)), "")
        return name, one_line(words), payload
    signal = as_dict(part.data)
    if part.type == "data-signal" and signal:
        return one_line(f"Signal, {signal.get('tagName')}", 80), one_line(str(signal.get("contents") or "")), signal
    words = part.data if isinstance(part.data, str) else gist(part.data)
    return one_line(part.type, 80), one_line(words), part.data


class _Notices:
    """Notices of one kind: the first few, then their number."""

    def __init__(self, stage: Stage, parent: str, state: RunState) -> None:
        self._stage = stage
        self._parent = parent
        self._state = state
        self._shown = 0
        self._more: str | None = None

    @property
    def adds(self) -> bool:
        """True if the next one is shown, or begins the count of those that aren't."""
        return self._shown <= MAX_LIKE

    def add(self, notice: Notice, before: str | None) -> View:
        """Show one more."""
        self._shown += 1
        doc = self._stage.doc
        if self._shown > MAX_LIKE:
            if self._more is None:
                self._more = doc.add(self._parent, "p", "nbm-muted nbm-line", text="", before=before)
            doc.set_text(self._more, f"… and {number(self._shown - MAX_LIKE)} more: {one_line(notice.title)}")
        elif notice.code == "cancelled" and notice.level == "info":
            words = one_line(notice.text[:1].upper() + notice.text[1:]).rstrip(".")
            text = f"{words}. What came is kept."
            doc.add(self._parent, "p", "nbm-muted nbm-line", text=text, before=before)
        else:
            self._draw(notice, before)
        return _Done()

    def _draw(self, notice: Notice, before: str | None) -> None:
        doc = self._stage.doc
        cls = {"error": "nbm-notice nbm-notice--err", "warning": "nbm-notice nbm-notice--warn"}
        attrs = {"role": "alert"} if notice.level == "error" else {}
        node = doc.add(self._parent, "div", cls.get(notice.level, "nbm-notice"), attrs=attrs, before=before)
        look = {"error": "failed", "tripwire": "tripwire", "truncated": "truncated"}.get(notice.code, "info")
        doc.add(node, "span", "nbm-notice__icon", html=icon(look))
        doc.add(node, "p", "nbm-notice__title", text=one_line(notice.title))
        if notice.text:
            doc.add(node, "p", "nbm-notice__text", text=notice.text[:2000])
        details = self._details(notice)
        if details:
            fold = doc.add(node, "details", "nbm-fold")
            summary = doc.add(fold, "summary")
            doc.add(summary, "span", "nbm-mark", html=CHEVRON)
            doc.add(summary, "span", text="Details")
            doc.add(fold, "dl", "nbm-kv", html=_pairs(details))
        if notice.level == "error":
            actions = doc.add(node, "div", "nbm-actions")
            text = "\n".join([notice.title, notice.text, *(f"{name}: {value}" for name, value in details)])[:4000]
            attrs = {"type": "button", "data-nbm-copy": text}
            doc.add(actions, "button", "nbm-btn", html=f"{COPY}Copy error", attrs=attrs)

    def _details(self, notice: Notice) -> list[tuple[str, str]]:
        pairs: list[tuple[str, Any]] = []
        if notice.code == "error" and self._state.error is not None:
            error = self._state.error
            rest = {k: v for k, v in as_dict(error.details).items() if k not in ("message", "name", "stack")}
            pairs = [
                ("Name", error.name),
                ("HTTP status", error.status_code),
                ("Details", rest),
                ("Stack", error.stack),
            ]
        elif notice.code == "tripwire":
            blocked = self._state.tripwire or {}
            pairs = [("Processor", blocked.get("processorId")), ("Retry allowed", blocked.get("retry"))]
            pairs.append(("Metadata", blocked.get("metadata")))
        elif notice.detail is not None:
            pairs = [("Details", notice.detail)]
        if notice.event >= 0:
            pairs.append(("Chunk", notice.event))
        return [(name, _words(value)) for name, value in pairs if value not in (None, "", {}, [])]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value[:2000] if isinstance(value, str) else as_json(value)[:2000]


def _pairs(pairs: list[tuple[str, str]]) -> str:
    return "".join(f'<dt>{escape(name)}</dt><dd class="nbm-mono">{escape(value)}</dd>' for name, value in pairs)


class _Done:
    """A view whose part never changes."""

    def update(self) -> None:
        """Nothing to do."""
