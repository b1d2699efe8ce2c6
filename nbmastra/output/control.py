"""What a view or a user can do to a run, given by the source that the run comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from nbmastra.errors import ControlError

if TYPE_CHECKING:
    from nbmastra.fold import ToolCall, WorkflowStep
    from nbmastra.output.model_output import MastraModelOutput

__all__ = ["Answer", "Control", "NoControl"]

Answer = Literal["approve", "decline", "resume"]


class Control(Protocol):
    """The source's side: a server, a local agent. Called on the engine's loop."""

    can: frozenset[str]
    """What it can do: approve, decline, resume, observe."""

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        """Answer a question of a suspended run; gives the output that goes on with it."""
        ...


class NoControl:
    """A recording or a plain list of chunks: nothing can be asked of it."""

    can: frozenset[str] = frozenset()

    async def answer(
        self,
        out: MastraModelOutput,
        call: ToolCall | WorkflowStep,
        answer: Answer,
        *,
        reason: str | None = None,
        data: Any = None,
    ) -> MastraModelOutput:
        """Always raises ControlError."""
        raise ControlError(f"this run can't {answer} anything: its source is only a list of chunks")
