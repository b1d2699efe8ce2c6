"""What the parts of a view share: the document, the run's clock, and what the user's acts do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nbmastra.fold import ToolCall, WorkflowStep
from nbmastra.output import Answer
from nbmastra.widgets.document import Document
from nbmastra.widgets.live import Act

__all__ = ["Answering", "Stage"]


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
