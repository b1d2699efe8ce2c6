"""Two chunk sequences, field by field: ids, times and stacks replaced, the rest equal or named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

Wire = dict[str, Any]

DOCS = Path(__file__).parents[2] / "docs" / "conformance.md"

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_TIMES = {
    *("createdAt", "startedAt", "completedAt", "endedAt", "suspendedAt", "updatedAt", "acceptedAt"),
    *("timestamp", "duration"),
}
_STACKS = {"stack"}
_MISSING = object()


class Difference(NamedTuple):
    """One place where two streams differ: `type:path`, what the server has there, and what we have."""

    place: str
    server: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.place}\n      server {_short(self.server)}\n      ours   {_short(self.ours)}"


class Wanted(NamedTuple):
    """A row of the table in the docs: where (`scenario`, `place`, both with *) we want to differ, and why."""

    scenario: str
    place: str
    reason: str

    def covers(self, scenario: str, difference: Difference) -> bool:
        return fnmatchcase(scenario, self.scenario) and fnmatchcase(difference.place, self.place)


def wanted_differences() -> list[Wanted]:
    """The rows of the table in `docs/conformance.md`."""
    rows = [line.strip().strip("|").split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    return [Wanted(scenario.strip().strip("`"), place.strip().strip("`"), why.strip()) for scenario, place, why in rows]


def compare(server: list[Wire], ours: list[Wire], *, cut: bool = False) -> list[Difference]:
    """Where two streams of one step differ. `cut`: both were stopped, so how much text came is chance."""
    theirs, mine = (list(_in_order(_plain(chunks, cut))) for chunks in _beside(server, ours))
    found: list[Difference] = []
    kinds = SequenceMatcher(None, [_kind(c) for c in theirs], [_kind(c) for c in mine], autojunk=False)
    for operation, a, b, c, d in kinds.get_opcodes():
        if operation == "equal":
            for one, other in zip(theirs[a:b], mine[c:d], strict=True):
                found += _differences(f"{one['type']}:", one, other)
            continue
        found += [Difference(f"{chunk['type']}:", chunk, _MISSING) for chunk in theirs[a:b]]
        found += [Difference(f"{chunk['type']}:", _MISSING, chunk) for chunk in mine[c:d]]
    # Finishes repeat the history, and with it each difference: told once, where it came first.
    first: dict[str, Difference] = {}
    for difference in found:
        first.setdefault(repr(difference[1:]), difference)
    return list(first.values())


def _kind(chunk: Wire) -> str:
    """What to pair chunks by: the type, the text of a delta, and what is within a tool's output."""
    kind, payload = chunk["type"], chunk.get("payload")
    if not isinstance(payload, dict):
        return kind
    inner = payload.get("output")
    if kind == "tool-output" and isinstance(inner, dict) and "type" in inner:
        return f"{kind} {_kind(inner)}"
    return f"{kind} {payload['text']}" if kind.endswith("-delta") and "text" in payload else kind


def _beside(server: list[Wire], ours: list[Wire]) -> tuple[list[Wire], list[Wire]]:
    """What background tasks tell, apart from the turns: when it comes is chance, and whether a run still repeats it."""
    told = [_apart(chunks) for chunks in (server, ours)]
    both = {_about(chunk) for chunk in told[0][1]} & {_about(chunk) for chunk in told[1][1]}
    one, other = (
        [*turns, *(chunk for chunk in beside if chunk["type"].startswith("background-") or _about(chunk) in both)]
        for turns, beside in told
    )
    return one, other


def _apart(chunks: list[Wire]) -> tuple[list[Wire], list[Wire]]:
    tasks: set[str] = set()
    turns: list[Wire] = []
    beside: list[Wire] = []
    for chunk in chunks:
        kind, call = _about(chunk)
        if kind == "background-task-started":
            tasks.add(call)
        again = kind in ("tool-output", "tool-error", "tool-call-suspended") or (
            kind == "tool-result" and not str(chunk["payload"].get("result")).startswith("Background task started")
        )
        apart = call in tasks and (again or (kind.startswith("background-") and kind != "background-task-started"))
        (beside if apart else turns).append(chunk)
    return turns, sorted(beside, key=lambda chunk: (_about(chunk)[1], _about(chunk)[0].startswith("tool-")))


def _about(chunk: Wire) -> tuple[str, str]:
    payload = chunk.get("payload")
    return chunk["type"], str(payload.get("toolCallId")) if isinstance(payload, dict) else ""


def _in_order(chunks: Iterable[Wire]) -> Iterator[Wire]:
    """Results of calls that ran at once, by call: which is done first is chance."""
    results: list[Wire] = []
    for chunk in chunks:
        if chunk["type"] in ("tool-result", "tool-error", "background-task-started"):
            results.append(chunk)
            continue
        yield from sorted(results, key=lambda one: (one["type"].startswith("tool-"), one["payload"]["toolCallId"]))
        results = []
        yield chunk
    yield from results


def _plain(chunks: list[Wire], cut: bool) -> list[Wire]:
    names: dict[str, str] = {}

    def walk(value: Any, key: str = "") -> Any:
        if key in _TIMES and value is not None:
            return "<time>"
        if key in _STACKS:
            return "<stack>"
        if cut and key == "text":
            return "<as far as it came>"
        if isinstance(value, dict):
            return {name: walk(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, key) for inner in value]
        if isinstance(value, str):
            return _UUID.sub(lambda found: names.setdefault(found[0], f"<id {len(names)}>"), value)
        return value

    return [walk(chunk) for chunk in chunks if not (cut and chunk["type"] == "text-delta")]


def _differences(place: str, server: Any, ours: Any) -> Iterator[Difference]:
    if isinstance(server, dict) and isinstance(ours, dict):
        for key in [*server, *(key for key in ours if key not in server)]:
            dot = "" if place.endswith(":") else "."
            yield from _differences(f"{place}{dot}{key}", server.get(key, _MISSING), ours.get(key, _MISSING))
    elif isinstance(server, list) and isinstance(ours, list) and len(server) == len(ours):
        for index, (one, other) in enumerate(zip(server, ours, strict=True)):
            yield from _differences(f"{place}.{index}", one, other)
    elif server != ours or isinstance(server, bool) != isinstance(ours, bool):  # 1 and 1.0 are one number in JSON
        yield Difference(place, server, ours)


def _short(value: Any) -> str:
    text = "(nothing)" if value is _MISSING else repr(value)
    return text if len(text) <= 300 else f"{text[:297]}..."
