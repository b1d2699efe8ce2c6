"""What pictures are put together from: their look, labels, numbers, bars."""

from __future__ import annotations

import math
from typing import Any

from nbmastra.frames.picture import COLOURS, Picture, need_extra

__all__ = ["WIDTH", "bars", "below", "count", "empty", "finish", "label", "layer", "money", "seconds", "tone", "values"]

WIDTH = 520
"""Of what is drawn, labels left out, in pixels."""
_FG, _MUTED, _LINE = COLOURS["fg"].light, COLOURS["muted"].light, COLOURS["line"].light
_LONGEST = 40


def layer() -> Any:
    """The altair package. Raises SettingsError if the extra isn't installed."""
    return need_extra()


def values(rows: list[dict[str, Any]]) -> Any:
    """Rows as a chart's own data."""
    return layer().Data(values=rows)


def label(value: Any) -> str:
    """Any text of a server or model as one short line that shows what it holds and does nothing else."""
    text = str(value)
    if value is None or text in ("<NA>", "nan"):
        return "not told"
    text = "".join(char if char.isprintable() else "\ufffd" for char in text[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def count(number: float) -> str:
    """1,234; 12.3 k; 4.56 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if unit == "k" else size)
            return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:,.0f} {unit}"
    return f"{number:,.0f}"


def money(usd: float) -> str:
    """$12.30; $0.0042."""
    if usd == 0 or abs(usd) >= 1:
        return f"${usd:,.2f}"
    return f"${usd:.{max(2, 1 - math.floor(math.log10(abs(usd))))}f}"


def seconds(time: float) -> str:
    """0.84 s; 12.4 s; 2:05 min; 4 ms."""
    if time < 0.1:
        return f"{time * 1000:.3g} ms"
    if time < 60:
        return f"{time:.2f} s" if time < 10 else f"{time:.1f} s"
    whole = round(time)
    return f"{whole // 60}:{whole % 60:02} min"


def tone(field: str, names: dict[str, str], *, legend: bool = True, line: bool = False) -> Any:
    """What a field's values are painted with, by the names of colours."""
    alt = layer()
    colours = [COLOURS[colour].light for colour in names.values()]
    edge = {} if line else {"symbolStrokeColor": _MUTED, "symbolStrokeWidth": 0.5}
    shown = alt.Legend(title=None, orient="bottom", symbolType="stroke" if line else "square", columnPadding=14, **edge)
    kind = alt.Color if line else alt.Fill
    return kind(
        f"{field}:N",
        scale=alt.Scale(domain=list(names), range=colours),
        legend=shown if legend and len(names) > 1 else None,
        sort=list(names),
    )


def bars(
    rows: list[dict[str, Any]],
    texts: list[dict[str, Any]],
    value: str,
    order: list[Any],
    fill: Any,
    unit: str,
) -> Any:
    """Bars by group, one below the other, stacked in the order of their `order`, each with its number."""
    alt = layer()
    y = alt.Y(
        "group:N",
        sort=[str(name) for name in order],
        axis=alt.Axis(title=None, labelLimit=260, labelPadding=8, ticks=False),
    )
    axis = alt.Axis(title=None, tickCount=5, format="~s" if unit == "tokens" else "$~f")
    drawn = (
        alt.Chart(values(rows))
        .mark_bar(height=14)
        .encode(
            x=alt.X(f"{value}:Q", stack="zero", axis=axis),
            y=y,
            fill=fill,
            order=alt.Order("order:Q"),
            description="words:N",
        )
    )
    numbers = (
        alt.Chart(values(texts))
        .mark_text(align="left", dx=6, fill=_FG, fontSize=12)
        .encode(x="end:Q", y=y, text="text:N")
    )
    return alt.layer(drawn, numbers).properties(width=WIDTH, height=24 * max(len(order), 1))


def below(charts: list[Any]) -> Any:
    """Charts one below the other."""
    return charts[0] if len(charts) == 1 else layer().vconcat(*charts, spacing=24)


def empty(title: str, note: str) -> Picture:
    """A picture of nothing, which says so."""
    alt = layer()
    text = alt.Chart(values([{}])).mark_text(fill=_MUTED, fontSize=13).encode(text=alt.value(label_whole(note)))
    return Picture(finish(text.properties(width=WIDTH, height=60), title), f"{title}: {note}")


def label_whole(text: str) -> str:
    """A sentence that may hold names of a server's."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:200])


def finish(chart: Any, title: str = "", note: str = "") -> Any:
    """The look that all pictures have in common."""
    alt = layer()
    if title:
        chart = chart.properties(
            title=alt.TitleParams(
                text=title,
                subtitle=label_whole(note) if note else alt.Undefined,
                anchor="start",
                fontSize=14,
                fontWeight=600,
                subtitleFontSize=12,
                offset=12,
            )
        )
    return (
        chart.properties(background="transparent", padding=6)
        .configure(font="sans-serif")
        .configure_view(stroke=None)
        .configure_title(color=_FG, subtitleColor=_MUTED)
        .configure_axis(
            labelColor=_MUTED, titleColor=_MUTED, labelFontSize=11, titleFontSize=11, titleFontWeight="normal",
            domain=False, gridColor=_LINE, tickColor=_LINE,
        )
        .configure_axisY(labelColor=_FG, labelFontSize=12)
        .configure_legend(labelColor=_FG, labelFontSize=12, symbolSize=120, symbolStrokeWidth=2)
    )  # fmt: skip
