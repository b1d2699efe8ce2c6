"""Memory: what is remembered, what a model is told, and what users see of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import SettingsError
from nbmastra.messages import message_records
from nbmastra.runtime.memory import Memory
from nbmastra.runtime.stored import recalled_messages, stored_messages
from tests.support.mastra import MastraServer


@pytest.fixture
def memory() -> Iterator[Memory]:
    engine = Engine("nbmastra-test-engine")
    yield Memory("sqlite://", engine=engine)
    engine.close()


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], **more}


def call(call_id: str, name: str = "weather", **args: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": args}


def result(call_id: str, value: Any, kind: str = "json", **args: Any) -> dict[str, Any]:
    named = {"toolCallId": call_id, "toolName": "weather", "input": args}
    return {"type": "tool-result", **named, "output": {"type": kind, "value": value}}


def assistant(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "assistant", "content": content, **more}


def tool(*results: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "content": list(results)}


TURN = [
    user("Weather?"),
    assistant("Let me look.", call("c1", city="Paris"), call("c2", city="Nowhere")),
    tool(result("c1", {"celsius": 21}, city="Paris"), result("c2", "no such city", "error-text", city="Nowhere")),
    assistant("It is 21 °C in Paris."),
]


def undated(value: Any) -> Any:
    """Without ids, dates and what names the model's run."""
    if isinstance(value, dict):
        dropped = {"id", "createdAt", "traceId", "subAgentThreadId", "subAgentResourceId", "taskId", "runId"}
        kept = {key: undated(item) for key, item in value.items() if key not in dropped}
        return {key: item for key, item in kept.items() if not (key in ("providerOptions", "mastra") and item == {})}
    return [undated(item) for item in value] if isinstance(value, list) else value


async def test_a_model_is_told_what_was_said_before(memory: Memory) -> None:
    assert await memory.recall("t", "u") == []
    await memory.remember("t", "u", TURN)
    assert undated(await memory.recall("t", "u")) == TURN


async def test_a_turn_is_kept_as_a_mastra_server_keeps_it(memory: Memory) -> None:
    named = [TURN[0], *({**message, "metadata": MODEL} for message in TURN[1:])]
    await memory.remember("t", "u", named)
    asked, said = await memory.messages("t")
    assert undated(asked["content"]) == {
        "format": 2,
        "parts": [{"type": "text", "text": "Weather?"}],
        "content": "Weather?",
    }
    assert (asked["role"], asked["threadId"], asked["resourceId"]) == ("user", "t", "u")
    ok = {"state": "result", "toolCallId": "c1", "toolName": "weather", "args": {"city": "Paris"}}
    failed = {"state": "output-error", "toolCallId": "c2", "toolName": "weather", "args": {"city": "Nowhere"}}
    assert undated(said["content"]) == {
        "format": 2,
        "parts": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool-invocation", "toolInvocation": {**ok, "result": {"celsius": 21}}},
            {"type": "tool-invocation", "toolInvocation": {**failed, "errorText": "no such city"}},
            {"type": "step-start", "model": "scripted/scripted-1"},
            {"type": "text", "text": "It is 21 °C in Paris."},
        ],
        "content": "It is 21 °C in Paris.",
        "metadata": MODEL,
    }
    for message in (asked, said):
        assert datetime.fromisoformat(message["createdAt"]).tzinfo == UTC
        assert len(message["id"]) == 36
    assert asked["createdAt"] < said["createdAt"]
    assert [(record.role, record.text) for record in message_records([asked, said])] == [
        ("user", "Weather?"),
        ("assistant", "Let me look.It is 21 °C in Paris."),
    ]


MODEL = {"modelId": "scripted-1", "provider": "scripted"}


