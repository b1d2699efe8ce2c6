"""The tables of how runs ended: `runs_df`, one row a stream, and `errors_df`, one row for all that went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nbmastra.fold import ErrorInfo, ToolCall, WorkflowStep
from nbmastra.frames.columns import Column, Table
from nbmastra.frames.runs import Place, Run, places
from nbmastra.frames.tables import token_columns
from nbmastra.frames.usage import run_cost

__all__ = ["ERRORS", "RUNS", "Failure", "failure_rows", "run_rows"]

STATUSES = ("running", "success", "failed", "suspended", "tripwire", "cancelled", "truncated")


# --- runs ------------------------------------------------------------------------------------------------------------


def _failed(place: Place) -> int:
    return sum(call.status == "error" for call in place.state.tool_calls)


RUNS = Table[Run](
    "runs_df",
    "One row per stream. Tokens, cost and calls count runs inside of it.",
    (
        Column("stream_id", "str", "Id of the stream; one stream can hold several runs.", lambda run: run.stream_id),
        Column("run_id", "str", "Id of its first run.", lambda run: run.state.run_id),
        Column("agent_id", "category", "The agent that was asked.", lambda run: run.agent_id),
        Column("status", "category", "How it ended.", lambda run: run.status, values=STATUSES),
        Column("status_reason", "str", "Why it ended so.", lambda run: run.state.status_reason or None),
        Column("prompt", "str", "What was asked.", lambda run: run.prompt),
        Column("model", "category", "The newest model that it names.", lambda run: run.state.model),
        Column("created_at", "timestamp", "When it was started.", lambda run: run.created_at),
        Column("duration_s", "Float64", "Its time, so far if it runs.", lambda run: run.elapsed_s, "s"),
        Column(
            "time_to_first_token_s",
            "Float64",
            "From its start to its first delta.",
            lambda run: run.state.time_to_first_token_s,
            "s",
        ),
        Column("turns", "Int64", "How many turns it has.", lambda run: len(run.state.turns)),
        Column("steps", "Int64", "How many calls of its model.", lambda run: len(run.state.steps)),
        Column(
            "tool_calls",
            "Int64",
            "How many calls of tools.",
            lambda run: sum(len(place.state.tool_calls) for place in places(run)),
        ),
        Column("failed_tool_calls", "Int64", "How many of them failed.", lambda run: sum(map(_failed, places(run)))),
        Column(
            "tasks",
            "Int64",
            "How many background tasks.",
            lambda run: sum(len(place.state.tasks) for place in places(run)),
        ),
        Column("nested_runs", "Int64", "How many runs inside of it.", lambda run: sum(1 for _ in places(run)) - 1),
        Column("chunks", "Int64", "How many chunks came.", lambda run: run.events),
        Column("unread", "Int64", "How many of them couldn't be read.", lambda run: _unread(run)),
        *token_columns(lambda run: run.total),
        Column("cost_usd", "Float64", "Its price; missing where that of a model isn't known.", run_cost, "USD"),
        Column("error_type", "category", "Name of the error.", lambda run: _error(run, "name")),
        Column("error_message", "str", "What went wrong.", lambda run: _error(run, "message")),
        Column("previous", "str", "The stream that this one goes on from.", lambda run: run.previous),
        Column("recording", "str", "The recording that it was read from.", lambda run: run.path),
    ),
)


def run_rows(run: Run) -> Iterator[Run]:
    """The run itself; a thread that a server keeps is none."""
    if run.kept is None:
        yield run


def _unread(run: Run) -> int:
    return sum(place.state.decode_errors + place.state.bad_payloads for place in places(run))


def _error(run: Run, name: str) -> str | None:
    error = run.state.error
    return getattr(error, name) if error is not None else None


# --- errors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """One thing that went wrong; `at` in seconds since the stream's start."""

    place: Place
    kind: str
    error: ErrorInfo
    at: float | None
    turn: int | None = None
    step: int | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    @property
    def time(self) -> datetime | None:
        """When it went wrong."""
        return self.place.run.time(self.at)


