"""Messages as memory keeps them ("format 2") and as a model is asked with them, each made from the other.

a record: id, role, createdAt, threadId, resourceId, content {format: 2, parts, content, metadata}. One assistant
record holds a turn's whole answer, step after step; a tool's result stands in the part of its call. Source: what a
Mastra server stores, and asks its models with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

from nbmastra.fold.reading import as_dict, as_list
from nbmastra.runtime.model import Message

__all__ = ["iso_time", "recalled_messages", "stored_messages"]

_DONE = ("result", "output-error", "output-denied")
DENIED = "The call was not approved."


def iso_time(milliseconds: int) -> str:
    """A time as the wire writes it: 2026-01-02T03:04:05.678Z."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stored_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
    find: Callable[[str], dict[str, Any] | None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Records of model messages, UI messages (`parts`) and records; system messages are left out.

    Consecutive assistant and tool messages become one record, unless their `id`s differ. `find(call id)` gives the
    record of an earlier call whose result comes only now, which then is among those returned. A message's `id`,
    `createdAt` and `metadata` are kept.
    """
    writer = _Writer(now_ms, find)
    for message in messages:
        writer.add(message)
    return writer.close()


class _Writer:
    def __init__(self, now_ms: int, find: Callable[[str], dict[str, Any] | None]) -> None:
        self.now_ms = now_ms
        self.find = find
        self.records: list[dict[str, Any]] = []
        self.answer: dict[str, Any] | None = None  # the assistant's record that is being added to

    def add(self, message: Mapping[str, Any]) -> None:
        role, content = message.get("role"), cast("object", message.get("content"))
        if role == "system":
            return
        if known := as_dict(content):  # a record already
            self._begin(message, _dicts(known.get("parts")))
        elif "parts" in message:
            self._begin(message, [_part_of_ui(part) for part in _dicts(message["parts"])])
        elif role == "tool":
            for result in _dicts(content):
                self._result(result)
            return
        elif role == "assistant":
            self._answer(message, _dicts(content) if not isinstance(content, str) else [_text(content)])
            return
        else:
            model_parts = [_text(content)] if isinstance(content, str) else _dicts(content)
            self._begin(message, [self._dated(_part(part), part) for part in model_parts])
        self.answer = self.records[-1] if role == "assistant" else None

    def _begin(self, message: Mapping[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
        known = as_dict(message.get("content"))
        record: dict[str, Any] = {
            "id": _id(message.get("id")),
            "role": str(message.get("role", "user")),
            "createdAt": _created(message.get("createdAt")) or iso_time(self.now_ms + len(self.records)),
            "content": {"format": 2, **known, "parts": parts},
        }
        if isinstance(kind := message.get("type"), str):
            record["type"] = kind
        if isinstance(metadata := message.get("metadata"), dict):
            record["content"].setdefault("metadata", metadata)
        self.records.append(record)
        return record

    def _answer(self, message: Mapping[str, Any], parts: list[dict[str, Any]]) -> None:
        record, given = self.answer, message.get("id")
        if record is None or (isinstance(given, str) and given != record["id"]):
            record = self.answer = self._begin({**message, "content": None}, [])
        else:
            content = record["content"]
            metadata: dict[str, Any] = content.get("metadata", {}) | (message.get("metadata") or {})
            if metadata:
                content["metadata"] = metadata
            if any(part.get("type") == "tool-invocation" for part in content["parts"]):
                step: dict[str, Any] = {"type": "step-start", "createdAt": self.now_ms}
                if "modelId" in metadata:
                    step["model"] = f"{metadata.get('provider', '')}/{metadata['modelId']}".lstrip("/")
                content["parts"].append(step)
        for part in parts:
            if part.get("type") == "tool-result":  # of a tool that the provider ran
                self._result(part)
            else:
                record["content"]["parts"].append(self._dated(_part(part), part))

    def _result(self, result: Mapping[str, Any]) -> None:
        call_id = str(result.get("toolCallId", ""))
        for record in (self.answer, *reversed(self.records), self.find(call_id)):
            part = record and _open_call(record, call_id)
            if record is None or part is None:
                continue
            _set_result(part["toolInvocation"], result)
            part.pop("createdAt", None)  # as Mastra: a call that has its result isn't dated any more
            part |= _noted(result)
            if not any(known is record for known in self.records):
                self.records.append(record)
            return

    def _dated(self, part: dict[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
        made = _get(_get(source.get("providerOptions"), "mastra"), "createdAt")
        return part | _noted(source) | {"createdAt": made if isinstance(made, int | float) else self.now_ms}

    def close(self) -> list[dict[str, Any]]:
        for record in self.records:
            content = record["content"]
            texts = [part.get("text") for part in _dicts(content["parts"]) if part.get("type") == "text"]
            if texts:
                content["content"] = texts[-1]  # as Mastra: what was said last
        return self.records


def _noted(source: Mapping[str, Any]) -> dict[str, Any]:
    """What a provider noted at a model message's part, as a stored part has it."""
    options = dict(as_dict(source.get("providerOptions", source.get("providerMetadata"))))
    ours = {key: value for key, value in as_dict(options.pop("mastra", None)).items() if key != "createdAt"}
    if ours:
        options["mastra"] = ours
    return {"providerMetadata": options} if options else {}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A stored part of a model message's part."""
    match part.get("type"):
        case "text":
            return _text(str(part.get("text", "")))
        case "reasoning":
            text = str(part.get("text", ""))
            return {"type": "reasoning", "reasoning": text, "details": [{"type": "text", "text": text}]}
        case "tool-call":
            call: dict[str, Any] = {
                "state": "call",
                "toolCallId": part.get("toolCallId"),
                "toolName": part.get("toolName"),
                "args": part.get("input", part.get("args")),
            }
            if part.get("providerExecuted"):
                call["providerExecuted"] = True
            return {"type": "tool-invocation", "toolInvocation": call}
        case "image" | "file":
            data = part.get("data", part.get("url", part.get("image")))
            media = part.get("mediaType", part.get("mimeType"))
            media = media or ("image/png" if part.get("type") == "image" else "application/octet-stream")
            if isinstance(data, str) and not data.startswith(("data:", "http:", "https:")):
                data = f"data:{media};base64,{data}"
            kept = {"type": "file", "data": data, "mimeType": media}
            return kept | ({"filename": name} if (name := part.get("filename")) else {})
        case "source":
            source = {key: value for key, value in part.items() if key not in ("type", "providerOptions")}
            return {"type": "source", "source": source}
        case _:
            return {key: value for key, value in part.items() if key not in ("providerOptions", "providerMetadata")}


def _part_of_ui(part: dict[str, Any]) -> dict[str, Any]:
    """A stored part of a UI message's part."""
    kind = str(part.get("type", ""))
    if kind == "reasoning" and "text" in part:
        return _with_metadata(_part(part), part)
    if kind == "file" and "url" in part:
        return _part(part)
    if (kind.startswith("tool-") and kind != "tool-invocation") or kind == "dynamic-tool":
        name = part.get("toolName") or kind.removeprefix("tool-")
        call: dict[str, Any] = {
            "state": "call",
            "toolCallId": part.get("toolCallId"),
            "toolName": name,
            "args": part.get("input"),
        }
        match part.get("state"):
            case "output-available":
                call |= {"state": "result", "result": part.get("output")}
            case "output-error":
                call |= {"state": "output-error", "errorText": part.get("errorText")}
            case _:
                pass
        return {"type": "tool-invocation", "toolInvocation": call}
    return part


def _with_metadata(part: dict[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    metadata = source.get("providerMetadata")
    return part | {"providerMetadata": metadata} if metadata else part


def _open_call(record: Mapping[str, Any], call_id: str) -> dict[str, Any] | None:
    for part in reversed(_dicts(_get(record.get("content"), "parts"))):
        call = as_dict(part.get("toolInvocation"))
        if call.get("toolCallId") == call_id and call.get("state") not in _DONE:
            return part
    return None


def _set_result(call: dict[str, Any], result: Mapping[str, Any]) -> None:
    output = as_dict(result.get("output"))
    value: Any = output.get("value")
    match output.get("type"):
        case "error-text" | "error-json":
            call |= {"state": "output-error", "errorText": value if isinstance(value, str) else json.dumps(value)}
        case "execution-denied":
            reason = {"reason": output["reason"]} if output.get("reason") else {}
            approval: dict[str, Any] = {"id": call.get("toolCallId"), "approved": False, **reason}
            call |= {"state": "output-denied", "approval": approval}
        case None:  # as a caller sends back what its own tool gave
            call |= {"state": "result", "result": result.get("result", result.get("output"))}
        case _:
            call |= {"state": "result", "result": value}


def recalled_messages(records: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Model messages of records.

    Calls without a result, sources and notes of errors are left out: no model takes them.
    """
    found: list[Message] = []
    for record in records:
        content = record.get("content")
        parts = _dicts(_get(content, "parts"))
        if record.get("role") == "assistant":
            found += _answer_messages(parts)
            continue
        if record.get("role") == "signal":
            parts = [_signal(part, content) for part in parts]
        if body := [made for part in parts if (made := _model_part(part)) is not None]:
            role = record.get("role")
            found.append({"role": role if role in ("user", "system") else "user", "content": body})
    return found


def _answer_messages(parts: list[dict[str, Any]]) -> list[Message]:
    found: list[Message] = []
    said: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []

    def end_step() -> None:
        if said:
            found.append({"role": "assistant", "content": said.copy()})
        if results:
            found.append({"role": "tool", "content": results.copy()})
        said.clear()
        results.clear()

    for part in parts:
        if part.get("type") == "step-start":
            end_step()
        elif part.get("type") == "tool-invocation":
            call: dict[str, Any] = part.get("toolInvocation") or {}
            if call.get("state") not in _DONE:
                continue
            names = {"toolCallId": call.get("toolCallId"), "toolName": call.get("toolName")}
            options = {"providerOptions": metadata} if (metadata := part.get("providerMetadata")) else {}
            given = {**names, "input": call.get("args")}
            said.append({"type": "tool-call", **given, **options})
            results.append({"type": "tool-result", **given, "output": _output(call), **options})
        elif (made := _model_part(part)) is not None:
            if results:  # a record without step marks: what is said after a result belongs to the next step
                end_step()
            said.append(made)
    end_step()
    return found


def _output(call: Mapping[str, Any]) -> dict[str, Any]:
    match call.get("state"):
        case "output-error":
            return {"type": "error-text", "value": call.get("errorText") or ""}
        case "output-denied":
            reason = _get(call.get("approval"), "reason")
            return {"type": "error-text", "value": reason if isinstance(reason, str) and reason else DENIED}
        case _:
            result = call.get("result")
            return {"type": "text" if isinstance(result, str) else "json", "value": result}


def _model_part(part: dict[str, Any]) -> dict[str, Any] | None:
    metadata: dict[str, Any] = dict(part.get("providerMetadata") or {})
    if (made := part.get("createdAt")) is not None:
        metadata["mastra"] = {**(metadata.get("mastra") or {}), "createdAt": made}
    options = {"providerOptions": metadata} if metadata else {}
    match part.get("type"):
        case "text":
            return {"type": "text", "text": part.get("text", ""), **options}
        case "reasoning":
            return {"type": "reasoning", "text": part.get("reasoning", ""), **options}
        case "file":
            data, media = part.get("data", part.get("url")), part.get("mimeType", part.get("mediaType"))
            name = {"filename": part["filename"]} if part.get("filename") else {}
            where = {"url" if isinstance(data, str) and data.startswith(("http:", "https:")) else "data": _bare(data)}
            return {"type": "file", **where, "mediaType": media, **name, **options}
        case _:
            return None


def _bare(data: object) -> object:
    """The base64 of a data URL; anything else as it is."""
    if isinstance(data, str) and data.startswith("data:") and (comma := data.find(";base64,")) > 0:
        return data[comma + 8 :]
    return data


def _signal(part: dict[str, Any], content: object) -> dict[str, Any]:
    """A signal's text in its tag, as models are told of it."""
    signal = _get(_get(content, "metadata"), "signal")
    tag, attributes = _get(signal, "tagName"), _get(signal, "attributes")
    if part.get("type") != "text" or not isinstance(tag, str):
        return part
    head = "".join(f' {name}="{value}"' for name, value in as_dict(attributes).items())
    return {**part, "text": f"<{tag}{head}>{part.get('text', '')}</{tag}>"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in as_list(value) if isinstance(item, dict)]


def _get(value: object, key: str) -> object:
    return as_dict(value).get(key)


def _id(given: object) -> str:
    return given if isinstance(given, str) and given else str(uuid4())


def _created(value: object) -> str | None:
    """A message's own time on the wire's terms; None for what is no time."""
    if isinstance(value, datetime):
        return iso_time(round(value.timestamp() * 1000))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return iso_time(int(value))
    return value if isinstance(value, str) and value else None
