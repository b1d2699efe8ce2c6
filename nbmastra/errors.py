"""Every exception that nbmastra raises.

NbMastraError
├── ChunkError          a chunk's payload doesn't fit its type (found when touched)
├── DecodeError         bytes that are no event stream
│   └── EventTooLarge   one event above the cap
├── PartialJsonError    text that is not JSON (also a ValueError)
├── RunError            a run didn't give what was asked of it; `.partial` holds what it gave
│   ├── MastraStreamError   the run failed: message, name, status_code, details
│   ├── StreamTruncated     the connection ended before the run did
│   ├── RunCancelled        asked for the object of a cancelled run
│   ├── RunSuspended        asked for the object of a run that waits for somebody
│   ├── RunTripwire         asked for the object of a blocked run
│   └── ObjectError         the object is missing or doesn't fit its schema: path
├── ControlError        an action that this source or state doesn't allow
│   ├── AlreadyResumed      approved, declined or resumed a second time
│   └── NotSuspended        nothing waits for an answer
├── ClientError         the server couldn't be asked: url
│   ├── ServerUnreachable   no connection
│   ├── ServerTimeout       a connection, but no answer in time
│   ├── NotMastra           something answered that isn't a Mastra server
│   ├── BadRequest          400: issues
│   ├── Unauthorized        401, 403
│   ├── NotFound            404
│   │   ├── AgentNotFound   no such agent: available
│   │   └── RunNotFound     no such run
│   ├── Conflict            409
│   └── ServerError         5xx and all other answers: status_code
├── ModelError          a model's provider refused or broke off: status_code, retry_after_s, code
├── StoreError          the database of memory and suspended runs couldn't be used
├── ToolInputError      arguments that a tool can't take: problems, raw
├── ToolResultError     a tool gave something that can't be JSON
├── ToolServerError     an MCP server can't be used, or says that a call failed
├── ToolAborted         raised within a tool that asked whether to stop
├── PriceUnknown        a cost was asked of a model without a known price
├── RecordingError      a file that is no recording, or of a newer version
└── SettingsError       a bad option or value: what to write instead
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = [
    "AgentNotFound",
    "AlreadyResumed",
    "BadRequest",
    "ChunkError",
    "ClientError",
    "Conflict",
    "ControlError",
    "DecodeError",
    "EventTooLarge",
    "MastraStreamError",
    "ModelError",
    "NbMastraError",
    "NotFound",
    "NotMastra",
    "NotSuspended",
    "ObjectError",
    "PartialJsonError",
    "PriceUnknown",
    "RecordingError",
    "RunCancelled",
    "RunError",
    "RunNotFound",
    "RunSuspended",
    "RunTripwire",
    "ServerError",
    "ServerTimeout",
    "ServerUnreachable",
    "SettingsError",
    "StoreError",
    "StreamTruncated",
    "ToolAborted",
    "ToolInputError",
    "ToolResultError",
    "ToolServerError",
    "Unauthorized",
    "printable",
]


def printable(text: str, limit: int = 80) -> str:
    """What a model or server wrote, for a repr: one line, nothing that a terminal obeys, at most `limit` characters."""
    shown = "".join(char if char.isprintable() else "\ufffd" for char in text[:limit])
    return shown if len(text) <= limit else f"{shown[:-1]}…"


class NbMastraError(Exception):
    """Base of all errors of this package; shown in a notebook as one line."""

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this: a user's mistake or a server's answer needs no tour through our internals.
        # What a model or server wrote must not reach a terminal as a command.
        text = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in str(self))
        return [f"{type(self).__name__}: {text}"]


class ChunkError(NbMastraError, ValueError):
    """A chunk whose payload doesn't fit its type; `event` counts from 0, None if unknown."""

    def __init__(self, message: str, *, chunk_type: str = "", path: str = "", event: int | None = None) -> None:
        where = f" in event {event}" if event is not None else ""
        at = f", {path}" if path else ""
        head = f"{chunk_type or 'chunk'}{at}{where}"
        super().__init__(f"{head}: {message}"[:300])
        self.chunk_type = chunk_type
        self.path = path
        self.event = event


class DecodeError(NbMastraError, ValueError):
    """The bytes are not an event stream."""


class EventTooLarge(DecodeError):
    """One event is larger than the cap; `limit` in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event is larger than {limit:,} bytes; raise max_event_bytes if it is to be trusted")
        self.limit = limit


class PartialJsonError(NbMastraError, ValueError):
    """Not JSON; `position` counts characters from the start of the whole text."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position}")
        self.position = position