@pytest.mark.server
@pytest.mark.parametrize("agent", ["slow", "supervisor", "background"])
def test_what_a_real_server_keeps_comes_back_as_it_was(mastra_server: MastraServer, memory: Memory, agent: str) -> None:
    client = MastraClient(mastra_server.url)
    where = {"thread": f"kept-{agent}", "resource": "memory-tests"}
    picture = {"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"}
    said = [{"role": "user", "content": [{"type": "text", "text": "Look"}, picture]}]
    out = client.agent(agent).stream(said, memory=where).result(20).wait(60)
    kept = client.thread(where["thread"]).messages().result(20)
    assert len(kept) >= 2
    # A server's records are ours: kept unchanged, and read as that server reads them for its model.
    written = memory._engine.start(memory.remember, "t", "u", kept).result(10)
    assert [undated(message["content"]) for message in written] == [undated(message["content"]) for message in kept]
    ours = undated(memory._engine.start(memory.recall, "t", "u").result(10))
    finish = [chunk for chunk in out.log if chunk.type == "finish"][-1]
    theirs = undated(json.loads(finish.to_json())["payload"]["messages"]["all"])
    for message in theirs:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "file":
                part["data"] = part["data"].rpartition(",")[2]
    assert ours == theirs


async def test_only_the_latest_messages_are_told(memory: Memory) -> None:
    assert memory.last_messages == 10
    for number in range(8):
        await memory.remember("t", "u", [user(f"q{number}"), assistant(f"a{number}")])
    told = await memory.recall("t", "u")
    assert [message["content"][0]["text"] for message in told][:2] == ["q3", "a3"]
    assert len(told) == 10
    assert len(await memory.recall("t", "u", last_messages=3)) == 3
    assert await memory.recall("t", "u", last_messages=0) == []
    assert await memory.recall("t", "u", last_messages=False) == []
    assert len(await memory.recall("t", "u", last_messages=None)) == 16
    assert len(await Memory(memory.store, last_messages=None).recall("t", "u")) == 16
    for bad in (-2, 1.5, "all", True):
        with pytest.raises(SettingsError, match="last_messages is a number"):
            await memory.recall("t", "u", last_messages=bad)  # type: ignore[arg-type]


async def test_a_thread_of_somebody_else_is_refused(memory: Memory) -> None:
    await memory.remember("t", "ada", [user("secret plan")])
    for attempt in (
        memory.recall("t", "eve"),
        memory.recall("t", "eve", last_messages=0),
        memory.remember("t", "eve", [user("hello")]),
        memory.messages("t", resource="eve"),
        memory.delete("t", resource="eve"),
        memory.create_thread("mine", resource="eve", thread="t"),
    ):
        with pytest.raises(SettingsError, match="belongs to another resource than 'eve'"):
            await attempt
    assert len(await memory.messages("t", resource="ada")) == 1


async def test_a_call_without_a_result_is_kept_but_not_told(memory: Memory) -> None:
    await memory.remember("t", "u", [user("Deploy"), assistant("I will ask.", call("a1", "deploy", target="prod"))])
    [_, said] = await memory.messages("t")
    assert said["content"]["parts"][1]["toolInvocation"]["state"] == "call"
    assert undated(await memory.recall("t", "u")) == [user("Deploy"), assistant("I will ask.")]


