"""Chunks for small runs, and what a run came to, in the shape of `tests/data/expected_runs.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nbmastra.chunks import Chunk, parse_chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.fold import RunState, Step, ToolCall, Turn
from nbmastra.usage import Usage

DATA = Path(__file__).parents[1] / "data"
STREAMS = DATA / "streams"
_ALL: dict[str, Any] = json.loads((DATA / "expected_runs.json").read_text(encoding="utf-8"))
OBSERVED = {name: run for name, run in _ALL.items() if name.startswith("observe")}
"""Recordings with envelopes around their chunks."""
EXPECTED = {name: run for name, run in _ALL.items() if name not in OBSERVED}

Wire = dict[str, Any]


# --- chunks ----------------------------------------------------------------------------------------------------------


def chunk(kind: str, payload: Any = None, run: str | None = "r", **top: Any) -> Wire:
    """A wire chunk; `run=None` leaves run and origin out."""
    who = {"runId": run, "from": "AGENT"} if run is not None else {}
    return {"type": kind, **who, "payload": {} if payload is None else payload, **top}


def start(agent: str = "a", run: str = "r") -> Wire:
    return chunk("start", {"id": agent}, run)


def step_start(run: str = "r") -> Wire:
    return chunk("step-start", run=run)


def text(piece: str, id: str = "t", run: str = "r") -> Wire:
    return chunk("text-delta", {"id": id, "text": piece}, run)


def call(id: str, name: str = "f", args: Any = None, **more: Any) -> Wire:
    return chunk("tool-call", {"toolCallId": id, "toolName": name, "args": {} if args is None else args, **more})


def result(id: str, value: Any = None, name: str = "f", **more: Any) -> Wire:
    return chunk("tool-result", {"toolCallId": id, "toolName": name, "result": value, **more})


def usage(input: int, output: int, total: int | None = None, **more: int) -> Wire:
    return {"inputTokens": input, "outputTokens": output, "totalTokens": total or input + output, **more}


def step_finish(reason: str = "stop", used: Wire | None = None, continued: bool = False, run: str = "r") -> Wire:
    output = {"usage": used} if used is not None else {}
    return chunk("step-finish", {"stepResult": {"reason": reason, "isContinued": continued}, "output": output}, run)


def finish(reason: str = "stop", used: Wire | None = None, run: str = "r") -> Wire:
    return {**step_finish(reason, used, run=run), "type": "finish"}


def error(value: Any) -> Wire:
    return chunk("error", {"error": value})


def inside(call_id: str, inner: Wire) -> Wire:
    """What a sub-agent streams through its parent."""
    return {**chunk("tool-output", {"output": inner, "toolCallId": call_id, "toolName": "f"}), "from": "USER"}


def fold(chunks: Iterable[Wire | Chunk], *, done: bool = True, at: float = 0.0, **options: Any) -> RunState:
    """The state after these chunks; the n-th comes at `n` seconds."""
    state = RunState(**options)
    for event, item in enumerate(chunks):
        at = float(event)
        state.apply(item if isinstance(item, Chunk) else parse_chunk(item, event=event), at)
    state.close(at, done=done)
    return state


# --- recordings ------------------------------------------------------------------------------------------------------


@cache
def recording(name: str) -> bytes:
    """The bytes of a recording."""
    return (STREAMS / name).read_bytes()


def decode(pieces: Sequence[bytes]) -> tuple[list[Chunk], bool]:
    """The chunks of a stream that came in these pieces, and whether its end mark came."""
    decoder = ChunkDecoder()
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
    return [*chunks, *decoder.close()], decoder.done


def recorded(names: str) -> tuple[list[Chunk], bool]:
    """The chunks of recordings (`a.sse+b.sse`), one after the other, and whether the last has its end mark."""
    chunks: list[Chunk] = []
    done = False
    for name in names.split("+"):
        more, done = decode([recording(name)])
        chunks += more
    return chunks, done


# --- what a run came to ----------------------------------------------------------------------------------------------


def summary(state: RunState) -> dict[str, Any]:
    """A finished state in the shape of the expected runs."""
    found: dict[str, Any] = {
        "status": state.status,
        "agent": state.agent_id,
        "run_ids": state.run_ids,
        "turns": [_turn(turn) for turn in state.turns],
        "tasks": [
            {"tool_call_id": task.tool_call_id, "tool_name": task.tool_name, "status": task.status}
            for task in state.tasks.values()
        ],
        "nested": [_nested(run) for run in state.nested],
        "sources": sum(part.kind == "source" for part in state.parts),
        "files": sum(part.kind == "file" for part in state.parts),
        "data": sum(count for kind, count in state.counts.items() if kind.startswith("data-")),
        "goals": sum(getattr(part, "type", "") == "goal" for part in state.parts),
        "chunks": state.events,
        "notices": [notice.code for notice in state.notices],
    }
    if state.object is not None:
        found["object"] = state.object.value
    return found


def expected(names: str) -> dict[str, Any]:
    """What the hand-made truth says of a run, and the words its reason must hold."""
    return {key: value for key, value in EXPECTED[names].items() if key != "reason_contains"}


def numbers(used: Usage) -> dict[str, int | None] | None:
    if not used.reported:
        return None
    return {
        "input": used.input_tokens,
        "output": used.output_tokens,
        "total": used.total_tokens,
        "reasoning": used.reasoning_tokens,
        "cached": used.cached_input_tokens,
        "cache_creation": used.cache_creation_input_tokens,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "run_ids": turn.run_ids,
        "text": turn.text,
        "finish_reason": turn.finish_reason,
        "usage": numbers(turn.usage),
        "steps": [_step(step) for step in turn.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "text": step.text,
        "reasoning": step.reasoning,
        "finish_reason": step.finish_reason,
        "usage": numbers(step.usage),
        "tool_calls": [_call(call) for call in step.tool_calls],
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.tool_call_id,
        "name": call.tool_name,
        "args": call.args,
        "status": call.status,
        "background": call.background,
        "has_result": call.has_result,
    }


def _nested(run: RunState) -> dict[str, Any]:
    assert isinstance(run.parent_call, ToolCall)
    return {
        "agent": run.agent_id,
        "tool_call_id": run.parent_call.tool_call_id,
        "text": run.text,
        "usage": numbers(run.usage),
        "status": run.status,
    }