KINDS = ("run", "tool", "workflow-step", "task", "tripwire", "truncated", "decode-error", "bad-payload", "recording")

ERRORS = Table[Failure](
    "errors_df",
    "One row per thing that went wrong, in runs inside of the run too; each fact once. A denied call, a cancelled run "
    "and one that waits for somebody are no errors.",
    (
        Column("stream_id", "str", "Id of the stream.", lambda row: row.place.run.stream_id),
        Column("run_id", "str", "Id of the run.", lambda row: row.place.state.run_id),
        Column("turn", "Int64", "Number of the turn in its run, from 0.", lambda row: row.turn),
        Column("step", "Int64", "Number of the step in its run, from 0.", lambda row: row.step),
        Column("depth", "Int64", "0, or how deep inside of other runs.", lambda row: row.place.depth),
        Column("agent_id", "category", "The agent whose run it is.", lambda row: row.place.agent_id),
        Column("kind", "category", "What failed.", lambda row: row.kind, values=KINDS),
        Column("error_type", "category", "Name of the error.", lambda row: row.error.name),
        Column("error_message", "str", "What went wrong.", lambda row: row.error.message),
        Column("status_code", "Int64", "HTTP status, of the provider.", lambda row: row.error.status_code),
        Column("tool_name", "category", "The tool or workflow step.", lambda row: row.tool_name),
        Column("tool_call_id", "str", "The call or workflow step.", lambda row: row.tool_call_id),
        Column("at", "timestamp", "When it went wrong.", lambda row: row.time),
        Column("at_s", "Float64", "The same, since the stream's start.", lambda row: row.at, "s"),
    ),
)


def failure_rows(run: Run) -> Iterator[Failure]:
    """What went wrong in a run, then in the runs inside of it."""
    for place in places(run):
        yield from _of_run(place)
        yield from _of_calls(place)
        yield from _of_tasks(place)


def _of_run(place: Place) -> Iterator[Failure]:
    state = place.state
    parent = place.parent
    if state.error is not None and (parent is None or state.error is not parent.error):  # else it is the call's
        yield Failure(place, "run", state.error, state.ended_at, _index(state.error_turn))
    if state.tripwire is not None and not state.aborted:
        reason = state.tripwire.get("reason")
        message = reason if isinstance(reason, str) and reason else "a processor blocked the run"
        yield Failure(place, "tripwire", ErrorInfo(message, "Tripwire"), state.ended_at, len(state.turns) - 1)
    if state.status == "truncated" and place.depth == 0:
        yield Failure(place, "truncated", ErrorInfo(state.status_reason, "StreamTruncated"), state.ended_at)
    for notice in list(state.notices):
        if notice.code in ("decode-error", "bad-payload", "recording"):
            error = ErrorInfo(notice.text or notice.title, notice.title)
            yield Failure(place, notice.code, error, notice.started_at)


def _of_calls(place: Place) -> Iterator[Failure]:
    items: list[Any] = [*place.state.tool_calls, *place.state.workflow_steps]
    for item in items:
        if item.error is not None:
            yield _failure(place, item)


def _failure(place: Place, item: ToolCall | WorkflowStep) -> Failure:
    call = isinstance(item, ToolCall)
    assert item.error is not None
    return Failure(
        place,
        "tool" if call else "workflow-step",
        item.error,
        item.ended_at,
        _index(item.turn) if call else None,
        _index(item.step),
        item.tool_name,
        item.tool_call_id,
    )


def _of_tasks(place: Place) -> Iterator[Failure]:
    told = {call.task_id for call in place.state.tool_calls if call.error is not None}
    for task in list(place.state.tasks.values()):
        if task.error is not None and task.id not in told:
            where = (None, _index(task.step), task.tool_name or None, task.tool_call_id)
            yield Failure(place, "task", task.error, task.ended_at, *where)


def _index(number: int) -> int | None:
    return number if number >= 0 else None
