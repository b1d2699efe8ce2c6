"""`%mastra tasks`, `resume` and `cancel`: the background tasks of this kernel's managers, else those of the server."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from nbmastra.client import MastraClient, TaskRecord
from nbmastra.config import settings
from nbmastra.errors import SettingsError, StoreError
from nbmastra.terminal import clean_line

if TYPE_CHECKING:
    from nbmastra.runtime import BackgroundTaskManager
    from nbmastra.runtime.background.record import BackgroundTask

__all__ = ["cancel_command", "resume_command", "tasks_command"]

_SHOWN = 30


def tasks_command(line: str) -> None:
    """List the newest tasks, or those in a state: `%mastra tasks running`. Raises ClientError.

    A store that can't be read says why in its place: the tasks of the others are listed all the same.
    """
    status: Any = line or None
    managers = _managers()
    if not managers:
        client = MastraClient(settings.url)
        page = client.background_tasks.list(status=status, per_page=_SHOWN).result()
        print(f"no task manager in this kernel; {len(page)} of {page.total} tasks at {client.url}")
        for record in page:
            print(_line(record, record.error.message if record.error is not None else None))
        return
    for manager in managers:
        try:
            tasks = manager.list(status=status, per_page=_SHOWN).result(30)
        except StoreError as error:
            print(clean_line(str(error)))
            continue
        print(f"{len(tasks)} of {tasks.total} tasks in {manager.store.address.shown}")
        for task in tasks:
            print(_line(task, (task.error or {}).get("message")))


def resume_command(line: str) -> None:
    """`%mastra resume ID --data JSON`: what is no JSON is given as text. Raises AlreadyResumed, NotSuspended."""
    task_id, _, data = line.partition("--data")
    manager, found = _find(task_id.strip(), "resume ID --data …")
    manager.resume(found.id, _value(data.strip())).result(30)
    print(f"{clean_line(found.tool_name, 60)} goes on: {found.id}")


def cancel_command(line: str) -> None:
    """`%mastra cancel ID`."""
    manager, found = _find(line, "cancel ID")
    task = manager.cancel(found.id).result(30)
    print(f"{clean_line(task.tool_name, 60)} is {task.status}: {task.id}")


def _managers() -> list[BackgroundTaskManager]:
    """One for each store. The module isn't loaded where nobody has made one."""
    module = sys.modules.get("nbmastra.runtime.background.manager")
    found: dict[int, BackgroundTaskManager] = {id(one.store): one for one in module.managers} if module else {}
    return list(found.values())


def _find(task_id: str, usage: str) -> tuple[BackgroundTaskManager, BackgroundTask]:
    """The task that an id, or its beginning, means. Raises SettingsError."""
    if not task_id or " " in task_id:
        raise SettingsError(f"%mastra {usage}: %mastra tasks lists the ids")
    managers = _managers()
    found: list[tuple[BackgroundTaskManager, BackgroundTask]] = []
    unread = ""
    for manager in managers:
        try:
            found += [(manager, task) for task in _those(manager, task_id)]
        except StoreError as error:
            unread += f"; {clean_line(str(error))}"
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"several tasks begin with {task_id[:40]!r}: give more of the id")
    if not managers:
        raise SettingsError(
            "no task manager in this kernel: make the agent, or a BackgroundTaskManager, on the task's store first; "
            "tasks of a server are resumed and cancelled by the server's own code"
        )
    raise SettingsError(f"no task {task_id[:40]!r}: %mastra tasks lists them{unread}")


def _those(manager: BackgroundTaskManager, task_id: str) -> list[BackgroundTask]:
    exact = manager.get(task_id).result(30)
    if exact is not None:
        return [exact]
    return [task for task in manager.list(per_page=1000).result(30) if task.id.startswith(task_id)]


def _value(text: str) -> Any:
    if not text:
        return None
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _line(task: BackgroundTask | TaskRecord, error: str | None) -> str:
    created = str(task.created_at or "").replace("T", " ")[:19]
    who = clean_line(f"{task.tool_name} of {task.agent_id}" if task.agent_id else task.tool_name)
    lines = [f"  {clean_line(task.id, 80)}  {clean_line(task.status, 20):<9}  {created}  {who}"]
    if error:
        lines.append(f"    {clean_line(error)}")
    if task.status == "suspended":
        lines.append(f"    waits for: {clean_line(json.dumps(task.suspend_payload, ensure_ascii=False))}")
    return "\n".join(lines)
