"""`InlineRun`: a run drawn within a document that holds more than it, such as an answer in a chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.live import Act
from nbmastra.widgets.parts import PartsView
from nbmastra.widgets.stage import Answering, Frames, send_answer

__all__ = ["Host", "InlineRun"]


class Host(Frames, Protocol):
    """The widget that the run is drawn in."""

    doc: Document

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does; called on the engine's loop, inside of a frame."""
        ...


class InlineRun:
    """The parts of a run below a node, and of what goes on from it; the stage of these parts."""

    def __init__(self, host: Host, parent: str, out: MastraModelOutput) -> None:
        self.out = out
        self._host = host
        self._parent = parent
        self._parts = PartsView(self, parent, out.state, out.agent)
        self._settled = False

    def update(self) -> None:
        """Show what is new; on the engine's loop, inside of a frame."""
        while self.out.next is not None:
            cards = self._parts.waiting_cards()
            self._settle()
            self.out = self.out.next
            self._settled = False
            self._parts = PartsView(self, self._parent, self.out.state, self.out.agent, cards)
        if self.out.done:
            self._settle()
        else:
            self._parts.update()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._parts.settle()

    # --- the stage of the parts -------------------------------------------------------------------------------------

    @property
    def doc(self) -> Document:
        """The document of the whole widget."""
        return self._host.doc

    @property
    def now(self) -> float:
        """Seconds since the run's start."""
        return self.out.elapsed_s

    @property
    def over(self) -> bool:
        """True if the run is over."""
        return self.out.done

    @property
    def can(self) -> frozenset[str]:
        """What may be answered."""
        return self.out.control.can

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does."""
        self._host.on(node, act)

    def answer(
        self, call: ToolCall | WorkflowStep, answer: Answer, question: Answering, *, reason: str = "", data: Any = None
    ) -> None:
        """Send an answer to the run's source; the question is told what became of it."""
        send_answer(self._host, self.out, call, answer, question, reason=reason, data=data)
