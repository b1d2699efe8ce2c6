"""Answers of model providers, written to their documented stream formats.

Anthropic: Messages API, streaming. OpenAI: Chat Completions, streaming; Responses, streaming. Ollama: the same as Chat
Completions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.client.tiny_server import chunked

__all__ = [
    "KEY",
    "anthropic_block",
    "anthropic_events",
    "anthropic_stream",
    "chat_delta",
    "chat_stream",
    "responses_stream",
    "sse",
]

KEY = "sk-test-0123456789abcdef"
"""A provider's key, which no error may repeat."""


def sse(events: Iterable[dict[str, Any] | str], *, named: bool = True, extra: str = "") -> Iterator[bytes]:
    """A streamed answer of server-sent events; with `event:` lines by their `type`, as Anthropic's and Responses'."""
    return chunked((_event(event, named) for event in events), "text/event-stream; charset=utf-8", extra)


def _event(event: dict[str, Any] | str, named: bool) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    head = f"event: {event['type']}\n" if named else ""
    return f"{head}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


# --- Anthropic ---


def anthropic_block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """A content block: its start, its deltas, its stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_events(
    blocks: Iterable[dict[str, Any]], stop_reason: str = "end_turn", usage: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The events of a message around those of its blocks; `usage` is that of the start."""
    message = {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-haiku-5-5", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage or {"input_tokens": 25, "output_tokens": 1},
    }  # fmt: skip
    return [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        *blocks,
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": 89},
        },
        {"type": "message_stop"},
    ]


def anthropic_stream(
    blocks: Iterable[dict[str, Any]], stop_reason: str = "end_turn", usage: dict[str, Any] | None = None
) -> Iterator[bytes]:
    """A whole answer of the Messages API."""
    return sse(anthropic_events(blocks, stop_reason, usage), extra="request-id: req_011\r\n")


# --- OpenAI: Chat Completions ---


def chat_delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """A chunk of a chat completion."""
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1764500000, "model": "gpt-5-mini-2025-08-07",
        "service_tier": "default", "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    }  # fmt: skip


def chat_stream(deltas: Iterable[dict[str, Any]], usage: dict[str, Any] | None = None) -> Iterator[bytes]:
    """A whole answer: the chunks, the one that tells the usage, `[DONE]`."""
    last = chat_delta({}) | {"choices": [], "usage": usage}
    return sse(
        [chat_delta({"role": "assistant", "content": ""}), *deltas, *([last] if usage else []), "[DONE]"], named=False
    )


# --- OpenAI: Responses ---


def _response(status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1764500000, "status": status, "background": False,
        "error": None, "incomplete_details": None, "instructions": None, "max_output_tokens": None, "metadata": {},
        "model": "gpt-5-mini-2025-08-07", "output": output, "parallel_tool_calls": True, "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": True, "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": usage, "user": None,
    }  # fmt: skip


def responses_stream(
    *,
    thought: str = "",
    pieces: Iterable[str] = (),
    calls: Iterable[tuple[str, str, list[str]]] = (),
    usage: Any = None,
) -> Iterator[bytes]:
    """A whole answer of the Responses API: a thought's summary, a text, calls (id, name, pieces of arguments)."""
    return sse(_responses_events(thought, list(pieces), list(calls), usage), extra="x-request-id: req_1\r\n")


def _responses_events(
    thought: str, pieces: list[str], calls: list[tuple[str, str, list[str]]], usage: Any
) -> Iterator[dict[str, Any]]:
    number = 0
    output: list[dict[str, Any]] = []

    def event(kind: str, **values: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"type": f"response.{kind}", "sequence_number": number - 1, **values}

    yield event("created", response=_response("in_progress", [], None))
    yield event("in_progress", response=_response("in_progress", [], None))
    if thought:
        item: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": []}
        at: dict[str, Any] = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
        yield event("output_item.added", output_index=0, item=item)
        yield event("reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""})
        yield event("reasoning_summary_text.delta", **at, delta=thought[:5])
        yield event("reasoning_summary_text.delta", **at, delta=thought[5:])
        yield event("reasoning_summary_text.done", **at, text=thought)
        summary = {"type": "summary_text", "text": thought}
        yield event("reasoning_summary_part.done", **at, part=summary)
        item = item | {"summary": [summary], "encrypted_content": "gAAAAA=="}
        output.append(item)
        yield event("output_item.done", output_index=0, item=item)
    if pieces:
        index = len(output)
        item = {"id": "msg_1", "type": "message", "status": "in_progress", "content": [], "role": "assistant"}
        at = {"item_id": "msg_1", "output_index": index, "content_index": 0}
        empty: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        yield event("output_item.added", output_index=index, item=item)
        yield event("content_part.added", **at, part=empty)
        for piece in pieces:
            yield event("output_text.delta", **at, delta=piece, logprobs=[])
        whole = empty | {"text": "".join(pieces)}
        yield event("output_text.done", **at, text=whole["text"], logprobs=[])
        yield event("content_part.done", **at, part=whole)
        output.append(item | {"status": "completed", "content": [whole]})
        yield event("output_item.done", output_index=index, item=output[-1])
    for call_id, name, arguments in calls:
        index = len(output)
        item = {
            "id": f"fc_{call_id}", "type": "function_call", "status": "in_progress", "arguments": "",
            "call_id": call_id, "name": name,
        }  # fmt: skip
        at = {"item_id": item["id"], "output_index": index}
        yield event("output_item.added", output_index=index, item=item)
        for piece in arguments:
            yield event("function_call_arguments.delta", **at, delta=piece)
        yield event("function_call_arguments.done", **at, name=name, arguments="".join(arguments))
        output.append(item | {"status": "completed", "arguments": "".join(arguments)})
        yield event("output_item.done", output_index=index, item=output[-1])
    yield event("completed", response=_response("completed", output, usage))
