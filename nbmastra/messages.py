"""Conversation messages: what a user says to an agent, as wire dicts; what a history holds, as plain records."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from pydantic import BaseModel

from nbmastra.errors import SettingsError

__all__ = ["ROLES", "MessageRecord", "Messages", "message_records", "wire_messages"]

Messages = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""What `stream(messages)` takes: text, a message, or a list of both."""

ROLES = ("user", "assistant", "system", "tool", "data", "signal")
_EXPECTED = "text, {'role': 'user', 'content': …} or a UI message {'role': 'user', 'parts': […]}"


def wire_messages(messages: Messages) -> list[dict[str, Any]]:
    """The messages as wire dicts, copied; a text is a user's message.

    Takes text, role/content and UI messages (`parts`), messages of a memory thread, and any mixture in a list. Bytes
    become base64 text. Raises SettingsError, which names the message's index and what is expected.
    """
    # A list or tuple, not all that can be iterated: a DataFrame would give its column names.
    if isinstance(messages, list | tuple):
        return [_wire_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    return [_wire_message(messages, "messages")]


def _wire_message(message: object, where: str) -> dict[str, Any]:
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if not isinstance(message, Mapping):
        raise SettingsError(f"{where}: expected {_EXPECTED}, not {type(message).__name__}")
    try:
        wire: dict[str, Any] = json.loads(
            json.dumps(dict(cast("Mapping[str, Any]", message)), default=_plain, allow_nan=False)
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError(f"{where}: a message must be JSON ({error})") from None
    if wire.get("role") not in ROLES:
        raise SettingsError(f"{where}: 'role' is one of {', '.join(ROLES)}; not {_short(wire.get('role'))}")
    for key in ("parts", "content"):
        if key in wire:
            _check_body(wire[key], f"{where}: {key!r}", text_allowed=key == "content")
            return wire
    raise SettingsError(f"{where}: neither 'content' nor 'parts'; expected {_EXPECTED}")


def _check_body(body: object, where: str, *, text_allowed: bool) -> None:
    if isinstance(body, str) and text_allowed:
        return
    if isinstance(body, dict) and text_allowed:  # as memory keeps it: {"format": 2, "parts": […]}
        body = cast("dict[str, object]", body).get("parts")
    if not isinstance(body, list):
        expected = "text or a list of parts" if text_allowed else "a list of parts"
        raise SettingsError(f"{where} is {expected}; not {_short(cast('object', body))}")
    for index, part in enumerate(cast("list[object]", body)):
        if not isinstance(part, dict) or not isinstance(cast("dict[str, Any]", part).get("type"), str):
            raise SettingsError(
                f"{where}[{index}] is a part like {{'type': 'text', 'text': …}}; not {_short(cast('object', part))}"
            )


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"{type(value).__name__} isn't")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message of a history: its `text` joined, its `parts` as they came; `created_at` as the wire has it."""

    role: str
    text: str
    parts: list[dict[str, Any]]
    id: str | None = None
    created_at: str | int | float | None = None


def message_records(history: object) -> list[MessageRecord]:
    """The messages of a history as plain records; what is no message is left out.

    Takes `payload.messages` (`all`, `user`, `nonUser`), a list of model, UI or memory messages, or a thread's
    `{"messages": […]}`.
    """
    if isinstance(history, Mapping):
        holder = cast("Mapping[str, Any]", history)
        history = holder.get("all", holder.get("messages"))
    found = cast("list[object]", history) if isinstance(history, list | tuple) else []
    return [_record(cast("Mapping[str, Any]", message)) for message in found if isinstance(message, Mapping)]


def _record(message: Mapping[str, Any]) -> MessageRecord:
    body: object = message.get("parts", message.get("content"))
    if isinstance(body, Mapping):
        held = cast("Mapping[str, Any]", body)
        body = held.get("parts", held.get("content"))
    if isinstance(body, str):
        body = [{"type": "text", "text": body}]
    entries = cast("list[object]", body) if isinstance(body, list) else []
    parts = [cast("dict[str, Any]", part) for part in entries if isinstance(part, dict)]
    texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
    identity, created = message.get("id"), message.get("createdAt", _created(message, parts))
    return MessageRecord(
        role=str(message.get("role", "")),
        text="".join(texts),
        parts=parts,
        id=identity if isinstance(identity, str) else None,
        created_at=created if isinstance(created, str | int | float) else None,
    )


def _created(message: Mapping[str, Any], parts: list[dict[str, Any]]) -> object:
    """When a message was made that has no date of its own: UI messages note it in their metadata, others in a part."""
    notes = [message.get("metadata"), *(_path(part, "providerOptions", "mastra") for part in parts[:1])]
    return next((found for note in notes if (found := _path(note, "createdAt")) is not None), None)


def _path(value: object, *keys: str) -> object:
    for key in keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value
