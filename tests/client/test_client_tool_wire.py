"""What client tools say on the wire, against a server that plays the recorded halves of such a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.output import MastraModelOutput
from tests.client.tiny_server import Request, TinyServer, answer, chunked

STREAMS = Path(__file__).parents[1] / "data" / "streams"


def head_of_table(rows: int) -> list[str]:
    """The first rows.

    Args:
        rows: How many.
    """
    return ["a", "b"][:rows]


def run(server: TinyServer, engine: Engine, tool: Any, **options: Any) -> tuple[MastraModelOutput, list[Any]]:
    """The run, and the bodies of its requests."""
    halves = [STREAMS / "client-tool-1.sse", STREAMS / "client-tool-2.sse"]

    def play(request: Request) -> Any:
        if not request.target.endswith("/stream"):
            return [answer(404, "{}")]
        half = halves[len([one for one in server.requests if one.target.endswith("/stream")]) - 1]
        return chunked([half.read_bytes()])

    server.handler = play
    agent = MastraClient(server.url, engine=engine).agent("client-tool")
    out = agent.stream("look", client_tools=[tool], **options).result(30)
    out.wait(30)
    return out, [json.loads(request.body) for request in server.requests]


def test_a_function_is_declared_and_its_result_sent_with_the_conversation(server: TinyServer, engine: Engine) -> None:
    out, (first, second) = run(server, engine, head_of_table, max_steps=4, run_id="mine", model_settings={"top_p": 1})
    assert first["clientTools"] == {
        "head_of_table": {
            "id": "head_of_table",
            "description": "The first rows.",
            "inputSchema": {
                "type": "object",
                "properties": {"rows": {"type": "integer", "description": "How many."}},
                "required": ["rows"],
                "additionalProperties": False,
            },
        }
    }
    result = {"type": "tool-result", "toolCallId": "k1", "toolName": "head_of_table", "input": {"rows": 2}}
    question, call, told = second.pop("messages")
    assert question == {"role": "user", "content": "look"}
    assert [part["type"] for part in call["content"]] == ["tool-call"]
    assert told == {"role": "tool", "content": [{**result, "result": ["a", "b"]}]}
    assert second == {**{key: first[key] for key in first if key not in ("messages", "runId")}, "maxSteps": 3}
    assert out.text.result() == "The table starts with a."


def test_on_a_thread_only_the_result_is_sent(server: TinyServer, engine: Engine) -> None:
    out, (first, second) = run(server, engine, head_of_table, memory={"thread": "t", "resource": "r"})
    assert [message["role"] for message in second["messages"]] == ["tool"]
    assert second["memory"] == first["memory"]
    assert out.status == "success"


def test_a_tool_that_is_not_here_is_an_error_for_the_model(server: TinyServer, engine: Engine) -> None:
    def other() -> None: ...

    out, (_, second) = run(server, engine, other)
    told = second["messages"][-1]["content"][0]["result"]["error"]
    assert "no tool 'head_of_table' here" in told
    assert [call.status for call in out.state.tool_calls] == ["error"]


@pytest.mark.parametrize("ending", ["cut", "without finish"])
def test_a_first_half_that_breaks_off_runs_nothing(server: TinyServer, engine: Engine, ending: str) -> None:
    events = (STREAMS / "client-tool-1.sse").read_bytes().split(b"\n\n")
    finish = next(i for i, event in enumerate(events) if b'"type":"finish"' in event)
    kept = events[: finish + 1] if ending == "cut" else [*events[:finish], *events[finish + 1 :]]
    ran: list[int] = []

    def head_of_table(rows: int) -> None:
        ran.append(rows)

    server.handler = lambda _request: chunked([b"\n\n".join(kept) + b"\n\n"])
    agent = MastraClient(server.url, engine=engine).agent("client-tool")
    out = agent.stream("look", client_tools=[head_of_table]).result(30)
    out.wait(30)
    assert ran == []
    assert len(server.requests) == 1
