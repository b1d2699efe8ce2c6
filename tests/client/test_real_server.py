"""The client against a real Mastra server: what its agents give, what it refuses, what it sees of a cancelled run."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from nbmastra.client import MastraClient
from nbmastra.client.address import ServerAddress
from nbmastra.client.http import Http
from nbmastra.engine import Engine
from nbmastra.errors import (
    AgentNotFound,
    BadRequest,
    MastraStreamError,
    NotMastra,
    ObjectError,
    ServerError,
    ServerUnreachable,
    Unauthorized,
)
from nbmastra.output import MastraModelOutput
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.server

TRUTH: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "expected_runs.json").read_text(encoding="utf-8")
)


class Person(BaseModel):
    name: str
    age: int
    tags: list[str]


class Item(BaseModel):
    n: int


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


def memory(thread: str) -> dict[str, str]:
    return {"thread": thread, "resource": "client-tests"}


def check(out: MastraModelOutput, name: str) -> None:
    """A run on the server now means what its recording means, ids and times aside."""
    expected = TRUTH[name]
    assert out.status == expected["status"]
    assert expected["reason_contains"] in out.status_reason.lower()
    assert len(out.turns) == len(expected["turns"])
    for turn, truth in zip(out.turns, expected["turns"], strict=True):
        assert turn.text == truth["text"]
        assert turn.finish_reason == truth["finish_reason"]
        usage = truth["usage"] or {"input": None, "output": None, "total": None}
        assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.total_tokens) == (
            usage["input"],
            usage["output"],
            usage["total"],
        )
        assert [step.text for step in turn.steps] == [step["text"] for step in truth["steps"]]
        assert [step.reasoning for step in turn.steps] == [step["reasoning"] for step in truth["steps"]]
        calls = [call for step in truth["steps"] for call in step["tool_calls"]]
        assert [(call.tool_call_id, call.args, call.status) for call in turn.tool_calls] == [
            (call["id"], call["args"], call["status"]) for call in calls
        ]


@pytest.mark.parametrize("name", ["text", "tools", "bad-args", "error", "error-first", "tripwire", "data"])
def test_an_agents_run_means_what_its_recording_means(client: MastraClient, name: str) -> None:
    out = client.agent(name).stream("Hi").result()
    check(out.wait(20), f"{name}.sse")
    assert out.agent == name
    assert out.run_id


def test_values_and_streams_of_a_run_are_there(client: MastraClient) -> None:
    async def cell() -> None:
        out = await client.agent("tools").stream([{"role": "user", "content": "Weather?"}], max_steps=5)
        texts = [text async for text in out.text_stream]
        assert "".join(texts) == "Let me look that up.It is 21 °C in Paris."
        assert await out.text == "It is 21 °C in Paris."
        assert (await out.usage).total_tokens == 65
        assert [call.tool_call_id for call in await out.tool_calls] == ["c1", "c2"]

    asyncio.run(cell())


def test_a_failed_run_raises_mastras_message(client: MastraClient) -> None:
    with pytest.raises(MastraStreamError, match="provider went away") as caught:
        client.agent("error").stream("Hi").result().text.result()
    assert caught.value.partial == "partial"
    with pytest.raises(MastraStreamError, match="no such model"):
        client.agent("error-first").stream("Hi").result().text.result()


@pytest.mark.parametrize("schema", [Person, Person.model_json_schema()], ids=["model", "json"])
def test_an_object_is_asked_for_by_a_model_or_a_json_schema(client: MastraClient, schema: Any) -> None:
    out = client.agent("object").stream("Who?", schema=schema).result()
    states = list(out.object_stream)
    value = {"name": "Ada", "age": 36, "tags": ["math", "code"]}
    assert states[-1] == value
    assert out.object.result() == (Person(**value) if schema is Person else value)


def test_an_array_gives_its_elements_as_they_are_complete(client: MastraClient) -> None:
    out = client.agent("list").stream("Count", schema=list[Item]).result()
    assert list(out.element_stream) == [Item(n=1), Item(n=2), Item(n=3)]
    assert out.object.result() == [Item(n=1), Item(n=2), Item(n=3)]


def test_an_object_that_does_not_fit_is_refused(client: MastraClient) -> None:
    class Other(BaseModel):
        missing: str

    out = client.agent("object").stream("Who?", structured_output={"schema": Other}).result()
    with pytest.raises((ObjectError, MastraStreamError)):
        out.object.result()


def test_a_supervisors_sub_agent_is_a_run_of_its_own(client: MastraClient) -> None:
    out = client.agent("supervisor").stream("Hi", memory=memory("supervisor")).result().wait(20)
    check(out, "supervisor.sse")
    assert [run.text for run in out.total.nested] == [run["text"] for run in TRUTH["supervisor.sse"]["nested"]]


@pytest.mark.parametrize("until_idle", [True, {"max_idle_ms": 10_000}])
def test_until_idle_a_run_goes_on_until_its_background_tasks_are_done(client: MastraClient, until_idle: Any) -> None:
    out = client.agent("background").stream(
        "Research", until_idle=until_idle, memory=memory(f"idle-{until_idle is True}")
    )
    finished = out.result().wait(20)
    assert finished.status == "success"
    assert finished.turns[-1].text == "The research is finished."
    assert sorted(task.status for task in finished.total.tasks) == ["completed", "failed"]
    assert finished.text.result() == finished.turns[0].text


def test_a_long_run_arrives_whole(client: MastraClient) -> None:
    out = client.agent("long").stream("Write").result()
    expected = "".join(f"Paragraph {i}: *lorem* **ipsum** `code` dolor.\n\n" for i in range(400))
    assert out.text.result(60) == expected
    assert len(list(out.text_stream)) > 2000


def test_runs_side_by_side_do_not_mix(client: MastraClient) -> None:
    async def cell() -> list[str]:
        outs = await asyncio.gather(*(client.agent("tools").stream("Weather?") for _ in range(20)))
        return [await out.text for out in outs]

    assert asyncio.run(cell()) == ["It is 21 °C in Paris."] * 20


def aborts(server: MastraServer, after: int = -1) -> int:
    """How many model calls were aborted; with `after`, waits until they are more."""
    with urllib.request.urlopen(f"{server.url}/test/aborts?after={after}", timeout=1) as response:
        return json.load(response)["aborts"]


def test_b10_the_server_sees_within_a_second_that_a_run_was_cancelled(
    mastra_server: MastraServer, client: MastraClient
) -> None:
    before = aborts(mastra_server)
    out = client.agent("long").stream("Write").result()
    assert next(iter(out.text_stream))
    out.cancel()
    assert aborts(mastra_server, after=before) == before + 1
    assert out.wait(1).status == "cancelled"
    assert out.text.result()


def test_b10_leaving_a_loop_and_closing_leaves_nothing_behind(
    mastra_server: MastraServer, client: MastraClient
) -> None:
    before = aborts(mastra_server)

    async def cell(name: str, last: str) -> str:
        out = await client.agent(name).stream("Write")
        async for chunk in out.full_stream:
            if chunk.type == last:
                break
        await asyncio.wait_for(out.aclose(), 1)
        await out.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return out.status

    assert asyncio.run(cell("long", "text-delta")) == "cancelled"
    assert aborts(mastra_server, after=before) == before + 1
    assert asyncio.run(cell("text", "finish")) == "success"
    assert aborts(mastra_server) == before + 1


def test_the_agents_of_the_server_are_listed_and_described(client: MastraClient) -> None:
    agents = client.agents().result()
    assert agents["tools"].tools == ("weather",)
    assert agents["tools"].model == "scripted/scripted-1"
    assert agents["supervisor"].agents == ("sub",)
    info = client.agent("tools").describe().result()
    assert (info.id, info.instructions, info.tools) == ("tools", "Answer.", ("weather",))
    assert "Current temperature" in json.dumps(info.raw)


def test_a_missing_agent_is_named_with_those_that_exist(client: MastraClient) -> None:
    for request in (client.agent("txt").stream("Hi"), client.agent("txt").describe()):
        with pytest.raises(AgentNotFound, match="Did you mean 'text'") as caught:
            request.result()
        assert "supervisor" in caught.value.available


def test_a_bad_request_names_the_field(client: MastraClient) -> None:
    with pytest.raises(BadRequest, match=r"maxSteps: .*number") as caught:
        client.agent("text").stream("Hi", max_steps="three").result()  # type: ignore[arg-type]
    assert caught.value.issues[0]["field"] == "maxSteps"
    with pytest.raises(BadRequest, match="resource"):
        client.agent("text").stream("Hi", memory={"thread": "t"}).result()


def test_a_token_opens_a_locked_server(mastra_server: MastraServer, engine: Engine) -> None:
    url = f"{mastra_server.url}/locked"
    with pytest.raises(Unauthorized, match=r"wants a token \(401: Authentication required\).*MASTRA_API_TOKEN"):
        MastraClient(url, engine=engine).agents().result()
    with pytest.raises(Unauthorized, match="refused the token"):
        MastraClient(url, token="wrong-token", engine=engine).agent("text").stream("Hi").result()
    out = MastraClient(url, token="letmein", engine=engine).agent("text").stream("Hi").result()
    assert out.wait(20).status == "success"


def test_a_server_error_gives_mastras_message(mastra_server: MastraServer, engine: Engine) -> None:
    http = Http(ServerAddress.of(mastra_server.url), engine=engine)
    body = {"runId": "none", "toolCallId": "none", "resumeData": {}}
    with pytest.raises(ServerError, match="suspended run") as caught:
        engine.start(http.stream, "/agents/ask/resume-stream", body).result()
    assert caught.value.status_code == 500


def test_a_server_that_has_gone_is_unreachable(
    start_mastra_server: Callable[..., MastraServer], engine: Engine
) -> None:
    server = start_mastra_server()
    client = MastraClient(server.url, engine=engine)
    assert client.agents().result()
    out = client.agent("long").stream("Write").result()
    assert next(iter(out.text_stream))
    server.process.kill()
    server.process.wait()
    assert out.wait(5).status == "truncated"
    with pytest.raises(ServerUnreachable, match="is the server running"):
        client.agents().result()


def test_another_path_of_the_server_is_not_its_api(mastra_server: MastraServer, engine: Engine) -> None:
    with pytest.raises(NotMastra, match="is the address right"):
        MastraClient(f"{mastra_server.url}/elsewhere", engine=engine).agents().result()
