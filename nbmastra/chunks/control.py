"""The control family: where runs and steps begin and end, and why."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from nbmastra.chunks.goal import ScorerResult
from nbmastra.chunks.payload import Number, Payload, ProviderPayload, Timestamp
from nbmastra.chunks.reasons import finish_reason

__all__ = [
    "Abort",
    "Error",
    "Finish",
    "IsTaskComplete",
    "Raw",
    "ResponseMetadata",
    "Start",
    "StepFinish",
    "StepOutput",
    "StepResult",
    "StepStart",
    "Watch",
]


class Start(Payload):
    """A run begins, or a turn of a stream until idle."""

    id: str | None = None
    """Id of the agent."""
    message_id: str | None = None
    """Id of the answer's message."""


class StepStart(Payload):
    """A step begins: one call of the model."""

    message_id: str | None = None
    """Id of the answer's message."""
    request: dict[str, Any]
    """What the provider was asked (`body` and others); empty if the server keeps it to itself."""
    warnings: list[Any] | None = None
    """Settings that the provider ignores, and the like."""
    started_at: Number | None = None
    """When the provider was called, in milliseconds since 1970; absent if it wasn't."""
    input_messages: list[Any] | None = None
    """The prompt in the provider's form."""


class StepResult(Payload):
    """How a step or run ended."""

    reason: Annotated[str | None, BeforeValidator(finish_reason)] = None
    """The finish reason, in dashed spelling (see `finish_reason`)."""
    raw_reason: str | None = None
    """The provider's own word for it."""
    warnings: list[Any] | None = None
    """Settings that the provider ignores, and the like."""
    is_continued: bool | None = None
    """True if another step follows."""
    logprobs: Any = None
    """Log probabilities, if asked for."""


class StepOutput(Payload):
    """What a step or run gave."""

    text: str | None = None
    """Its text."""
    tool_calls: list[Any] | None = None
    """The tool calls it made."""
    usage: dict[str, Any] | None = None
    """Tokens: of this step on `step-finish`, of the whole turn on `finish`. As it came, flat or nested."""
    steps: list[Any] | None = None
    """All steps so far, with their content: most of the bytes of a long run."""
    object: Any = None
    """The structured output, if asked for."""


class StepFinish(ProviderPayload):
    """A step is complete."""

    id: str | None = None
    """Id of the provider's answer."""
    message_id: str | None = None
    """Id of the answer's message."""
    step_result: StepResult
    """Why it ended and whether another step follows."""
    output: StepOutput
    """What it gave, its tokens included."""
    metadata: dict[str, Any]
    """Request, model and provider data."""
    total_usage: dict[str, Any] | None = None
    """Tokens of all steps so far, if told."""
    response: dict[str, Any] | None = None
    """The provider's answer: id, model, time, headers."""
    messages: dict[str, Any] | None = None
    """The whole message history so far: `all`, `user`, `nonUser`."""


class Finish(ProviderPayload):
    """A run, or a turn, is complete."""

    message_id: str | None = None
    """Id of the answer's message."""
    step_result: StepResult
    """Why the last step ended."""
    output: StepOutput
    """What the turn gave, its tokens included."""
    metadata: dict[str, Any] | None = None
    """Request, model and provider data; absent on an aborted run."""
    messages: dict[str, Any] | None = None
    """The whole message history: `all`, `user`, `nonUser`; absent on an aborted run."""
    response: dict[str, Any] | None = None
    """The provider's last answer and the messages in several forms; absent where no step ran to its end."""


class Raw(Payload):
    """What the provider sent, as it was; only if asked for. Its keys are the provider's."""


class Error(Payload):
    """The stream failed."""

    error: Any
    """The error: text, or an object with some of `message`, `name`, `stack`, `statusCode`, `details`."""


class Abort(Payload):
    """The run was aborted, by its caller or because the caller left."""


class ResponseMetadata(Payload):
    """What the provider says about its answer; further keys are the provider's."""

    signature: str | None = None
    """Signature of the answer, if any."""
    id: str | None = None
    """Id of the provider's answer."""
    model_id: str | None = None
    """The model that answered."""
    timestamp: Timestamp | None = None
    """When it answered."""
    headers: dict[str, Any] | None = None
    """Headers of the answer."""


class Watch(Payload):
    """State of a run, for monitoring; further keys depend on what is watched."""

    workflow_state: dict[str, Any] | None = None
    """State of the workflow, inside one."""
    event_timestamp: Number | None = None
    """When it happened, in milliseconds since 1970."""


class IsTaskComplete(Payload):
    """The answer was scored; the run goes on until it passes."""

    iteration: int | None = None
    """Number of this scoring, from 1."""
    passed: bool | None = None
    """True if enough scorers passed."""
    results: list[ScorerResult] | None = None
    """What each scorer found."""
    duration: Number | None = None
    """Time of all scorers, in milliseconds."""
    timed_out: bool | None = None
    """True if the scorers took too long."""
    reason: str | None = None
    """Why, in the words of the scorer that decided."""
    max_iteration_reached: bool | None = None
    """True if no further try follows."""
    suppress_feedback: bool | None = None
    """True if the feedback isn't given to the model as a message."""
