"""The tables of a run's steps, calls, tasks, messages, sources and errors, and of whole runs; one row an item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from nbmastra.errors import ChunkError
from nbmastra.fold import SourcePart, Step, Task, ToolCall
from nbmastra.fold.calls import CallStatus, TaskStatus
from nbmastra.fold.reading import as_dict
from nbmastra.frames.columns import Column, Table, utc
from nbmastra.frames.kept import Kept
from nbmastra.frames.runs import Place, Run, places
from nbmastra.messages import ROLES, MessageRecord, message_records
from nbmastra.usage import FIELDS, Usage

__all__ = [
    "MESSAGES",
    "SOURCES",
    "STEPS",
    "TASKS",
    "THREADS",
    "TOOL_CALLS",
    "Row",
    "message_rows",
    "source_rows",
    "step_rows",
    "task_rows",
    "thread_rows",
    "token_columns",
    "tool_call_rows",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """One row of a table: an item, where it stands, and its number there."""

    place: Place
    item: T
    seq: int = 0

    @property
    def run(self) -> Run:
        """The stream it belongs to."""
        return self.place.run


def token_columns(read: Callable[[Any], Usage]) -> tuple[Column[Any], ...]:
    """The numbers of a usage, each as a column; `read` gives a row's usage."""
    docs = {
        "input_tokens": "Tokens that went to the model, cached ones included.",
        "cached_input_tokens": "Those of them that came from the provider's cache.",
        "cache_creation_input_tokens": "Those that were written to the provider's cache.",
        "output_tokens": "Tokens that the model wrote, reasoning included.",
        "reasoning_tokens": "Those of them that it thought.",
        "total_tokens": "The provider's own total; input and output where it gives none.",
    }
    assert set(docs) == set(FIELDS)

    def column(name: str) -> Column[Any]:
        return Column(name, "Int64", docs[name], lambda row: getattr(read(row), name), "tokens", "main")

    return tuple(map(column, docs))


def _stream_id(row: Row[Any]) -> str | None:
    return row.run.stream_id


_STREAM_ID = Column[Any]("stream_id", "str", "Id of the stream; one stream can hold several runs.", _stream_id)


# --- steps -----------------------------------------------------------------------------------------------------------


def _cost(row: Row[Step]) -> float | None:
    return row.run.cost(row.item.usage, row.item.model, row.item.provider)


STEPS = Table[Row[Step]](
    "steps_df",
    "One row per step, which is one call of a model; steps of runs inside of the run follow those of the run itself, "
    "and have its `stream_id`, but a `run_id`, `turn` and `step` of their own.",
    (
        _STREAM_ID,
        Column("run_id", "str", "Id of the run.", lambda row: row.item.run_id or row.place.state.run_id),
        Column("turn", "Int64", "Number of the turn in its stream, from 0.", lambda row: row.item.turn),
        Column("step", "Int64", "Number of the step in its stream, from 0.", lambda row: row.item.index),
        Column("agent_id", "category", "The agent whose step it is.", lambda row: row.place.agent_id),
        Column("model", "category", "The model as the server names it.", lambda row: row.item.model),
        Column("provider", "category", "Its provider as the server names it.", lambda row: row.item.provider),
        Column("started_at", "timestamp", "When it began.", lambda row: row.run.time(row.item.started_at)),
        Column("duration_s", "Float64", "Its time, tools included.", lambda row: row.item.duration_s, "s"),
        Column(
            "time_to_first_token_s",
            "Float64",
            "From its start to its first delta.",
            lambda row: row.item.time_to_first_token_s,
            "s",
        ),
        Column(
            "output_tokens_per_s",
            "Float64",
            "Output tokens by the time from the first delta to the last.",
            lambda row: row.item.output_tokens_per_s,
            "tokens/s",
        ),
        Column("finish_reason", "category", "Why the model stopped.", lambda row: row.item.finish_reason),
        *token_columns(lambda row: row.item.usage),
        Column("cost_usd", "Float64", "Its price; missing where the model's isn't known.", _cost, "USD"),
        Column("tool_calls", "Int64", "How many tools it called.", lambda row: len(row.item.tool_calls)),
        Column("warnings", "Int64", "How often the provider warned.", lambda row: len(row.item.warnings)),
        Column("depth", "Int64", "0, or how deep inside of other runs.", lambda row: row.place.depth, group="place"),
        Column("path", "str", "Names from the stream's agent down.", lambda row: row.place.path, group="place"),
    ),
)


