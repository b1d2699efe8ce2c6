"""`%mastra tasks`, `resume` and `cancel`."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nbmastra.errors import NotSuspended, SettingsError
from nbmastra.magics import agent_variables, register, unregister
from nbmastra.tools import ToolContext
from tests.runtime.background.conftest import Make


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


def test_a_manager_is_no_agent_though_it_streams(make: Make) -> None:
    assert agent_variables({"manager": make()}) == []
