"""The task manager of a real Mastra server, as a client sees it."""

from __future__ import annotations

import pytest

from nbmastra.client import MastraClient, TaskRecord
from nbmastra.engine import Engine
from nbmastra.errors import ControlError, NotFound, NotMastra
from tests.client.tiny_server import TinyServer, answer
from tests.support.mastra import MastraServer

pytestmark = pytest.mark.server


@pytest.fixture
def client(mastra_server: MastraServer, engine: Engine) -> MastraClient:
    return MastraClient(mastra_server.url, engine=engine)


def test_tasks_are_listed_followed_and_looked_at(client: MastraClient) -> None:
    followed = client.background_tasks.stream(agent="background").result(10)
    memory = {"thread": "tasks-1", "resource": "u"}
    out = client.agent("background").stream("Research", until_idle=True, memory=memory).result(10).wait(20)
    while sorted(task.status for task in followed.total.tasks) != ["completed", "failed"]:
        assert followed.log.wait_blocking(len(followed.log.items), 10)
    assert not followed.done
    followed.cancel()
    assert sorted(followed.tasks_df()["status"]) == ["completed", "failed"]

    page = client.background_tasks.list(thread="tasks-1").result(10)
    assert (len(page), page.total) == (2, 2)
    assert {task.status for task in page} == {"completed", "failed"}
    assert page[0].created_at is not None
    [failed] = client.background_tasks.list(status="failed", run_id=out.run_id, agent="background").result(10)
    assert failed.error is not None
    assert failed.error.message == "source offline"
    assert (failed.tool_name, failed.args, failed.timeout_ms) == ("research", {"topic": "fail"}, 300_000)
    assert "research failed" in repr(failed)
    assert client.background_tasks.get(failed.id).result(10) == failed
    assert len(client.background_tasks.list(thread="tasks-1", per_page=1, page=1).result(10)) == 1
    with pytest.raises(NotFound, match="task not found"):
        client.background_tasks.get("nope").result(10)


def test_a_suspended_task_says_what_it_waits_for_and_what_can_be_done(client: MastraClient) -> None:
    memory = {"thread": "tasks-2", "resource": "u"}
    client.agent("suspend").stream("Review", until_idle=True, memory=memory).result(10).wait(20)
    [task] = client.background_tasks.list(thread="tasks-2", status="suspended").result(10)
    assert task.suspend_payload == {"awaiting": "approval", "draft": "v1"}
    assert task.suspended_at is not None
    with pytest.raises(ControlError, match="the server's own code"):
        client.background_tasks.resume(task.id, {"reviewer": "Ada"})
    with pytest.raises(ControlError, match="time-out"):
        client.background_tasks.cancel(task.id)


def test_what_a_newer_server_adds_is_kept_and_what_is_no_task_is_refused(server: TinyServer, engine: Engine) -> None:
    client = MastraClient(server.url, engine=engine)
    server.handler = lambda _: [answer(200, '{"id":"t","status":"paused","toolName":"x","newKey":1}')]
    task = client.background_tasks.get("t").result(5)
    assert isinstance(task, TaskRecord)
    assert (task.status, task.model_extra) == ("paused", {"newKey": 1})
    server.handler = lambda _: [answer(200, '{"id":"t"}')]
    with pytest.raises(NotMastra, match="another record"):
        client.background_tasks.get("t").result(5)