class RunError(NbMastraError):
    """A run didn't give what was asked; `partial` is the part that was accepted before (same type as the result)."""

    def __init__(self, message: str, *, partial: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.partial = partial


class MastraStreamError(RunError):
    """The run failed: the error chunk's `message`, `name`, `status_code` (HTTP, of the provider) and `details`."""

    def __init__(
        self,
        message: str,
        *,
        name: str = "Error",
        status_code: int | None = None,
        details: Any = None,
        partial: Any = None,
    ) -> None:
        super().__init__(message, partial=partial)
        self.name = name
        self.status_code = status_code
        self.details = details

    def __str__(self) -> str:
        status = f" (HTTP {self.status_code})" if self.status_code and str(self.status_code) not in self.message else ""
        return f"{self.message}{status}"


class StreamTruncated(RunError):
    """The connection ended before the run did."""


class RunCancelled(RunError):
    """The run was cancelled before it gave an object."""


class RunSuspended(RunError):
    """The run waits for an approval or for data and has given no object yet."""


class RunTripwire(RunError):
    """A processor blocked the run."""


class ObjectError(RunError):
    """The object is missing or doesn't fit its schema; `path` like `legs[1].km`."""

    def __init__(self, message: str, *, path: str = "", partial: Any = None) -> None:
        super().__init__(message, partial=partial)
        self.path = path


class ControlError(NbMastraError):
    """An action that this source, or the run's state, doesn't allow."""


class AlreadyResumed(ControlError):
    """The call was answered before: approving, declining or resuming works once."""


class NotSuspended(ControlError):
    """Nothing in this run waits for an answer."""


class ClientError(NbMastraError):
    """The server couldn't be asked, or refused; `url` without secrets."""

    def __init__(self, message: str, *, url: str = "", status_code: int | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.status_code = status_code


class ServerUnreachable(ClientError):
    """No connection to the server."""


class ServerTimeout(ClientError):
    """Connected, but no answer in time."""


class NotMastra(ClientError):
    """Something answered that isn't a Mastra server (HTML, another content type)."""


class BadRequest(ClientError):
    """400; `issues` is Mastra's list of `{"field", "message"}`."""

    def __init__(self, message: str, *, url: str = "", issues: Sequence[Any] = ()) -> None:
        super().__init__(message, url=url, status_code=400)
        self.issues = list(issues)


class Unauthorized(ClientError):
    """401 or 403: the token is missing, wrong or not enough."""


class NotFound(ClientError):
    """404."""


class AgentNotFound(NotFound):
    """No such agent; `available` are the ids of those that exist."""

    def __init__(self, message: str, *, url: str = "", available: Sequence[str] = ()) -> None:
        super().__init__(message, url=url, status_code=404)
        self.available = list(available)


class RunNotFound(NotFound):
    """No such run, or one that the server doesn't keep."""


class Conflict(ClientError):
    """409: for example a workflow run that is finished."""


class ServerError(ClientError):
    """5xx, or an answer that no other class describes."""


class ModelError(NbMastraError):
    """A model's provider refused or broke off; `status_code` of its answer, `retry_after_s` if it asks to wait."""

    def __init__(
        self,
        message: str,
        *,
        status_code: int | None = None,
        retry_after_s: float | None = None,
        code: str | None = None,
        provider: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.retry_after_s = retry_after_s
        self.code = code
        self.provider = provider


class StoreError(NbMastraError):
    """The database of memory and suspended runs can't be used: unreachable, locked, damaged or of a newer version."""


class ToolInputError(NbMastraError, ValueError):
    """Arguments that a tool can't take; the tool didn't run.

    `problems`: path and message of each. `raw`: the text that was no JSON, else None.
    """

    def __init__(
        self,
        tool_name: str,
        problems: Sequence[tuple[Sequence[str | int], str]],
        *,
        arguments: Any = None,
        raw: str | None = None,
    ) -> None:
        shown = [f"- {'.'.join(map(str, path)) or 'arguments'}: {message[:300]}" for path, message in problems[:20]]
        if len(problems) > len(shown):
            shown.append(f"- … and {len(problems) - len(shown)} more")
        super().__init__(f"the arguments don't fit the tool {tool_name}:\n" + "\n".join(shown))
        self.tool_name = tool_name
        self.problems = [(tuple(path), message) for path, message in problems]
        self.arguments = arguments
        self.raw = raw

    def to_result(self) -> dict[str, Any]:
        """What the model is told instead of a result, in the shape of Mastra's own validation error.

        `error`, `message` and `validationErrors`; `rawArguments`: a text that is no JSON.
        """
        got = self.raw if self.raw is not None else _as_text(self.arguments)
        shown = got if len(got) <= 2000 else f"{got[:2000]}… ({len(got):,} characters)"
        message = f"{self}\nThe tool was not run. Call it again with corrected arguments.\nIt was given: {shown}"
        result = {"error": True, "message": message, "validationErrors": _by_field(self.problems)}
        return result if self.raw is None else {**result, "rawArguments": self.raw}


def _as_text(arguments: Any) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "…"


def _by_field(problems: Sequence[tuple[Sequence[str | int], str]]) -> dict[str, Any]:
    root: dict[str, Any] = {"errors": [], "fields": {}}
    for path, message in problems:
        node = root
        for key in path:
            node = node["fields"].setdefault(str(key), {"errors": [], "fields": {}})
        node["errors"].append(message)
    return root


class ToolResultError(NbMastraError, TypeError):
    """A tool gave, or wrote, something that can't be JSON."""


class ToolServerError(NbMastraError):
    """A server of tools (MCP) can't be used, or says that a call failed."""


class ToolAborted(NbMastraError):
    """The run is being stopped: raised by `context.abort.raise_if_aborted()`."""


class PriceUnknown(NbMastraError):
    """No known price for a model: give prices of your own, or leave the cost budget out."""


class RecordingError(NbMastraError):
    """A file that is no recording, or one of a newer version."""


class SettingsError(NbMastraError, ValueError):
    """A bad option or value; the message says what to write instead."""