def step_rows(run: Run) -> Iterator[Row[Step]]:
    """The steps of a run, then those of the runs inside of it."""
    return (Row(place, step) for place in places(run) for step in list(place.state.steps))


# --- tool calls ------------------------------------------------------------------------------------------------------

_CALL_ID = "Id of the call, unique within its step only."
_DEPTH = Column[Any]("depth", "Int64", "0, or how deep inside of other runs.", lambda row: row.place.depth)
_PARENT = Column[Any](
    "parent_tool_call_id",
    "str",
    "The call or workflow step that the run is inside of.",
    lambda row: row.place.parent.tool_call_id if row.place.parent is not None else None,
)

TOOL_CALLS = Table[Row[ToolCall]](
    "tool_calls_df",
    "One row per tool call; those of runs inside of the run follow.",
    (
        _STREAM_ID,
        Column("run_id", "str", "Id of the run that made it.", lambda row: row.item.run_id or row.place.state.run_id),
        Column("turn", "Int64", "Number of the turn in its run, from 0.", lambda row: _number(row.item.turn)),
        Column("step", "Int64", "Number of the step in its run, from 0.", lambda row: _number(row.item.step)),
        _DEPTH,
        _PARENT,
        Column("tool_call_id", "str", _CALL_ID, lambda row: row.item.tool_call_id),
        Column("tool_name", "category", "Name of the tool.", lambda row: row.item.tool_name),
        Column("args", "object", "The arguments, JSON.", lambda row: row.item.args),
        Column("args_text", "str", "The arguments as the model wrote them.", lambda row: row.item.args_text or None),
        Column("status", "category", "How it stands.", lambda row: row.item.status, values=get_args(CallStatus)),
        Column("result", "object", "What the tool returned, JSON.", lambda row: row.item.result),
        Column("error_type", "category", "Name of its error.", lambda row: _error(row.item, "name")),
        Column("error_message", "str", "What went wrong.", lambda row: _error(row.item, "message")),
        Column("started_at", "timestamp", "When it was called.", lambda row: row.run.time(row.item.called_at)),
        Column(
            "arguments_s",
            "Float64",
            "The time in which its arguments were written.",
            lambda row: row.item.arguments_s,
            "s",
        ),
        Column("duration_s", "Float64", "From the call to the result.", lambda row: row.item.duration_s, "s"),
        Column("background", "boolean", "It runs as a background task.", lambda row: row.item.background),
        Column("task_id", "str", "Id of that task.", lambda row: row.item.task_id),
        Column(
            "provider_executed", "boolean", "The provider ran the tool itself.", lambda row: row.item.provider_executed
        ),
    ),
)


def tool_call_rows(run: Run) -> Iterator[Row[ToolCall]]:
    """The calls of a run, then those of the runs inside of it."""
    return (Row(place, call) for place in places(run) for call in list(place.state.tool_calls))


def _number(index: int) -> int | None:
    return index if index >= 0 else None


def _error(item: ToolCall | Task, name: str) -> str | None:
    return getattr(item.error, name) if item.error is not None else None


# --- background tasks ------------------------------------------------------------------------------------------------

TASKS = Table[Row[Task]](
    "tasks_df",
    "One row per background task. Its times are those at which its chunks came.",
    (
        _STREAM_ID,
        Column("run_id", "str", "Id of the run that it belongs to.", lambda row: row.item.run_id),
        Column("task_id", "str", "Id of the task.", lambda row: row.item.id),
        Column("tool_name", "category", "Name of its tool.", lambda row: row.item.tool_name or None),
        Column("tool_call_id", "str", "The call that began it.", lambda row: row.item.tool_call_id),
        Column("agent_id", "category", "The agent that began it.", lambda row: row.item.agent_id),
        Column("status", "category", "How it stands.", lambda row: row.item.status, values=get_args(TaskStatus)),
        Column("args", "object", "The arguments, JSON.", lambda row: row.item.args),
        Column("result", "object", "What it returned, JSON.", lambda row: row.item.result),
        Column("error_message", "str", "What went wrong.", lambda row: _error(row.item, "message")),
        Column("created_at", "timestamp", "When it was first told of.", lambda row: row.run.time(row.item.started_at)),
        Column("started_at", "timestamp", "When it began to run.", lambda row: row.run.time(row.item.running_at)),
        Column("completed_at", "timestamp", "When it ended.", lambda row: row.run.time(row.item.ended_at)),
        Column("queued_s", "Float64", "How long it waited for a slot.", lambda row: row.item.queued_s, "s"),
        Column("running_s", "Float64", "How long it ran, suspensions left out.", lambda row: row.item.running_s, "s"),
        Column("suspended_s", "Float64", "How long it was suspended.", lambda row: row.item.suspended_s, "s"),
        Column("attempts", "Int64", "How often it was tried, where the server tells.", lambda row: row.item.attempts),
        Column(
            "outputs",
            "object",
            "What it wrote while it ran, a list.",
            lambda row: list(row.item.outputs) if row.run.kept is None else None,
        ),
    ),
)


