"""What the parts of a view share: the document, the run's clock, and what the user's acts and answers do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from nbmastra.engine import get_engine
from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer, MastraModelOutput
from nbmastra.widgets.document import Document
from nbmastra.widgets.live import Act

__all__ = ["Answering", "Stage", "give_answer", "send_answer"]


class Answering(Protocol):
    """The question that an answer came from: it is told what became of it."""

    def sent(self, words: str) -> None:
        """The answer was accepted; the run goes on."""
        ...

    def failed(self, message: str) -> None:
        """The answer wasn't accepted: one may try again."""
        ...


class Stage(Protocol):
    """Where parts are drawn. Everything here is used on the engine's loop, inside of a frame."""

    @property
    def doc(self) -> Document: ...

    @property
    def now(self) -> float:
        """Seconds since the run's start, on the clock of the parts' times."""
        ...

    @property
    def over(self) -> bool:
        """True if nothing comes any more, so that no time needs to pass on the screen."""
        ...

    @property
    def can(self) -> frozenset[str]:
        """What may be answered: approve, decline, resume."""
        ...

    def on(self, node: str, act: Callable[[Act], None]) -> None:
        """What a control does; called on the engine's loop, inside of a frame."""
        ...

    def answer(
        self,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        question: Answering,
        *,
        reason: str = "",
        data: object = None,
    ) -> None:
        """Send an answer to the run's source."""
        ...


class Frames(Protocol):
    """What can be drawn on."""

    def frame(self) -> AbstractContextManager[Document]:
        """Change the document; sent as one message at the end."""
        ...


async def give_answer(
    out: MastraModelOutput, call: ToolCall | WorkflowStep, answer: Answer, *, reason: str = "", data: object = None
) -> None:
    """Approve, decline or resume a call that waits. Raises what the run's source says."""
    if answer == "approve":
        await out.approve(call.tool_call_id)
    elif answer == "decline":
        await out.decline(call.tool_call_id, reason=reason or None)
    else:
        await out.resume(data, tool_call_id=call.tool_call_id)


def send_answer(
    view: Frames,
    out: MastraModelOutput,
    call: ToolCall | WorkflowStep,
    answer: Answer,
    question: Answering,
    *,
    reason: str = "",
    data: object = None,
) -> None:
    """Give an answer without waiting for it; the question is told what became of it."""

    async def send() -> None:
        try:
            await give_answer(out, call, answer, reason=reason, data=data)
        except Exception as error:  # whatever the source says: nothing ends silently, and one may try again
            with view.frame():
                question.failed(str(error) or type(error).__name__)
        else:
            with view.frame():
                question.sent("Answered; the run goes on.")

    get_engine().start(send)
