"""The chunk inside a chunk: what sub-agents, workflow steps and background tasks stream through their parent."""

from __future__ import annotations

from typing import Any, cast

from nbmastra.chunks.envelope import Chunk, parse_chunk
from nbmastra.chunks.registry import EVENT_PREFIXES
from nbmastra.errors import ChunkError

__all__ = ["nested_chunk"]

_WRITTEN = {"tool-output", "step-output", "workflow-step-output"}
_ORIGINS = ("AGENT", "USER", "SYSTEM", "WORKFLOW", "NETWORK")


def nested_chunk(chunk: Chunk) -> Chunk | None:
    """The chunk that this one carries; None if it carries none, or only something that looks a bit like one.

    `agent-execution-event-*`, `workflow-execution-event-*` and `background-task-output` always carry one. What a tool
    or step wrote (`payload.output`) is any JSON: it counts as a chunk if it has a `type`, a `runId` and a known `from`.
    """
    written = chunk.type in _WRITTEN
    if not written and chunk.type != "background-task-output" and not chunk.type.startswith(EVENT_PREFIXES):
        return None
    try:
        payload = _object(chunk.raw_payload())
        inner = _object(payload.get("output")) if written else payload
        if chunk.type == "background-task-output":
            inner = _object(payload.get("payload"))
        if written and not (isinstance(inner.get("runId"), str) and inner.get("from") in _ORIGINS):
            return None
        return parse_chunk(inner, event=chunk.event) if isinstance(inner.get("type"), str) else None
    except ChunkError:
        return None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
