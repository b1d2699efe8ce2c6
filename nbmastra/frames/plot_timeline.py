"""The timeline as a picture: turns, steps, calls, runs in runs and background tasks over time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from nbmastra.errors import SettingsError
from nbmastra.frames.picture import COLOURS, Picture
from nbmastra.frames.plot_parts import WIDTH, count, empty, finish, label, layer, seconds, tone, values

__all__ = ["timeline"]

MAX_LANES = 60
_ROW = 22
_LEFT = 200
_RIGHT = 64
_FG, _MUTED = COLOURS["fg"].light, COLOURS["muted"].light


class _Look(NamedTuple):
    words: str
    fill: str
    height: int


_LOOKS = {  # in the order in which they are drawn
    "step": _Look("step", "soft", 10),
    "wait": _Look("waiting", "wait", 10),
    "queued": _Look("waiting", "wait", 10),
    "reasoning": _Look("reasoning", "violet", 4),
    "text": _Look("text", "teal", 4),
    "tool": _Look("tool or agent", "accent", 10),
    "agent": _Look("tool or agent", "accent", 10),
    "workflow-step": _Look("tool or agent", "accent", 10),
    "task": _Look("background task", "mid", 10),
    "suspended": _Look("suspended", "warn", 10),
}
_FAILED = _Look("failed", "err", 10)


def timeline(df: pd.DataFrame) -> Picture:
    """A run over time, of its `timeline_df`: one line each for turns, steps, tool calls, inner runs and tasks.

    Of a run that goes on, what is open is drawn up to now. Lines beyond the first 60 are left out, and counted.
    Raises SettingsError for a table of several runs.
    """
    if not {"lane", "kind", "start_s", "end_s"} <= set(df.columns):
        raise SettingsError("plot.timeline takes timeline_df: out.timeline_df()")
    if df["stream_id"].nunique() > 1:
        raise SettingsError("plot.timeline draws one run: choose it by its stream_id")
    if not len(df) or df["start_s"].isna().all():
        return empty("Timeline", "Nothing has happened yet." if not len(df) else "Nobody knows when things happened.")
    lanes = int(df["lane"].max()) + 1
    shown = df[df["lane"] < MAX_LANES]
    end = float(pd.concat([df["start_s"], df["end_s"]]).max()) or 1.0
    ends = shown["end_s"].astype("object").where(shown["end_s"].notna(), None)
    spans = [_span({**row, "end_s": at}, end) for row, at in zip(shown.to_dict("records"), ends, strict=True)]
    mains = {span["lane"]: span for span in reversed(spans) if span["kind"] not in ("gap", "wait")}
    heads = [_head(mains[lane], spans) for lane in sorted(mains)]
    first = next((span["to"] for span in spans if span["kind"] == "wait"), None)
    facts = [f"{seconds(end)}"]
    if first is not None:
        facts.append(f"first token after {seconds(first)}")
    if lanes > MAX_LANES:
        facts.append(f"{count(lanes - MAX_LANES)} more lines aren't drawn")
    told = ", ".join(facts)
    words = "; ".join(f"{head['words']} from {seconds(head['from'])}, {head['time']}" for head in heads[:20])
    chart = _chart(spans, heads, min(lanes, MAX_LANES), end)
    return Picture(finish(chart, "Timeline", told), f"Timeline, {told}. {words}.")


def _span(row: dict[Any, Any], end: float) -> dict[str, Any]:
    kind, status = str(row["kind"]), row["status"]
    look = _LOOKS.get(kind)
    failed = kind in ("tool", "agent", "workflow-step", "task") and status in ("error", "failed", "timed_out")
    is_open = row["end_s"] is None
    waits = is_open and status in ("suspended", "needs-approval")
    if failed:
        look = _FAILED
    elif waits:
        look = _LOOKS["suspended"]
    start, to = float(row["start_s"]), end if is_open else float(row["end_s"])
    name, words = label(row["name"]), look.words if look is not None else kind
    return {
        "lane": int(row["lane"]),
        "kind": kind,
        "name": name,
        "indent": int(row["indent"]),
        "from": start,
        "to": to,
        "words": f"{name}, {words}: {seconds(to - start)}, from {seconds(start)}" + (" on" if is_open else ""),
        "open": is_open,
        "look": words,
        "failed": failed,
        "waits": waits,
    }


def _head(span: dict[str, Any], spans: list[dict[str, Any]]) -> dict[str, Any]:
    """A line's name at its left, its time at its right."""
    together = [other for other in spans if other["lane"] == span["lane"] and other["kind"] != "gap"]
    start, end = min(s["from"] for s in together), max(s["to"] for s in together)
    is_open = any(other["open"] for other in together)
    mark = " ×" if any(other["failed"] for other in together) else ""
    code = span["kind"] not in ("turn", "step")
    state = " (failed)" if mark else " (waits)" if span["waits"] else " (goes on)" if is_open else ""
    return {
        "lane": span["lane"],
        "text": span["name"] + mark,
        "indent": min(span["indent"], 8),
        "words": span["name"] + state,
        "code": code,
        "from": start,
        "time": seconds(end - start) + ("…" if is_open else ""),
    }


