"""`diff(a, b)`: two runs beside each other, and where they part; as a table, in a notebook, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from nbmastra.errors import SettingsError
from nbmastra.frames.columns import array_of
from nbmastra.frames.compare import DIFF, Compared, compare, diff_rows
from nbmastra.frames.runs import Run, run_of
from nbmastra.frames.word_diff import word_diff
from nbmastra.output import MastraModelOutput
from nbmastra.prices import OwnPrices
from nbmastra.recording import load_recording
from nbmastra.terminal import clean_line

__all__ = ["RunDiff", "diff"]

Diffable = MastraModelOutput | str | Path
_MAX_LINES = 40
_CONTEXT, _MAX_WORDS = 30, 300


def diff(run_a: Diffable, run_b: Diffable, *, prices: OwnPrices | None = None) -> RunDiff:
    """Compare two runs, each an output or a recording's path, by turn, step and tool call.

    Steps and calls answer to each other by what they call, with what, and what they say, so that a run with a step more
    is still compared. `.df` has all of it; shown in a notebook, it marks what differs. Raises RecordingError.
    """
    return RunDiff(_run(run_a, prices), _run(run_b, prices))


def _run(run: Diffable, prices: OwnPrices | None) -> Run:
    if isinstance(run, str | Path):
        run = load_recording(run)
    if not isinstance(run, MastraModelOutput):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may err
        raise SettingsError(f"expected an output or a recording's path, not {type(run).__name__}")
    return run_of(run, prices=prices)


class RunDiff:
    """What `diff` found: `rows` in the order of the runs, as a frame `df`, and `first_difference`."""

    def __init__(self, a: Run, b: Run) -> None:
        self.a = a
        self.b = b
        self.rows: list[Compared] = compare(a, b)

    @property
    def df(self) -> pd.DataFrame:
        """One row per thing that was compared; the same columns and dtypes whatever the runs."""
        rows = list(diff_rows(self.a, self.b, self.rows))
        return pd.DataFrame({c.name: array_of(c, [c.read(row) for row in rows]) for c in DIFF.columns})

    @property
    def first_difference(self) -> Compared | None:
        """Where the runs part: the first thing asked, said or done that differs; None if only tokens and times do."""
        return next((row for row in self.rows if row.parts), None)

    @property
    def same(self) -> bool:
        """True if they don't part: all that was asked, said and done is the same."""
        return self.first_difference is None

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        from nbmastra.widgets.diff_html import diff_html  # a terminal does without it

        return diff_html(self.a, self.b, self.rows)

    def _lines(self) -> Iterator[str]:
        yield f"a: {_about(self.a)}"
        yield f"b: {_about(self.b)}"
        differing = [row for row in self.rows if row.parts]
        first = self.first_difference
        yield f"they part at {place_words(first)}" if first is not None else "the same was asked, said and done"
        for row in differing[:_MAX_LINES]:
            yield f"  {place_words(row)}: {_change_words(row)}"
        if len(differing) > _MAX_LINES:
            yield f"  … and {len(differing) - _MAX_LINES} more differences: .df has all"
        for row in self.rows:
            if row.item == "run" and row.depth == 0 and row.aspect in ("tokens", "time") and row.change != "same":
                yield f"  {row.field}: {_change_words(row)}"


def _about(run: Run) -> str:
    seconds = "" if run.elapsed_s is None else f", {run.elapsed_s:.1f} s"
    started = "" if run.created_at is None else f", {run.created_at:%Y-%m-%d %H:%M} UTC"
    return clean_line(f"{run.agent_id or 'a run'} {(run.stream_id or '')[:8]} {run.status}{seconds}{started}", 200)


def place_words(row: Compared) -> str:
    """Where something stands, for people: step 2 forecast args.days."""
    step = row.step_a if row.step_a is not None else row.step_b
    words = ["" if row.depth == 0 else row.path.partition("/")[2], "" if step is None else f"step {step + 1}"]
    words += [row.name if row.item in ("tool-call", "workflow-step", "task") else "", row.field]
    return clean_line(" ".join(filter(None, words)), 200)


def _change_words(row: Compared) -> str:
    if row.delta is not None:
        return f"{_number(row.a)} → {_number(row.b)} ({'+' if row.delta >= 0 else ''}{_number(row.delta)})"
    if row.field in ("step", "call", "task") and row.aspect == "structure":
        return f"only in {'a' if row.change == 'removed' else 'b'}: {_short(row.a if row.b is None else row.b)}"
    if isinstance(row.a, str) and isinstance(row.b, str) and max(len(row.a), len(row.b)) > 40:
        return clean_line(_marked(row.a, row.b), 400)
    return f"{_short(row.a)} → {_short(row.b)}"


def _marked(a: str, b: str) -> str:
    """The first changes of a text: … the [-red-] {+blue+} one …"""
    words = ""
    for piece in word_diff(a, b):
        if piece.kind == "same":
            text, head = piece.text, piece.text[:_CONTEXT] if words else ""
            words += text if len(text) <= len(head) + _CONTEXT else f"{head} … {text[-_CONTEXT:]}"
        else:
            inner = piece.text if len(piece.text) <= 120 else f"{piece.text[:120]}…"
            words += f"[-{inner}-]" if piece.kind == "removed" else f"{{+{inner}+}}"
        if len(words) > _MAX_WORDS:
            return f"{words[:_MAX_WORDS]}…"
    return words


def _short(value: Any) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else _dumped(value)
    return clean_line(text, 120) or "–"


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "…"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