def task_rows(run: Run) -> Iterator[Row[Task]]:
    """The tasks of a run, then those of the runs inside of it."""
    return (Row(place, task) for place in places(run) for task in list(place.state.tasks.values()))


# --- messages, sources -----------------------------------------------------------------------------------------------

MESSAGES = Table[Row[MessageRecord]](
    "messages_df",
    "One row per message of the conversation, as the server knows it after the last turn that finished.",
    (
        _STREAM_ID,
        Column("run_id", "str", "Id of the stream's first run.", lambda row: row.place.state.run_id),
        Column("seq", "Int64", "Number of the message, from 0.", lambda row: row.seq),
        Column("message_id", "str", "Id of the message.", lambda row: row.item.id),
        Column("role", "category", "Whose message it is.", lambda row: row.item.role or None, values=ROLES),
        Column("text", "str", "Its text, joined.", lambda row: row.item.text),
        Column("created_at", "timestamp", "When it was made.", lambda row: utc(row.item.created_at), server_time=True),
        Column("parts", "object", "Its parts as they came, a list.", lambda row: row.item.parts),
    ),
)


def message_rows(run: Run) -> Iterator[Row[MessageRecord]]:
    """The conversation that the newest finish tells."""
    place = Place(run, run.state, "")
    return (Row(place, message, seq) for seq, message in enumerate(message_records(_history(run))))


def _history(run: Run) -> object:
    if run.kept is not None:
        return run.kept.messages
    finish = run.state.messages_chunk
    try:
        return as_dict(finish.raw_payload()).get("messages") if finish is not None else None
    except ChunkError:
        return None


THREADS = Table[Kept](
    "threads_df",
    "One row per thread of a server's memory: of its store, or of its list of threads.",
    (
        Column("stream_id", "str", "Id of the thread; `stream_id` of its messages too.", lambda row: row.id),
        Column("resource_id", "category", "The user, or whose it is.", lambda row: _of_thread(row, "resourceId")),
        Column("title", "str", "Its title.", lambda row: _of_thread(row, "title") or None),
        Column("created_at", "timestamp", "When it was begun.", lambda row: utc(_of_thread(row, "createdAt"))),
        Column("updated_at", "timestamp", "When it was last written.", lambda row: utc(_of_thread(row, "updatedAt"))),
        Column("messages", "Int64", "How many messages were read with it.", lambda row: len(row.messages)),
        Column("tasks", "Int64", "How many background tasks were read with it.", lambda row: len(row.tasks)),
        Column("metadata", "object", "What its makers noted, JSON.", lambda row: _of_thread(row, "metadata")),
    ),
)


def thread_rows(run: Run) -> Iterator[Kept]:
    """The thread, if it is one."""
    if run.kept is not None and run.kept.id is not None:
        yield run.kept


def _of_thread(kept: Kept, name: str) -> Any:
    return (kept.thread or {}).get(name)


SOURCES = Table[Row[SourcePart]](
    "sources_df",
    "One row per source that an answer rests on; the addresses are what a model or tool said, unchecked.",
    (
        _STREAM_ID,
        Column("run_id", "str", "Id of the run.", lambda row: row.item.chunk.run_id or row.place.state.run_id),
        Column("step", "Int64", "Number of the step in its run, from 0.", lambda row: _number(row.item.step)),
        _DEPTH,
        _PARENT,
        Column("source_id", "str", "Id of the source.", lambda row: row.item.id or None),
        Column("source_type", "category", "What it is: url, document.", lambda row: row.item.source_type or None),
        Column("title", "str", "Its title.", lambda row: row.item.title or None),
        Column("url", "str", "Its address.", lambda row: row.item.url or None),
        Column("at", "timestamp", "When it was named.", lambda row: row.run.time(row.item.started_at)),
    ),
)


def source_rows(run: Run) -> Iterator[Row[SourcePart]]:
    """The sources of a run, then those of the runs inside of it."""
    return (
        Row(place, part) for place in places(run) for part in list(place.state.parts) if isinstance(part, SourcePart)
    )
