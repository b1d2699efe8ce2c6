"""Spans of a trace as a tree. What is odd in them (a lost parent, no start, no id) is counted and read all the same."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, overload

from nbmastra.fold.reading import as_dict, as_text

__all__ = ["RUNS", "TOOLS", "Carried", "KeptSpans", "RunSpans", "Span", "carried_of", "gather", "moment", "span_tree"]

RUNS = ("agent_run", "workflow_run")
TOOLS = ("tool_call", "mcp_tool_call", "provider_tool_call")


@dataclass(eq=False, slots=True)
class Span:
    """One span, its times in seconds since 1970; `end` is None while it is open."""

    raw: dict[str, Any]
    id: str
    type: str
    start: float
    end: float | None
    parent: Span | None = None
    children: list[Span] = field(default_factory=list["Span"])

    @property
    def attributes(self) -> dict[str, Any]:
        """What spans of its type have."""
        return as_dict(self.raw.get("attributes"))

    @property
    def metadata(self) -> dict[str, Any]:
        """What is told of the whole run."""
        return as_dict(self.raw.get("metadata"))

    @property
    def output(self) -> dict[str, Any]:
        """Its output if that is an object, else an empty one."""
        return as_dict(self.raw.get("output"))

    @property
    def run_id(self) -> str:
        """Id of the run; "" if it tells none."""
        return as_text(self.raw.get("runId")) or as_text(self.metadata.get("runId"))

    @property
    def entity(self) -> str:
        """Id of the agent, tool, workflow or step; "" if it tells none."""
        return as_text(self.raw.get("entityId")) or as_text(self.raw.get("entityName"))

    @property
    def event(self) -> bool:
        """True for what has no duration: such a span is never ended."""
        return self.raw.get("isEvent") is True

    @property
    def resumed(self) -> bool:
        """True for the part of a run that came after an answer."""
        return self.metadata.get("resumed") is True

    def below(self) -> Iterator[Span]:
        """All spans under it, each before those under it."""
        waiting = self.children[::-1]
        while waiting:
            span = waiting.pop()
            yield span
            waiting += span.children[::-1]


def moment(value: object) -> float | None:
    """A time that a server tells, in seconds since 1970: ISO text, or milliseconds; None if it is neither."""
    try:
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC).timestamp()  # refuses what is no time
    except (ValueError, OverflowError, OSError):
        pass
    return None


def span_tree(records: Iterable[object], odd: Counter[str]) -> list[Span]:
    """The topmost spans by their start, with those under them; what is odd is counted by what is wrong with it."""
    spans: dict[str, Span] = {}
    for record in records:
        raw = as_dict(record)
        id, start = as_text(raw.get("spanId")), moment(raw.get("startedAt"))
        if not id or start is None:
            odd["a span without an id or a start"] += 1
            continue
        if id in spans:
            odd["a span that came twice"] += 1
        end = moment(raw.get("endedAt"))
        if end is not None and end < start:
            odd["a span that ended before it began"] += 1
            end = start
        # Older servers say llm_generation for model_generation.
        kind = as_text(raw.get("spanType"))
        spans[id] = Span(raw, id, f"model_{kind[4:]}" if kind.startswith("llm_") else kind, start, end)
    roots: list[Span] = []
    for span in spans.values():
        parent_id = span.raw.get("parentSpanId")
        parent = spans.get(parent_id) if isinstance(parent_id, str) else None
        if parent is None or _is_under(parent, span):
            if parent_id is not None:
                odd["a span without its parent"] += 1
            roots.append(span)
        else:
            span.parent = parent
            parent.children.append(span)
    for span in spans.values():
        span.children.sort(key=_order)
    return sorted(roots, key=_order)


def _is_under(span: Span, other: Span) -> bool:
    at: Span | None = span
    while at is not None:
        if at is other:
            return True
        at = at.parent
    return False


def _order(span: Span) -> tuple[float, float]:
    number = span.attributes.get("sequenceNumber")
    return span.start, number if isinstance(number, int | float) else 0


# --- what belongs to a run -------------------------------------------------------------------------------------------


@dataclass
class RunSpans:
    """The spans of one run: its `own`, runs `inside` of it with the call or workflow step that they hang under, and
    those `apart`: parts of the same run after an answer, and what processors had agents do."""

    run: Span
    own: list[Span] = field(default_factory=list[Span])
    inside: list[tuple[Span, Span]] = field(default_factory=list[tuple[Span, Span]])
    apart: list[Span] = field(default_factory=list[Span])

    def of(self, *kinds: str) -> list[Span]:
        """Its own spans of these types, by their start."""
        return sorted((span for span in self.own if span.type in kinds), key=lambda span: span.start)

    @property
    def suspended(self) -> bool:
        """True if it ended to wait for an answer."""
        asked = self.run.output.get("status") == "suspended" or self.run.attributes.get("status") == "suspended"
        return self.run.end is not None and asked


@dataclass(frozen=True)
class Carried:
    """What a durable run's part holds of the part after the answer: the step that went on, and its calls.

    `asked`: what it had asked approval for, {toolCallId, toolName}.
    """

    step: Span | None
    calls: list[Span]
    asked: dict[str, Any]


def gather(run: Span) -> RunSpans:
    """What belongs to a run."""
    found = RunSpans(run)
    waiting: list[tuple[Span, Span | None]] = [(child, None) for child in reversed(run.children)]
    while waiting:
        span, holder = waiting.pop()
        if span.type in RUNS:
            if holder is None or (span.resumed and span.run_id == run.run_id):
                found.apart.append(span)
            else:
                found.inside.append((span, holder))
            continue
        found.own.append(span)
        if span.type in TOOLS or span.type == "workflow_step":
            holder = span
        waiting += [(child, holder) for child in reversed(span.children)]
    return found


def carried_of(spans: RunSpans) -> Carried | None:
    """What went on in this part's spans after it had ended to wait; None if nothing did."""
    end = spans.run.end
    if not spans.suspended or end is None:
        return None
    calls = [call for call in spans.of(*TOOLS) if call.start > end]
    # The step that waited tells how it ended once it has gone on; when it ended, it may tell wrongly.
    step = next(reversed(spans.of("model_step")), None)
    ended = step is not None and any("finishReason" in span.attributes for span in (step, *step.children))
    if not calls and not ended:
        return None
    output = spans.run.output
    return Carried(step if ended else None, calls, output if "approval" in as_text(output.get("reason")) else {})


class KeptSpans(Sequence[dict[str, Any]]):
    """Spans as they came, kept small: a run's prompts stand in its spans again and again. Reading unpacks them all."""

    def __init__(self, spans: Sequence[dict[str, Any]]) -> None:
        self._count = len(spans)
        self._packed = zlib.compress(json.dumps(spans).encode(), 1)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._unpacked()[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._unpacked())

    def __len__(self) -> int:
        return self._count

    def _unpacked(self) -> list[dict[str, Any]]:
        return json.loads(zlib.decompress(self._packed))

    def __repr__(self) -> str:
        return f"<KeptSpans: {self._count}>"
