"""Turns and the steps in them: plain state that only `RunState` changes; times in seconds since the stream's start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nbmastra.chunks import Chunk
from nbmastra.errors import printable
from nbmastra.fold.calls import ToolCall
from nbmastra.fold.parts import ObjectPart, Part, ReasoningPart, TextPart
from nbmastra.usage import Usage, sum_usage

__all__ = ["Step", "Turn"]

P = TypeVar("P", bound=Part)


@dataclass(eq=False, slots=True)
class Step:
    """One call of the model and the tool calls it made; `index` counts through the whole run."""

    index: int
    turn: int
    started_at: float
    run_id: str | None = None
    message_id: str | None = None
    ended_at: float | None = None
    first_token_at: float | None = None
    finish_reason: str | None = None
    is_continued: bool = False
    rejected: bool = False
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    provider: str | None = None
    warnings: list[Any] = field(default_factory=list[Any])
    parts: list[Part] = field(default_factory=list[Part])
    start_chunk: Chunk | None = None
    finish_chunk: Chunk | None = None
    open_text: dict[str, TextPart] = field(default_factory=dict[str, TextPart])
    open_reasoning: dict[str, ReasoningPart] = field(default_factory=dict[str, ReasoningPart])
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    object: ObjectPart | None = None

    @property
    def text(self) -> str:
        """The accepted text of the step; "" if a processor rejected it."""
        return "".join(part.text for part in self._texts("text"))

    @property
    def reasoning(self) -> str:
        """What the model thought in this step."""
        return "".join(part.text for part in self._texts("reasoning"))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The step's tool calls, in the order they began."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def duration_s(self) -> float | None:
        """Seconds from its start to its end; None while it runs."""
        return None if self.ended_at is None else self.ended_at - self.started_at

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from its start to its first delta; None if there was none."""
        return None if self.first_token_at is None else self.first_token_at - self.started_at

    @property
    def generated_s(self) -> float | None:
        """Seconds from its first delta to the last end of a text, a thought or a call's arguments; None if unknown."""
        ends = [
            end
            for part in self.parts
            if isinstance(part, TextPart | ToolCall)
            and (end := part.called_at if isinstance(part, ToolCall) else part.ended_at) is not None
        ]
        return max(ends) - self.first_token_at if ends and self.first_token_at is not None else None

    @property
    def output_tokens_per_s(self) -> float | None:
        """How fast the model wrote; None if tokens or time aren't known, or the time is too short to tell."""
        tokens, seconds = self.usage.output_tokens, self.generated_s
        return tokens / seconds if tokens is not None and seconds is not None and seconds > 0 else None

    def _texts(self, kind: str) -> Iterator[TextPart]:
        return (part for part in self.parts if isinstance(part, TextPart) and part.kind == kind and not part.rejected)

    def __repr__(self) -> str:
        return f"<Step {self.index} turn={self.turn} {printable(self.finish_reason or 'open')} {self.usage}>"


@dataclass(eq=False, slots=True)
class Turn:
    """One `start … finish`, or several that belong together (client tools); until idle, a stream holds several."""

    index: int
    started_at: float
    steps: list[Step] = field(default_factory=list[Step])
    run_ids: list[str] = field(default_factory=list[str])
    agent_id: str | None = None
    ended_at: float | None = None
    finish_reason: str | None = None
    finish_chunk: Chunk | None = None
    awaits_caller: bool = False
    response_metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    finished_usage: Usage = field(default_factory=Usage)
    counted_steps: int = 0

    @property
    def run_id(self) -> str | None:
        """Id of its first run."""
        return self.run_ids[0] if self.run_ids else None

    @property
    def usage(self) -> Usage:
        """Tokens of the whole turn, sub-agents not counted."""
        return self.finished_usage + sum_usage(step.usage for step in self.steps[self.counted_steps :])

    @property
    def beyond_steps(self) -> Usage:
        """What the turn's total has beyond its steps together, by field; below 0 where the steps told more."""
        return self.finished_usage.difference(sum_usage(step.usage for step in self.steps[: self.counted_steps]))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The turn's tool calls, in the order they began."""
        return self.parts(ToolCall)

    @property
    def text(self) -> str:
        """The answer: the accepted text after the last tool call."""
        pieces: list[str] = []
        for step in self.steps:
            for part in step.parts:
                if isinstance(part, ToolCall):
                    pieces.clear()
                elif part.kind == "text" and isinstance(part, TextPart) and not part.rejected:
                    pieces.extend(part.pieces)
        return "".join(pieces)

    @property
    def reasoning(self) -> str:
        """What the model thought in this turn."""
        return "".join(step.reasoning for step in self.steps)

    @property
    def object(self) -> ObjectPart | None:
        """The newest object that no processor rejected."""
        objects = [part for part in self.parts(ObjectPart) if not part.rejected]
        return objects[-1] if objects else None

    @property
    def warnings(self) -> list[Any]:
        """What the provider warned of."""
        return [warning for step in self.steps for warning in step.warnings]

    def parts(self, kind: type[P]) -> list[P]:
        """The turn's parts of one kind, in their order."""
        return [part for step in self.steps for part in step.parts if isinstance(part, kind)]

    @property
    def settled(self) -> bool:
        """True if it is over and no caller is expected to go on with it."""
        return self.ended_at is not None and not self.awaits_caller

    def __repr__(self) -> str:
        return f"<Turn {self.index} {printable(self.finish_reason or 'open')} {len(self.steps)} steps {self.usage}>"
