"""Local runs of the scripts whose answers were recorded from a real server, and what makes both comparable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from nbmastra.output import MastraModelOutput

STREAMS = Path(__file__).parents[1] / "data" / "streams"

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def recorded(name: str) -> list[dict[str, Any]]:
    """The chunks of a recorded stream."""
    lines = (STREAMS / f"{name}.sse").read_text().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def chunks(out: MastraModelOutput) -> list[dict[str, Any]]:
    """The chunks of a run, read from their bytes."""
    return [json.loads(chunk.to_json()) for chunk in out.log]


def plain(value: Any, key: str = "") -> Any:
    """The value with ids, times and stacks replaced by what they are."""
    if isinstance(value, dict):
        return {name: plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item, key) for item in value]
    if key in ("createdAt", "startedAt") and isinstance(value, int):
        return "<time>"
    if key == "stack":
        return "<stack>"
    if key in ("runId", "messageId"):
        return f"<{key}>"
    if isinstance(value, str):
        return _TIME.sub("<time>", _UUID.sub("<uuid>", value))
    return value


def types(of: list[dict[str, Any]]) -> list[str]:
    """The chunks' types in their order."""
    return [chunk["type"] for chunk in of]
