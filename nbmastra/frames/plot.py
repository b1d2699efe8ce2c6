"""Pictures of tables: `tokens`, `latency`, `tools`, `cost`, `timeline`. Extra `plot`.

Each takes a DataFrame of this package and gives a `Picture`, which shows itself in a notebook and stays in it. Tables
of any size: what is drawn is put together first. An empty table gives an empty picture that says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from nbmastra.errors import SettingsError
from nbmastra.frames.picture import Picture
from nbmastra.frames.plot_parts import (
    WIDTH,
    bars,
    below,
    count,
    empty,
    finish,
    label,
    layer,
    money,
    seconds,
    tone,
    values,
)
from nbmastra.frames.plot_timeline import timeline

__all__ = ["cost", "latency", "timeline", "tokens", "tools"]

MAX_BARS = 20
"""Groups that have a bar of their own; the smaller ones are put together."""
_BINS = 40
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_GROUPS = ("model", "agent_id", "stream_id")
Over = str | None


def tokens(df: pd.DataFrame, by: str | None = None) -> Picture:
    """Tokens by group, of `usage_df`, `steps_df` or `runs_df`: input, cached input, output and reasoning.

    `by` is a column; by itself the step where the table is of one run, else the model. Raises SettingsError.
    """
    _need(df, ["input_tokens", "output_tokens"], "tokens", "usage_df, steps_df or runs_df")
    kinds = {
        "Input": ("grey", _number(df, "input_tokens") - _number(df, "cached_input_tokens").fillna(0)),
        "Cached input": ("wait", _number(df, "cached_input_tokens")),
        "Output": ("accent", _number(df, "output_tokens") - _number(df, "reasoning_tokens").fillna(0)),
        "Reasoning": ("mid", _number(df, "reasoning_tokens")),
    }
    table = pd.DataFrame({name: numbers.clip(lower=0) for name, (_, numbers) in kinds.items()})
    grouped = _together(table.groupby(_group(df, by, "tokens"), sort=False, observed=True).sum(min_count=1))
    totals = grouped.sum(axis=1)
    grouped, totals = grouped[totals > 0], totals[totals > 0]
    if not len(grouped):
        return empty("Tokens", "No tokens were reported.")
    rows = [
        {
            "group": group,
            "kind": kind,
            "tokens": float(amount),
            "order": order,
            "words": f"{group}, {str(kind).lower()}: {count(amount)} tokens",
        }
        for group, row in grouped.iterrows()
        for order, (kind, amount) in enumerate(row.items())
        if pd.notna(amount) and amount > 0
    ]
    whole = int(totals.sum())
    chart = bars(
        rows,
        [{"group": group, "end": float(total), "text": count(total)} for group, total in totals.items()],
        "tokens",
        list(totals.index),
        tone("kind", {name: colour for name, (colour, _) in kinds.items()}),
        "tokens",
    )
    words = _listing({str(group): count(total) for group, total in totals.items()})
    return Picture(finish(chart, "Tokens", f"{count(whole)} in all"), f"Tokens, {count(whole)} in all: {words}.")


def cost(df: pd.DataFrame, by: str | None = None, *, over: Over = None) -> Picture:
    """What it cost in USD by group, of `usage_df`, `steps_df` or `runs_df`; what has no price is named.

    `over`: a time like "1h" or "1D": the cost of each, of a table with times. Raises SettingsError.
    """
    _need(df, ["cost_usd"], "cost", "usage_df, steps_df or runs_df")
    groups, costs = _group(df, by, "cost"), _number(df, "cost_usd")
    spent = _number(df, "total_tokens") if "total_tokens" in df else costs
    told = costs.notna() | (spent > 0)
    groups, costs, spent = groups[told], costs[told], spent[told]
    priced = set(groups[costs.notna()])
    unknown = [f"a part of {name}" if name in priced else str(name) for name in sorted(set(groups[costs.isna()]))]
    if not costs.notna().any():
        note = f"No price is known for {_some(unknown)}." if unknown else "Nothing was spent."
        return empty("Cost", note)
    total = float(costs.sum())
    gaps = f"; no price for {_some(unknown)}" if unknown else ""
    title = f"{money(total)} in all{gaps}"
    if over is not None:
        chart = _cost_over(costs, groups, _times(df, "cost")[told], over)
        return Picture(finish(chart, "Cost", title), f"Cost by time: {title}.")
    sums = _together(costs.groupby(groups, sort=False, observed=True).sum(min_count=1).to_frame("cost"))["cost"]
    rows = [
        {"group": g, "cost": float(v), "kind": "cost", "order": 0, "words": f"{g}: {money(v)}"}
        for g, v in sums.items()
        if pd.notna(v)
    ]
    texts = [
        {"group": g, "end": 0.0 if pd.isna(v) else float(v), "text": "no price" if pd.isna(v) else money(v)}
        for g, v in sums.items()
    ]
    chart = bars(rows, texts, "cost", list(sums.index), tone("kind", {"cost": "accent"}, legend=False), "USD")
    words = _listing({str(g): "no price" if pd.isna(v) else money(v) for g, v in sums.items()})
    return Picture(finish(chart, "Cost", title), f"Cost, {title}: {words}.")


def _cost_over(costs: pd.Series[Any], groups: pd.Series[Any], times: pd.Series[Any], over: str) -> Any:
    biggest = costs.groupby(groups).sum().sort_values(ascending=False).index[: len(_SERIES)]
    names = groups.where(groups.isin(biggest[:-1] if groups.nunique() > len(_SERIES) else biggest), "other")
    order = list(dict.fromkeys([*map(str, biggest), "other"]))
    sums = costs.groupby([_floor(times, over), names]).sum().unstack().reindex(columns=order).fillna(0.0)
    tops = sums.cumsum(axis=1)
    width = pd.Timedelta(over)
    rows = [
        {
            "from": _iso(at),
            "to": _iso(at + width),
            "group": name,
            "low": float(top - cost),
            "high": float(top),
            "words": f"{at:%d %b %H:%M}, {name}: {money(cost)}",
        }
        for name in order
        for at, top, cost in zip(sums.index, tops[name], sums[name], strict=True)
        if cost > 0
    ]
    shown = [name for name in order if (sums[name] > 0).any()]
    alt = layer()
    return (
        alt.Chart(values(rows))
        .mark_rect(stroke=None, xOffset=1)
        .encode(
            x=_time_axis("from", over),
            x2="to:T",
            y=alt.Y("low:Q", axis=alt.Axis(title=None, tickCount=4, format="$~f")),
            y2="high:Q",
            description="words:N",
            fill=tone("group", dict(zip(shown, _SERIES, strict=False))),
        )
        .properties(width=WIDTH, height=160)
    )


def _time_axis(field: str, over: str) -> Any:
    alt = layer()
    form = "%d %b" if pd.Timedelta(over) >= pd.Timedelta("12h") else "%d %b %H:%M"
    return alt.X(f"{field}:T", axis=alt.Axis(title=None, grid=False, format=form, tickCount=8, labelOverlap=True))


_SERIES = ("accent", "grey", "violet", "teal", "ochre", "rose", "olive")


def latency(df: pd.DataFrame, *, over: Over = None) -> Picture:
    """How long one waits, with percentiles: for the first token (`steps_df`, `runs_df`), for each token (`chunks_df`).

    `over`: a time like "1h": the percentiles by time, of a table with times. Raises SettingsError.
    """
    measures = _measures(df)
    if not measures:
        raise SettingsError("plot.latency takes steps_df, runs_df or chunks_df: this table has no such times")
    known = {name: times for name, times in measures.items() if times.notna().any()}
    if not known:
        return empty("Latency", "No waiting time is known.")
    panels: list[Any] = []
    words: list[str] = []
    for name, times in known.items():
        found = times.dropna()
        percentiles = {key: float(found.quantile(q)) for key, q in _PERCENTILES.items()}
        told = ", ".join(f"{key} {seconds(value)}" for key, value in percentiles.items())
        if over is None:
            chart = _histogram(found, percentiles)
        else:
            chart = _percentiles_over(times, _times(df, "latency"), over)
        panels.append(chart.properties(title=_panel_title(name, f"{told}, {count(len(found))} measured")))
        words.append(f"{name}: {told} ({count(len(found))} measured)")
    return Picture(finish(below(panels)), f"Latency. {'. '.join(words)}.")


_TOKENS = (
    "text-delta",
    "reasoning-delta",
    "tool-call-input-streaming-start",
    "tool-call-delta",
    "routing-agent-text-delta",
)
"""Chunks that a model's first token may come as: those that the fold calls `RunState.token` for."""


