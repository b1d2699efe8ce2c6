"""Tokens per second over a run, measured from its deltas: how fast the model writes, and when it doesn't."""

from __future__ import annotations

from collections import defaultdict, deque

from nbmastra.errors import ChunkError
from nbmastra.fold import ReasoningPart, RunState, Step
from nbmastra.output import MastraModelOutput

__all__ = ["TokenSpeed"]

_DELTAS = frozenset({"text-delta", "reasoning-delta", "tool-call-delta"})
_BINS = 96
_FIRST_S = 0.25
_NOW_S = 2.0
"""How far back "now" reaches."""
_PER_CHARACTER = 0.25
"""Tokens, until a step's report says how many its text was."""


class TokenSpeed:
    """Each delta is looked at once. The time is cut into at most 96 pieces, which grow with the run."""

    def __init__(self) -> None:
        self.width_s = _FIRST_S
        self.last_at: float | None = None
        """When the newest delta came."""
        self._pieces: defaultdict[int, dict[Step | None, int]] = defaultdict(dict)
        self._newest: deque[tuple[float, Step | None, int]] = deque()
        self._characters: defaultdict[Step, int] = defaultdict(int)
        self._known = [0, 0]  # tokens and characters of the steps that have reported
        self._rates: dict[Step, float] = {}
        self._seen = 0

    def begin(self) -> None:
        """A further output: its chunks are counted from 0."""
        self._seen = 0

    def update(self, out: MastraModelOutput, offset: float = 0.0) -> None:
        """Take in the deltas that came since."""
        items, state = out.log.items, out.state
        end = min(len(items), len(state.times))
        for number in range(self._seen, end):
            chunk = items[number]
            if chunk.type not in _DELTAS:
                continue
            try:
                size = len(chunk.delta)
            except ChunkError:
                continue
            index = state.step_of[number]
            self._add(offset + state.times[number], state.steps[index] if index >= 0 else None, size)
        self._seen = end
        self._learn(state)

    def _add(self, at: float, step: Step | None, size: int) -> None:
        while at >= _BINS * self.width_s:
            self._halve()
        _count(self._pieces[int(at / self.width_s)], step, size)
        self._newest.append((at, step, size))
        while at - self._newest[0][0] > _NOW_S:
            self._newest.popleft()
        self.last_at = at
        if step is not None:
            self._characters[step] += size

    def _halve(self) -> None:
        """Half as many pieces, twice as long."""
        self.width_s *= 2
        old, self._pieces = self._pieces, defaultdict(dict)
        for place, steps in old.items():
            for step, size in steps.items():
                _count(self._pieces[place // 2], step, size)

    def _learn(self, state: RunState) -> None:
        for step in [step for step in self._characters if step.ended_at is not None]:
            size, tokens = self._characters.pop(step), step.usage.output_tokens
            told = any(isinstance(part, ReasoningPart) and part.pieces for part in step.parts)
            if tokens is not None and step.usage.reasoning_tokens is not None and not told:
                tokens -= step.usage.reasoning_tokens  # nobody saw them come
            if tokens is not None and tokens > 0 and size:
                self._rates[step] = tokens / size
                self._known[0] += tokens
                self._known[1] += size

    def _rate(self, step: Step | None) -> float:
        usual = self._known[0] / self._known[1] if self._known[1] else _PER_CHARACTER
        return usual if step is None else self._rates.get(step, usual)

    def points(self, end: float) -> list[float]:
        """Tokens per second of each piece of time up to `end`."""
        count = min(int(end / self.width_s) + 1, _BINS) if self._pieces else 0
        return [
            round(sum(size * self._rate(step) for step, size in self._pieces[place].items()) / self.width_s, 1)
            if place in self._pieces
            else 0.0
            for place in range(count)
        ]

    def now(self, elapsed: float) -> float | None:
        """Tokens per second in the last two seconds; None before the first delta."""
        if self.last_at is None:
            return None
        newest = [(at, step, size) for at, step, size in self._newest if elapsed - at <= _NOW_S]
        if not newest:
            return 0.0
        first = self._newest[0][0]
        time = max(min(_NOW_S, elapsed - first), 0.25)
        return round(sum(size * self._rate(step) for _, step, size in newest) / time, 1)


def _count(sizes: dict[Step | None, int], step: Step | None, size: int) -> None:
    sizes[step] = sizes.get(step, 0) + size
