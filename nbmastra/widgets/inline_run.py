"""`InlineRun`: a run drawn within a document that holds more than it, such as an answer in a chat."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from nbmastra.engine import get_engine
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.live import Act
from nbmastra.widgets.parts import PartsView
from nbmastra.widgets.stage import Answering

__all__ = ["Host", "InlineRun"]


class Host(Protocol):
    """The widget that the run is drawn in."""

    doc: Document

    def frame(self) -> AbstractContextManager[Document]:
        """Change the document; sent as one message at the end."""
        ...

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
        get_engine().start(self._answer, call.tool_call_id, answer, question, reason, data)

    async def _answer(self, call_id: str, answer: Answer, question: Answering, reason: str, data: Any) -> None:
        out = self.out
        try:
            if answer == "approve":
                await out.approve(call_id)
            elif answer == "decline":
                await out.decline(call_id, reason=reason or None)
            else:
                await out.resume(data, tool_call_id=call_id)
        except Exception as error:  # whatever the source says: nothing ends silently, and one may try again
            with self._host.frame():
                question.failed(str(error) or type(error).__name__)
        else:
            with self._host.frame():
                question.sent("Answered; the run goes on.")
