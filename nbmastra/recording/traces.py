"""A server's traces as finished outputs: one for each run, and one for each part of it that came after an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from nbmastra.chunks import parse_chunk
from nbmastra.engine import Engine
from nbmastra.fold.reading import as_dict, as_list, as_text
from nbmastra.messages import message_records
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording.span_chunks import run_chunks
from nbmastra.recording.spans import RUNS, Carried, KeptSpans, RunSpans, carried_of, gather, moment, span_tree

__all__ = ["TraceRuns", "runs_of_trace", "settled_at"]

OPEN = "the server had not ended it when its trace was read"


@dataclass
class TraceRuns:
    """What a trace holds: its runs, oldest first, and the spans that belong to none of them.

    `odd` counts what is wrong with its spans, by what it is; they are read as far as they can be.
    """

    outputs: list[MastraModelOutput] = field(default_factory=list[MastraModelOutput])
    other_spans: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    odd: Counter[str] = field(default_factory=Counter[str])


def runs_of_trace(trace: Mapping[str, Any], *, url: str | None = None, engine: Engine | None = None) -> TraceRuns:
    """The runs of a trace, `{"traceId", "spans"}`. Source of the shape: `GET /observability/traces/{traceId}`.

    Each output's `context` has its trace's id as `trace_id` and its spans, as they came, as `spans`. A run that isn't
    over ends as truncated. Never raises for what a server sent.
    """
    found = TraceRuns()
    waiting = list(reversed(span_tree(as_list(trace.get("spans")), found.odd)))
    parts: list[RunSpans] = []
    while waiting:
        span = waiting.pop()
        if span.type in RUNS:
            part = gather(span)
            parts.append(part)
            waiting += reversed(part.apart)
        else:
            found.other_spans.append(span.raw)
            waiting += reversed(span.children)
    parts.sort(key=lambda part: part.run.start)
    newest: dict[str, tuple[MastraModelOutput, Carried | None]] = {}
    for part in parts:
        run_id = part.run.run_id
        previous, carried = newest.get(run_id, (None, None)) if part.run.resumed else (None, None)
        out = _output(part, carried, previous, url, as_text(trace.get("traceId")), engine)
        newest[run_id] = out, carried_of(part)
        found.outputs.append(out)
    return found


def _output(
    part: RunSpans,
    carried: Carried | None,
    previous: MastraModelOutput | None,
    url: str | None,
    trace_id: str,
    engine: Engine | None,
) -> MastraModelOutput:
    run = part.run
    answer = as_dict(run.raw.get("input")) if run.resumed else {}
    context: dict[str, Any] = {
        "url": url,
        "thread": run.raw.get("threadId") or run.metadata.get("threadId"),
        "resource": run.raw.get("resourceId") or run.metadata.get("resourceId"),
        "trace_id": trace_id or None,
    }
    out = MastraModelOutput(
        agent=run.entity or None,
        prompt=None if run.resumed else _prompt(run.raw.get("input")),
        previous=previous,
        answered=[id] if (id := as_text(answer.get("toolCallId"))) else (),
        context={key: value for key, value in context.items() if isinstance(value, str)}
        | {"spans": KeptSpans(_spans(part))},
        engine=engine,
    )
    if previous is not None:
        previous.next = out
    out.stream_id = run.id
    out.created_at = datetime.fromtimestamp(run.start, UTC)
    last = 0.0
    for event, (at, chunk) in enumerate(run_chunks(part, carried)):
        last = max(at - run.start, last)
        out.feed([parse_chunk(chunk, event=event)], last)
    if run.end is not None or out.state.tripwire is not None:
        out.finish(Ended(True, at=last))
    else:
        out.finish(Ended(failure=OPEN, at=last))
    return out


def _spans(part: RunSpans) -> list[dict[str, Any]]:
    """Those of the run and of the runs inside of it, by their start."""
    found = [part.run, *part.own]
    for inner, _ in part.inside:
        found += [inner, *inner.below()]
    return [span.raw for span in sorted(found, key=lambda span: span.start)]


def _prompt(value: object) -> str | None:
    """What was asked: a text, or that of the last message of the user."""
    if isinstance(value, str):
        return value
    held = cast("Mapping[str, Any]", value).get("messages", value) if isinstance(value, dict) else value
    asked = [message.text for message in message_records(held) if message.role == "user" and message.text]
    return asked[-1] if asked else None


def settled_at(trace: Mapping[str, Any]) -> float | None:
    """When the last of a trace ended, in seconds since 1970; None while some of it is open or waits for an answer."""
    last, waiting = 0.0, 0
    for raw in map(as_dict, as_list(trace.get("spans"))):
        if raw.get("isEvent") is True:
            continue
        end = moment(raw.get("endedAt"))
        if end is None:
            return None
        last = max(last, end)
        if raw.get("spanType") in RUNS:
            told = (as_dict(raw.get("output")).get("status"), as_dict(raw.get("attributes")).get("status"))
            waiting += ("suspended" in told) - (as_dict(raw.get("metadata")).get("resumed") is True)
    return last if waiting <= 0 else None
