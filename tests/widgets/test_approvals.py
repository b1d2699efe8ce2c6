"""The table of runs that wait, on a real server."""

from __future__ import annotations

import pytest

from nbmastra import MastraClient
from nbmastra.client.client import MastraClient as Client
from nbmastra.widgets.approvals import ApprovalsView
from nbmastra.widgets.live import Act
from tests.support.kernel import Kernel
from tests.support.mastra import MastraServer
from tests.widgets.recording_comm import RecordingComm

pytestmark = pytest.mark.server


def suspend(client: Client, agent: str, thread: str) -> None:
    memory = {"thread": thread, "resource": "approvals-table"}
    assert client.agent(agent).stream("go", memory=memory).result(10).wait(10).status == "suspended"


def waiting(client: Client, agent: str) -> ApprovalsView:
    return ApprovalsView(client.agent(agent).suspended_runs(resource="approvals-table").result(10))


def node(view: ApprovalsView, act: str) -> str:
    nodes = view.boot()["nodes"]
    return next(id for id, found in nodes.items() if found["a"].get("data-nbm-act") == act)


def test_a_click_approves_a_waiting_call_and_the_row_tells_how_its_run_ended(
    mastra_server: MastraServer, comms: list[RecordingComm]
) -> None:
    client = MastraClient(mastra_server.url)
    suspend(client, "approve", "table-1")
    view = waiting(client, "approve")
    view.on_act(Act("approve", node=node(view, "approve")))
    comms[-1].wait_until(lambda: "Deployed." in str(comms[-1].sent), 10)
    assert [out.status for out in view.outs] == ["success"]
    assert not client.agent("approve").suspended_runs(resource="approvals-table").result(10)


def test_data_that_is_no_json_is_refused_and_may_be_given_again(
    mastra_server: MastraServer, comms: list[RecordingComm]
) -> None:
    client = MastraClient(mastra_server.url)
    suspend(client, "ask", "table-2")
    view = waiting(client, "ask")
    button = node(view, "resume")
    view.on_act(Act("resume", values={"json": "{answer"}, node=button))
    comms[-1].wait_until(lambda: "That is no JSON" in str(comms[-1].sent))
    view.on_act(Act("resume", values={"json": '{"answer": "Paris"}'}, node=button))
    comms[-1].wait_until(lambda: "Thanks, noted." in str(comms[-1].sent), 10)


def test_the_magic_shows_the_table_in_a_kernel_that_did_not_start_the_runs(
    mastra_server: MastraServer, kernel: Kernel
) -> None:
    client = MastraClient(mastra_server.url)
    suspend(client, "approve", "table-3")
    [shown] = kernel.run(f"%mastra url {mastra_server.url}\n%mastra approvals").of("display_data")
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
    client.agent("approve").suspended_runs(resource="approvals-table").result(10)[0].decline().result(10).wait(10)
