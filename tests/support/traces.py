"""Spans for small traces, in the shape of `GET /observability/traces/{traceId}`; times in ms since the trace began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Wire = dict[str, Any]

BEGAN = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
"""Long ago enough for a trace to be settled."""


def at(ms: float, began: datetime = BEGAN) -> str:
    return (began + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(kind: str, id: str, start: float, end: float | None, under: str | None = None, **more: Any) -> Wire:
    """A span; `more`: entity, run, input, output, error, and its attributes."""
    fields = {"entity": "entityId", "run": "runId", "input": "input", "output": "output", "error": "error"}
    raw: Wire = {"spanId": id, "parentSpanId": under, "spanType": kind, "name": f"{kind}: {id}", "isEvent": False}
    raw |= {
        "startedAt": at(start),
        "endedAt": None if end is None else at(end),
        "runId": "r1",
        "updatedAt": at(end or 0),
    }
    raw |= {fields[key]: value for key, value in more.items() if key in fields}
    raw["attributes"] = {key: value for key, value in more.items() if key not in fields and key != "metadata"}
    raw["metadata"] = more.get("metadata")
    return raw


def event(id: str, start: float, under: str, **more: Any) -> Wire:
    return span("model_chunk", id, start, None, under, **more) | {"isEvent": True}


def usage(input: int, output: int, cached: int | None = None, reasoning: int | None = None) -> Wire:
    return {
        "inputTokens": input,
        "outputTokens": output,
        "inputDetails": {"text": input} | ({} if cached is None else {"cacheRead": cached}),
        "outputDetails": {"text": output} | ({} if reasoning is None else {"reasoning": reasoning}),
    }


def step(
    id: str, start: float, end: float | None, under: str, reason: str | None, used: Wire | None = None
) -> list[Wire]:
    """A step and its inference, both of which tell the tokens."""
    told: Wire = {} if reason is None else {"finishReason": reason, "usage": used or {}}
    first = {"completionStartTime": at(start + 20)}
    return [
        span("model_step", id, start, end, under, stepIndex=0, messageId=f"m-{id}", **told),
        span("model_inference", f"{id}-i", start + 5, end, id, model="m-1", provider="acme", **first, **told),
    ]


def piece(kind: str, id: str, start: float, end: float | None, step_id: str, **output: Any) -> Wire:
    return span("model_chunk", id, start, end, f"{step_id}-i", output=output, chunkType=kind)


def trace(*spans: Wire | list[Wire], id: str = "t1") -> Wire:
    flat = [one for part in spans for one in (part if isinstance(part, list) else [part])]
    return {"traceId": id, "spans": [{**one, "traceId": id} for one in flat]}


def weather(id: str = "t1", run: str = "r1", agent: str = "weather", **root: Any) -> Wire:
    """A run with a tool call and an answer; 150 ms, 3 of them the tool's."""
    made = trace(
        span("agent_run", f"{id}-a", 0, 150, entity=agent, input=[{"role": "user", "content": "Warm?"}], **root),
        span("model_generation", "g", 2, 148, f"{id}-a", finishReason="stop", usage=usage(50, 12, 4)),
        step("s0", 10, 90, "g", "tool-calls", usage(20, 5, 4)),
        piece("text", "p0", 25, 45, "s0", text="I look."),
        piece("tool-call", "p1", 50, 70, "s0", toolCallId="c1", toolName="look", toolInput={"city": "Oslo"}),
        span("tool_call", "c", 72, 75, "s0", entity="look", input={"city": "Oslo"}, output={"c": 3}, toolCallId="c1"),
        step("s1", 95, 140, "g", "stop", usage(30, 7)),
        piece("text", "p2", 110, 135, "s1", text="No, 3 °C."),
        id=id,
    )
    return {**made, "spans": [{**one, "runId": run} for one in made["spans"]]}
