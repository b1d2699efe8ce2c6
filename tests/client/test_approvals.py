"""Answers to runs that wait, on a real Mastra server: from the output, by id, from another kernel, twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from nbmastra.client import MastraClient
from nbmastra.client.answers import Claims, Question
from nbmastra.engine import Engine
from nbmastra.errors import AlreadyResumed, NotSuspended, SettingsError
from nbmastra.output import MastraModelOutput
from tests.client.tiny_server import TinyServer, answer, chunked
from tests.support.mastra import MastraServer


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


@pytest.fixture
def other_kernel(mastra_server: MastraServer) -> Iterator[MastraClient]:
    engine = Engine("nbmastra-other-kernel")
    yield MastraClient(mastra_server.url, engine=engine)
    engine.close()


def suspended(client: MastraClient, agent: str, thread: str, **options: object) -> MastraModelOutput:
    memory = {"thread": thread, "resource": "approval-tests"}
    out = client.agent(agent).stream("Go", memory=memory, **options).result().wait(20)
    assert out.status == "suspended"
    return out


@pytest.mark.server
def test_approving_gives_a_new_output_that_goes_on(client: MastraClient) -> None:
    out = suspended(client, "approve", "approve-1")
    after = out.approve().result(10)
    assert after.text.result(10) == "Deployed."
    assert after.status == "success"
    assert (after.previous, after.agent, after.context) == (out, "approve", out.context)
    assert [(call.tool_call_id, call.status, call.result) for call in after.tool_calls] == [
        ("a1", "success", {"deployed": "prod"})
    ]
    assert out.waiting == []


@pytest.mark.server
def test_declining_tells_the_model_the_reason(client: MastraClient) -> None:
    after = suspended(client, "approve", "decline-1").decline(reason="not on Fridays").result(10).wait(10)
    [call] = after.tool_calls
    assert (call.status, call.denial_reason) == ("denied", "not on Fridays")
    assert after.status == "success"


@pytest.mark.server
def test_a_suspended_tool_is_given_its_data(client: MastraClient) -> None:
    out = suspended(client, "ask", "ask-1")
    assert out.suspend_payload.result() == {"question": "Which city?"}
    after = out.resume({"answer": "Paris"}).result(10)
    assert after.text.result(10) == "Thanks, noted."
    assert after.tool_calls[0].result == {"answer": "Paris"}


@pytest.mark.server
def test_options_of_the_run_hold_after_its_approval(client: MastraClient) -> None:
    class Anything(BaseModel):
        name: str = ""

    out = suspended(client, "approve", "carried-1", until_idle=True, max_steps=3, schema=Anything)
    after = out.approve().result(10).wait(10)
    assert after.until_idle
    assert after.schema is not None
    assert after.total.text == "Deployed."
    assert after.tool_calls[0].status == "success"


@pytest.mark.server
def test_an_answer_by_ids_works_without_the_output(client: MastraClient) -> None:
    agent = client.agent("approve")
    run_id = suspended(client, "approve", "ids-1").run_id or ""
    assert agent.approve_tool_call(run_id, "a1").result(10).text.result(10) == "Deployed."
    run_id = suspended(client, "approve", "ids-2").run_id or ""
    declined = agent.decline_tool_call(run_id, "a1", reason="no").result(10).wait(10)
    assert declined.tool_calls[0].denial_reason == "no"
    run_id = suspended(client, "ask", "ids-3").run_id or ""
    resumed = client.agent("ask").resume_stream(run_id, {"answer": "Rome"}).result(10)
    assert resumed.text.result(10) == "Thanks, noted."


@pytest.mark.server
def test_a_second_answer_is_already_resumed_also_from_another_kernel(
    client: MastraClient, other_kernel: MastraClient
) -> None:
    out = suspended(client, "approve", "twice-1")
    out.approve().result(10).wait(10)
    with pytest.raises(AlreadyResumed, match="deploy"):
        out.approve()
    run_id = out.run_id or ""
    here, there = client.agent("approve"), other_kernel.agent("approve")
    for again in (
        lambda: here.approve_tool_call(run_id, "a1"),
        lambda: here.decline_tool_call(run_id, "a1"),
        lambda: there.approve_tool_call(run_id, "a1"),
        lambda: there.resume_stream(run_id, {"approved": True}),
    ):
        with pytest.raises(AlreadyResumed, match="waits for no answer any more"):
            again().result(10)


@pytest.mark.server
def test_b41_a_durable_run_whose_stream_stays_open_is_suspended_and_answered_once(client: MastraClient) -> None:
    out = suspended(client, "durable-approve", "durable-1")
    assert out.elapsed_s < 5
    [run] = client.agent("durable-approve").suspended_runs(thread="durable-1").result(10)
    assert "an answer" in repr(run)
    observed = client.agent("durable-approve").observe(out.run_id or "").result(10).wait(10)
    assert (observed.status, list(observed.state.unknown)) == ("suspended", [])
    after = out.approve().result(10)
    assert after.text.result(10) == "Deployed."
    with pytest.raises(AlreadyResumed):
        run.approve().result(10)
    whole = client.agent("durable-approve").observe(out.run_id or "").result(10).wait(10)
    assert (whole.status, whole.text.result()) == ("success", "Deployed.")


@pytest.mark.server
def test_b40_of_two_answers_at_once_one_runs_and_the_other_is_already_resumed_within_a_second(
    client: MastraClient,
) -> None:
    async def two(out: MastraModelOutput) -> list[MastraModelOutput | BaseException]:
        agent = client.agent("approve")
        answers = (agent.approve_tool_call(out.run_id or "", "a1") for _ in range(2))
        return await asyncio.gather(*answers, return_exceptions=True)

    out = suspended(client, "approve", "b40")
    started = time.monotonic()
    results = asyncio.run(two(out))
    refused = [result for result in results if isinstance(result, AlreadyResumed)]
    [after] = [result for result in results if isinstance(result, MastraModelOutput)]
    assert len(refused) == 1
    assert time.monotonic() - started < 1
    assert after.text.result(10) == "Deployed."
    assert [call.status for call in after.tool_calls] == ["success"]


@pytest.mark.server
def test_suspended_runs_are_found_and_answered_by_a_kernel_that_never_saw_them(
    client: MastraClient, other_kernel: MastraClient
) -> None:
    out = suspended(client, "approve", "restart-1")
    asked = suspended(client, "ask", "restart-2")
    runs = other_kernel.agent("approve").suspended_runs(thread="restart-1", resource="approval-tests").result(10)
    [run] = runs
    assert (run.agent, run.run_id, run.thread, run.resource) == ("approve", out.run_id, "restart-1", "approval-tests")
    [call] = run.calls
    assert (call.tool_call_id, call.tool_name, call.args, call.needs_approval) == (
        "a1",
        "deploy",
        {"target": "prod"},
        True,
    )
    assert run.suspended_at is not None
    header, row = repr(runs).splitlines()
    assert header.split()[:3] == ["agent", "tool", "waits"]
    assert "deploy" in row
    assert "approval" in row
    assert run.approve().result(10).text.result(10) == "Deployed."
    with pytest.raises(AlreadyResumed):
        run.approve().result(10)

    of_all = other_kernel.suspended_runs(resource="approval-tests").result(20)
    [waiting] = [run for run in of_all if run.run_id == asked.run_id]
    assert not waiting.calls[0].needs_approval
    assert waiting.calls[0].suspend_payload == {"question": "Which city?"}
    assert waiting.resume({"answer": "Oslo"}).result(10).text.result(10) == "Thanks, noted."
    with pytest.raises(NotSuspended):
        waiting.resume({}, tool_call_id="nope")


@pytest.mark.server
def test_where_nothing_waits_the_list_says_so(client: MastraClient) -> None:
    runs = client.agent("text").suspended_runs().result(10)
    assert len(runs) == 0
    assert repr(runs) == "no run waits for an answer"


def sse(*chunks: str) -> list[bytes]:
    return [f"data: {chunk}\n\n".encode() for chunk in (*chunks, "[DONE]")]


QUESTION = (
    '{"type":"start","runId":"r","from":"AGENT","payload":{}}',
    '{"type":"step-start","runId":"r","from":"AGENT","payload":{}}',
    '{"type":"tool-call","runId":"r","from":"AGENT","payload":{"toolCallId":"c1","toolName":"ask","args":{}}}',
    '{"type":"tool-call-suspended","runId":"r","from":"AGENT","payload":{"toolCallId":"c1","toolName":"ask",'
    '"suspendPayload":{"q":1}}}',
)
REST = (
    '{"type":"tool-result","runId":"r","from":"AGENT","payload":{"toolCallId":"c1","toolName":"ask","result":"ok"}}',
    '{"type":"text-start","runId":"r","from":"AGENT","payload":{"id":"t"}}',
    '{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"done"}}',
    '{"type":"finish","runId":"r","from":"AGENT","payload":{"stepResult":{"reason":"stop"},"output":{"usage":{}}}}',
)


def test_b09_a_replayed_question_does_not_end_the_resumed_run(server: TinyServer, engine: Engine) -> None:
    def handler(request: object) -> Iterator[bytes]:
        resumed = "resume-stream" in server.requests[-1].target
        return chunked(sse(*QUESTION, *REST) if resumed else sse(*QUESTION))

    server.handler = handler
    out = MastraClient(server.url, engine=engine).agent("a").stream("Go").result(5).wait(5)
    assert out.status == "suspended"
    after = out.resume({"a": 1}).result(5).wait(5)
    assert (after.status, after.text.result()) == ("success", "done")
    assert after.waiting == []


def test_an_answer_that_the_server_could_not_take_may_be_given_again(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: [answer(503, '{"error":"starting up"}')]
    agent = MastraClient(server.url, engine=engine).agent("a")
    with pytest.raises(Exception, match="starting up"):
        agent.approve_tool_call("r", "c1").result(5)
    server.handler = lambda _: chunked(sse(*REST))
    assert agent.approve_tool_call("r", "c1").result(5).text.result(5) == "done"


def test_a_call_id_that_returns_in_the_same_run_can_be_answered_again(server: TinyServer, engine: Engine) -> None:
    server.handler = lambda _: chunked(sse(*QUESTION[1:]))
    agent = MastraClient(server.url, engine=engine).agent("a")
    for _ in range(2):
        agent.resume_stream("r", {}, "c1").result(5).wait(5)


def test_questions_are_claimed_one_at_a_time_and_other_calls_of_the_run_too() -> None:
    claims = Claims()
    claims.take(("s",), Question("r", "c1"))
    claims.take(("s",), Question("r", "c2"))
    claims.take(("s",), Question("r2"))
    for taken in (Question("r", "c1"), Question("r"), Question("r2", "c1")):
        with pytest.raises(AlreadyResumed):
            claims.take(("s",), taken)
    claims.release(("s",), Question("r", "c1"))
    claims.take(("s",), Question("r", "c1"))


def test_options_of_an_answer_are_checked_at_once(engine: Engine) -> None:
    with pytest.raises(SettingsError, match="max_steps"):
        MastraClient("http://127.0.0.1:9", engine=engine).agent("a").resume_stream("r", {}, max_stepss=1)
    with pytest.raises(SettingsError, match="max_seconds"):
        MastraClient("http://127.0.0.1:9", engine=engine).agent("a").approve_tool_call("r", "c", max_seconds=0)
