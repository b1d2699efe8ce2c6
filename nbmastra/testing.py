"""For tests of agents and notebooks: a model that plays a script, without a key or a network.

from nbmastra.testing import ScriptedModel, call, say, think, usage

model = ScriptedModel([
    [think("I need the weather."), say("Let me look."), call("weather", city="Paris")],
    [say("It is 21 °C."), usage(30, 12)],
])
out = await Agent("helper", model=model, tools=[weather]).stream("Weather in Paris?")
model.requests[1].messages          # what the model was sent the second time
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from nbmastra.errors import SettingsError
from nbmastra.fold.reading import as_dict, as_text
from nbmastra.recording.varied import varied_runs
from nbmastra.runtime.model import (
    FileMade,
    Finish,
    Message,
    ModelEvent,
    ModelRequest,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseMetadata,
    SourceFound,
    ToolCalled,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Warned,
)
from nbmastra.usage import Usage

__all__ = [
    "Part",
    "ScriptedModel",
    "call",
    "call_raw",
    "fail",
    "file",
    "finish",
    "say",
    "source",
    "think",
    "usage",
    "varied_runs",
    "warn",
]


@dataclass(frozen=True, slots=True)
class _Said:
    kind: Literal["text", "reasoning"]
    text: str
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    args_text: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class _Fail:
    error: Exception


@dataclass(frozen=True, slots=True)
class _Reason:
    reason: str


@dataclass(frozen=True, slots=True)
class _Count:
    usage: Usage


@dataclass(frozen=True, slots=True)
class _Give:
    event: ModelEvent


Part = _Said | _Call | _Fail | _Reason | _Count | _Give
"""A part of a script; made by the functions below."""
Turn = Sequence[Part] | Callable[[ModelRequest], Sequence[Part]]
"""What one call of the model gives: parts, or a function of the request that gives them."""


def say(text: str) -> Part:
    """Text, in pieces of 6 characters."""
    return _Said("text", text)


def think(text: str, *, metadata: dict[str, Any] | None = None) -> Part:
    """A thought, in pieces of 9 characters; metadata: the provider's, such as a signature."""
    return _Said("reasoning", text, metadata)


def call(name: str, id: str | None = None, /, **args: Any) -> Part:
    """A tool call, its arguments in pieces of 7 characters; id: one of your own, instead of c1, c2 …"""
    return _Call(name, json.dumps(args, ensure_ascii=False, separators=(",", ":")), id)


def call_raw(name: str, args_text: str, id: str | None = None, /) -> Part:
    """A tool call whose arguments are this text, be it JSON or not."""
    return _Call(name, args_text, id)


def source(url: str, title: str = "", *, id: str = "s0") -> Part:
    """A web page that the answer rests on."""
    return _Give(SourceFound({"id": id, "sourceType": "url", "url": url, "title": title}))


def file(media_type: str, data: str) -> Part:
    """A file that the model makes; data: base64."""
    return _Give(FileMade(media_type, data))


def warn(message: str) -> Part:
    """A warning of the provider."""
    return _Give(Warned([{"type": "other", "message": message}]))


def usage(input_tokens: int, output_tokens: int, **more: int) -> Part:
    """The call's tokens; more: total_tokens, reasoning_tokens, cached_input_tokens …; without it they are missing."""
    more.setdefault("total_tokens", input_tokens + output_tokens)
    return _Count(Usage(input_tokens, output_tokens, **more))


def finish(reason: str) -> Part:
    """Why the model stops, in place of stop or tool-calls."""
    return _Reason(reason)


def fail(error: Exception) -> Part:
    """The provider breaks off here."""
    return _Fail(error)


@dataclass(slots=True)
class _Told:
    """What a call gives at its end."""

    reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    fixed: bool = False


