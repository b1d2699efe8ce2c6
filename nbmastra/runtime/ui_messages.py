"""What a run added to its conversation, as messages for people: `finish` tells them in runs with memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nbmastra.runtime.model import Message

__all__ = ["ui_messages"]


def ui_messages(
    steps: Sequence[tuple[str, Sequence[Message]]], model: Mapping[str, str], about: Mapping[str, str]
) -> list[dict[str, Any]]:
    """UI messages of steps, each with the id of the message it belongs to and its model messages.

    model: `modelId` and `provider`. about: `threadId`, `resourceId`, where there are any.
    """
    made: list[dict[str, Any]] = []
    for message_id, messages in steps:
        parts = _parts(messages)
        if not parts:
            continue
        at = _made_at(messages)
        if made and made[-1]["id"] == message_id:
            name = f"{model['provider']}/{model['modelId']}"
            made[-1]["parts"] += [{"type": "step-start", "createdAt": at, "model": name}, *parts]
            continue
        if made:
            made[-1]["metadata"]["mastra"] = {"responseBoundary": True}
        stamp = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        metadata = {**model, "createdAt": stamp, **about}
        made.append({"id": message_id, "role": "assistant", "metadata": metadata, "parts": parts})
    return made


def _made_at(messages: Sequence[Message]) -> int:
    for message in messages:
        for part in message["content"]:
            at = part.get("providerOptions", {}).get("mastra", {}).get("createdAt")
            if isinstance(at, int):
                return at
    return int(datetime.now(UTC).timestamp() * 1000)


def _parts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    results = {
        part["toolCallId"]: part for message in messages for part in message["content"] if part["type"] == "tool-result"
    }
    parts: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] != "assistant":
            continue
        for part in message["content"]:
            noted = {"providerMetadata": part["providerOptions"]} if part.get("providerOptions") else {}
            match part["type"]:
                case "text" | "reasoning":
                    parts.append({"type": part["type"], "text": part["text"], **noted})
                case "file":
                    parts.append({"type": "file", "mediaType": part["mediaType"], "url": part["data"], **noted})
                case "tool-call":
                    parts.append(_tool_part(part, results.get(part["toolCallId"])))
                case _:
                    pass
    return parts


def _tool_part(call: dict[str, Any], result: dict[str, Any] | None) -> dict[str, Any]:
    part = {"type": f"tool-{call['toolName']}", "toolCallId": call["toolCallId"], "input": call["input"]}
    if result is None:
        return {**part, "state": "input-available"}
    options = result.get("providerOptions")
    noted = {"callProviderMetadata": options} if options else {}
    output = result["output"]
    if output["type"].startswith("error"):
        return {**part, "errorText": output["value"], "state": "output-error", **noted}
    return {**part, "output": output["value"], "state": "output-available", **noted}
