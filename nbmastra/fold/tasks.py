"""Background tasks: what the manager's chunks say, joined with the tool calls that began them.

A part is touched after it has changed, never before: a view on another thread may look in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmastra.chunks import Chunk
from nbmastra.fold.calls import Task, TaskStatus
from nbmastra.fold.parts import ErrorInfo
from nbmastra.fold.reading import as_dict, as_list, as_text, error_info
from nbmastra.fold.tools import find_call, follow_task

if TYPE_CHECKING:
    from nbmastra.fold.state import RunState

__all__ = ["HANDLERS"]


def _task(state: RunState, payload: dict[str, Any], at: float) -> Task:
    id = as_text(payload.get("taskId"))
    task = state.tasks.get(id)
    if task is None:
        task = state.tasks[id] = Task(state.step.index if state.step is not None else -1, at, id)
        state.add(task)
    task.tool_name = as_text(payload.get("toolName")) or task.tool_name
    task.tool_call_id = as_text(payload.get("toolCallId")) or task.tool_call_id
    task.agent_id = as_text(payload.get("agentId")) or task.agent_id
    task.run_id = as_text(payload.get("runId")) or task.run_id
    if "args" in payload:
        task.args = payload["args"]
    retries = payload.get("retryCount")
    task.attempts = retries + 1 if isinstance(retries, int) else task.attempts
    call = find_call(state, task.tool_call_id or "")
    if call is not None:
        call.background = True
        call.task_id = id
        if task.args is None:
            task.args = call.args
        state.touch(call)
    state.touch(task)
    return task


def on_started(state: RunState, chunk: Chunk, at: float) -> None:
    _task(state, as_dict(chunk.raw_payload()), at)


def on_running(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    task.started_time = as_text(payload.get("startedAt")) or task.started_time
    _run(state, task, at)


def on_progress(state: RunState, chunk: Chunk, at: float) -> None:
    for id in as_list(as_dict(chunk.raw_payload()).get("taskIds")):
        task = state.tasks.get(as_text(id))
        if task is not None:
            _run(state, task, at)


def on_output(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    task.outputs.append(as_dict(as_dict(payload.get("payload")).get("payload")).get("output"))
    _run(state, task, at)


def _run(state: RunState, task: Task, at: float) -> None:
    if task.status == "pending":
        task.status = "running"
        task.running_at = at
    state.touch(task)


def on_completed(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    result = payload.get("result")
    _end(state, task, payload, at, "completed", result, error_info(result) if payload.get("isError") is True else None)


def on_failed(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    _end(state, task, payload, at, "failed", error=error_info(payload.get("error"), "the task failed without a reason"))


def on_cancelled(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    _end(state, task, payload, at, "cancelled")


def on_suspended(state: RunState, chunk: Chunk, at: float) -> None:
    payload = as_dict(chunk.raw_payload())
    task = _task(state, payload, at)
    if task.terminal:
        return
    task.status = "suspended"
    task.suspended_at = at
    task.suspend_payload = payload.get("suspendPayload", payload.get("suspendData"))
    state.touch(task)
    call = find_call(state, task.tool_call_id or "")
    if call is not None:
        follow_task(state, call, task, at)
    notice = state.notice(
        "suspension", "warning", f"{task.tool_name} waits for input", at, _SUSPENDED, event=state.events
    )
    notice.tool_call_id = task.tool_call_id


_SUSPENDED = "The background task is suspended. The run goes on without it."


def on_resumed(state: RunState, chunk: Chunk, at: float) -> None:
    task = _task(state, as_dict(chunk.raw_payload()), at)
    if task.status != "suspended":
        return
    _leave_suspension(task, at)
    task.status = "running"
    task.resumed_at = at
    state.touch(task)
    call = find_call(state, task.tool_call_id or "")
    if call is not None:
        follow_task(state, call, task, at)


def _end(
    state: RunState,
    task: Task,
    payload: dict[str, Any],
    at: float,
    status: TaskStatus,
    result: Any = None,
    error: ErrorInfo | None = None,
) -> None:
    if task.terminal and task.status != status:
        return  # the first ending counts: a late result doesn't undo a cancellation
    task.completed_time = as_text(payload.get("completedAt")) or task.completed_time
    if task.terminal:
        return  # told before, by the tool's own result or error
    _leave_suspension(task, at)
    task.status, task.result, task.error, task.ended_at = status, result, error, at
    state.touch(task)
    call = find_call(state, task.tool_call_id or "")
    if call is not None:
        follow_task(state, call, task, at)


def _leave_suspension(task: Task, at: float) -> None:
    if task.suspended_at is not None:
        task.suspended_s += at - task.suspended_at
        task.suspended_at = None


HANDLERS = {
    "background-task-started": on_started,
    "background-task-running": on_running,
    "background-task-progress": on_progress,
    "background-task-output": on_output,
    "background-task-completed": on_completed,
    "background-task-failed": on_failed,
    "background-task-suspended": on_suspended,
    "background-task-resumed": on_resumed,
    "background-task-cancelled": on_cancelled,
}