@pytest.mark.parametrize(
    ("output", "state", "told"),
    [
        ({"type": "json", "value": {"ok": True}}, {"state": "result", "result": {"ok": True}}, None),
        ({"type": "text", "value": "done"}, {"state": "result", "result": "done"}, None),
        ({"type": "json", "value": None}, {"state": "result", "result": None}, None),
        ({"type": "error-text", "value": "bad"}, {"state": "output-error", "errorText": "bad"}, None),
        (
            {"type": "error-json", "value": {"code": 1}},
            {"state": "output-error", "errorText": '{"code": 1}'},
            {"type": "error-text", "value": '{"code": 1}'},
        ),
        (
            {"type": "execution-denied", "reason": "too risky"},
            {"state": "output-denied", "approval": {"approved": False, "reason": "too risky"}},
            {"type": "error-text", "value": "too risky"},
        ),
    ],
)
async def test_a_result_that_comes_later_goes_to_its_call(
    memory: Memory, output: dict[str, Any], state: dict[str, Any], told: dict[str, Any] | None
) -> None:
    await memory.remember("t", "u", [user("Deploy"), assistant(call("a1", "deploy", target="prod"))])
    later = {"type": "tool-result", "toolCallId": "a1", "toolName": "deploy", "output": output}
    written = await memory.remember("t", "u", [tool(later), assistant("Deployed.")])
    assert len(written) == 2
    _, called, said = await memory.messages("t")
    invocation = {"toolCallId": "a1", "toolName": "deploy", "args": {"target": "prod"}, **state}
    assert undated(called["content"]["parts"]) == [{"type": "tool-invocation", "toolInvocation": undated(invocation)}]
    assert said["content"]["content"] == "Deployed."
    assert undated(await memory.recall("t", "u")) == [
        user("Deploy"),
        assistant(call("a1", "deploy", target="prod")),
        tool({**later, "input": {"target": "prod"}, "output": told or output}),
        assistant("Deployed."),
    ]


async def test_a_client_tools_bare_result_is_a_result(memory: Memory) -> None:
    await memory.remember("t", "u", [user("Rows?"), assistant(call("k1", "head", rows=2))])
    bare = {"type": "tool-result", "toolCallId": "k1", "toolName": "head", "input": {"rows": 2}, "result": ["a", "b"]}
    await memory.remember("t", "u", [tool(bare)])
    [_, _, told] = await memory.recall("t", "u")
    assert told["content"][0]["output"] == {"type": "json", "value": ["a", "b"]}


async def test_a_growing_answer_is_written_again_under_its_id(memory: Memory) -> None:
    answer = assistant("Let me look.", call("c1", city="Paris"), id="answer-1")
    await memory.remember("t", "u", [user("Weather?"), answer])
    await memory.remember(
        "t", "u", [answer, tool(result("c1", {"celsius": 21}, city="Paris")), assistant("21 °C", id="answer-1")]
    )
    assert [message["id"] for message in await memory.messages("t")][1:] == ["answer-1"]
    assert undated(await memory.recall("t", "u")) == [
        user("Weather?"),
        assistant("Let me look.", call("c1", city="Paris")),
        tool(result("c1", {"celsius": 21}, city="Paris")),
        assistant("21 °C"),
    ]


async def test_what_a_provider_noted_goes_back_to_it(memory: Memory) -> None:
    noted = {"anthropic": {"signature": "c2ln"}}
    thought = {"type": "reasoning", "text": "Hmm.", "providerOptions": noted}
    called = {**call("c1"), "providerOptions": {"openai": {"itemId": "fc_1"}}}
    await memory.remember("t", "u", [user("?"), assistant(thought, called), tool(result("c1", 1)), assistant("1")])
    said = await memory.recall("t", "u")
    assert undated(said[1]["content"]) == [thought, called]
    [_, kept] = await memory.messages("t")
    assert undated(kept["content"]["parts"][0]) == {
        "type": "reasoning",
        "reasoning": "Hmm.",
        "details": [{"type": "text", "text": "Hmm."}],
        "providerMetadata": noted,
    }


async def test_ui_messages_and_texts_are_kept_too(memory: Memory) -> None:
    state = {"toolCallId": "c1", "input": {"city": "Paris"}}
    parts = [
        {"type": "reasoning", "text": "Hmm."},
        {"type": "tool-weather", "state": "output-available", "output": {"celsius": 21}, **state},
        {"type": "step-start"},
        {"type": "text", "text": "21 °C"},
    ]
    history = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "id": "m1", "parts": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "id": "m2", "parts": parts},
        {"role": "user", "content": "Thanks"},
    ]
    await memory.remember("t", "u", history)
    assert [message["id"] for message in await memory.messages("t")][:2] == ["m1", "m2"]
    thought = {"type": "reasoning", "text": "Hmm."}
    assert undated(await memory.recall("t", "u")) == [
        user("Weather?"),
        assistant(thought, call("c1", city="Paris")),
        tool(result("c1", {"celsius": 21}, city="Paris")),
        assistant("21 °C"),
        user("Thanks"),
    ]


