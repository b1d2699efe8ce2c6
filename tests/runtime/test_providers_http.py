"""Models through the real client libraries of OpenAI and Anthropic; a local server writes the providers' streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from nbmastra.runtime.model import (
    FileMade,
    Finish,
    ModelEvent,
    ModelRequest,
    PartDelta,
    PartEnd,
    PartStart,
    Raw,
    ResponseMetadata,
    SourceFound,
    ToolCalled,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolSpec,
    Warned,
)
from nbmastra.runtime.providers import resolve_model
from nbmastra.usage import Usage
from tests.client.tiny_server import TinyServer
from tests.support.provider_streams import (
    KEY,
    anthropic_block,
    anthropic_events,
    anthropic_stream,
    chat_delta,
    chat_stream,
    responses_stream,
    sse,
)

ANTHROPIC, RESPONSES, CHAT, OLLAMA = (
    "anthropic:claude-haiku-5-5",
    "openai:gpt-6-luna",
    "openai-chat:gpt-6-luna",
    "ollama:qwen3",
)
WEATHER = ToolSpec("weather", "Temperature of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
NOW = ToolSpec("now", "", {"type": "object", "properties": {}})
ASKED = ModelRequest(
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    tools=[WEATHER, NOW],
    settings={"max_retries": 0},
)


async def events(model: str, request: ModelRequest = ASKED) -> list[ModelEvent]:
    return [event async for event in resolve_model(model).stream(request)]


def body(server: TinyServer) -> dict[str, Any]:
    return json.loads(server.requests[-1].body)


THOUGHT = anthropic_block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Let me"},
    {"type": "thinking_delta", "thinking": " see."},
    {"type": "signature_delta", "signature": "c2ln"},
)
REDACTED = anthropic_block(1, {"type": "redacted_thinking", "data": "cmVk"})
TEXT = anthropic_block(
    2,
    {"type": "text", "text": ""},
    {"type": "text_delta", "text": "Hé"},
    {"type": "text_delta", "text": "llo 🎉"},
)
CALLS = [
    *anthropic_block(
        3,
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"city":'},
        {"type": "input_json_delta", "partial_json": ' "Paris"}'},
    ),
    *anthropic_block(4, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}),
]
SIGNED = {"anthropic": {"signature": "c2ln"}}
HIDDEN = {"anthropic": {"redactedData": "cmVk"}}


async def test_an_answer_of_anthropic(server: TinyServer) -> None:
    usage = {"input_tokens": 25, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1}
    server.handler = lambda _: anthropic_stream([*THOUGHT, *REDACTED, *TEXT, *CALLS], "tool_use", usage)
    announced, *said, finish = await events(ANTHROPIC)
    assert isinstance(announced, ResponseMetadata)
    assert (announced.id, announced.model_id) == ("msg_01", "claude-haiku-5-5")
    assert (announced.headers or {})["request-id"] == "req_011"
    assert said == [
        PartStart("reasoning", "reasoning-0"),
        PartDelta("reasoning", "reasoning-0", "Let me"),
        PartDelta("reasoning", "reasoning-0", " see."),
        PartDelta("reasoning", "reasoning-0", "", SIGNED),
        PartEnd("reasoning", "reasoning-0", SIGNED),
        PartStart("reasoning", "reasoning-1", HIDDEN),
        PartEnd("reasoning", "reasoning-1", HIDDEN),
        PartStart("text", "text-2"),
        PartDelta("text", "text-2", "Hé"),
        PartDelta("text", "text-2", "llo 🎉"),
        PartEnd("text", "text-2"),
        ToolInputStart("toolu_1", "weather"),
        ToolInputDelta("toolu_1", '{"city":'),
        ToolInputDelta("toolu_1", ' "Paris"}'),
        ToolInputEnd("toolu_1"),
        ToolCalled("toolu_1", "weather", '{"city": "Paris"}'),
        ToolInputStart("toolu_2", "now"),
        ToolInputEnd("toolu_2"),
        ToolCalled("toolu_2", "now", "{}"),
    ]
    # Anthropic counts what came from the cache apart; ours is part of the input.
    usage_ = Usage(135, 89, 224, cached_input_tokens=100, cache_creation_input_tokens=10)
    assert finish == Finish("tool-calls", usage_, {"anthropic": {"finish_reason": "tool_use"}})
    request = server.requests[-1]
    assert request.target.partition("?")[0] == "/v1/messages"
    assert any(KEY in value for value in request.headers.values())


async def test_an_answer_of_openais_responses(server: TinyServer) -> None:
    usage = {
        "input_tokens": 30, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7}, "total_tokens": 50,
    }  # fmt: skip
    calls = [("call_1", "weather", ['{"ci', 'ty":"Paris"}'])]
    server.handler = lambda _: responses_stream(thought="Let me see.", pieces=["Hé", "llo"], calls=calls, usage=usage)
    announced, *said, finish = await events(RESPONSES)
    assert isinstance(announced, ResponseMetadata)
    assert announced.id == "resp_1"
    thought, text = {"openai": {"itemId": "rs_1"}}, {"openai": {"itemId": "msg_1"}}
    sealed = {"reasoningEncryptedContent": "gAAAAA=="}
    assert said == [
        PartStart("reasoning", "reasoning-0", thought),
        PartDelta("reasoning", "reasoning-0", "Let m"),
        PartDelta("reasoning", "reasoning-0", "e see."),
        PartDelta("reasoning", "reasoning-0", "", {"openai": sealed}),
        PartEnd("reasoning", "reasoning-0", {"openai": {"itemId": "rs_1", **sealed}}),
        PartStart("text", "text-1", text),
        PartDelta("text", "text-1", "Hé"),
        PartDelta("text", "text-1", "llo"),
        PartEnd("text", "text-1", text),
        ToolInputStart("call_1", "weather"),
        ToolInputDelta("call_1", '{"ci'),
        ToolInputDelta("call_1", 'ty":"Paris"}'),
        ToolInputEnd("call_1"),
        ToolCalled("call_1", "weather", '{"city":"Paris"}', metadata={"openai": {"itemId": "fc_call_1"}}),
    ]
    assert isinstance(finish, Finish)
    assert (finish.reason, finish.usage) == ("tool-calls", Usage(30, 20, 50, 7, 10))
    assert server.requests[-1].target == "/v1/responses"


def chat_call(index: int, arguments: str, **begin: str) -> dict[str, Any]:
    """A piece of a call; its first piece has an id and a name."""
    function = {"arguments": arguments} | ({"name": begin["name"]} if begin else {})
    head = {"id": begin["id"], "type": "function"} if begin else {}
    return chat_delta({"tool_calls": [{"index": index, **head, "function": function}]})


CHAT_CALLS = [
    chat_delta({"content": "Hé"}),
    chat_delta({"content": "llo"}),
    chat_call(0, "", id="c1", name="weather"),
    chat_call(1, "", id="c2", name="now"),
    chat_call(0, '{"city":"Pa'),
    chat_call(1, "{}"),
    chat_call(0, 'ris"}'),
    chat_delta({}, "tool_calls"),
]


@pytest.mark.parametrize("model", [CHAT, OLLAMA])
async def test_an_answer_of_chat_completions(server: TinyServer, model: str) -> None:
    usage = {
        "prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    server.handler = lambda _: chat_stream(CHAT_CALLS, usage)
    announced, *said, finish = await events(model)
    assert isinstance(announced, ResponseMetadata)
    assert announced.id == "chatcmpl-1"
    assert said == [
        PartStart("text", "text-0"),
        PartDelta("text", "text-0", "Hé"),
        PartDelta("text", "text-0", "llo"),
        PartEnd("text", "text-0"),
        ToolInputStart("c1", "weather"),
        ToolInputStart("c2", "now"),
        ToolInputDelta("c1", '{"city":"Pa'),
        ToolInputDelta("c2", "{}"),
        ToolInputDelta("c1", 'ris"}'),
        ToolInputEnd("c1"),
        ToolCalled("c1", "weather", '{"city":"Paris"}'),
        ToolInputEnd("c2"),
        ToolCalled("c2", "now", "{}"),
    ]
    assert isinstance(finish, Finish)
    assert (finish.reason, finish.usage) == ("tool-calls", Usage(30, 20, 50, 0, 10))
    assert server.requests[-1].target == "/v1/chat/completions"


def gemini(*parts: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    """A piece of an answer of Google's `streamGenerateContent`."""
    end = {"finishReason": reason} if reason else {}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22}
    return {
        "candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **end}],
        "usageMetadata": usage, "modelVersion": "gemini-3.8-flash", "responseId": "r1",
    }  # fmt: skip


