"""A task's result, in place of the placeholder that the model saw: in a run's conversation, and in a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from nbmastra.errors import NbMastraError
from nbmastra.fold.reading import as_dict, as_list
from nbmastra.runtime.background.record import BackgroundTask
from nbmastra.runtime.conversation import Conversation, ResultOutput, result_output
from nbmastra.runtime.extend import RunMemory
from nbmastra.runtime.store import Store

__all__ = ["keep_result", "put_result", "task_note", "task_output"]

_logger = logging.getLogger("nbmastra")


def task_note(task_id: str, status: str) -> dict[str, Any]:
    """What stands at a call that is a task. Source: Mastra."""
    return {"mastra": {"backgroundTask": {"taskId": task_id, "status": status}}}


def task_output(task: BackgroundTask) -> ResultOutput:
    """What a model is told of a task that has ended."""
    match task.status:
        case "completed":
            return result_output(task.result)
        case "cancelled":
            return {"type": "error-text", "value": "Background task was cancelled."}
        case _:
            message = (task.error or {}).get("message", "Unknown error")
            return {"type": "error-text", "value": f"Background task failed: {message}"}


def put_result(conversation: Conversation, task: BackgroundTask) -> None:
    """The result in a conversation of this process, where the placeholder stands; nothing if there is none."""
    output, note = task_output(task), task_note(task.id, _status(task))
    for place, message in enumerate(conversation.response):
        if message["role"] not in ("tool", "assistant"):
            continue
        content = [_noted(part, task, output, note) for part in message["content"]]
        if any(new is not old for new, old in zip(content, message["content"], strict=True)):
            conversation.response[place] = {**message, "content": content}


def _noted(part: dict[str, Any], task: BackgroundTask, output: ResultOutput, note: dict[str, Any]) -> dict[str, Any]:
    known = as_dict(as_dict(as_dict(part.get("providerOptions")).get("mastra")).get("backgroundTask"))
    if known.get("taskId") != task.id:
        return part
    made = {**part, "providerOptions": {**as_dict(part.get("providerOptions")), **note}}
    return {**made, "output": output} if part["type"] == "tool-result" else made


async def keep_result(memory: RunMemory | None, task: BackgroundTask) -> None:
    """The result in the task's thread, if the thread has the call already. What can't be kept is logged."""
    if memory is None or task.thread_id is None or not task.tool_call_id:
        return
    store: Any = getattr(memory, "store", None)
    if not isinstance(store, Store):
        return

    earlier: list[dict[str, Any]] = []

    def build(find: Callable[[str], dict[str, Any] | None]) -> list[dict[str, Any]]:
        newest = find(task.tool_call_id)
        records = earlier if newest is None else [newest, *earlier]
        for record in records:
            if _replace(record, task):
                return [record]
        return []

    try:
        known = await store.run(store.thread, task.thread_id)
        if known is not None:
            keep = partial(store.run, store.remember, task.thread_id, known["resourceId"], build)
            if not await keep():  # models give an id to several calls: it is no longer the newest
                earlier = (await store.run(store.messages, task.thread_id))[::-1]
                await keep()
    except NbMastraError:
        _logger.warning("the result of task %s can't be kept in its thread", task.id, exc_info=True)


def _replace(record: dict[str, Any], task: BackgroundTask) -> bool:
    """False if the call isn't there: models give the same id to several."""
    for part in reversed(as_list(as_dict(record.get("content")).get("parts"))):
        call = as_dict(as_dict(part).get("toolInvocation"))
        if call.get("toolCallId") != task.tool_call_id or not _is_of(part, call, task):
            continue
        output = task_output(task)
        for name in ("result", "errorText"):
            call.pop(name, None)
        if output["type"] == "error-text":
            call |= {"state": "output-error", "errorText": output["value"]}
        else:
            call |= {"state": "result", "result": output["value"]}
        part["providerMetadata"] = {**as_dict(part.get("providerMetadata")), **task_note(task.id, _status(task))}
        return True
    return False


def _is_of(part: dict[str, Any], call: dict[str, Any], task: BackgroundTask) -> bool:
    note = as_dict(as_dict(as_dict(part.get("providerMetadata")).get("mastra")).get("backgroundTask"))
    return note.get("taskId") == task.id if note else call.get("state") == "call"


def _status(task: BackgroundTask) -> str:
    return task.status if task.status in ("completed", "cancelled") else "failed"