PDF = {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf"}


def test_images_and_files_come_back_as_they_went() -> None:
    content = [
        {"type": "image", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
        {
            "type": "file",
            "data": "data:application/pdf;base64,JVBERg==",
            "mediaType": "application/pdf",
            "filename": "a.pdf",
        },
        {"type": "image", "url": "https://example.com/a.jpg", "mediaType": "image/jpeg"},
    ]
    [kept] = stored_messages([{"role": "user", "content": content}], now_ms=0)
    assert [part["data"] for part in kept["content"]["parts"]] == [
        "data:image/png;base64,iVBORw0KGgo=",
        "data:application/pdf;base64,JVBERg==",
        "https://example.com/a.jpg",
    ]
    [told] = undated(recalled_messages([kept]))
    assert told["content"] == [
        {"type": "file", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
        {**PDF, "data": "JVBERg=="},
        {"type": "file", "url": "https://example.com/a.jpg", "mediaType": "image/jpeg"},
    ]


def test_signals_are_told_in_their_tag() -> None:
    signal = {"type": "reactive", "tagName": "system-reminder", "attributes": {"type": "goal-judge"}}
    content = {"format": 2, "parts": [{"type": "text", "text": "Go on."}], "metadata": {"signal": signal}}
    [told] = recalled_messages([{"role": "signal", "content": content}])
    text = '<system-reminder type="goal-judge">Go on.</system-reminder>'
    assert told == {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("content", [None, 7, [], {}, {"parts": None}, {"parts": [None, 7, {}]}, {"format": 1}, ""])
def test_a_record_of_unknown_shape_is_told_as_nothing(content: Any) -> None:
    assert all(message["content"] for message in recalled_messages([{"role": "assistant", "content": content}]))
    assert recalled_messages([{"role": "user", "content": content}]) == []


def test_threads_as_python_calls(memory: Memory) -> None:
    made = memory.create_thread("Trip to Paris", {"city": "Paris"}, resource="ada").result(10)
    assert (made["title"], made["metadata"], made["resourceId"]) == ("Trip to Paris", {"city": "Paris"}, "ada")
    named = memory.create_thread(resource="eve", thread="by-name").result(10)
    assert named["id"] == "by-name"
    assert [thread["id"] for thread in memory.threads(resource="ada").result(10)] == [made["id"]]
    assert len(memory.threads().result(10)) == 2
    assert len(memory.threads(per_page=1, page=1).result(10)) == 1
    assert memory.thread(made["id"]).result(10) == made
    assert memory.messages("by-name").result(10) == []
    assert memory.delete("by-name").result(10) is None
    with pytest.raises(SettingsError, match=r"no thread 'by-name' in sqlite://: \.threads\(\) lists"):
        memory.messages("by-name").result(10)
    with pytest.raises(SettingsError, match=f"did you mean '{made['id']}'"):
        memory.delete(made["id"][:-2]).result(10)
    memory.delete(made["id"]).result(10)
    with pytest.raises(SettingsError, match="it is empty"):
        memory.thread("any").result(10)


def test_a_memory_says_what_it_is_and_what_to_call(memory: Memory) -> None:
    assert (
        repr(memory)
        == "<Memory in memory only, tells the last 10 messages: .threads(), .messages(thread), .delete(thread)>"
    )
    assert "tells all messages" in repr(Memory(memory.store, last_messages=None))
    assert "/tmp/x.db" in repr(Memory("/tmp/x.db"))
