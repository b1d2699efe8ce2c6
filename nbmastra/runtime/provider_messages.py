"""Our model messages as pydantic-ai's."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from nbmastra.errors import SettingsError
from nbmastra.fold.reading import as_dict, as_list
from nbmastra.runtime.model import Message
from nbmastra.runtime.provider_metadata import Note

__all__ = ["provider_messages"]

_URLS = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
_HEADS = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
    b"%PDF": "application/pdf",
}


def provider_messages(messages: Sequence[Message]) -> list[ModelMessage]:
    """Requests and responses by turns, as every provider takes them. Raises SettingsError for a file that is none."""
    found: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    said: list[ModelResponsePart] = []

    def close() -> None:
        if said:
            provider = next((part.provider_name for part in said if part.provider_name), None)
            found.append(ModelResponse(parts=said.copy(), provider_name=provider))
        if asked:
            found.append(ModelRequest(parts=asked.copy()))
        said.clear()
        asked.clear()

    for message in messages:
        is_answer = message.get("role") == "assistant"
        if asked if is_answer else said:
            close()
        if is_answer:
            said += _answer(message.get("content"))
        else:
            asked += _request(message)
    close()
    return found


def _request(message: Message) -> Iterable[ModelRequestPart]:
    content = message.get("content")
    match message.get("role"):
        case "system":
            yield SystemPromptPart(_text_of(content))
        case "tool":
            for part in as_list(content):
                yield _tool_return(as_dict(part))
        case _:
            if isinstance(content, str):
                yield UserPromptPart(content)
            elif made := [item for part in as_list(content) if (item := _user_content(as_dict(part))) is not None]:
                yield UserPromptPart(made)


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(as_dict(part).get("text", "")) for part in as_list(content))


def _user_content(part: Mapping[str, Any]) -> UserContent | None:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "image" | "file":
            return _file(part)
        case _:
            return None


def _file(part: Mapping[str, Any]) -> UserContent:
    """An image or file: bytes by base64 or a data URL, or a web address that the provider reads itself."""
    where = part.get("data", part.get("url", part.get("image")))
    media = str(part.get("mediaType") or "")
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        kind = _URLS.get(media.partition("/")[0] or str(part.get("type")), DocumentUrl)
        return kind(url=where, media_type=media if media and not media.endswith("/*") else None)
    return _binary(where, media)


def _binary(data: object, media: str) -> BinaryContent:
    if isinstance(data, str) and data.startswith("data:"):
        head, _, data = data[5:].partition(",")
        media = head.partition(";")[0] or media
    try:
        content = data if isinstance(data, bytes) else base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        raise SettingsError("a message's file is bytes, base64 text, a data URL or a web address") from None
    if not media or media.endswith("/*"):  # providers want to know exactly
        known = next((kind for head, kind in _HEADS.items() if content.startswith(head)), None)
        media = known or ("image/png" if media == "image/*" else "application/octet-stream")
    return BinaryContent(content, media_type=media)


def _answer(content: object) -> Iterable[ModelResponsePart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for part in map(as_dict, as_list(content)):
        note = Note.from_wire(part.get("providerOptions"))
        match part.get("type"):
            case "text" if part.get("text"):
                yield TextPart(part["text"], **note.arguments())
            case "reasoning" if part.get("text") or note.signature:
                yield ThinkingPart(str(part.get("text", "")), **note.arguments(thinking=True))
            case "tool-call":
                kind = NativeToolCallPart if part.get("providerExecuted") else ToolCallPart
                given: Any = part.get("input")
                args = given if isinstance(given, str) else json.dumps(given or {})
                yield kind(str(part.get("toolName")), args, str(part.get("toolCallId")), **note.arguments())
            case "tool-result":  # of a tool that the provider ran
                yield NativeToolReturnPart(
                    tool_name=str(part.get("toolName")),
                    content=as_dict(part.get("output")).get("value"),
                    tool_call_id=str(part.get("toolCallId")),
                    provider_name=note.provider,
                    provider_details=note.details,
                )
            case "file":
                yield FilePart(_binary(part.get("data"), str(part.get("mediaType") or "")), **note.arguments())
            case _:
                pass


def _tool_return(part: Mapping[str, Any]) -> ToolReturnPart:
    output = as_dict(part.get("output"))
    kind, value = output.get("type"), output.get("value")
    if kind == "content":
        value = [item for entry in as_list(value) if (item := _result_content(as_dict(entry))) is not None]
    elif kind == "execution-denied":
        value = output.get("reason") or "The call was not approved."
    outcome = "denied" if kind == "execution-denied" else "failed" if str(kind).startswith("error") else "success"
    return ToolReturnPart(
        tool_name=str(part.get("toolName")), content=value, tool_call_id=str(part.get("toolCallId")), outcome=outcome
    )


def _result_content(entry: Mapping[str, Any]) -> UserContent | None:
    """An item of a result that is made of texts, images and files."""
    if entry.get("type") == "text":
        return str(entry.get("text", ""))
    return _file(entry) if "data" in entry or "url" in entry else None
