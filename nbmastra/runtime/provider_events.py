"""The events of a pydantic-ai stream as ours."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai.messages import (
    Citation,
    FilePart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    WebCitationSource,
)
from pydantic_ai.usage import RequestUsage

from nbmastra.runtime.model import (
    FileMade,
    Finish,
    ModelEvent,
    PartDelta,
    PartEnd,
    PartStart,
    ProviderToolResult,
    SourceFound,
    ToolCalled,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
)
from nbmastra.runtime.provider_metadata import Note, jsonable
from nbmastra.usage import Usage

__all__ = ["EventMapper"]

_REASONS = {"content_filter": "content-filter", "tool_call": "tool-calls"}


@dataclass(slots=True)
class _Writing:
    """A part that is being written; `id` is ours for texts, the provider's for calls."""

    kind: Literal["text", "reasoning", "call"]
    id: str
    times: int = 0
    """How often it was opened: a text that goes on after its end is opened again, under another id."""
    is_open: bool = True
    args: str = ""
    provider: str | None = None


class EventMapper:
    """Gives our events for pydantic-ai's, one stream long."""

    def __init__(self) -> None:
        self._parts: dict[int, _Writing] = {}
        self._called = False
        self._late = False
        self._sources = 0
        self._kinds: dict[type, Callable[[Any], Iterator[ModelEvent]]] = {
            PartDeltaEvent: self._delta,
            PartStartEvent: self._start,
            PartEndEvent: self._end,
        }

    def events(self, event: object) -> Iterator[ModelEvent]:
        """What an event means; nothing for those that only matter to pydantic-ai's own agents."""
        take = self._kinds.get(type(event))
        return iter(()) if take is None else take(event)

    def _start(self, event: PartStartEvent) -> Iterator[ModelEvent]:
        part, index = event.part, event.index
        known = self._parts.get(index)
        if isinstance(part, TextPart | ThinkingPart):
            if known is None:
                kind = "text" if isinstance(part, TextPart) else "reasoning"
                writing = self._parts[index] = _Writing(kind, f"{kind}-{index}", provider=part.provider_name)
                yield PartStart(kind, writing.id, Note.of(part).to_wire())
                if part.content:
                    yield PartDelta(kind, writing.id, part.content)
        elif isinstance(part, ToolCallPart | NativeToolCallPart):
            if known is None:  # else the provider's own tool is told of again, with its arguments
                self._parts[index] = _Writing("call", part.tool_call_id)
                ours = isinstance(part, ToolCallPart)
                yield ToolInputStart(part.tool_call_id, part.tool_name, provider_executed=not ours)
                if isinstance(part.args, str):
                    yield from self._more_args(self._parts[index], part.args)
        elif known is None:
            self._parts[index] = _Writing("call", "", is_open=False)
            yield from self._whole(part)

    def _whole(self, part: ModelResponsePart) -> Iterator[ModelEvent]:
        """Parts that come at once."""
        if isinstance(part, FilePart):
            yield FileMade(part.content.media_type, base64.b64encode(part.content.data).decode())
        elif isinstance(part, NativeToolReturnPart):
            failed = part.outcome in ("failed", "denied")
            yield ProviderToolResult(part.tool_call_id, part.tool_name, jsonable(part.content), is_error=failed)

    def _delta(self, event: PartDeltaEvent) -> Iterator[ModelEvent]:
        delta, writing = event.delta, self._parts.get(event.index)
        if writing is None:
            return
        if isinstance(delta, TextPartDelta | ThinkingPartDelta):
            kind = "text" if isinstance(delta, TextPartDelta) else "reasoning"
            if delta.content_delta:
                if not writing.is_open:  # some providers go on with a text after a call
                    times = writing.times + 1
                    writing = self._parts[event.index] = _Writing(kind, f"{kind}-{event.index}-{times}", times)
                    yield PartStart(kind, writing.id)
                yield PartDelta(kind, writing.id, delta.content_delta)
            if isinstance(delta, TextPartDelta):
                yield from self._citations(delta.citations_delta)
            elif delta.signature_delta and writing.is_open:
                note = Note(delta.provider_name or writing.provider, None, delta.signature_delta)
                yield PartDelta("reasoning", writing.id, "", note.to_wire())
        elif isinstance(delta, ToolCallPartDelta) and isinstance(delta.args_delta, str):
            yield from self._more_args(writing, delta.args_delta)

    def _more_args(self, writing: _Writing, text: str) -> Iterator[ModelEvent]:
        if text and writing.is_open:
            writing.args += text
            yield ToolInputDelta(writing.id, text)

    def _end(self, event: PartEndEvent) -> Iterator[ModelEvent]:
        # pydantic-ai ends a part when the next one begins. Calls whose arguments are written by turns go on then.
        yield from self._close(event.index, event.part, final=False)

    def _close(self, index: int, part: ModelResponsePart, *, final: bool) -> Iterator[ModelEvent]:
        writing = self._parts.get(index)
        if writing is None or not writing.is_open:
            return
        if isinstance(part, ToolCallPart | NativeToolCallPart):
            # One whose arguments are still to come waits for the end, and so do those after it, to keep their order.
            self._late = self._late or not (isinstance(part.args, dict) or _is_complete(writing.args))
            if self._late and not final:
                return
            writing.is_open = False
            args = part.args_as_json_str() if isinstance(part.args, dict) else writing.args
            if isinstance(part.args, dict) and not writing.args:
                yield ToolInputDelta(writing.id, args)
            yield ToolInputEnd(writing.id)
            ours = isinstance(part, ToolCallPart)
            self._called = self._called or ours
            metadata = Note.of(part).to_wire()
            yield ToolCalled(part.tool_call_id, part.tool_name, args or "{}", not ours, metadata)
        elif isinstance(part, TextPart | ThinkingPart) and writing.kind != "call":
            writing.is_open = False
            yield PartEnd(writing.kind, writing.id, Note.of(part).to_wire())

    def _citations(self, citations: list[Citation] | None) -> Iterator[ModelEvent]:
        for citation in citations or []:
            for source in citation.sources:
                payload: dict[str, Any] = {"id": f"source-{self._sources}", "title": source.title or ""}
                if isinstance(source, WebCitationSource):
                    payload |= {"sourceType": "url", "url": source.url}
                else:
                    payload |= {"sourceType": "document", "mediaType": "text/plain"}
                self._sources += 1
                yield SourceFound(payload)

    def finish(self, response: ModelResponse) -> Iterator[ModelEvent]:
        """The end: what is still open is closed, and why the model stopped."""
        for index, part in enumerate(response.parts):
            yield from self._close(index, part, final=True)
        reason = response.finish_reason
        if self._called and reason in (None, "stop"):  # OpenAI's responses say "completed" after calls too
            reason = "tool_call"
        details = jsonable(response.provider_details or {})
        metadata = {response.provider_name: details} if details and response.provider_name else None
        yield Finish(_REASONS.get(reason, reason) if reason else "unknown", usage_of(response.usage), metadata)


def _is_complete(args: str) -> bool:
    try:
        return isinstance(json.loads(args), dict)
    except ValueError:
        return False


def usage_of(usage: RequestUsage) -> Usage:
    """A request's usage; what the provider didn't report is missing."""
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return Usage()
    details = usage.details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens + usage.output_tokens,
        _reported(usage.output_reasoning_tokens, details, "reasoning_tokens"),
        _reported(usage.cache_read_tokens, details, "cached_tokens", "cache_read_input_tokens"),
        _reported(usage.cache_write_tokens, details, "cache_creation_input_tokens"),
    )


def _reported(count: int, details: dict[str, int], *names: str) -> int | None:
    # pydantic-ai writes 0 for what wasn't said; the provider's own words stand in the details.
    return count if count or any(name in details for name in names) else None
