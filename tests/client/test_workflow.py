"""Workflows of a real Mastra server: runs, steps that wait, agents inside of steps, observing, cancelling."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from nbmastra.chunks import parse_chunk
from nbmastra.client import MastraClient
from nbmastra.client.workflow import Replays
from nbmastra.engine import Engine
from nbmastra.errors import (
    AlreadyResumed,
    Conflict,
    ControlError,
    MastraStreamError,
    NotFound,
    NotSuspended,
    RunNotFound,
    SettingsError,
)
from tests.support.mastra import MastraServer


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


@pytest.fixture
def other_kernel(mastra_server: MastraServer) -> Iterator[MastraClient]:
    engine = Engine("nbmastra-other-kernel")
    yield MastraClient(mastra_server.url, engine=engine)
    engine.close()


@pytest.mark.server
def test_workflows_are_listed_and_described(client: MastraClient) -> None:
    workflows = client.workflows().result(10)
    assert {"arithmetic", "confirmed", "asks-agent"} <= set(workflows.ids)
    assert workflows["arithmetic"].steps == ("double", "increment")
    assert "double, increment" in repr(workflows)
    info = client.workflow("confirmed").describe().result(10)
    assert info.input_schema is not None
    assert info.input_schema["properties"] == {"n": {"type": "number"}}
    resume = info.resume_schema("confirm")
    assert resume is not None
    assert resume["required"] == ["by"]
    with pytest.raises(NotFound, match="Workflow not found"):
        client.workflow("nope").describe().result(10)


@pytest.mark.server
def test_a_run_gives_its_steps_and_its_result(client: MastraClient) -> None:
    out = client.workflow("arithmetic").stream({"n": 4}).result(10).wait(10)
    assert out.status == "success"
    assert out.state.result == {"n": 9}
    assert [(step.id, step.args, step.status, step.result) for step in out.state.workflow_steps] == [
        ("double", {"n": 4}, "success", {"n": 8}),
        ("increment", {"n": 8}, "success", {"n": 9}),
    ]
    assert all(step.duration_s is not None for step in out.state.workflow_steps)
    assert out.agent == "arithmetic"


@pytest.mark.server
def test_an_agent_inside_of_a_step_is_a_run_of_its_own(client: MastraClient) -> None:
    out = client.workflow("asks-agent").stream({"prompt": "hi"}).result(10).wait(10)
    [step] = out.state.workflow_steps
    assert [run.text for run in step.nested] == ["sub-agent says hi"]
    assert out.state.result == {"text": "sub-agent says hi"}
    assert out.total.grand_usage.total_tokens == 10


@pytest.mark.server
def test_a_step_that_waits_is_resumed_once_from_the_output(client: MastraClient) -> None:
    out = client.workflow("confirmed").stream({"n": 4}).result(10).wait(10)
    assert out.status == "suspended"
    [step] = out.waiting
    assert (step.tool_name, step.suspend_payload) == ("confirm", {"question": "Is 8 right?"})
    after = out.resume({"by": "Ada"}).result(10).wait(10)
    assert (after.status, after.state.result, after.previous) == ("success", {"n": 8, "by": "Ada"}, out)
    with pytest.raises(AlreadyResumed):
        out.resume({"by": "Bob"})


@pytest.mark.server
def test_a_run_is_resumed_by_its_id_once_also_from_another_kernel(
    client: MastraClient, other_kernel: MastraClient
) -> None:
    run_id = str(uuid.uuid4())
    client.workflow("confirmed").stream({"n": 1}, run_id=run_id).result(10).wait(10)
    there = other_kernel.workflow("confirmed")
    with pytest.raises(NotSuspended, match="confirm"):
        there.resume_stream(run_id, "double", {}).result(10)
    two = [there.resume_stream(run_id, "confirm", {"by": "Ada"}) for _ in range(2)]
    after = two[0].result(10).wait(10)
    assert after.state.result == {"n": 2, "by": "Ada"}
    with pytest.raises(AlreadyResumed):
        two[1].result(10)
    with pytest.raises(AlreadyResumed, match="success"):
        client.workflow("confirmed").resume_stream(run_id, "confirm", {"by": "Bob"}).result(10)
    assert client.workflow("confirmed").run(run_id).result(10)["status"] == "success"


@pytest.mark.server
def test_a_step_takes_data_and_nothing_else(client: MastraClient) -> None:
    out = client.workflow("confirmed").stream({"n": 4}).result(10).wait(10)
    with pytest.raises(ControlError, match="takes data"):
        out.approve().result(10)
    assert out.resume({"by": "Ada"}).result(10).wait(10).status == "success"


@pytest.mark.server
def test_a_created_run_has_its_id_and_a_finished_one_does_not_run_again(client: MastraClient) -> None:
    workflow = client.workflow("arithmetic")
    assert workflow.create_run().result(10)
    run_id = str(uuid.uuid4())
    assert workflow.create_run(run_id).result(10) == run_id
    assert workflow.stream({"n": 1}, run_id=run_id).result(10).wait(10).run_id == run_id
    with pytest.raises(Conflict, match="already finished"):
        workflow.stream({"n": 1}, run_id=run_id).result(10)


@pytest.mark.server
def test_an_observed_run_is_seen_whole_and_each_record_once(client: MastraClient) -> None:
    run_id = str(uuid.uuid4())
    workflow = client.workflow("confirmed")
    out = workflow.stream({"n": 3}, run_id=run_id).result(10).wait(10)
    early = workflow.observe(run_id).result(10).wait(10)
    assert early.status == "suspended"
    assert list(early.full_stream) == list(out.full_stream)
    after = out.resume({"by": "Ada"}).result(10).wait(10)
    late = workflow.observe(run_id).result(10).wait(10)
    assert list(late.full_stream) == [*out.full_stream, *after.full_stream]
    assert (late.status, late.state.result) == ("success", {"n": 6, "by": "Ada"})
    with pytest.raises(RunNotFound):
        workflow.observe("no-such-run").result(10)


@pytest.mark.server
def test_cancelling_ends_the_runs_streams_as_cancelled(client: MastraClient) -> None:
    run_id = str(uuid.uuid4())
    workflow = client.workflow("lingering")
    out = workflow.stream({"n": 1}, run_id=run_id).result(10)
    seen = workflow.observe(run_id).result(10)
    while len(out.state.workflow_steps) < 2:
        assert out.log.wait_blocking(len(out.log.items), 10)
    workflow.cancel(run_id).result(10)
    assert (out.wait(10).status, out.status_reason) == ("cancelled", "aborted at the server")
    assert seen.wait(10).status == "cancelled"
    with pytest.raises(RunNotFound):
        workflow.cancel("no-such-run").result(10)


@pytest.mark.server
def test_stopping_the_output_cancels_the_run_and_stopping_to_observe_does_not(client: MastraClient) -> None:
    run_id = str(uuid.uuid4())
    workflow = client.workflow("lingering")
    out = workflow.stream({"n": 1}, run_id=run_id).result(10)
    while len(out.state.workflow_steps) < 2:
        assert out.log.wait_blocking(len(out.log.items), 10)
    seen = workflow.observe(run_id).result(10)
    seen.cancel()
    seen.wait(5)
    assert workflow.run(run_id).result(10)["status"] == "running"
    witness = workflow.observe(run_id).result(10)
    out.cancel()
    assert out.wait(5).status == "cancelled"
    assert witness.wait(10).status == "cancelled"


@pytest.mark.server
def test_input_that_does_not_fit_is_a_failed_run_with_the_servers_words(client: MastraClient) -> None:
    out = client.workflow("arithmetic").stream({"n": "many"}).result(10).wait(10)
    assert out.status == "failed"
    assert "expected number" in out.status_reason
    with pytest.raises(MastraStreamError):
        out.text.result()


def test_a_cost_budget_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(SettingsError, match="max_tokens"):
        MastraClient("http://127.0.0.1:9", engine=engine).workflow("w").stream({}, max_cost_usd=1)


def test_b08_a_replayed_beginning_is_left_out_and_a_second_start_is_kept() -> None:
    def chunk(kind: str, n: int = 0) -> object:
        return parse_chunk({"type": kind, "runId": "r", "from": "WORKFLOW", "payload": {"n": n}})

    start, first, second, end = chunk("workflow-start"), chunk("step", 1), chunk("step", 2), chunk("workflow-finish")
    resumed = chunk("step", 3)
    replays = Replays()
    seen: list[object] = []
    for batch in ([start, first, second, end], [start, first], [second], [start, resumed, end], [start]):
        seen += replays.leave_out(batch)  # type: ignore[arg-type]
    assert seen == [start, first, second, end, start, resumed, end]
    assert replays.held == [start]
