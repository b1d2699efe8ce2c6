"""What a run gave, as plain values: the response, the total over all turns, the full output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from nbmastra.chunks import Chunk
from nbmastra.errors import ChunkError, printable
from nbmastra.fold import ErrorInfo, FilePart, RunState, SourcePart, Step, Task, ToolCall, ToolResult, Turn
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.prices import price
from nbmastra.usage import Usage

__all__ = [
    "FullOutput",
    "Response",
    "Total",
    "all_messages",
    "find_trace_id",
    "read_provider_metadata",
    "read_request",
    "read_response",
    "run_cost",
]


@dataclass(frozen=True, slots=True)
class Response:
    """The provider's last answer: its metadata, the messages it gave, in the model's and in the UI's format."""

    id: str | None = None
    timestamp: datetime | None = None
    model_id: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ui_messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __repr__(self) -> str:
        return f"<Response {printable(self.id or '')} {printable(self.model_id or '')} {len(self.messages)} messages>"


@dataclass(frozen=True, slots=True)
class Total:
    """All turns of a stream together, at this moment. `usage` leaves nested runs out, `grand_usage` counts them in."""

    state: RunState

    @property
    def text(self) -> str:
        """The answers of all turns, joined."""
        return self.state.text

    @property
    def reasoning(self) -> str:
        """What the model thought, in all turns."""
        return "".join(turn.reasoning for turn in self.state.turns)

    @property
    def usage(self) -> Usage:
        """Tokens over all turns, nested runs not counted."""
        return self.state.usage

    @property
    def grand_usage(self) -> Usage:
        """Tokens over all turns and all nested runs, each counted once."""
        return self.state.grand_usage

    @property
    def steps(self) -> list[Step]:
        """The steps of all turns."""
        return list(self.state.steps)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of all turns."""
        return list(self.state.tool_calls)

    @property
    def finish_reason(self) -> str | None:
        """Why the last turn stopped; None while it runs."""
        return self.state.turns[-1].finish_reason if self.state.turns else None

    @property
    def run_ids(self) -> list[str]:
        """Ids of all runs of the stream, in order."""
        return list(self.state.run_ids)

    @property
    def tasks(self) -> list[Task]:
        """Background tasks, in the order they were first heard of."""
        return list(self.state.tasks.values())

    @property
    def nested(self) -> list[RunState]:
        """Runs inside of tool calls (sub-agents), each with its own text, usage and calls."""
        return list(self.state.nested)

    def __repr__(self) -> str:
        state = self.state
        return (
            f"<Total {len(state.turns)} turns, {len(state.steps)} steps, {len(state.tool_calls)} calls, {self.usage}>"
        )


@dataclass(frozen=True, slots=True)
class FullOutput:
    """Everything a finished run gave, aggregates of its first turn; `error` and `status` tell how it ended."""

    text: str
    object: Any
    reasoning: str
    tool_calls: list[ToolCall]
    tool_results: list[ToolResult]
    usage: Usage
    total_usage: Usage
    finish_reason: str | None
    steps: list[Step]
    sources: list[SourcePart]
    files: list[FilePart]
    warnings: list[Any]
    response: Response
    request: dict[str, Any]
    run_id: str | None
    trace_id: str | None
    status: str
    status_reason: str
    error: ErrorInfo | None
    object_error: Exception | None
    used_fallback_value: bool
    tripwire: dict[str, Any] | None
    suspend_payload: Any

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return f"<FullOutput {self.status} {text!r} {len(self.tool_calls)} tool calls, {self.usage}>"


def read_response(turn: Turn) -> Response:
    """The response that a turn's `finish` chunk tells; where it is silent, what came before it."""
    payload = _payload(turn.finish_chunk)
    response = as_dict(payload.get("response"))
    facts = {**turn.response_metadata, **as_dict(payload.get("metadata")), **response}
    messages = as_list(response.get("messages")) or as_list(as_dict(payload.get("messages")).get("nonUser"))
    headers = {key: str(value) for key, value in as_dict(facts.get("headers")).items()}
    return Response(
        as_text(facts.get("id")) or None,
        _time(facts.get("timestamp")),
        as_text(facts.get("modelId")) or None,
        headers,
        [message for message in messages if isinstance(message, dict)],
        [message for message in as_list(response.get("uiMessages")) if isinstance(message, dict)],
    )


def read_request(turn: Turn | None) -> dict[str, Any]:
    """What the last step sent to the provider; {} if the server doesn't tell."""
    start = turn.steps[-1].start_chunk if turn is not None and turn.steps else None
    return as_dict(_payload(start).get("request"))


def read_provider_metadata(turn: Turn) -> dict[str, Any] | None:
    """The provider's metadata of the last step; None if there is none."""
    payload = _payload(turn.steps[-1].finish_chunk if turn.steps else None)
    metadata = payload.get("providerMetadata", as_dict(payload.get("metadata")).get("providerMetadata"))
    return as_dict(metadata) or None


def all_messages(finish: Chunk | None) -> list[dict[str, Any]]:
    """The conversation as the server knows it after the turn."""
    return as_list(as_dict(_payload(finish).get("messages")).get("all"))


def find_trace_id(finish: Chunk | None) -> str | None:
    """The trace of the run, which servers with observability note in their UI messages."""
    if finish is None or b'"traceId"' not in finish.body:
        return None
    return next((value for value in _values(_payload(finish), "traceId") if isinstance(value, str)), None)


def _values(value: Any, key: str) -> Iterator[Any]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            known = cast("dict[str, Any]", item)
            if key in known:
                yield known[key]
            stack.extend(known.values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))


def _payload(chunk: Chunk | None) -> dict[str, Any]:
    try:
        return as_dict(chunk.raw_payload()) if chunk is not None else {}
    except ChunkError:
        return {}


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def run_cost(state: RunState) -> float | None:
    """What the run cost in USD, as far as its tokens are its own; None if unknown."""
    provider = next((step.provider for step in reversed(state.steps) if step.provider), None)
    amount = price(state.usage, state.model, provider)
    return None if amount is None else float(amount)
