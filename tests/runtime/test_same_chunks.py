"""A local run gives the chunks of the real server, field by field: ids, times and stacks aside, and what is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Memory
from tests.runtime.agents import agent
from tests.runtime.wire import chunks, plain, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")

MEMORY = {"thread": "t1", "resource": "u1"}


def comparable(of: list[dict[str, Any]]) -> list[Any]:
    """Without what differs on purpose; each line says why."""
    made = []
    for chunk in of:
        one = plain(chunk)
        payload = one.get("payload", {})
        if chunk["type"].startswith(("text-", "reasoning-")):
            payload["id"] = "<part>"  # numbered by script there, by turn here
        if chunk["type"] == "tool-error":
            error = payload["error"]
            error.pop("message", None)  # the server's JSON loses them
            error.pop("stack", None)
        if "resumeSchema" in payload:
            payload["resumeSchema"] = sorted(json.loads(chunk["payload"]["resumeSchema"]).get("properties", {}))
        made.append(one)
    return made


async def run(name: str, prompt: str = "hello", **options: Any) -> MastraModelOutput:
    """A run to its end, or to where it waits."""
    out = await agent(name).stream(prompt, **options)
    await out.settled()
    return out


@pytest.mark.parametrize("name", ["text", "tools", "error", "error-first", "data"])
async def test_a_run_has_the_server_s_chunks(name: str) -> None:
    out = await run(name)
    assert comparable(chunks(out)) == comparable(recorded(name))


@pytest.mark.parametrize(("name", "prompt"), [("approve", "Deploy"), ("ask", "go")])
async def test_a_run_that_waits_has_the_server_s_chunks(name: str, prompt: str) -> None:
    out = await run(name, prompt)
    assert out.status == "suspended"
    ours, theirs = comparable(chunks(out)), comparable(recorded(name))
    if name == "ask":  # the schema is the tool's own there
        theirs[-1]["payload"]["resumeSchema"] = ours[-1]["payload"]["resumeSchema"]
    assert ours == theirs


def without_content_of_last_step(of: list[Any]) -> list[Any]:
    """A resumed run of the server forgets the content of its last step; ours doesn't."""
    for chunk in of:
        steps = chunk.get("payload", {}).get("output", {}).get("steps", [])
        if len(steps) > 1:
            steps[-1]["content"] = "<content>"
    return of


def without_trace(of: list[Any]) -> list[Any]:
    """Ours has no traces, and threads of our own."""
    for chunk in of:
        for message in chunk.get("payload", {}).get("response", {}).get("uiMessages", []):
            message["metadata"].pop("traceId", None)
            message["metadata"]["threadId"] = "<thread>"
    return of


@pytest.mark.parametrize("name", ["approve-approved", "declined", "ask-resumed"])
async def test_what_follows_an_answer_has_the_server_s_chunks(name: str) -> None:
    kind = "ask" if name == "ask-resumed" else "approve"
    local = agent(kind, memory=Memory("sqlite://"))
    out = await local.stream("go" if kind == "ask" else "Deploy", memory=MEMORY)
    await out.settled()
    if name == "declined":
        after = await out.decline(reason="not on Fridays")
    elif name == "ask-resumed":
        after = await out.resume({"answer": "Paris"})
    else:
        after = await out.approve()
    assert await after.finish_reason == "stop"
    ours = without_trace(without_content_of_last_step(comparable(chunks(after))))
    theirs = without_trace(without_content_of_last_step(comparable(recorded(name))))
    assert ours == theirs


async def test_a_sub_agent_s_chunks_come_as_the_server_s_do() -> None:
    local = agent("supervisor", memory=Memory("sqlite://"))
    out = await local.stream("hello")
    await out.settled()
    ours = without_trace(comparable(chunks(out)))
    assert ours == without_trace(comparable(recorded("supervisor")))


async def test_arguments_that_are_no_json_never_run_the_tool_b23() -> None:
    out = await run("bad-args")
    ours, theirs = chunks(out), recorded("bad-args")
    assert types(ours) == types(theirs)
    result = next(chunk["payload"] for chunk in ours if chunk["type"] == "tool-result")
    expected = next(chunk["payload"] for chunk in theirs if chunk["type"] == "tool-result")
    assert result.keys() == expected.keys()
    assert result["args"] == expected["args"] == {}
    assert expected["result"].keys() <= result["result"].keys()
    assert out.tool_calls[0].args_text == '{"city":"Lima"}<|call|>'
    finish, expected_finish = ours[-1]["payload"], theirs[-1]["payload"]
    assert finish["messages"]["all"][1] == expected_finish["messages"]["all"][1]
    assert await out.text == "done"
