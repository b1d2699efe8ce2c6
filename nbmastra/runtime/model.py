"""What the agent loop asks of a language model, and what it gets back: a request, and events as they come.

The events are the ones a Mastra server knows from its own models, so that each becomes one chunk without guessing.
`ScriptedModel` (`nbmastra.testing`) and the adapter to pydantic-ai (`nbmastra.runtime.providers`) implement it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from nbmastra.usage import Usage

__all__ = [
    "FileMade",
    "Finish",
    "Message",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "PartDelta",
    "PartEnd",
    "PartStart",
    "ProviderToolResult",
    "Raw",
    "ResponseMetadata",
    "SourceFound",
    "ToolCalled",
    "ToolChoice",
    "ToolInputDelta",
    "ToolInputEnd",
    "ToolInputStart",
    "ToolSpec",
    "Warned",
]

Message = dict[str, Any]
"""A model message as the wire has it: `role` (system, user, assistant, tool) and `content`, text or a list of parts.

Parts: `text`, `image` and `file` (`data` or `url`, `mediaType`), `reasoning` (`text`, `providerOptions`), `tool-call`
(`toolCallId`, `toolName`, `input`), `tool-result` (`toolCallId`, `toolName`, `output` of `type` and `value`).
"""

ToolChoice = Literal["auto", "none", "required"] | str
"""How tools may be used; any other text names the one tool that must be."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model."""

    messages: Sequence[Message]
    """The conversation, system messages first."""
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings by their snake_case names: temperature, max_output_tokens, top_p, seed, stop_sequences …"""
    response_schema: dict[str, Any] | None = None
    """JSON Schema that the answer must fit, by the provider's own structured output; None for text."""
    include_raw: bool = False
    """True: give the provider's own events as `Raw` too."""
    rejected: int = 0
    """How many answers of this run processors have rejected; they are no part of the conversation."""


@dataclass(frozen=True, slots=True)
class Warned:
    """The provider leaves something of the request out; each warning as the wire has it, with `type` and `message`."""

    warnings: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ResponseMetadata:
    """What the provider calls its answer."""

    id: str | None = None
    model_id: str | None = None
    timestamp: datetime | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PartStart:
    """Text or reasoning begins; `id` is unique among the parts that are open."""

    kind: Literal["text", "reasoning"]
    id: str
    metadata: dict[str, Any] | None = None
    """The provider's own data by its name, such as `{"anthropic": {"signature": …}}`; so in all events."""


@dataclass(frozen=True, slots=True)
class PartDelta:
    """More of it."""

    kind: Literal["text", "reasoning"]
    id: str
    text: str
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PartEnd:
    """It is complete."""

    kind: Literal["text", "reasoning"]
    id: str
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolInputStart:
    """The model begins to write a call's arguments."""

    id: str
    tool_name: str
    provider_executed: bool = False


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of the arguments' JSON text."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputEnd:
    """The arguments are complete."""

    id: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool is called; `args_text` as the model wrote it, which may be no JSON."""

    id: str
    tool_name: str
    args_text: str
    provider_executed: bool = False
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ProviderToolResult:
    """What a tool gave that the provider ran itself."""

    id: str
    tool_name: str
    result: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SourceFound:
    """A source that the answer rests on; `payload` as the wire has it: `id`, `sourceType`, `url`, `title` …"""

    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileMade:
    """A file that the model made; `data` is base64."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class Raw:
    """An event as the provider sent it; any JSON."""

    value: Any


@dataclass(frozen=True, slots=True)
class Finish:
    """The model's answer is complete. `reason`: stop, length, tool-calls, content-filter, error, other or unknown."""

    reason: str
    usage: Usage = field(default_factory=Usage)
    metadata: dict[str, Any] | None = None


ModelEvent = (
    Warned
    | ResponseMetadata
    | PartStart
    | PartDelta
    | PartEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputEnd
    | ToolCalled
    | ProviderToolResult
    | SourceFound
    | FileMade
    | Raw
    | Finish
)


@runtime_checkable
class Model(Protocol):
    """A language model. One object may serve many calls at once."""

    @property
    def model_id(self) -> str:
        """The model's name, as the provider has it."""
        ...

    @property
    def provider(self) -> str:
        """The provider's name."""
        ...

    @property
    def native_schema(self) -> bool:
        """True if the provider itself keeps an answer to a JSON Schema (`ModelRequest.response_schema`)."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the model; the events end with `Finish`.

        Closing the iterator closes the connection. Raises ModelError for what the provider refuses or breaks off.
        """
        ...
