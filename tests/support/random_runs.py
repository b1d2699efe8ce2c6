"""Random valid streams, with what they say by construction; and random nonsense."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from nbmastra.chunks import CHUNK_TYPES
from tests.support.runs import Wire, call, chunk, finish, inside, result, start, step_finish, step_start, text, usage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
COUNTS = st.builds(usage, st.integers(0, 1000), st.integers(0, 1000))


@dataclass
class Facts:
    """What a stream says."""

    chunks: list[Wire] = field(default_factory=list[Wire])
    texts: list[str] = field(default_factory=list[str])
    """All text deltas, in order."""
    turns: list[list[str]] = field(default_factory=list[list[str]])
    """Text of each step, by turn."""
    answers: list[str] = field(default_factory=list[str])
    """Text after the last call, by turn."""
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    """Id, status and arguments of each call, by first chunk."""
    used: list[int] = field(default_factory=list[int])
    """Tokens of each turn."""
    nested_used: int = 0
    tasks: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class _Thread:
    """Chunks whose order is fixed, beside others of the same step."""

    chunks: list[Wire]
    text: str | None = None
    call: tuple[str, str, Any] | None = None


@st.composite
def runs(draw: st.DrawFn) -> Facts:
    """A stream of one to three turns that all come to their finish."""
    facts = Facts()
    late: list[Wire] = []
    for turn in range(draw(st.integers(1, 3))):
        run = f"run-{turn}"
        facts.chunks.append(start(run=run))
        texts: list[str] = []
        answer: list[str] = []
        used = 0
        steps = draw(st.integers(1, 3))
        for step in range(steps):
            before = len(facts.chunks)
            facts.chunks.append(step_start(run))
            threads = _step(draw, facts, run, late)
            _interleave(draw, facts, threads)
            order = sorted(threads, key=lambda thread: facts.chunks.index(thread.chunks[0], before))
            texts.append("".join(thread.text or "" for thread in order))
            for thread in order:
                if thread.call is not None:
                    facts.calls.append(thread.call)
                    answer.clear()
                elif thread.text is not None:
                    answer.append(thread.text)
            counts = draw(COUNTS)
            used += counts["totalTokens"]
            last = step == steps - 1
            facts.chunks.append(step_finish("stop" if last else "tool-calls", counts, continued=not last, run=run))
        tell_again = draw(st.booleans())
        whole = usage(*_summed(facts.chunks, run)) if tell_again else None
        facts.chunks.append(finish("stop", whole, run))
        facts.turns.append(texts)
        facts.answers.append("".join(answer))
        facts.used.append(used)
        facts.chunks += late
        late.clear()
    facts.texts = [item["payload"]["text"] for item in facts.chunks if item["type"] == "text-delta"]
    return facts


def _summed(chunks: list[Wire], run: str) -> tuple[int, int]:
    told = [
        item["payload"]["output"]["usage"] for item in chunks if item["type"] == "step-finish" and item["runId"] == run
    ]
    return sum(used["inputTokens"] for used in told), sum(used["outputTokens"] for used in told)


def _interleave(draw: st.DrawFn, facts: Facts, threads: list[_Thread]) -> None:
    left = [list(thread.chunks) for thread in threads]
    while any(left):
        rest = [chunks for chunks in left if chunks]
        facts.chunks.append(draw(st.sampled_from(rest)).pop(0))


def _step(draw: st.DrawFn, facts: Facts, run: str, late: list[Wire]) -> list[_Thread]:
    threads: list[_Thread] = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "reasoning", "call", "nested", "task"]))
        make = {"text": _text, "reasoning": _reasoning, "call": _call, "nested": _nested}.get(kind)
        # The same ids in every step: they are unique within a step only. Tasks have the whole run for their ids.
        if make is not None:
            threads.append(make(draw, facts, run, f"{kind}-{number}"))
        else:
            threads.append(_task(draw, facts, f"task-{len(facts.tasks)}", late))
    return threads


def _text(draw: st.DrawFn, facts: Facts, run: str, id: str) -> _Thread:
    pieces = draw(st.lists(TEXT, min_size=1, max_size=4))
    chunks = [chunk("text-start", {"id": id}, run), *(text(piece, id, run) for piece in pieces)]
    return _Thread([*chunks, chunk("text-end", {"id": id}, run)], text="".join(pieces))


def _reasoning(draw: st.DrawFn, facts: Facts, run: str, id: str) -> _Thread:
    pieces = draw(st.lists(TEXT, min_size=1, max_size=3))
    deltas = [chunk("reasoning-delta", {"id": id, "text": piece}, run) for piece in pieces]
    return _Thread([chunk("reasoning-start", {"id": id}, run), *deltas, chunk("reasoning-end", {"id": id}, run)])


def _asked(draw: st.DrawFn, id: str, args: Any) -> list[Wire]:
    """A call, with or without its arguments as they were written."""
    if draw(st.booleans()):
        return [call(id, args=args)]
    written = json.dumps(args)
    cut = draw(st.integers(0, len(written)))
    return [
        chunk("tool-call-input-streaming-start", {"toolCallId": id, "toolName": "f"}),
        chunk("tool-call-delta", {"toolCallId": id, "argsTextDelta": written[:cut]}),
        chunk("tool-call-delta", {"toolCallId": id, "argsTextDelta": written[cut:]}),
        chunk("tool-call-input-streaming-end", {"toolCallId": id}),
        call(id, args=args),
    ]


def _call(draw: st.DrawFn, facts: Facts, run: str, id: str) -> _Thread:
    args = draw(OBJECTS)
    good = draw(st.booleans())
    end = result(id, draw(JSON.filter(lambda value: not isinstance(value, dict)))) if good else _tool_error(id)
    written = [
        {**chunk("tool-output", {"toolCallId": id, "toolName": "f", "output": value}), "from": "USER"}
        for value in draw(st.lists(JSON, max_size=2))
    ]
    return _Thread([*_asked(draw, id, args), *written, end], call=(id, "success" if good else "error", args))


def _tool_error(id: str) -> Wire:
    return chunk("tool-error", {"toolCallId": id, "toolName": "f", "error": {"message": "boom"}})


def _nested(draw: st.DrawFn, facts: Facts, run: str, id: str) -> _Thread:
    args = draw(OBJECTS)
    counts = draw(COUNTS)
    child = f"child-{id}-{len(facts.chunks)}"
    facts.nested_used += counts["totalTokens"]
    pieces = draw(st.lists(TEXT, max_size=3))
    inner = [
        start("child", child),
        step_start(child),
        *(text(piece, run=child) for piece in pieces),
        step_finish(used=counts, run=child),
        finish(used=counts, run=child),
    ]
    chunks = [*_asked(draw, id, args), *(inside(id, item) for item in inner), result(id, "told")]
    return _Thread(chunks, call=(id, "success", args))


def _task(draw: st.DrawFn, facts: Facts, id: str, late: list[Wire]) -> _Thread:
    """A call in the background: its chunks overtake each other, and the last of them may come after the turn."""
    args = draw(OBJECTS)
    about = {"taskId": id, "toolName": "f", "toolCallId": id}
    placeholder = result(id, "started", providerMetadata={"mastra": {"backgroundTask": {"taskId": id}}})
    status, end = draw(
        st.sampled_from(
            [
                ("completed", {"result": 1}),
                ("failed", {"error": {"message": "boom"}}),
                ("cancelled", {}),
                ("running", None),
            ]
        )
    )
    facts.tasks[id] = status
    told = [
        chunk("background-task-started", about),
        chunk("background-task-running", about, None),
        placeholder,
    ]
    if end is not None:
        ending = chunk(f"background-task-{status}", {**about, **end}, None)
        if draw(st.booleans()):
            told.append(ending)
        else:
            late.append(ending)
    told = draw(st.permutations(told))
    outcome = {"completed": "success", "failed": "error"}.get(status, status)
    return _Thread([*_asked(draw, id, args), *told], call=(id, outcome, args))


# --- nonsense --------------------------------------------------------------------------------------------------------

KEYS = """id text toolCallId toolName args result error output payload argsTextDelta usage stepResult reason isContinued
metadata modelId messageId taskId taskIds iteration pending isError preliminary providerMetadata mastra backgroundTask
suspendPayload resumeSchema approval runId from type signature anthropic data object warnings retry processorId status
stepName workflowStatus inputTokens outputTokens totalTokens total messages agentId name primitiveId""".split()
TYPES = [*sorted(CHUNK_TYPES), "data-x", "agent-execution-event-text-delta", "decode-error", "new-2027"]
WORDS = ["", "a", "r", "f", "{", "{}", "text-delta", "AGENT", "start", "\ud800", "suspended", "failed", "canceled"]
SCALARS = [None, True, False, 0, 1, -5, 10**30, 1.5, float("nan"), *WORDS]
BROKEN = [b'{"output":"\xff"}', b'{"output":' + b"1" * 5000 + b"}", b"", b"{", b"[" * 2000]


def nonsense(chance: Random) -> bytes:
    """A chunk of any type with any payload: valid JSON, or bytes that only begin like it.

    Of one seed and not of hypothesis, which takes as long for one of them as the fold for hundreds.
    """
    head: Wire = {"type": chance.choice(TYPES)}
    if chance.random() < 0.7:
        head |= {"runId": chance.choice("rs"), "from": "AGENT"}
    if chance.random() < 0.04:
        return json.dumps(head).encode()[:-1] + b',"payload":' + chance.choice(BROKEN) + b"}"
    if chance.random() < 0.95:
        head["payload"] = _object(chance, 8, 0) if chance.random() < 0.93 else _value(chance, 0)
    if chance.random() < 0.15:
        head[chance.choice(["object", "data", "id"])] = _value(chance, 0)
    return json.dumps(head).encode()


def _value(chance: Random, depth: int) -> Any:
    kind = chance.random() if depth < 4 else 0.0
    if kind < 0.65:
        return chance.choice(SCALARS)
    return _object(chance, 5, depth) if kind > 0.8 else [_value(chance, depth + 1) for _ in range(chance.randrange(3))]


def _object(chance: Random, most: int, depth: int) -> dict[str, Any]:
    return {chance.choice(KEYS): _value(chance, depth + 1) for _ in range(chance.randrange(most + 1))}
