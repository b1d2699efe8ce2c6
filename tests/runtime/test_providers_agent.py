"""A local agent on a provider's model, with memory: what the provider noted comes back to it a turn later."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nbmastra.errors import MastraStreamError
from nbmastra.runtime import Agent
from nbmastra.runtime.memory import Memory
from nbmastra.tools import tool
from tests.client.tiny_server import Request, TinyServer, answer, tiny_server
from tests.support.provider_streams import anthropic_block, anthropic_stream, responses_stream


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyServer]:
    with tiny_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-0123456789")
        yield server


@tool
def weather(city: str) -> dict[str, int]:
    """Temperature of a city."""
    return {"celsius": len(city) + 16}


def of_anthropic(request: Request) -> Iterator[bytes]:
    sent = json.loads(request.body)["messages"][-1]["content"]
    if any(part["type"] == "tool_result" for part in sent):
        said = anthropic_block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "It is 21 °C."})
        return anthropic_stream(said)
    thought = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me see."},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    hidden = anthropic_block(1, {"type": "redacted_thinking", "data": "cmVk"})
    call = {"type": "tool_use", "id": f"toolu_{len(request.body)}", "name": "weather", "input": {}}
    args = {"type": "input_json_delta", "partial_json": '{"city": "Paris"}'}
    return anthropic_stream([*thought, *hidden, *anthropic_block(2, call, args)], "tool_use")


def test_an_agents_thoughts_go_back_to_anthropic_signed(server: TinyServer) -> None:
    server.handler = of_anthropic
    agent = Agent("helper", model="anthropic:claude-haiku-5-5", tools=[weather], memory=Memory("sqlite://"))
    memory = {"thread": "t", "resource": "u"}
    for _ in range(2):
        out = agent.stream("Weather in Paris?", memory=memory).result(60).wait(60)
        assert out.text.result(10) == "It is 21 °C."
    first, second, third, _ = (json.loads(request.body)["messages"] for request in server.requests)
    thoughts = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
    ]
    assert len(first) == 1
    assert second[1]["content"][:2] == thoughts
    assert third[1]["content"][:2] == thoughts  # by way of memory
    assert json.loads(third[2]["content"][0]["content"][0]["text"]) == {"celsius": 21}
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]


def test_an_agents_items_go_back_to_openai(server: TinyServer) -> None:
    def handler(request: Request) -> Iterator[bytes]:
        items: list[dict[str, Any]] = json.loads(request.body)["input"]
        if items[-1].get("type") == "function_call_output":
            return responses_stream(pieces=["It is", " 21 °C."])
        call = (f"call_{len(items)}", "weather", ['{"city":', '"Paris"}'])
        return responses_stream(thought="Let me see.", calls=[call])

    server.handler = handler
    memory_ = Memory("sqlite://")
    agent = Agent("helper", model="openai:gpt-6-luna", tools=[weather], memory=memory_)
    memory = {"thread": "t", "resource": "u"}
    for _ in range(2):
        agent.stream("Weather in Paris?", memory=memory).result(60).wait(60)
    [_, kept, *_] = memory_.messages("t").result(10)
    assert kept["content"]["metadata"] == {"modelId": "gpt-6-luna", "provider": "openai"}
    assert [part.get("model") for part in kept["content"]["parts"] if part["type"] == "step-start"] == [
        "openai/gpt-6-luna"
    ]
    third = json.loads(server.requests[2].body)["input"]
    kinds = [item.get("type", item.get("role")) for item in third]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output", "message", "user"]
    assert (third[1]["id"], third[1]["encrypted_content"]) == ("rs_1", "gAAAAA==")


def test_a_refusal_of_the_provider_is_the_runs_error(server: TinyServer) -> None:
    told = {"error": {"message": "Quota used up", "type": "insufficient_quota", "code": "insufficient_quota"}}
    server.handler = lambda _: [answer(429, json.dumps(told))]
    agent = Agent("helper", model="openai:gpt-6-luna")
    out = agent.stream("Hi", model_settings={"max_retries": 0}).result(60).wait(60)
    assert out.status == "failed"
    with pytest.raises(MastraStreamError, match="Quota used up") as caught:
        out.text.result(10)
    assert caught.value.status_code == 429


def test_other_runs_go_on_while_a_providers_libraries_load(server: TinyServer) -> None:
    """In a new process, where nothing is loaded yet: the engine's loop is never held up for long."""
    server.handler = lambda _: responses_stream(pieces=["Hi"])
    code = """
import asyncio, time
from nbmastra.engine import get_engine
from nbmastra.runtime import Agent

async def longest_gap(done):
    longest = 0.0
    while not done.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        longest = max(longest, time.perf_counter() - before)
    return longest

async def begin():
    done = asyncio.Event()
    return done, asyncio.create_task(longest_gap(done))

async def end(done, task):
    done.set()
    return await task

done, task = get_engine().start(begin).result(10)
began = time.perf_counter()
assert Agent("helper", model="openai:gpt-6-luna").stream("Hi").result(60).wait(60).text.result(5) == "Hi"
took = time.perf_counter() - began
gap = get_engine().start(end, done, task).result(10)
print(gap < took / 2, gap, took)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.startswith("True "), done.stdout
