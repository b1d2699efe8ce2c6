"""What a server keeps of conversations: threads, messages and background tasks, as a fold's state for the tables.

They come from a server's store or its HTTP lists, in the wire's words. What isn't kept (when a call was made, how long
it took) stays missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import BaseModel

from nbmastra.errors import SettingsError
from nbmastra.fold import RunState, Task, ToolCall
from nbmastra.fold.calls import CallStatus
from nbmastra.fold.parts import ErrorInfo
from nbmastra.fold.reading import as_dict, as_list, as_text, error_info
from nbmastra.frames.columns import utc

__all__ = ["Kept", "Shelf", "Unreadable", "as_record", "by_thread", "kept_state"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Record = dict[str, Any]


@dataclass(frozen=True)
class Unreadable:
    """A record that couldn't be read: where it is, and what is wrong with it."""

    where: str
    problem: str


@dataclass
class Kept:
    """One thread (`id` None: what belongs to none) with its messages, oldest first, and its tasks."""

    id: str | None
    thread: Record | None = None
    messages: list[Record] = field(default_factory=list[Record])
    tasks: list[Record] = field(default_factory=list[Record])
    unread: list[Unreadable] = field(default_factory=list[Unreadable])

    @property
    def created_at(self) -> datetime | None:
        """When the thread was begun, else its first task: what times count from."""
        known = [as_dict(self.thread).get("createdAt"), *(task.get("createdAt") for task in self.tasks)]
        return next((time for value in known if (time := _moment(value)) is not None), None)


class Shelf:
    """Threads one after the other: a source of tables."""

    def threads(self) -> Iterator[Kept]:
        """Each thread with what is kept of it; `unread` of any of them says what couldn't be read."""
        raise NotImplementedError


class RecordShelf(Shelf):
    """Records that somebody has already, as HTTP lists give them."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def threads(self) -> Iterator[Kept]:
        """The records by thread, in the order in which threads first appear."""
        kept: dict[str | None, Kept] = {}

        def of(id: object) -> Kept:
            name = id if isinstance(id, str) and id else None
            return kept.setdefault(name, Kept(name))

        for number, record in enumerate(self._records):
            if "role" in record:
                of(record.get("threadId")).messages.append(record)
            elif "toolName" in record and "status" in record:
                of(record.get("threadId")).tasks.append(record)
            elif isinstance(record.get("id"), str) and "resourceId" in record:
                of(record["id"]).thread = record
            else:
                of(None).unread.append(Unreadable(f"record {number}", "neither a message nor a task nor a thread"))
        yield from kept.values()


def as_record(item: object) -> Record | None:
    """A record of a server as a dict in the wire's words; None if it is none."""
    if isinstance(item, BaseModel):
        return item.model_dump(by_alias=True)
    if isinstance(item, Mapping):
        return dict(cast("Mapping[str, Any]", item))
    return None


def by_thread(records: Iterable[Record]) -> Shelf:
    """Records of a server's lists as a source. A list's own envelope (`{"messages": […]}`) may be around them."""
    found: list[Record] = []
    for record in records:
        held = [as_list(record[key]) for key in ("messages", "tasks", "threads") if key in record]
        if held and "role" not in record:
            found += [as_dict(item) for items in held for item in items]
        elif "type" in record and "payload" in record:
            raise SettingsError("chunks are no source by themselves: make an output of them with from_chunks()")
        else:
            found.append(record)
    return RecordShelf(found)


def kept_state(kept: Kept) -> RunState:
    """Tasks and calls as the fold has them; what can't be read is added to `kept.unread`."""
    state = RunState()
    start = kept.created_at or _EPOCH
    for record in kept.tasks:
        try:
            task = _task(record, start)
        except ValueError as error:
            kept.unread.append(Unreadable(f"task {record.get('id')}", str(error)))
        else:
            state.tasks[task.id] = task
    for call in _calls(kept.messages):
        task = state.tasks.get(call.task_id or "")
        if task is not None and not task.terminal:  # the call's own result only says that the task was begun
            call.status = "suspended" if task.status == "suspended" else "running"
            call.has_result, call.result = False, None
        state.tool_calls.append(call)
    return state


