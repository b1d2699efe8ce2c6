"""A folder of runs made from one recording, with other times, tokens, models and endings: to try an analysis on.

The same `seed` gives the same runs. Something happens in the last days of them: one tool gets slow.
"""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from nbmastra.errors import RecordingError, SettingsError
from nbmastra.fold.reading import as_dict, as_text
from nbmastra.recording.agents import demo_recording
from nbmastra.recording.files import read_lines

__all__ = ["varied_runs"]

MODELS = (("gpt-5-mini", "openai", 0.75, 0.6), ("gpt-4.1", "openai", 0.9, 0.25), ("in-house-1", "in-house", 1.1, 0.15))
"""Name, provider, how slow, which share of the runs. The last one is in no price list."""
INNER_MODEL = ("gpt-5-nano", "openai")
PROMPTS = (
    "Two days by bike from Geneva to Lake Annecy and back: on which day do I ride round the lake?",
    "Geneva to Annecy by road bike on Saturday. Where do I sleep?",
    "Is the weather good enough for Lake Annecy this weekend?",
    "Plan a ride round Lake Annecy with a tent, at most 90 km a day.",
    "Which way to Annecy has the least climbing, and what does a night there cost?",
)
SLOW_TOOL = "campsites"
Line = dict[str, Any]


def varied_runs(
    folder: str | Path,
    count: int = 200,
    *,
    recording: str | Path | None = None,
    seed: int = 1,
    days: int = 8,
    end: datetime | None = None,
) -> Path:
    """Write `count` recordings into a folder, spread over the `days` before `end`, with a progress bar.

    `recording`: what they are made from, by itself the demo. Of 100 runs about 90 succeed; the others fail at the
    provider, are cut off or stopped. In the last quarter of the days the tool `campsites` is often ten times as slow.
    Raises RecordingError.
    """
    folder = Path(folder).expanduser()
    if count < 0 or days < 1:
        raise SettingsError("varied_runs: count can't be below 0, days not below 1")
    source = _Source(Path(recording) if recording is not None else demo_recording())
    end = (end or datetime(2026, 3, 9, tzinfo=UTC)).astimezone(UTC)
    chance = random.Random(seed)
    moments = sorted(chance.random() for _ in range(count))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, moment in enumerate(tqdm(moments, unit="run", desc="Making runs")):
            created = end - timedelta(days=days) + timedelta(days=days * moment)
            run = _Variation(source, chance, created, late=moment > 0.75)
            name = f"{created:%Y%m%d-%H%M%S}-{number:04}.jsonl"
            (folder / name).write_bytes(run.lines())
    except OSError as error:
        raise RecordingError(f"can't write {folder}: {error.strerror or error}") from None
    return folder