async def test_an_answer_of_google_whose_signatures_go_back(server: TinyServer) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    call = {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "Y2FsbA=="}
    pieces = [
        gemini({"text": "Let me see.", "thought": True}),
        gemini({"text": "Hé"}),
        gemini({"text": "llo", "thoughtSignature": "dGV4dA=="}),
        gemini(call),
        gemini(picture, reason="STOP"),
    ]
    server.handler = lambda _: sse(pieces, named=False)
    provider = GoogleProvider(api_key="AIzaSyTest0123456789", base_url=server.url)
    model = resolve_model(GoogleModel("gemini-3.8-flash", provider=provider))
    said = [event async for event in model.stream(ASKED)]
    thought, text = [event for event in said if isinstance(event, PartEnd)]
    [called_] = [event for event in said if isinstance(event, ToolCalled)]
    assert thought.kind == "reasoning"
    assert text.metadata == {"google": {"thoughtSignature": "dGV4dA=="}}
    assert called_.metadata == {"google": {"thoughtSignature": "Y2FsbA=="}}
    assert FileMade("image/png", "iVBORw0KGgo=") in said
    assert isinstance(said[-1], Finish)
    assert (said[-1].reason, said[-1].usage) == ("tool-calls", Usage(10, 12, 22, 7))
    answer_ = [
        {"type": "text", "text": "Héllo", "providerOptions": text.metadata},
        called(called_.id, "Paris", providerOptions=called_.metadata),
    ]
    results = {"role": "tool", "content": [gave(called_.id, 21)]}
    async for _ in model.stream(ModelRequest([*ASKED.messages, {"role": "assistant", "content": answer_}, results])):
        pass
    sent = body(server)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in sent] == ["dGV4dA==", "Y2FsbA=="]


