"""`%mastra history`: what a server's agents did, a row an agent."""

from __future__ import annotations

import keyword
from importlib import import_module
from typing import Any, cast

import pandas as pd

from nbmastra.client import History, MastraClient
from nbmastra.config import settings
from nbmastra.display import in_notebook
from nbmastra.errors import SettingsError
from nbmastra.frames import runs_df
from nbmastra.run_options import Option, parse_line, whole_number
from nbmastra.terminal import clean_line

__all__ = ["HISTORY_OPTIONS", "history_command", "summary"]


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("a variable's name")
    return text


HISTORY_OPTIONS = (
    Option(("--last",), "how far back: 7d, 24h, or since a date; all without it", "TIME"),
    Option(("--until",), "up to when", "TIME"),
    Option(("--agent",), "the agent or workflow that was asked; all without it", "AGENT"),
    Option(("--limit",), "at most so many, the newest", "N", whole_number),
    Option(("--url",), "the server, in place of MASTRA_API_URL", "URL"),
    Option(("-o", "--out"), "the variable that the history is bound to", "VAR", _variable),
)


def history_command(line: str, names: dict[str, Any]) -> None:
    """Ask for a server's history and show it; `-o` binds it in `names`. Raises SettingsError, ClientError."""
    agent, values, rest = parse_line(
        line, HISTORY_OPTIONS, agent_needed=False, help_hint="%mastra history --last 7d --agent AGENT"
    )
    if rest or (agent and values["agent"]):
        raise SettingsError(f"%mastra history: what is {(rest or agent)[:40]!r}? One agent can be named")
    variable = values["out"]
    client = MastraClient(values["url"] or settings.url)
    asked = {"since": values["last"], "until": values["until"], "limit": values["limit"]}
    history = client.history(agent=values["agent"] or agent or None, **asked).result()
    if variable is not None:
        names[variable] = history
    print(_head(history, variable))
    if not history:
        return
    frame = summary(history)
    if in_notebook():
        cast("Any", import_module("IPython.display")).display(frame)
    else:
        print(frame.astype("object").where(frame.notna(), "-").to_string())


def summary(history: History) -> pd.DataFrame:
    """One row per agent, by what it used, then one of all: runs, how they ended, times in seconds, tokens, USD.

    A cost is missing where that of a run isn't known.
    """
    runs = runs_df(history)
    runs["agent"] = [clean_line(name, 40) if isinstance(name, str) else "-" for name in runs["agent_id"]]
    groups: list[tuple[str, pd.DataFrame]] = [(str(name), group) for name, group in runs.groupby("agent")]
    groups.sort(key=lambda item: (-int(item[1]["total_tokens"].sum()), item[0]))
    if len(groups) != 1:
        groups.append(("all", runs))
    rows = [_row(group) for _, group in groups]
    return pd.DataFrame(rows, index=pd.Index([name for name, _ in groups], name="agent")).convert_dtypes()


def _row(runs: pd.DataFrame) -> dict[str, Any]:
    by_status = runs["status"].value_counts()
    seconds = runs["duration_s"].dropna()
    costs = runs["cost_usd"]
    priced = costs.notna().any() and not (costs.isna() & runs["total_tokens"].gt(0).fillna(False)).any()

    def counted(*names: str) -> int:
        return sum(int(by_status.get(name, 0)) for name in names)

    return {
        "runs": len(runs),
        "success": counted("success"),
        "failed": counted("failed", "tripwire"),
        "waiting": counted("suspended"),
        "other": counted("cancelled", "truncated", "running"),
        "p50_s": round(float(seconds.median()), 2) if len(seconds) else pd.NA,
        "p95_s": round(float(seconds.quantile(0.95)), 2) if len(seconds) else pd.NA,
        "tool_calls": int(runs["tool_calls"].sum()),
        "failed_calls": int(runs["failed_tool_calls"].sum()),
        "tokens": int(runs["total_tokens"].sum()) if runs["total_tokens"].notna().any() else pd.NA,
        "cost_usd": round(float(costs.sum()), 4) if priced else pd.NA,
    }


def _head(history: History, variable: str | None) -> str:
    times = (
        f", {history[0].created_at:%Y-%m-%d %H:%M} to {history[-1].created_at:%Y-%m-%d %H:%M} UTC" if history else ""
    )
    lines = [f"{len(history):,} runs at {history.url}{times}", *(clean_line(note, 200) for note in history.notes)]
    if variable:
        lines.append(f"{variable} has them: {variable}.runs_df(), {variable}.usage_df(), {variable}.spans_df()")
    return "\n".join(lines)
