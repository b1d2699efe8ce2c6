"""The runs of a folder as lines of text, newest last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from nbmastra.terminal import clean_line

__all__ = ["run_lines"]

_HEAD = ("STARTED (UTC)", "AGENT", "STATUS", "TIME", "STEPS", "TOOLS", "TOKENS", "COST", "RECORDING", "PROMPT")
_RIGHT = {3, 4, 5, 6, 7}
_LIMITS = {1: 24, 8: 48, 9: 60}


def run_lines(runs: pd.DataFrame, *, limit: int | None = None) -> Iterator[str]:
    """A table of `runs_df`, the newest `limit` of it, and a line of totals over all. What isn't known is a dash."""
    ordered = runs.sort_values("created_at", kind="stable", na_position="first")
    shown = ordered if limit is None else ordered.tail(limit)
    rows = [_HEAD, *(tuple(_cells(row)) for row in shown.to_dict("records"))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for row in rows:
        cells = (
            cell.rjust(width) if place in _RIGHT else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
    yield ""
    yield _totals(runs, len(shown))


def _cells(row: dict[Any, Any]) -> Iterator[str]:
    tools, failed = row["tool_calls"], row["failed_tool_calls"]
    recording = _text(row["recording"]).replace("\\", "/").rpartition("/")[2]
    cells = [
        f"{row['created_at']:%Y-%m-%d %H:%M:%S}" if pd.notna(row["created_at"]) else "-",
        _text(row["agent_id"]),
        _text(row["status"]),
        _number(row["duration_s"], "{:,.1f} s"),
        str(row["steps"]),
        f"{tools} ({failed} failed)" if failed else str(tools),
        _number(row["total_tokens"], "{:,}"),
        _number(row["cost_usd"], "${:,.4f}"),
        recording or "-",
        _text(row["prompt"]),
    ]
    yield from (clean_line(cell, _LIMITS.get(place, 40)) for place, cell in enumerate(cells))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-"


def _number(value: Any, form: str) -> str:
    return form.format(value) if pd.notna(value) else "-"


def _totals(runs: pd.DataFrame, shown: int) -> str:
    by_status = runs["status"].value_counts()
    counts = ", ".join(f"{count} {status}" for status, count in by_status.items() if count)
    said = [f"{len(runs):,} runs" + (f" ({shown:,} shown)" if shown < len(runs) else ""), counts]
    tokens, costs = runs["total_tokens"], runs["cost_usd"]
    if tokens.notna().any():
        said.append(f"{int(tokens.sum()):,} tokens")
    if costs.notna().any():
        unknown = int((costs.isna() & tokens.gt(0).fillna(False)).sum())
        said.append(f"${costs.sum():,.4f}" + (f" and {unknown} runs without a price" if unknown else ""))
    return "; ".join(part for part in said if part)