def _measures(df: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """What is waited for, and how long; rows of the table."""
    found: dict[str, pd.Series[Any]] = {}
    if "gap_s" in df and "text_len" in df:  # chunks
        df = df[df["depth"] == 0]  # what runs inside of the run stream is no step of its own
        delta, token = df["type"].isin(["text-delta", "reasoning-delta"]), df["type"].isin(_TOKENS)
        where = [df["stream_id"], df["step"]]
        times = _number(df, "at_s")
        starts = times.where(df["type"] == "step-start").groupby(where, observed=True).transform("min")
        first = token & (token.groupby(where, observed=True).cumsum() == 1)
        found["First token of a step"] = (times - starts)[first]
        found["Between tokens"] = _number(df, "gap_s")[delta & ~first]
        return found
    if "time_to_first_token_s" in df:
        found["First token of a run" if "status" in df else "First token of a step"] = _number(
            df, "time_to_first_token_s"
        )
    if "duration_s" in df and "prompt" in df:  # runs
        found["Whole run"] = _number(df, "duration_s")
    return found


def _histogram(times: pd.Series[Any], percentiles: dict[str, float]) -> Any:
    alt = layer()
    numbers = np.clip(times.to_numpy(float), 1e-4, None)
    low, high = numbers.min(), numbers.max()
    if high < low * 1.2:
        low, high = low / 1.1, high * 1.1
    edges: list[float] = cast("Any", np.geomspace(low, high * (1 + 1e-9), _BINS + 1)).tolist()
    counts, _ = np.histogram(numbers, edges)
    rows = [
        {"from": a, "to": b, "count": int(n), "words": f"{seconds(a)} to {seconds(b)}: {count(n)}"}
        for a, b, n in zip(edges, edges[1:], counts, strict=False)
        if n
    ]
    scale = alt.Scale(type="log", domain=[edges[0], edges[-1]], nice=False)
    axis = alt.Axis(title=None, grid=False, labelExpr="datum.value + ' s'", values=_ticks(low, high), labelOverlap=True)
    drawn = (
        alt.Chart(values(rows))
        .mark_bar(binSpacing=1, fill="#1976d2")
        .encode(
            x=alt.X("from:Q", scale=scale, axis=axis),
            x2="to:Q",
            y=alt.Y(
                "count:Q", axis=alt.Axis(title=None, values=_whole_ticks(int(counts.max())), format=",d", minExtent=36)
            ),
            y2=alt.datum(0),
            description="words:N",
        )
    )
    marks: list[dict[str, Any]] = []
    for name, value in percentiles.items():
        at = float(min(max(value, edges[0]), edges[-1]))
        if marks and WIDTH * np.log(at / marks[-1]["at"]) < 26 * np.log(high / low):  # no room for a name of its own
            marks[-1]["name"] += f", {name}"
        else:
            marks.append({"at": at, "name": name})
    rules = alt.Chart(values(marks)).mark_rule(stroke="#212121", strokeDash=[3, 2]).encode(x="at:Q")
    names = (
        alt.Chart(values(marks))
        .mark_text(fill="#212121", align="center", baseline="bottom", fontSize=11)
        .encode(x="at:Q", y=alt.value(-3), text="name:N")
    )
    return alt.layer(drawn, rules, names).properties(width=WIDTH, height=96)


def _whole_ticks(top: int) -> list[int]:
    """Zero, a round number near the top, and what is half-way."""
    unit = 10 ** (len(str(top)) - 1)
    high = max(top // unit * unit, 1)
    return sorted({0, high // 2, high}) if high > 1 else [0, 1]


def _ticks(low: float, high: float) -> list[float]:
    """Round times on a logarithmic axis: 1, 2, 5, 10 …, or fewer of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5), (1, 3), (1,)):
        found = [value for power in powers for step in steps if low <= (value := round(step * 10.0**power, 9)) <= high]
        if len(found) <= 8:
            break
    return found


def _percentiles_over(times: pd.Series[Any], moments: pd.Series[Any], over: str) -> Any:
    alt = layer()
    grouped = times.groupby(_floor(moments, over))
    rows = [
        {"at": _iso(at), "time": float(value), "name": name}
        for name, q in _PERCENTILES.items()
        for at, value in grouped.quantile(q).dropna().items()
    ]
    dashes = {"p50": [1, 0], "p95": [1, 0], "p99": [4, 3]}
    return (
        alt.Chart(values(rows))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=18, filled=True))
        .encode(
            x=_time_axis("at", over),
            y=alt.Y("time:Q", axis=alt.Axis(title=None, labelExpr="datum.value + ' s'", tickCount=4)),
            color=tone("name", {"p50": "grey", "p95": "accent", "p99": "violet"}, line=True),
            strokeDash=alt.StrokeDash(
                "name:N", scale=alt.Scale(domain=list(dashes), range=list(dashes.values())), legend=None
            ),
        )
        .properties(width=WIDTH, height=130)
    )


def tools(df: pd.DataFrame) -> Picture:
    """Each tool of `tool_calls_df`: how long its calls took (half of them, and 95 of 100), and how many failed.

    Raises SettingsError.
    """
    _need(df, ["tool_name", "duration_s", "status"], "tools", "tool_calls_df")
    if not len(df):
        return empty("Tools", "No tool was called.")
    facts = pd.DataFrame(
        {
            "tool": df["tool_name"].astype("object").map(label),
            "time": _number(df, "duration_s"),
            "failed": (df["status"] == "error").to_numpy(),
        }
    )
    grouped = facts.groupby("tool", sort=False)
    table = pd.DataFrame(
        {
            "calls": grouped.size(),
            "failed": grouped["failed"].sum(),
            "p50": grouped["time"].quantile(0.5),
            "p95": grouped["time"].quantile(0.95),
        }
    ).sort_values(["p95", "calls"], ascending=False, na_position="last")
    more = len(table) - MAX_BARS
    table = table.head(MAX_BARS)
    rows: list[dict[str, Any]] = [
        {
            "group": tool,
            "p50": None if pd.isna(row["p50"]) else float(row["p50"]),
            "p95": None if pd.isna(row["p95"]) else float(row["p95"]),
            "end": 0.0 if pd.isna(row["p95"]) else float(row["p95"]),
            "time": _pair(row["p50"], row["p95"]),
            "share": float(row["failed"] / row["calls"]),
            "failed": f"{count(row['failed'])} of {count(row['calls'])}",
            "words": f"{tool}: {_pair(row['p50'], row['p95'])}; {count(row['failed'])} of {count(row['calls'])} failed",
        }
        for tool, row in table.iterrows()
    ]
    chart = _tool_panels(rows, list(table.index))
    failed, calls = int(facts["failed"].sum()), len(facts)
    title = f"{count(calls)} calls, {count(failed)} failed" + (f"; {more} more tools aren't drawn" if more > 0 else "")
    words = "; ".join(f"{row['group']}: {row['time']}, {row['failed']} failed" for row in rows)
    return Picture(finish(chart, "Tools", title), f"Tools, {title}. {words}.")


def _pair(p50: float, p95: float) -> str:
    if pd.isna(p95):
        return "not known"
    return seconds(p50) if p50 == p95 else f"{seconds(p50)}, p95 {seconds(p95)}"


def _tool_panels(rows: list[dict[str, Any]], order: list[str]) -> Any:
    alt = layer()
    height = 24 * len(order)
    data = alt.Chart(values(rows))
    y = alt.Y(
        "group:N",
        sort=order,
        axis=alt.Axis(title=None, labelFont="monospace", labelLimit=190, labelPadding=8, ticks=False),
    )
    no_y = alt.Y("group:N", sort=order, axis=None)
    top = max((row["p95"] or 0 for row in rows), default=0) or 1
    x = alt.X(
        "p95:Q",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(title=None, labelExpr="datum.value + ' s'", tickCount=4),
    )
    times = alt.layer(
        data.mark_bar(height=12, fill="#dcebf9", stroke="#1976d2", strokeWidth=1).encode(
            x=x, y=y, description="words:N"
        ),
        data.mark_bar(height=12, fill="#1976d2").encode(x="p50:Q", y=y, description="words:N"),
        data.mark_text(align="left", dx=6, fill="#212121", fontSize=11).encode(x="end:Q", y=y, text="time:N"),
    ).properties(width=270, height=height, title=_panel_title("Duration", "of half the calls; light: of 95 in 100"))
    failures = alt.layer(
        data.mark_bar(height=12, fill="#b71c1c").encode(
            x=alt.X(
                "share:Q",
                scale=alt.Scale(domain=[0, max(max(row["share"] for row in rows), 0.1)], nice=True),
                axis=alt.Axis(title=None, format="%", tickCount=3),
            ),
            y=no_y,
            description="words:N",
        ),
        data.mark_text(align="left", dx=6, fill="#212121", fontSize=11).encode(x="share:Q", y=no_y, text="failed:N"),
    ).properties(width=110, height=height, title=_panel_title("Failed", "of the calls"))
    return alt.hconcat(times, failures, spacing=90)


# --- what several of them need ---------------------------------------------------------------------------------------


def _need(df: object, columns: Sequence[str], what: str, tables: str) -> None:
    missing = [name for name in columns if name not in df] if isinstance(df, pd.DataFrame) else list(columns)
    if missing:
        raise SettingsError(f"plot.{what} takes {tables}: this is no table with {' and '.join(missing)}")


def _number(df: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column as plain floats, NaN where missing; all missing if the table hasn't got it."""
    if name not in df:
        return pd.Series(np.nan, index=df.index, dtype=float)
    return pd.Series(df[name].to_numpy(dtype=float, na_value=np.nan), index=df.index)


def _group(df: pd.DataFrame, by: str | None, what: str) -> pd.Series[Any]:
    by = by or {"model": "model", "agent": "agent_id", "run": "stream_id"}.get(df.attrs.get("by", ""))
    if by is None and {"step", "turn", "stream_id"} <= set(df.columns) and df["stream_id"].nunique() <= 1:
        paths = df["path"] if "path" in df else df.get("agent_id", df["stream_id"])
        inner = paths.nunique() > 1
        names = [
            ("" if not inner else f"{label(path)}, ")
            + (f"turn {turn + 1}" if pd.notna(turn) else "all turns")
            + (f", step {step + 1}" if pd.notna(step) else "")
            for path, turn, step in zip(paths, df["turn"], df["step"], strict=True)
        ]
        return pd.Series([name[:1].upper() + name[1:] if not inner else name for name in names], index=df.index)
    if by is None:
        by = next((name for name in _GROUPS if name in df), None)
    if by is None or by not in df:
        names = ", ".join(name for name in df.columns if name not in ("args", "result"))
        raise SettingsError(f"plot.{what}: by={by!r} is no column of this table: {names}")
    return pd.Series([label(value) for value in df[by].astype("object")], index=df.index)


def _together(grouped: pd.DataFrame) -> pd.DataFrame:
    """The largest groups, largest first where they have no order of their own; the rest as one."""
    if len(grouped) <= MAX_BARS:
        steps = bool(len(grouped)) and str(grouped.index[0]).lower().startswith("turn ")
        return grouped if steps else grouped.loc[grouped.sum(axis=1).sort_values(ascending=False).index]
    order = grouped.sum(axis=1).sort_values(ascending=False).index
    rest = grouped.loc[order[MAX_BARS - 1 :]].sum(min_count=1).to_frame(f"{len(order) - MAX_BARS + 1} others").T
    return pd.concat([grouped.loc[order[: MAX_BARS - 1]], rest])


def _times(df: pd.DataFrame, what: str) -> pd.Series[Any]:
    for name in ("created_at", "started_at", "timestamp"):
        if name in df:
            return df[name]
    raise SettingsError(f"plot.{what}: over= needs a table with times: runs_df, steps_df, chunks_df")


def _floor(times: pd.Series[Any], over: str) -> pd.Series[Any]:
    try:
        return times.dt.floor(over)
    except ValueError:
        raise SettingsError(f"over={over!r}: give a length of time like '10min', '1h' or '1D'") from None


def _iso(time: Any) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def _panel_title(name: str, note: str) -> Any:
    return layer().TitleParams(
        text=name, subtitle=note, anchor="start", fontSize=12, fontWeight=600, subtitleFontSize=11, offset=16
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _listing(entries: dict[str, str]) -> str:
    told = [f"{name} {value}" for name, value in list(entries.items())[:10]]
    return ", ".join(told) + (f" and {len(entries) - 10} more" if len(entries) > 10 else "")