# --- tasks -----------------------------------------------------------------------------------------------------------


def _task(record: Record, start: datetime) -> Task:
    created = _seconds(record.get("createdAt"), start)
    if created is None:
        raise ValueError(f"createdAt is no time: {str(record.get('createdAt'))[:40]!r}")
    task = Task(-1, created, as_text(record.get("id")))
    task.status = cast("Any", as_text(record.get("status")) or "pending")
    task.tool_name = as_text(record.get("toolName"))
    task.tool_call_id = as_text(record.get("toolCallId")) or None
    task.agent_id = as_text(record.get("agentId")) or None
    task.run_id = as_text(record.get("runId")) or None
    task.args, task.result = record.get("args"), record.get("result")
    error = record.get("error")
    failed = task.status in ("failed", "timed_out")
    task.error = error_info(error, "the task failed without a reason") if error is not None or failed else None
    retries = record.get("retryCount")
    task.attempts = retries + 1 if isinstance(retries, int) else None
    task.suspend_payload = record.get("suspendPayload")
    task.running_at = _seconds(record.get("startedAt"), start)
    task.suspended_at = _seconds(record.get("suspendedAt"), start)
    task.ended_at = _seconds(record.get("completedAt"), start) if task.terminal else None
    if task.suspended_at is not None:
        task.suspended_s = math.nan  # the server keeps the newest suspension only, and not how it ended
    return task


def _moment(value: object) -> datetime | None:
    return value.astimezone(UTC) if isinstance(value, datetime) else utc(value)


def _seconds(value: object, start: datetime) -> float | None:
    time = _moment(value)
    return None if time is None else (time - start).total_seconds()


# --- calls in messages -----------------------------------------------------------------------------------------------


def _calls(messages: list[Record]) -> Iterator[ToolCall]:
    """The tool calls that messages tell of, each once: the newest word of it counts."""
    found: dict[tuple[object, ...], ToolCall] = {}
    turn = -1
    for message in messages:
        turn += message.get("role") == "user"
        content = as_dict(message.get("content")) or message
        metadata = as_dict(content.get("metadata"))
        waiting: dict[str, CallStatus] = dict.fromkeys(as_dict(metadata.get("suspendedTools")), "suspended")
        waiting |= dict.fromkeys(as_dict(metadata.get("pendingToolApprovals")), "needs-approval")
        for number, part in enumerate(map(as_dict, as_list(content.get("parts")))):
            call = _call(part, waiting)
            if call is not None:
                call.turn = max(turn, 0)
                found[(message.get("id"), call.tool_call_id or number)] = call
    yield from found.values()


def _call(part: Record, waiting: Mapping[str, CallStatus]) -> ToolCall | None:
    kind = as_text(part.get("type"))
    if kind == "tool-invocation":  # as memory keeps it
        told = as_dict(part.get("toolInvocation"))
        name, args, result = as_text(told.get("toolName")), told.get("args"), told.get("result")
    elif kind == "dynamic-tool" or (kind.startswith("tool-") and "toolCallId" in part):  # as a UI message has it
        told = part
        name = as_text(told.get("toolName")) or kind.removeprefix("tool-")
        args, result = told.get("input"), told.get("output")
    else:
        return None
    call = ToolCall(-1, 0.0, as_text(told.get("toolCallId")), name)
    call.args = args
    match as_text(told.get("state")):
        case "result" | "output-available":
            call.status, call.has_result, call.result = "success", True, result
        case "output-error":
            call.status, call.error = "error", ErrorInfo(as_text(told.get("errorText")) or "the tool failed")
        case "output-denied":
            call.status = "denied"
        case _:
            call.status = waiting.get(call.tool_call_id, "pending")
    mastra = as_dict(as_dict(part.get("providerMetadata")).get("mastra"))
    task = as_dict(mastra.get("backgroundTask"))
    call.background = bool(task)
    call.task_id = as_text(task.get("taskId")) or None
    call.provider_executed = told.get("providerExecuted") is True
    return call
