"""Text and reasoning that grow in the document, block by block."""

from __future__ import annotations

from nbmastra.fold import ReasoningPart, RunState, TextPart
from nbmastra.widgets.document import Document
from nbmastra.widgets.format import number, seconds
from nbmastra.widgets.icons import CHEVRON
from nbmastra.widgets.markdown import MarkdownStream
from nbmastra.widgets.stage import Stage

__all__ = ["Prose", "ReasoningView", "TextView"]


class Prose:
    """Markdown that is still being written, in one node; each of its blocks is a node of its own."""

    def __init__(self, doc: Document, node: str, part: TextPart) -> None:
        self._doc = doc
        self._node = node
        self._part = part
        self._stream = MarkdownStream()
        self._read = 0
        self._closed = False
        self._blocks: list[str] = []

    def draw(self) -> None:
        """Add what is new."""
        if self._closed:
            return
        pieces = self._part.pieces
        self._stream.feed("".join(pieces[self._read :]))
        self._read = len(pieces)
        if self._part.ended_at is not None:
            self._closed = True
            self._stream.close()
        for patch in self._stream.patches():
            while len(self._blocks) <= patch.block:
                self._blocks.append(self._doc.add(self._node))
            self._doc.patch(self._blocks[patch.block], patch.keep, patch.add)


class TextView:
    """A text of the answer. Where it is only the JSON of an object that is shown, it is hidden."""

    def __init__(self, stage: Stage, parent: str, part: TextPart, state: RunState) -> None:
        self._doc = stage.doc
        self._part = part
        self._state = state
        self._node = self._doc.add(parent, "div", "nbm-md", attrs={"hidden": ""})
        self._prose = Prose(self._doc, self._node, part)
        self._rejected = False

    def update(self) -> None:
        """Show what is new."""
        doc, part = self._doc, self._part
        if part.rejected:
            self._reject()
            return
        step = self._state.steps[part.step]
        shown = bool(part.pieces) and (step.object is None or step.object.value is None)
        if shown:
            self._prose.draw()
        doc.set_attr(self._node, "hidden", None if shown else "")
        doc.set_attr(self._node, "data-nbm-caret", "" if shown and part.ended_at is None else None)

    def _reject(self) -> None:
        if self._rejected or not self._part.pieces:
            return
        self._rejected = True
        doc = self._doc
        for block in doc.kids(self._node):
            doc.remove(block)
        doc.add(self._node, "p", "nbm-muted", text="The text that stood here was rejected by a processor.")
        doc.set_attr(self._node, "hidden", None)
        doc.set_attr(self._node, "data-nbm-caret", None)


class ReasoningView:
    """What the model thought, folded."""

    def __init__(self, stage: Stage, parent: str, part: ReasoningPart, state: RunState) -> None:
        doc = self._doc = stage.doc
        self._part = part
        self._state = state
        self._node = doc.add(parent, "details", "nbm-fold", attrs={"hidden": ""})
        summary = doc.add(self._node, "summary")
        doc.add(summary, "span", "nbm-mark", html=CHEVRON)
        doc.add(summary, "span", text="Reasoning")
        self._info = doc.add(summary, "span")
        if part.ended_at is None:
            doc.since(self._info, stage.now - part.started_at)
        self._prose = Prose(doc, doc.add(self._node, "div", "nbm-fold__body nbm-md"), part)

    def update(self) -> None:
        """Show what is new; the tokens are known when the step is over."""
        doc, part = self._doc, self._part
        self._prose.draw()
        doc.set_attr(self._node, "hidden", None if part.pieces or part.redacted else "")
        if part.ended_at is not None:
            doc.since(self._info, None)
            doc.set_text(self._info, ", ".join(self._facts(part.ended_at)))

    def _facts(self, ended_at: float) -> list[str]:
        facts = [seconds(ended_at - self._part.started_at)]
        if self._part.redacted:
            facts.append("withheld by the provider")
        if 0 <= self._part.step < len(self._state.steps):
            step = self._state.steps[self._part.step]
            tokens = step.usage.reasoning_tokens
            if tokens and sum(part.kind == "reasoning" for part in step.parts) == 1:
                facts.append(f"{number(tokens)} tokens")
        return facts
