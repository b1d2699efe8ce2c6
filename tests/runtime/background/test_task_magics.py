"""`%mastra tasks`, `resume` and `cancel`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nbmastra.client import MastraClient
from nbmastra.config import settings
from nbmastra.errors import ControlError, NotSuspended, SettingsError
from nbmastra.magics import agent_variables, register, unregister
from nbmastra.runtime.background import manager as manager_module
from nbmastra.tools import ToolContext
from tests.runtime.background.conftest import Make
from tests.support.mastra import MastraServer


def review(draft: str, context: ToolContext) -> dict[str, Any]:
    """Ask somebody."""
    if context.resume_data is None:
        context.suspend({"draft": draft})
    return {"said": context.resume_data}


@pytest.fixture
def shell() -> Any:
    made = InteractiveShell.instance()
    register(made)
    yield made
    unregister(made)
    InteractiveShell.clear_instance()


def test_tasks_are_listed_resumed_and_cancelled_by_id(
    make: Make, shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = make()
    one, two = (manager.enqueue(review, {"draft": f"v{n}\x1b[31m"}, agent="a").result(10) for n in range(2))
    for task in (one, two):
        manager.wait_for_next(task.id, 10).result(10)
    shell.run_line_magic("mastra", "tasks suspended")
    said = capsys.readouterr().out
    assert "2 of 2 tasks in sqlite://" in said
    assert "\x1b" not in said
    assert f"{one.id}  suspended" in said
    out = manager.stream().result(10)
    shell.run_line_magic("mastra", f'resume {one.id[:13]} --data {{"ok": true}}')
    for chunk in out.full_stream:
        if chunk.type == "background-task-completed":
            break
    out.cancel()
    out.wait(10)
    done = manager.get(one.id).result(10)
    assert done is not None
    assert done.result == {"said": {"ok": True}}
    shell.run_line_magic("mastra", f"cancel {two.id}")
    assert f"review is cancelled: {two.id}" in capsys.readouterr().out
    with pytest.raises(NotSuspended):
        shell.run_line_magic("mastra", f"resume {two.id} --data 1")
    with pytest.raises(SettingsError, match="no task 'zzz'"):
        shell.run_line_magic("mastra", "cancel zzz")


def test_a_store_that_can_t_be_read_hides_no_other_store_s_tasks(
    make: Make, shell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-folder"
    blocked.mkdir()
    lost, manager = make(f"sqlite:///{blocked}"), make()
    monkeypatch.setattr(manager_module, "managers", {lost, manager})
    task = manager.enqueue(review, {"draft": "v1"}).result(10)
    manager.wait_for_next(task.id, 10).result(10)
    shell.run_line_magic("mastra", "tasks")
    said = capsys.readouterr().out
    assert f"the store {blocked} can't be used" in said
    assert f"{task.id}  suspended" in said
    shell.run_line_magic("mastra", f"cancel {task.id}")
    assert f"review is cancelled: {task.id}" in capsys.readouterr().out
    with pytest.raises(SettingsError, match=f"no task 'zzz'.*; the store {blocked} can't be used"):
        shell.run_line_magic("mastra", "cancel zzz")


def test_cells_print_while_a_task_runs(make: Make, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    manager, begun, over = make(), threading.Event(), threading.Event()

    def prints() -> None:
        """Print."""
        print("from the task")
        begun.set()
        over.wait(20)

    task = manager.enqueue(prints).result(10)
    assert begun.wait(10)
    for _ in range(2):
        shell.run_cell("print('from the cell')").raise_error()
    over.set()
    manager.wait_for_next(task.id, 10).result(10)
    shell.run_cell("print('after it')").raise_error()
    assert capsys.readouterr().out == "from the cell\nfrom the cell\nafter it\n"
    [output] = [chunk for chunk in manager.tasks.chunks(task.id) if chunk["type"] == "background-task-output"]
    assert output["payload"]["payload"]["payload"]["output"] == "from the task\n"


def test_a_manager_is_no_agent_though_it_streams(make: Make) -> None:
    assert agent_variables({"manager": make()}) == []


@pytest.mark.server
def test_without_a_manager_the_server_s_tasks_are_listed_and_what_can_t_be_done_to_them_is_said(
    shell: Any, mastra_server: MastraServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "managers", set())
    monkeypatch.setattr(settings, "url", mastra_server.url.replace("://", "://user:hidden-word@"))
    memory = {"thread": "magic-tasks", "resource": "u"}
    client = MastraClient(mastra_server.url)
    client.agent("suspend").stream("Review", until_idle=True, memory=memory).result(10).wait(20)
    client.agent("background").stream("Research", until_idle=True, memory=memory).result(10).wait(20)
    [task] = client.background_tasks.list(thread="magic-tasks", status="suspended").result(10)
    shell.run_line_magic("mastra", "tasks")
    said = capsys.readouterr().out
    assert f"at {mastra_server.url}\n" in said
    assert "hidden-word" not in said
    assert f"{task.id}  suspended" in said
    assert 'waits for: {"awaiting": "approval", "draft": "v1"}' in said
    assert "source offline" in said
    for line in (f"cancel {task.id}", f"resume {task.id} --data 1"):
        with pytest.raises(SettingsError) as caught:
            shell.run_line_magic("mastra", line)
        assert "\n" not in str(caught.value)
        assert "make the agent, or a BackgroundTaskManager" in str(caught.value)
        assert "by the server's own code" in str(caught.value)
    for refused in (client.background_tasks.cancel, client.background_tasks.resume):
        with pytest.raises(ControlError) as told:
            refused(f"{task.id}\n")
        assert "\n" not in str(told.value)
        assert "mastra.backgroundTaskManager." in str(told.value)
    assert client.background_tasks.get(task.id).result(10).status == "suspended"
