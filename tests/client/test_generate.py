"""`generate`: the same agents as the streams, answered at once; where the answers differ is what is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.errors import ObjectError, ServerError
from nbmastra.output import FullOutput
from nbmastra.usage import Usage
from tests.client.tiny_server import TinyServer, answer
from tests.support.mastra import MastraServer

RECORDING = Path(__file__).parents[1] / "data" / "streams" / "generate-tools.json"


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


def check_tools(full: FullOutput) -> None:
    assert full.text == "Let me look that up.It is 21 °C in Paris."  # a stream's text is what follows the calls
    assert [step.text for step in full.steps] == ["Let me look that up.", "It is 21 °C in Paris."]
    assert [(call.tool_call_id, call.args, call.status) for call in full.tool_calls] == [
        ("c1", {"city": "Paris"}, "success"),
        ("c2", {"city": "Nowhere"}, "error"),
    ]
    assert full.tool_calls[0].result == {"celsius": 21}
    assert full.tool_calls[1].error is not None
    assert full.tool_calls[1].error.message == "no such city"
    assert full.usage == full.total_usage == Usage(45, 20, 65)
    assert [step.usage.total_tokens for step in full.steps] == [23, 42]
    assert (full.finish_reason, full.status) == ("stop", "success")
    assert full.response.id == "resp-1"
    assert full.response.model_id == "scripted-1"
    assert len(full.response.messages) == 3
    assert full.run_id
    assert full.trace_id


def test_the_recorded_answer_means_what_it_says(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(200, RECORDING.read_bytes())]
    full = MastraClient(server.url, engine=engine).agent("tools").generate("Weather?", max_steps=3).result(5)
    check_tools(full)
    assert full.run_id == json.loads(RECORDING.read_bytes())["runId"]
    assert json.loads(server.requests[0].body)["maxSteps"] == 3


@pytest.mark.server
def test_tools_reasoning_sources_and_files_are_there(client: MastraClient) -> None:
    check_tools(client.agent("tools").generate("Weather?").result(10))
    full = client.agent("text").generate("Hi").result(10)
    assert full.reasoning == "Let me think about it."
    assert (len(full.sources), len(full.files)) == (1, 1)
    assert full.usage.reasoning_tokens == 5
    streamed = client.agent("text").stream("Hi").result(10)
    assert full.text == streamed.text.result(10)


@pytest.mark.server
def test_an_object_is_checked_by_its_schema(client: MastraClient) -> None:
    full = client.agent("object").generate("Who?", schema=Person).result(10)
    assert full.object == Person(name="Ada", age=36)
    assert full.object_error is None
    server_schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert client.agent("object").generate("Who?", schema=server_schema).result(10).object["name"] == "Ada"


def test_an_object_that_does_not_fit_is_there_with_its_error(server: TinyServer, engine: Engine) -> None:
    reply = {"text": "{}", "object": {"name": 1}, "finishReason": "stop", "steps": [], "usage": {}}
    server.handler = lambda _: [answer(200, json.dumps(reply))]
    agent = MastraClient(server.url, engine=engine).agent("a")
    full = agent.generate("Who?", schema=Person).result(5)
    assert full.object == {"name": 1}
    assert isinstance(full.object_error, ObjectError)
    del reply["object"]
    server.handler = lambda _: [answer(200, json.dumps(reply))]
    full = agent.generate("Who?", schema=Person).result(5)
    assert (full.object, isinstance(full.object_error, ObjectError)) == (None, True)


@pytest.mark.server
def test_a_suspended_run_is_answered_by_its_run_id(client: MastraClient) -> None:
    memory = {"thread": "generate-1", "resource": "u"}
    full = client.agent("approve").generate("Deploy", memory=memory).result(10)
    assert (full.status, full.finish_reason) == ("suspended", "suspended")
    assert full.suspend_payload["toolName"] == "deploy"
    [call] = full.tool_calls
    assert call.status == "needs-approval"
    after = client.agent("approve").approve_tool_call(full.run_id or "", call.tool_call_id).result(10)
    assert after.text.result(10) == "Deployed."
    memory["thread"] = "generate-2"
    assert client.agent("ask").generate("Ask", memory=memory).result(10).suspend_payload == {"question": "Which city?"}


@pytest.mark.server
def test_a_blocked_answer_and_a_failed_one_say_so(client: MastraClient) -> None:
    full = client.agent("tripwire").generate("Hi").result(10)
    assert (full.status, full.status_reason, full.text) == ("tripwire", "secret in output", "")
    with pytest.raises(ServerError, match="provider went away"):
        client.agent("error").generate("Hi").result(10)