def _chart(spans: list[dict[str, Any]], heads: list[dict[str, Any]], lanes: int, end: float) -> Any:
    alt = layer()
    y = alt.Y("lane:O", scale=alt.Scale(domain=list(range(lanes)), paddingInner=0, paddingOuter=0), axis=None)
    scale = alt.Scale(domain=[0, end], nice=False)
    axis = alt.Axis(title=None, orient="top", labelExpr="datum.value + ' s'", tickCount=6, ticks=False)
    x = alt.X("from:Q", scale=scale, axis=axis)
    used = {span["look"] for span in spans}
    looks = {look.words: look.fill for look in [*_LOOKS.values(), _FAILED] if look.words in used}
    fill = tone("look", looks)

    def data(rows: list[dict[str, Any]]) -> Any:
        return alt.Chart(values(rows))

    layers: list[Any] = [
        data([s for s in spans if s["kind"] == "turn"])
        .mark_rule(stroke=_FG, strokeWidth=1.5)
        .encode(x=x, x2="to:Q", y=y),
        data(
            [
                {**s, "from": at}
                for s in spans
                if s["kind"] == "turn"
                for at in (s["from"], s["to"])
                if at != end or not s["open"]
            ]
        )
        .mark_tick(orient="vertical", color=_FG, thickness=1.5, height=9)
        .encode(x=x, y=y),
    ]
    gaps = [
        {**s, "middle": (s["from"] + s["to"]) / 2, "words": f"{seconds(s['to'] - s['from'])} until the next turn"}
        for s in spans
        if s["kind"] == "gap"
    ]
    if gaps:
        layers += [
            data(gaps).mark_rule(stroke=_MUTED, strokeDash=[3, 3]).encode(x=x, x2="to:Q", y=y),
            data(gaps).mark_text(fill=_MUTED, fontSize=10, dy=-7).encode(x="middle:Q", y=y, text="words:N"),
        ]
    for kind, look in _LOOKS.items():
        rows = [span for span in spans if span["kind"] == kind]
        if rows:
            edge = COLOURS["accent" if kind in ("step", "task") else "warn" if kind == "suspended" else "wait"].light
            stroked = kind in ("step", "task", "wait", "queued", "suspended")
            bar = data(rows).mark_bar(
                height=look.height, stroke=edge if stroked else None, strokeWidth=1, minBandSize=1
            )
            layers.append(bar.encode(x=x, x2="to:Q", y=y, fill=fill, description="words:N"))
    tokens = [{**span, "from": span["to"]} for span in spans if span["kind"] == "wait"]
    layers += [
        data(tokens).mark_tick(orient="vertical", color=_FG, thickness=2, height=15).encode(x=x, y=y),
        *(
            data([head for head in heads if (head["code"], head["indent"]) == place])
            .mark_text(align="left", fill=_FG, fontSize=12, font="monospace" if place[0] else "sans-serif", limit=_LEFT)
            .encode(x=alt.value(12 * place[1] - _LEFT), y=y, text="text:N")
            for place in sorted({(head["code"], head["indent"]) for head in heads})
        ),
        data(heads).mark_text(align="right", fill=_MUTED, fontSize=12).encode(
            x=alt.value(WIDTH + _RIGHT), y=y, text="time:N"
        ),
    ]  # fmt: skip
    return alt.layer(*layers).properties(width=WIDTH, height=_ROW * lanes)