class _Source:
    """The recording: its header, and its chunks with their times, by step."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for block in read_lines(path) for line in block if line.strip()]
        self.header: Line = as_dict(lines[0]) if lines else {}
        if "nbmastra" not in self.header:
            raise RecordingError(f"{path.name} is no recording")
        self.steps: list[list[tuple[float, Line]]] = [[]]
        for line in lines[1:]:
            chunk = as_dict(line.get("chunk"))
            if chunk:
                self.steps[-1].append((float(line["t"]), chunk))
                if chunk.get("type") == "step-finish":
                    self.steps.append([])
        self.run_id = next((as_text(chunk.get("runId")) for step in self.steps for _, chunk in step), "")


@dataclass
class _Variation:
    """One run made from the recording."""

    source: _Source
    chance: random.Random
    created: datetime
    late: bool
    spent: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def __post_init__(self) -> None:
        models = [model[:3] for model in MODELS]
        self.model, self.provider, slow = self.chance.choices(models, [model[3] for model in MODELS])[0]
        self.pace = slow * self._spread(0.15)
        self.size = self._spread(0.35)
        self.ids = {self.source.run_id: self._id()}
        roll = self.chance.random()
        self.ending = (
            "failed" if roll < 0.05 else "truncated" if roll < 0.075 else "cancelled" if roll < 0.095 else "success"
        )

    def lines(self) -> bytes:
        """The recording's text."""
        about = {
            **self.source.header,
            "created": self.created.isoformat(),
            "prompt": self.chance.choice(PROMPTS),
            "stream_id": self._id(),
        }
        events = list(self._events())
        if self.ending != "success":
            events = self._cut(events)
        last = events[-1][0] if events else 0.0
        body = [_dumps({"t": round(at, 6), "chunk": chunk}) for at, chunk in events]
        return b"".join([_dumps(about), *body, *self._end(last)])

    def _end(self, last: float) -> Iterator[bytes]:
        match self.ending:
            case "cancelled":
                yield _dumps({"end": {"status": "cancelled", "cancelled": "stopped by you", "t": round(last + 0.2, 6)}})
            case "truncated":
                failure = "the server closed the connection"
                yield _dumps({"end": {"status": "truncated", "failure": failure, "t": round(last, 6)}})
            case _:
                yield _dumps({"end": {"status": self.ending, "done": True, "t": round(last, 6)}})

    def _cut(self, events: list[tuple[float, Line]]) -> list[tuple[float, Line]]:
        """The run up to somewhere; a failed one ends in the provider's error, at the start of a step."""
        if self.ending != "failed":
            return events[: max(2, int(len(events) * self.chance.uniform(0.3, 0.9)))]
        starts = [number for number, (_, chunk) in enumerate(events) if chunk.get("type") == "step-start"]
        at = (self.chance.choice(starts) if starts else 0) + 1
        error: Line = self.chance.choice(
            [
                {"name": "AI_APICallError", "message": "Rate limit reached: try again in 20 s", "statusCode": 429},
                {"name": "AI_APICallError", "message": "The model is overloaded", "statusCode": 503},
                {"name": "AI_APICallError", "message": "The model is overloaded", "statusCode": 503},
            ]
        )
        last = events[at - 1][0] + self._spread(0.5)
        chunk = {"type": "error", "runId": self._run(self.source.run_id), "from": "AGENT", "payload": {"error": error}}
        return [*events[:at], (last, chunk)]

    def _events(self) -> Iterator[tuple[float, Line]]:
        """The chunks at their new times: models at their pace, each tool as long as it takes."""
        now = 0.0
        for step in filter(None, self.source.steps):
            begun, start = step[0][0], now
            moved: list[tuple[float, Line]] = []
            called: dict[str, float] = {}
            first = self._spread(0.5) * 0.6 * self.pace  # the wait for the first token
            for at, chunk in step:
                kind, payload = chunk.get("type"), as_dict(chunk.get("payload"))
                id = as_text(payload.get("toolCallId"))
                new = start + (at - begun) * self.pace + (first if kind not in ("start", "step-start") else 0.0)
                if kind == "tool-call":
                    called[id] = new
                elif kind in ("tool-result", "tool-error") and id in called:
                    new = self._result_at(chunk, called[id], moved)
                    chunk = self._result(chunk)
                elif kind in ("step-finish", "finish"):
                    new = max([new if not called else 0.0, *(time for time, _ in moved)]) + 0.001
                moved.append((new, self._varied(chunk)))
            moved.sort(key=lambda event: event[0])
            now = moved[-1][0] + 0.0005
            yield from moved

    def _result_at(self, chunk: Line, called: float, moved: list[tuple[float, Line]]) -> float:
        payload = as_dict(chunk.get("payload"))
        id = payload.get("toolCallId")
        told = ((at, as_dict(other.get("payload"))) for at, other in moved if other.get("type") == "tool-output")
        inner = [at for at, other in told if other.get("toolCallId") == id]
        if inner:
            return max(inner) + 0.001
        name = as_text(payload.get("toolName"))
        usual = 0.35 + (sum(map(ord, name)) % 9) / 10
        slow = 10.0 if name == SLOW_TOOL and self.late and self.chance.random() < 0.4 else 1.0
        return called + usual * slow * self._spread(0.3)

    def _result(self, chunk: Line) -> Line:
        """A tool's result; one that failed in the recording mostly doesn't."""
        payload = as_dict(chunk.get("payload"))
        if chunk.get("type") == "tool-error" and self.chance.random() < 0.85:
            kept = {key: value for key, value in payload.items() if key != "error"}
            return {**chunk, "type": "tool-result", "payload": {**kept, "result": []}}
        return chunk

    def _varied(self, chunk: Line) -> Line:
        """The chunk with this run's ids, models and tokens."""
        run_id = as_text(chunk.get("runId"))
        changed = {**chunk, "runId": self._run(run_id)} if run_id else dict(chunk)
        payload = as_dict(chunk.get("payload"))
        match chunk.get("type"):
            case "tool-output" if "type" in as_dict(payload.get("output")):
                changed["payload"] = {**payload, "output": self._varied(as_dict(payload["output"]))}
            case "step-finish" | "finish" as kind:
                changed["payload"] = self._finish(payload, run_id, kind)
            case _:
                pass
        return changed

    def _finish(self, payload: Line, run_id: str, kind: str) -> Line:
        output, metadata = as_dict(payload.get("output")), as_dict(payload.get("metadata"))
        model, provider = (self.model, self.provider) if run_id == self.source.run_id else INNER_MODEL
        named = {"modelId": model, "modelMetadata": {"modelId": model, "modelProvider": provider}}
        total = self.spent.setdefault(run_id, {})
        used = {key: value for key, value in as_dict(output.get("usage")).items() if isinstance(value, int)}
        if kind == "step-finish":
            used = {key: math.ceil(value * self.size) for key, value in used.items()}
            if {"inputTokens", "outputTokens", "totalTokens"} <= used.keys():
                used["totalTokens"] = used["inputTokens"] + used["outputTokens"]
            for key, value in used.items():
                total[key] = total.get(key, 0) + value
        elif total:
            used = dict(total)
        result = as_dict(payload.get("stepResult"))
        told = {key: value for key, value in output.items() if key == "text"} | {"usage": used}
        return {"stepResult": result, "metadata": {**metadata, **named}, "output": told} | {
            key: payload[key] for key in ("messageId", "messages") if key in payload
        }

    def _run(self, run_id: str) -> str:
        return self.ids.setdefault(run_id, self._id())

    def _id(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def _spread(self, sigma: float) -> float:
        return self.chance.lognormvariate(0.0, sigma)


_encode: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _dumps(value: Any) -> bytes:
    return _encode(value).encode("utf-8", "surrogatepass") + b"\n"