async def test_a_usage_that_isnt_told_is_missing(server: TinyServer) -> None:
    server.handler = lambda _: chat_stream([chat_delta({"content": "Hi"}), chat_delta({}, "stop")])
    *_, finish = await events(CHAT)
    assert finish == Finish("stop", Usage(), finish.metadata if isinstance(finish, Finish) else None)


@pytest.mark.parametrize(
    ("told", "reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "content-filter")],
)
async def test_finish_reasons_are_mastras_words(server: TinyServer, told: str, reason: str) -> None:
    server.handler = lambda _: anthropic_stream(TEXT, told)
    *_, finish = await events(ANTHROPIC)
    assert isinstance(finish, Finish)
    assert finish.reason == reason


async def test_sources_of_an_answer_are_found(server: TinyServer) -> None:
    citation = {
        "type": "web_search_result_location", "cited_text": "21 degrees", "url": "https://example.com/paris",
        "title": "Paris", "encrypted_index": "aW5k",
    }  # fmt: skip
    deltas = [{"type": "text_delta", "text": "21 °C"}, {"type": "citations_delta", "citation": citation}]
    server.handler = lambda _: anthropic_stream(
        anthropic_block(0, {"type": "text", "text": "", "citations": []}, *deltas)
    )
    found = [event.payload for event in await events(ANTHROPIC) if isinstance(event, SourceFound)]
    assert [(source["sourceType"], source["url"], source["title"]) for source in found] == [
        ("url", "https://example.com/paris", "Paris")
    ]


async def test_raw_events_are_the_providers_own(server: TinyServer) -> None:
    server.handler = lambda _: anthropic_stream(TEXT)
    request = ModelRequest(ASKED.messages, include_raw=True)
    raw = [event.value for event in await events(ANTHROPIC, request) if isinstance(event, Raw)]
    told = [event for event in anthropic_events(TEXT) if event["type"] != "ping"]
    assert [event["type"] for event in raw] == [event["type"] for event in told]
    server.handler = lambda _: chat_stream([chat_delta({"content": "Hi"}), chat_delta({}, "stop")])
    raw = [event.value for event in await events(CHAT, request) if isinstance(event, Raw)]
    assert [chunk["choices"][0]["delta"].get("content") for chunk in raw] == ["", "Hi", None]


# --- what is asked ---


def called(call_id: str, city: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "weather", "input": {"city": city}, **more}


def gave(call_id: str, value: Any, kind: str = "json") -> dict[str, Any]:
    output = {"type": kind, "value": value}
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "weather", "output": output}


PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mediaType": "image/*"}
HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}, PICTURE]},
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "Let me see.", "providerOptions": SIGNED},
            {"type": "reasoning", "text": "", "providerOptions": HIDDEN},
            {"type": "text", "text": "I will look.", "providerOptions": {"mastra": {"createdAt": 1}}},
            called("c1", "Paris"),
            called("c2", "Nowhere"),
        ],
    },
    {"role": "tool", "content": [gave("c1", {"celsius": 21}), gave("c2", "no such city", "error-text")]},
    {"role": "user", "content": "Thanks"},
]


async def test_a_conversation_goes_to_anthropic_with_its_signatures(server: TinyServer) -> None:
    server.handler = lambda _: anthropic_stream(TEXT)
    settings = {"max_output_tokens": 77, "stop_sequences": ["END"]}
    await events(ANTHROPIC, ModelRequest(HISTORY, tools=[WEATHER], tool_choice="weather", settings=settings))
    sent = body(server)
    assert (sent["max_tokens"], sent["stop_sequences"]) == (77, ["END"])
    assert (sent["system"], sent["tool_choice"]) == ("Be brief.", {"type": "any"})  # of one tool
    asked, said, results = sent["messages"]
    assert asked["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert said["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Nowhere"}},
    ]
    first, second, thanks = results["content"]
    assert (first["tool_use_id"], first["is_error"]) == ("c1", False)
    assert json.loads(first["content"][0]["text"]) == {"celsius": 21}
    assert (second["tool_use_id"], second["is_error"]) == ("c2", True)
    assert second["content"][0]["text"] == "no such city"
    assert thanks["text"] == "Thanks"


async def test_a_conversation_goes_to_openai_with_its_items(server: TinyServer) -> None:
    calls = [("call_1", "weather", ['{"city":"Paris"}'])]
    server.handler = lambda _: responses_stream(thought="Let me see.", calls=calls)
    said = await events(RESPONSES)
    thought, call = said[5], said[-2]
    assert isinstance(thought, PartEnd)
    assert isinstance(call, ToolCalled)
    answer = [
        {"type": "reasoning", "text": "Let me see.", "providerOptions": thought.metadata},
        called("call_1", "Paris", providerOptions=call.metadata),
    ]
    results = {"role": "tool", "content": [gave("call_1", 21)]}
    history = [*ASKED.messages, {"role": "assistant", "content": answer}, results]
    await events(RESPONSES, ModelRequest(history, tools=[WEATHER]))
    items = body(server)["input"]
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["system", "user", "reasoning", "function_call", "function_call_output"]
    assert (items[2]["id"], items[2]["encrypted_content"]) == ("rs_1", "gAAAAA==")
    assert (items[3]["call_id"], json.loads(items[3]["arguments"])) == ("call_1", {"city": "Paris"})
    assert (items[4]["call_id"], json.loads(items[4]["output"])) == ("call_1", 21)


async def test_a_setting_that_this_model_hasnt_is_left_out_and_warned_of(server: TinyServer) -> None:
    server.handler = lambda _: anthropic_stream(TEXT)
    warned, *_ = await events(ANTHROPIC, ModelRequest(ASKED.messages, settings={"temperature": 0.5, "seed": None}))
    assert isinstance(warned, Warned)
    [warning] = warned.warnings
    assert (warning["type"], warning["setting"]) == ("unsupported-setting", "temperature")
    assert "temperature" not in body(server)


@pytest.mark.parametrize(("choice", "sent"), [("auto", "auto"), ("none", "none"), ("required", "required")])
async def test_tool_choices_are_the_providers(server: TinyServer, choice: str, sent: str) -> None:
    server.handler = lambda _: chat_stream([chat_delta({"content": "Hi"}), chat_delta({}, "stop")])
    await events(CHAT, ModelRequest(ASKED.messages, tools=[WEATHER], tool_choice=choice))
    assert body(server).get("tool_choice", "auto") == sent


async def test_a_schema_is_kept_by_the_provider_itself(server: TinyServer) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    request = ModelRequest(ASKED.messages, response_schema=schema)
    assert resolve_model(CHAT).native_schema
    server.handler = lambda _: chat_stream([chat_delta({"content": '{"name":"Ada"}'}), chat_delta({}, "stop")])
    await events(CHAT, request)
    sent = body(server)["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]["properties"]) == ("json_schema", schema["properties"])
    server.handler = lambda _: anthropic_stream(TEXT)
    await events(ANTHROPIC, request)
    assert body(server)["output_config"]["format"]["schema"]["required"] == ["name"]