class ScriptedModel:
    """Plays `turns[k]` on the k-th call after the last user message; the last turn repeats.

    Calls whose answer a processor rejected count too, and what a goal's judge says is no user's message.
    delay_s: seconds before each piece. piece_chars: characters of a piece, for all kinds. `requests` has what it was
    asked, `closed` how many of its answers were given up before their end.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        delay_s: float = 0,
        piece_chars: int | None = None,
        model_id: str = "scripted-1",
        provider: str = "scripted",
        native_schema: bool = False,
    ) -> None:
        if isinstance(turns, str) or not turns:
            raise SettingsError("ScriptedModel takes a list of turns, each a list of parts: [[say('Hello')]]")
        for index, turn in enumerate(turns):
            if not callable(turn) and (
                not isinstance(turn, list | tuple)
                or not all(isinstance(part, Part) for part in cast("list[Any]", turn))
            ):
                raise SettingsError(f"turns[{index}] is a list of say(…), call(…) and the like, or a function of them")
        self.turns = list(turns)
        self.delay_s = delay_s
        self.piece_chars = piece_chars
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self._model_id, self._provider, self._native_schema = model_id, provider, native_schema

    @property
    def model_id(self) -> str:
        """Its name."""
        return self._model_id

    @property
    def provider(self) -> str:
        """Its provider's name."""
        return self._provider

    @property
    def native_schema(self) -> bool:
        """True if it says that it keeps to a schema by itself."""
        return self._native_schema

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Play the turn that is due."""
        self.requests.append(request)
        number = _calls_since_user(request) + request.rejected
        turn = self.turns[min(number, len(self.turns) - 1)]
        parts = turn(request) if callable(turn) else turn
        complete = False
        try:
            for event in self._events(parts, number):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                yield event
            complete = True
        finally:
            self.closed += not complete

    def _events(self, parts: Sequence[Part], number: int) -> Iterator[ModelEvent]:
        told = _Told()
        counts = {"text": 0, "reasoning": 0, "call": 0}
        if parts and isinstance(parts[0], _Fail):
            raise parts[0].error
        warnings = [
            warning
            for part in parts
            if isinstance(part, _Give) and isinstance(part.event, Warned)
            for warning in part.event.warnings
        ]
        yield Warned(warnings)
        yield ResponseMetadata(f"resp-{number}", self._model_id, datetime.fromtimestamp(0, UTC))
        for part in parts:
            match part:
                case _Said(kind):
                    yield from self._said(part, f"{kind[0]}{counts[kind]}")
                    counts[kind] += 1
                case _Call():
                    counts["call"] += 1
                    yield from self._called(part, part.id or f"c{counts['call']}")
                    if not told.fixed:
                        told.reason = "tool-calls"
                case _Fail(error):
                    raise error
                case _Reason(reason):
                    told.reason, told.fixed = reason, True
                case _Count(counted):
                    told.usage = counted
                case _Give(event):
                    if not isinstance(event, Warned):
                        yield event
        yield Finish(told.reason, told.usage)

    def _said(self, part: _Said, part_id: str) -> Iterator[ModelEvent]:
        yield PartStart(part.kind, part_id, part.metadata)
        for piece in self._pieces(part.text, 6 if part.kind == "text" else 9):
            yield PartDelta(part.kind, part_id, piece)
        yield PartEnd(part.kind, part_id, part.metadata)

    def _called(self, part: _Call, call_id: str) -> Iterator[ModelEvent]:
        yield ToolInputStart(call_id, part.name)
        for piece in self._pieces(part.args_text, 7):
            yield ToolInputDelta(call_id, piece)
        yield ToolInputEnd(call_id)
        yield ToolCalled(call_id, part.name, part.args_text)

    def _pieces(self, text: str, chars: int) -> Iterator[str]:
        size = self.piece_chars or chars
        return (text[start : start + size] for start in range(0, len(text), size))

    def __repr__(self) -> str:
        return f"<ScriptedModel {len(self.turns)} turns, asked {len(self.requests)} times>"


def _calls_since_user(request: ModelRequest) -> int:
    count = 0
    for message in reversed(request.messages):
        if message["role"] == "user" and not _is_aside(message):
            break
        count += message["role"] == "assistant"
    return count


def _is_aside(message: Message) -> bool:
    """What the runtime says of a goal, as a user would."""
    text = as_text(as_dict(next(iter(message["content"]), None)).get("text"))
    return text.startswith(("<system-reminder", "<current-objective"))
