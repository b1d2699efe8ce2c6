"""A long synthetic stream with the shapes and the mix of a real one; about 1,000 chunks a run, always the same.

90 % are text deltas, 4 % each reasoning and arguments.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

WORDS = [
    "the ",
    "and ",
    "Data ",
    "of ",
    "model",
    "s, ",
    "é ",
    "run",
    "ning ",
    "\n",
    '"x"',
    "into ",
    "col",
    "(a) ",
    "table ",
]
ARGS = {"city": "Paris", "days": 3, "units": "metric", "filters": ["wind", "rain", "uv"]}


def write_sse(path: Path, count: int) -> None:
    """Write `count` chunks as server-sent events, ended by `[DONE]`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for chunk in islice(chunks(), count):
            file.write(f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n")
        file.write("data: [DONE]\n\n")


def chunks(seed: int = 7) -> Iterator[dict[str, Any]]:
    """Endless runs, one after another."""
    rng = random.Random(seed)
    while True:
        yield from _run(rng)


def _run(rng: random.Random) -> Iterator[dict[str, Any]]:
    run_id, message_id = _id(rng), _id(rng)

    def chunk(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "runId": run_id, "from": "AGENT", "payload": payload}

    yield chunk("start", {"id": "agent", "messageId": message_id})
    steps: list[dict[str, Any]] = []
    for step in range(3):
        yield chunk("step-start", {"warnings": [], "messageId": message_id, "request": {}})
        for _ in range(14):
            text = rng.choice(WORDS) + rng.choice(WORDS)
            yield chunk(
                "reasoning-delta",
                {"id": f"r{step}", "text": text, "providerMetadata": {"openai": {"itemId": f"rs_{step}"}}},
            )
        if step < 2:
            call = {"toolCallId": f"call_{rng.getrandbits(96):024x}", "toolName": "weather"}
            for _ in range(20):
                yield chunk("tool-call-delta", {"argsTextDelta": rng.choice(WORDS), **call})
            yield chunk("tool-call", {**call, "args": ARGS, "providerExecuted": False})
            rows = [
                {"day": i, "hi": round(rng.random() * 30, 2), "note": "cloudy"} for i in range(rng.randrange(4, 36))
            ]
            yield chunk("tool-result", {**call, "args": ARGS, "result": {"city": "Paris", "rows": rows}})
        yield chunk("text-start", {"id": f"txt-{step}"})
        for _ in range(300):
            yield chunk("text-delta", {"id": f"txt-{step}", "text": rng.choice(WORDS)})
        yield chunk("text-end", {"type": "text-end", "id": f"txt-{step}"})
        steps.append({"content": [{"type": "text", "text": "z" * 120}], "usage": _usage(300, 100)})
        yield chunk("step-finish", _finish(message_id, steps, 500))
    yield chunk("finish", _finish(message_id, steps, 1500))


def _finish(message_id: str, steps: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "y" * 400}]}
    return {
        "messageId": message_id,
        "stepResult": {"reason": "stop", "isContinued": False},
        "metadata": {"id": "resp-0", "timestamp": "2026-11-30T11:36:53.000Z", "modelId": "gpt-5.2"},
        "output": {"text": "x" * 400, "usage": _usage(tokens, tokens // 3), "steps": list(steps)},
        "messages": {"all": [{"role": "user", "content": "hello " * 20}, answer], "user": [], "nonUser": []},
    }


def _usage(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    usage = {"inputTokens": input_tokens, "outputTokens": output_tokens, "totalTokens": input_tokens + output_tokens}
    return {**usage, "reasoningTokens": output_tokens // 3, "raw": usage}


def _id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))
