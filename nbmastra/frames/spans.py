"""`spans_df`: one row per span of the traces that runs were read from; so it has what no chunk tells of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nbmastra.fold import ErrorInfo
from nbmastra.fold.reading import as_dict, as_text, error_info
from nbmastra.frames.columns import Column, Table, utc
from nbmastra.frames.runs import Run

__all__ = ["SPANS", "SpanRow", "span_rows", "stray_spans"]


@dataclass(frozen=True)
class SpanRow:
    """A span as it came, and the stream that it belongs to, if it does."""

    stream_id: str | None
    span: dict[str, Any]

    def text(self, key: str) -> str | None:
        """A value that is a text; None for all else."""
        return as_text(self.span.get(key)) or None

    def about(self, key: str) -> str | None:
        """The same, from the span or its metadata."""
        return self.text(key) or as_text(as_dict(self.span.get("metadata")).get(key)) or None

    @property
    def error(self) -> ErrorInfo | None:
        """What went wrong in it."""
        error = self.span.get("error")
        return error_info(error) if error is not None else None

    @property
    def duration_s(self) -> float | None:
        """Its time; None while it is open, and for an event, which has none."""
        start, end = utc(self.span.get("startedAt")), utc(self.span.get("endedAt"))
        return (end - start).total_seconds() if start is not None and end is not None else None


def _text(key: str) -> Callable[[SpanRow], str | None]:
    return lambda row: row.text(key)


def _value(key: str) -> Callable[[SpanRow], Any]:
    return lambda row: row.span.get(key)


SPANS = Table[SpanRow](
    "spans_df",
    "One row per span of a server's traces, of runs that `MastraClient.history` gave: agents, models, tools, and what "
    "no other table has: processors, memory, workflows. Its tokens are those of the runs: see `usage_df`.",
    (
        Column(
            "stream_id", "str", "Id of the stream; missing for a span outside of any run.", lambda row: row.stream_id
        ),
        Column("run_id", "str", "Id of the run, that of a sub-agent for its spans.", lambda row: row.about("runId")),
        Column("trace_id", "str", "Id of the trace.", _text("traceId")),
        Column("span_id", "str", "Id of the span.", _text("spanId")),
        Column("parent_span_id", "str", "The span that it is part of.", _text("parentSpanId")),
        Column("name", "str", "Its name.", _text("name")),
        Column(
            "span_type", "category", "What it is: agent_run, processor_run, workflow_step and more.", _text("spanType")
        ),
        Column("entity_type", "category", "Of what it is: agent, tool, input_processor and more.", _text("entityType")),
        Column("entity_id", "category", "Id of the agent, tool, processor or workflow.", _text("entityId")),
        Column("thread_id", "str", "The conversation.", lambda row: row.about("threadId")),
        Column("resource_id", "str", "Whose conversation it is.", lambda row: row.about("resourceId")),
        Column("status", "category", "How it stands, in the server's words.", _text("status")),
        Column("is_event", "boolean", "It has no duration.", lambda row: row.span.get("isEvent") is True),
        Column("started_at", "timestamp", "When it began.", lambda row: utc(row.span.get("startedAt"))),
        Column("ended_at", "timestamp", "When it ended.", lambda row: utc(row.span.get("endedAt"))),
        Column("duration_s", "Float64", "Its time.", lambda row: row.duration_s, "s"),
        Column("error_type", "category", "Name of its error.", lambda row: row.error.name if row.error else None),
        Column("error_message", "str", "What went wrong.", lambda row: row.error.message if row.error else None),
        Column("input", "object", "What went in, JSON.", _value("input"), group="raw"),
        Column("output", "object", "What came out, JSON.", _value("output"), group="raw"),
        Column("attributes", "object", "What spans of its type have, JSON.", _value("attributes"), group="raw"),
        Column("metadata", "object", "What is told of the whole run, JSON.", _value("metadata"), group="raw"),
    ),
)


def span_rows(run: Run) -> Iterator[SpanRow]:
    """The spans of a run, of runs inside of it too."""
    return (SpanRow(run.stream_id, span) for span in run.spans)


def stray_spans(source: object) -> Iterator[SpanRow]:
    """Those of a server's history that belong to no run."""
    spans: Iterable[Any] = getattr(source, "other_spans", ())
    return (SpanRow(None, as_dict(span)) for span in spans)
