"""One call of the model: its events become chunks, and what it said is gathered for the conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from nbmastra.chunks import Chunk
from nbmastra.runtime.chunks_out import ChunkWriter
from nbmastra.runtime.conversation import made_at, now_ms
from nbmastra.runtime.model import (
    FileMade,
    Finish,
    ModelEvent,
    ModelRequest,
    PartDelta,
    PartEnd,
    PartStart,
    ProviderToolResult,
    Raw,
    ResponseMetadata,
    SourceFound,
    ToolCalled,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Warned,
)
from nbmastra.usage import Usage

__all__ = ["ModelStep", "StepCall", "StepResult", "parse_args"]

_MARKS = re.compile(r"<\|[^|]*\|>\s*")

CallState = Literal["called", "approved", "waiting", "done", "failed", "denied", "left"]


@dataclass(slots=True)
class StepCall:
    """A tool call of a step. `args` is what the model wrote, parsed; None if it is no JSON. `text` has it as it is."""

    id: str
    name: str
    text: str
    args: Any
    kept: Any = None
    """The arguments as the conversation keeps them, repaired if need be."""
    provider_executed: bool = False
    metadata: dict[str, Any] | None = None
    """Provider's, or a sub-agent's; goes into the chunk of the result."""
    state: CallState = "called"
    result: Any = None
    suspended: dict[str, Any] | None = None
    """What a call that waits asks: kind, payload and schema, and what a sub-agent keeps."""
    resume_data: Any = None
    background: Any = None
    """What the model asked for as `_background`, where calls can run in the background."""
    nested: Any = None
    """The run of a sub-agent that waits within this call."""

    @property
    def wire_args(self) -> Any:
        """Arguments as chunks have them: `{}` where the model wrote no JSON, as Mastra does."""
        return {} if self.args is None else self.args


@dataclass(frozen=True, slots=True)
class StepResult:
    """A finished step, as `stop_when` and processors see it."""

    index: int
    text: str
    reasoning: str
    tool_calls: list[StepCall]
    usage: Usage
    finish_reason: str

    @property
    def tool_results(self) -> list[StepCall]:
        """The calls that have a result."""
        return [call for call in self.tool_calls if call.state == "done"]


@dataclass(slots=True)
class _Open:
    """A text or a thought that is being written; its pieces are joined once."""

    kind: str
    pieces: list[str] = field(default_factory=list[str])
    metadata: dict[str, Any] | None = None


class ModelStep:
    """A step while it runs."""

    def __init__(self, index: int, message_id: str, request: ModelRequest, writer: ChunkWriter) -> None:
        self.index = index
        self.message_id = message_id
        self.request = request
        self.started_ms = now_ms()
        self.calls: list[StepCall] = []
        self.usage = Usage()
        self.reason = ""
        """Why the model stopped; "" if it broke off."""
        self.continued = False
        """True if another step follows."""
        self.error: BaseException | None = None
        self.object: Any = None
        self.has_object = False
        self.rejection: Any = None
        """The Tripwire by which a processor rejected it."""
        self.warnings: list[dict[str, Any]] = []
        self.provider_metadata: dict[str, Any] | None = None
        self.response: dict[str, Any] = {}
        """What the provider calls its answer."""
        self.responded = False
        """True if the provider said that itself."""
        self.extra: dict[str, Any] = {}
        """Further keys for `step-finish`'s payload."""
        self.said: list[dict[str, Any]] | None = None
        """The parts that a processor made of what it said; None: as it said it."""
        self._order: list[_Open | dict[str, Any]] = []
        self._open: dict[tuple[str, str], _Open] = {}
        self._args: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        self._called: set[str] = set()
        self._writer = writer
        self._handlers: dict[type, Callable[[Any], list[Chunk]]] = {
            PartDelta: self._delta,
            PartStart: self._start,
            PartEnd: self._end,
            ToolInputStart: self._input_start,
            ToolInputDelta: self._input_delta,
            ToolInputEnd: self._input_end,
            ToolCalled: self._call,
            ProviderToolResult: self._provider_result,
            SourceFound: self._source,
            FileMade: self._file,
            Raw: self._raw,
            ResponseMetadata: self._metadata,
            Warned: self._warn,
            Finish: self._finish,
        }

    # --- what it says ----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(piece for part in self._texts("text") for piece in part.pieces)

    @property
    def reasoning(self) -> str:
        """Its thoughts so far."""
        return "".join(piece for part in self._texts("reasoning") for piece in part.pieces)

    def _texts(self, kind: str) -> list[_Open]:
        return [part for part in self._order if isinstance(part, _Open) and part.kind == kind]

    @property
    def spoke(self) -> bool:
        """True if it said anything at all."""
        return bool(self._order)

    def content(self) -> list[dict[str, Any]]:
        """What it said, as the parts of a model message."""
        if self.said is not None:
            return self.said
        note = made_at(now_ms())
        content: list[dict[str, Any]] = []
        for part in self._order:
            if isinstance(part, _Open):
                text = "".join(part.pieces)
                if text or part.metadata:
                    options = {**(part.metadata or {}), **note}
                    content.append({"type": part.kind, "text": text, "providerOptions": options})
            else:
                options = {**part.get("providerOptions", {}), **note}
                content.append({**part, "providerOptions": options})
        return content

    def result(self) -> StepResult:
        """The step, when it is over."""
        return StepResult(self.index, self.text, self.reasoning, list(self.calls), self.usage, self.reason)

    def restore_text(self, text: str, reasoning: str) -> None:
        """What it said, of a step that was kept while it waited."""
        for kind, said in (("reasoning", reasoning), ("text", text)):
            if said:
                self._order.append(_Open(kind, [said]))

    def replace_delta(self, kind: str, part_id: str, text: str) -> None:
        """A processor changed the delta that came last: so shall the text be that is kept."""
        part = self._open.get((kind, part_id))
        if part is not None and part.pieces:
            part.pieces[-1] = text

    @property
    def pending(self) -> list[StepCall]:
        """Its calls that are ours to run."""
        return [call for call in self.calls if not call.provider_executed]

    # --- events to chunks ------------------------------------------------------------------------------------------

    def take(self, event: ModelEvent) -> list[Chunk]:
        """The chunks that an event becomes."""
        return self._handlers[type(event)](event)

    def _delta(self, event: PartDelta) -> list[Chunk]:
        part = self._open.get((event.kind, event.id))
        if part is None:
            part = self._begin(event.kind, event.id, None)
        part.pieces.append(event.text)
        payload: dict[str, Any] = {"id": event.id, "text": event.text}
        if event.metadata is not None:
            part.metadata = event.metadata
            payload["providerMetadata"] = event.metadata
        elif not event.text:
            return []
        return [self._writer.write(f"{event.kind}-delta", payload)]

    def _begin(self, kind: str, part_id: str, metadata: dict[str, Any] | None) -> _Open:
        part = self._open[kind, part_id] = _Open(kind, metadata=metadata)
        self._order.append(part)
        return part

    def _start(self, event: PartStart) -> list[Chunk]:
        self._begin(event.kind, event.id, event.metadata)
        return [self._writer.write(f"{event.kind}-start", _payload({"id": event.id}, event.metadata))]

    def _end(self, event: PartEnd) -> list[Chunk]:
        part = self._open.pop((event.kind, event.id), None)
        if part is not None and event.metadata is not None:
            part.metadata = event.metadata
        payload = {"type": "text-end", "id": event.id} if event.kind == "text" else {"id": event.id}
        return [self._writer.write(f"{event.kind}-end", _payload(payload, event.metadata))]

    def _input_start(self, event: ToolInputStart) -> list[Chunk]:
        self._names[event.id] = event.tool_name
        self._args[event.id] = []
        payload: dict[str, Any] = {"toolCallId": event.id, "toolName": event.tool_name}
        if event.provider_executed:
            payload["providerExecuted"] = True
        return [self._writer.write("tool-call-input-streaming-start", payload)]

    def _input_delta(self, event: ToolInputDelta) -> list[Chunk]:
        if not event.text:
            return []
        self._args.setdefault(event.id, []).append(event.text)
        payload = {"argsTextDelta": event.text, "toolCallId": event.id, "toolName": self._names.get(event.id, "")}
        return [self._writer.write("tool-call-delta", payload)]

    def _input_end(self, event: ToolInputEnd) -> list[Chunk]:
        return [self._writer.write("tool-call-input-streaming-end", {"toolCallId": event.id})]

    def _call(self, event: ToolCalled) -> list[Chunk]:
        if event.id in self._called:  # a provider that repeats itself
            return []
        self._called.add(event.id)
        args, repaired = parse_args(event.args_text)
        call = StepCall(
            event.id, event.tool_name, event.args_text, args, repaired, event.provider_executed, event.metadata
        )
        self.calls.append(call)
        said: dict[str, Any] = {
            "type": "tool-call",
            "toolCallId": event.id,
            "toolName": event.tool_name,
            "input": repaired,
        }
        if event.metadata is not None:
            said["providerOptions"] = event.metadata
        if event.provider_executed:
            said["providerExecuted"] = True
        self._order.append(said)
        payload = {"toolCallId": event.id, "toolName": event.tool_name, "args": call.wire_args}
        if event.provider_executed:
            payload["providerExecuted"] = True
        return [self._writer.write("tool-call", _payload(payload, event.metadata))]

    def _provider_result(self, event: ProviderToolResult) -> list[Chunk]:
        for call in self.calls:
            if call.id == event.id:
                call.state, call.result = ("failed" if event.is_error else "done"), event.result
        kind = "error-json" if event.is_error else "json"
        self._order.append(
            {
                "type": "tool-result",
                "toolCallId": event.id,
                "toolName": event.tool_name,
                "output": {"type": kind, "value": event.result},
                "input": next((call.wire_args for call in self.calls if call.id == event.id), None),
            }
        )
        payload = {"toolCallId": event.id, "toolName": event.tool_name, "result": event.result}
        payload |= {"isError": event.is_error, "providerExecuted": True}
        return [self._writer.write("tool-result", payload)]

    def _source(self, event: SourceFound) -> list[Chunk]:
        return [self._writer.write("source", {"title": "", **event.payload})]

    def _file(self, event: FileMade) -> list[Chunk]:
        url = f"data:{event.media_type};base64,{event.data}"
        self._order.append({"type": "file", "mediaType": event.media_type, "data": url})
        payload = {"data": event.data, "base64": event.data, "mimeType": event.media_type}
        return [self._writer.write("file", payload)]

    def _raw(self, event: Raw) -> list[Chunk]:
        return [self._writer.write("raw", event.value)] if self.request.include_raw else []

    def _metadata(self, event: ResponseMetadata) -> list[Chunk]:
        stamp = event.timestamp
        told = {
            "id": event.id,
            "timestamp": _iso(stamp) if stamp is not None else None,
            "modelId": event.model_id,
            "headers": dict(event.headers) if event.headers is not None else None,
        }
        told = {key: value for key, value in told.items() if value is not None}
        self.response |= told
        self.responded = True
        # Servers keep it for step-finish; who asks for everything gets it when it comes.
        return [self._writer.write("response-metadata", told)] if self.request.include_raw else []

    def _warn(self, event: Warned) -> list[Chunk]:
        self.warnings.extend(event.warnings)
        return []

    def _finish(self, event: Finish) -> list[Chunk]:
        self.reason, self.usage, self.provider_metadata = event.reason, event.usage, event.metadata
        return []


def _payload(payload: dict[str, Any], metadata: dict[str, Any] | None) -> dict[str, Any]:
    return payload if metadata is None else {**payload, "providerMetadata": metadata}


def _iso(stamp: datetime) -> str:
    return stamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_args(text: str) -> tuple[Any, Any]:
    """Arguments from a model's text: as they are, None if that is no JSON; and as the conversation keeps them.

    For the latter, marks that models leave behind (`<|call|>`) are taken away, as Mastra does; what is no JSON even
    then is kept as {}.
    """
    if not text.strip():
        return {}, {}
    try:
        args = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        try:
            return None, json.loads(_MARKS.sub("", text).strip(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return None, {}
    return args, args


def _no_constant(text: str) -> Any:
    raise ValueError(text)
