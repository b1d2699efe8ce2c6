"""Pictures: what they draw of which table, and that nothing a server says does more than be shown."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from base64 import b64decode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.errors import SettingsError
from nbmastra.frames import TABLES, plot
from nbmastra.frames.columns import empty_frame
from nbmastra.frames.picture import COLOURS, Picture
from nbmastra.frames.plot_parts import seconds
from nbmastra.output import Ended, MastraModelOutput
from nbmastra.recording import demo_recording, load_recording
from tests.support.runs import EXPECTED, call, chunk, finish, recorded, start, step_finish, step_start, usage

PICTURES: dict[str, tuple[str, Callable[[pd.DataFrame], Picture]]] = {
    "tokens": ("usage_df", plot.tokens),
    "latency of chunks": ("chunks_df", plot.latency),
    "latency of steps": ("steps_df", plot.latency),
    "latency of runs": ("runs_df", plot.latency),
    "latency by time": ("runs_df", lambda df: plot.latency(df, over="1h")),
    "tools": ("tool_calls_df", plot.tools),
    "cost": ("usage_df", plot.cost),
    "cost of runs": ("runs_df", plot.cost),
    "cost by time": ("runs_df", lambda df: plot.cost(df, over="1h")),
    "timeline": ("timeline_df", plot.timeline),
}
PRICES = {"scripted-1": {"input": 1.0, "output": 4.0}}


@pytest.fixture(scope="module")
def demo() -> MastraModelOutput:
    return load_recording(demo_recording())


def table(name: str, source: Any) -> pd.DataFrame:
    priced = name in ("usage_df", "runs_df", "steps_df")
    return getattr(frames, name)(source, **({"prices": PRICES} if priced else {}))


def timed(name: str, step_s: float = 0.1, up_to: int | None = None) -> MastraModelOutput:
    """A recording whose chunks come one after the other; one that is cut goes on."""
    out, chunks = MastraModelOutput(), recorded(name)[0][:up_to]
    for number, item in enumerate(chunks):
        out.feed([item], number * step_s)
    if up_to is None:
        out.finish(Ended(done=True, at=len(chunks) * step_s))
    return out


def texts(picture: Picture) -> list[str]:
    """What is written in a picture."""
    return [
        "".join(element.itertext()) for element in ET.fromstring(picture.svg).iter() if element.tag.endswith("}text")
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_itself_without_kernel_or_network(name: str, demo: MastraModelOutput) -> None:
    of, draw = PICTURES[name]
    bundle = draw(table(of, demo))._repr_mimebundle_()
    assert list(bundle) == ["text/html", "image/png", "text/plain"]
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert "<script" not in bundle["text/html"]
    assert re.findall(r'(?:src|href)="(?!data:image/svg\+xml;base64,)', bundle["text/html"]) == []
    assert "@import" not in bundle["text/html"]
    assert sum(len(part) for part in bundle.values()) < 150_000
    assert len(bundle["text/plain"]) > 20


@pytest.mark.parametrize("name", PICTURES)
def test_an_empty_table_gives_an_empty_picture_that_says_so(name: str) -> None:
    of, draw = PICTURES[name]
    picture = draw(empty_frame(TABLES[of].select(None)))
    assert any(text.endswith(".") and text in picture.description for text in texts(picture))
    assert picture.png().startswith(b"\x89PNG")


def test_tokens_are_told_apart_and_sum_to_what_the_table_has(demo: MastraModelOutput) -> None:
    df = demo.usage_df()
    picture = plot.tokens(df)
    total = int(df["total_tokens"].sum())
    assert f"{total:,} in all" in texts(picture)
    assert {"Input", "Cached input", "Output", "Reasoning"} <= set(texts(picture))
    drawn = [row for data in _values(picture) for row in data if "tokens" in row]
    assert sum(row["tokens"] for row in drawn) == total
    assert "trip/agent-route, turn 1, step 1" in texts(picture)
    assert "scripted-1" in texts(plot.tokens(df, by="model"))


def test_what_has_no_price_is_named_and_never_drawn_as_nothing() -> None:
    models = [
        {"type": "step-finish", "payload": {"output": {"usage": usage(1000, 100)}, "metadata": {"modelId": name}}}
        for name in ("scripted-1", "home-made")
    ]
    chunks = [start(), *(part for one in models for part in (step_start(), {**one, "runId": "r", "from": "AGENT"}))]
    out = MastraModelOutput.from_chunks([*chunks, finish()]).wait()
    df = out.usage_df("model", prices=PRICES)
    assert df.attrs["reconciliation"]["unpriced_models"] == ["home-made"]
    told = texts(plot.cost(df))
    assert "$0.0014 in all; no price for home-made" in told
    assert "no price" in told
    steps = texts(plot.cost(out.steps_df(prices=PRICES), by="agent_id"))
    assert "$0.0014 in all; no price for a part of a" in steps
    assert "No price is known for home-made, scripted-1." in texts(plot.cost(out.usage_df("model", prices={})))


@pytest.mark.parametrize("name", ["demo", *sorted(EXPECTED)])
def test_latency_of_chunks_is_that_of_the_fold(name: str, demo: MastraModelOutput) -> None:
    out = demo if name == "demo" else timed(name)
    own = [step.time_to_first_token_s for step in out.state.steps if step.time_to_first_token_s is not None]
    told = plot.latency(out.chunks_df()).description
    if own:
        assert f"First token of a step: p50 {seconds(float(np.median(own)))}" in told
        assert f"({len(own)} measured)" in told
    else:
        assert "First token" not in told


def test_tools_tell_durations_and_failures(demo: MastraModelOutput) -> None:
    told = texts(plot.tools(demo.tool_calls_df()))
    assert "5 calls, 1 failed" in told
    assert {"forecast", "rooms", "1 of 1", "0 of 1"} <= set(told)
    waiting = plot.tools(timed("ask.sse").tool_calls_df())
    assert "not known" in texts(waiting)  # it isn't over, which is no duration of 0


@pytest.mark.parametrize("name", ["background-until-idle.sse", "suspend-until-idle.sse", "supervisor.sse"])
def test_a_timeline_has_a_line_for_each_turn_step_call_run_and_task(name: str) -> None:
    out = timed(name)
    df = out.timeline_df()
    state = out.state
    inner = [step for run in state.nested for step in run.steps]
    counts = df["kind"].value_counts()
    assert counts["turn"] == len(state.turns)
    assert counts["step"] == len(state.steps) + len(inner)
    assert counts["tool"] + counts["agent"] == len(frames.tool_calls_df(out))
    assert counts["agent"] == len(state.nested)
    assert counts["task"] == len(state.tasks)
    assert counts["gap"] == len(state.turns) - 1
    assert sorted(df["lane"].unique()) == list(range(df["lane"].max() + 1))
    assert (df["end_s"].dropna() >= df["start_s"][df["end_s"].notna()]).all()
    drawn = texts(out.timeline_chart())
    assert {f"Turn {number + 1}" for number in range(len(state.turns))} <= set(drawn)
    assert all(any(call.tool_name in text for text in drawn) for call in state.tool_calls)


def test_spans_are_the_folds_own_times(demo: MastraModelOutput) -> None:
    df = demo.timeline_df()
    steps = df[df["kind"] == "step"]
    assert sorted(steps["duration_s"]) == pytest.approx(sorted(demo.steps_df()["duration_s"]))
    calls = df[df["kind"].isin(["tool", "agent"])].set_index("id")["duration_s"]
    assert calls.to_dict() == pytest.approx(demo.tool_calls_df().set_index("tool_call_id")["duration_s"].to_dict())
    waits = df[df["kind"] == "wait"]["duration_s"]
    assert sorted(waits) == pytest.approx(sorted(demo.steps_df()["time_to_first_token_s"].dropna()))


@pytest.mark.parametrize("name", ["background-until-idle.sse", "supervisor.sse", "tools.sse"])
def test_a_run_is_drawn_at_any_moment(name: str) -> None:
    for up_to in range(0, len(recorded(name)[0]), 12):
        out = timed(name, up_to=up_to)
        df = out.timeline_df()
        assert df["start_s"].notna().all()
        plot.timeline(df)
    assert "Nothing has happened yet." in texts(timed(name, up_to=0).timeline_chart())
    assert any("goes on" in words for words in [timed(name, up_to=9).timeline_chart().description])


def test_tables_of_any_size_are_drawn_as_few_marks() -> None:
    count = 300_000
    chance = np.random.default_rng(1)
    chunks = pd.DataFrame(
        {
            "stream_id": pd.Categorical(np.repeat([f"s{i}" for i in range(100)], count // 100)),
            "step": 0,
            "depth": 0,
            "type": pd.Categorical(["text-delta"] * count),
            "at_s": chance.random(count),
            "gap_s": chance.lognormal(-3, 1, count),
            "text_len": 3,
        }
    )
    steps = pd.DataFrame(
        {
            "stream_id": [f"s{i % 500}" for i in range(50_000)],
            "model": [f"model-{i % 300}" for i in range(50_000)],
            "input_tokens": 10,
            "output_tokens": 5,
            "cost_usd": 0.001,
        }
    )
    calls = pd.DataFrame(
        {"tool_name": [f"tool-{i % 300}" for i in range(50_000)], "duration_s": 0.5, "status": "success"}
    )
    lanes = pd.DataFrame(
        {"stream_id": "s", "lane": range(5000), "kind": "tool", "name": "f", "indent": 1, "status": "success"}
    ).assign(start_s=lambda df: df["lane"] * 1.0, end_s=lambda df: df["lane"] + 2.0)
    for picture in (
        plot.latency(chunks),
        plot.tokens(steps),
        plot.cost(steps),
        plot.tools(calls),
        plot.timeline(lanes),
    ):
        assert sum(map(len, _values(picture))) < 500
        assert len(picture.html) < 200_000
    assert "281 others" in texts(plot.tokens(steps))
    assert any("280 more tools aren't drawn" in text for text in texts(plot.tools(calls)))
    assert any("4,940 more lines aren't drawn" in text for text in texts(plot.timeline(lanes)))


HOSTILE = [
    "</text><script>alert(1)</script>\"'><img src=x onerror=alert(1)>",
    "\x00\x1b[31m\u202eevil\ud800",
    "url(javascript:alert(1))",
    "{{7*7}} datum.x",
    "x" * 10_000,
]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.images: list[ET.Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag == "img":
            source = dict(attrs)["src"] or ""
            self.images.append(ET.fromstring(b64decode(source.removeprefix("data:image/svg+xml;base64,"))))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_a_model_or_server_gives_are_text_and_nothing_else(name: str) -> None:
    chunks = [
        {**start(), "payload": {"id": name}},
        step_start(),
        call("c1", name),
        chunk("tool-error", {"toolCallId": "c1", "toolName": name, "args": {}, "error": {"message": name}}),
        step_finish("stop", usage(10, 5)),
        finish("stop", usage(10, 5)),
    ]
    out = MastraModelOutput.from_chunks(chunks, agent=name).wait()
    pictures = [
        plot.tools(out.tool_calls_df()),
        plot.tokens(out.usage_df(), by="agent_id"),
        plot.cost(out.usage_df(), by="agent_id"),
        out.timeline_chart(),
    ]
    for picture in pictures:
        found = _Tags()
        found.feed(picture.html)
        assert found.tags == {"div", "style", "img"}
        assert found.names == {"class", "style", "alt", "src"}
        for image in found.images:
            tags = {element.tag.rpartition("}")[2] for element in image.iter()}
            assert tags <= {
                "svg",
                "g",
                "path",
                "rect",
                "line",
                "text",
                "title",
                "defs",
                "pattern",
                "clipPath",
                "circle",
            }
            names = {name.rpartition("}")[2] for element in image.iter() for name in element.attrib}
            assert not [attribute for attribute in names if attribute.startswith(("on", "href"))]
        assert len(picture.description) < 2000
        assert picture.png()


def test_the_light_drawing_is_on_white_and_every_colour_of_it_has_a_dark_one(demo: MastraModelOutput) -> None:
    light, dark = COLOURS.values(), {colour.dark for colour in COLOURS.values()}
    found = _Tags()
    found.feed(demo.timeline_chart().html + plot.tokens(demo.usage_df()).html)
    for image, on_white in zip(found.images, (True, False, True, False), strict=True):
        painted = {element.get(name) for element in image.iter() for name in ("fill", "stroke")}
        plain = {colour for colour in painted if colour and colour.startswith("#")}
        assert plain <= ({colour.light for colour in light} | {"#ffffff"} if on_white else dark)
        assert ("#ffffff" in plain) is on_white


@pytest.mark.parametrize("name", COLOURS)
def test_colours_are_seen_on_light_and_dark_pages(name: str) -> None:
    needed = {"fg": 7.0, "muted": 4.5, "line": 1.2, "soft": 1.05, "mid": 1.9}.get(name, 3.0)
    assert contrast(COLOURS[name].light, "#ffffff") >= needed
    assert contrast(COLOURS[name].dark, "#111111") >= needed


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours. Source: WCAG 2.2."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_picture_is_saved_in_the_format_that_its_name_says(demo: MastraModelOutput, tmp_path: Path) -> None:
    picture = demo.timeline_chart()
    assert picture.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    assert picture.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>Timeline" in picture.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert '"$schema"' in picture.save(tmp_path / "a.json").read_text(encoding="utf-8")
    with pytest.raises(SettingsError, match=r"ends in \.svg"):
        picture.save(tmp_path / "a.gif")
    with pytest.raises(SettingsError, match="can't write"):
        picture.save(tmp_path / "no" / "a.svg")


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_without_the_extra_one_line_says_what_to_install(
    package: str, demo: MastraModelOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=r"^pictures need `pip install 'nbmastra\[plot\]'`$"):
        demo.timeline_chart()


def test_a_table_of_another_kind_is_refused_with_what_it_should_be(demo: MastraModelOutput) -> None:
    errors = demo.errors_df()
    for draw, wanted in (
        (plot.tokens, "usage_df, steps_df or runs_df"),
        (plot.cost, "usage_df, steps_df or runs_df"),
        (plot.latency, "steps_df, runs_df or chunks_df"),
        (plot.tools, "tool_calls_df"),
        (plot.timeline, "timeline_df"),
    ):
        with pytest.raises(SettingsError, match=wanted):
            draw(errors)
    with pytest.raises(SettingsError, match="by='modle' is no column"):
        plot.tokens(demo.usage_df(), by="modle")
    with pytest.raises(SettingsError, match="over= needs a table with times"):
        plot.cost(demo.usage_df(prices=PRICES), over="1h")
    with pytest.raises(SettingsError, match="a length of time"):
        plot.latency(demo.steps_df(), over="now and then")
    with pytest.raises(SettingsError, match="draws one run"):
        plot.timeline(frames.timeline_df([demo, timed("tools.sse")]))


def _values(picture: Picture) -> list[list[Any]]:
    """The rows that a chart's marks are drawn of."""
    found: list[list[Any]] = []

    def look(part: Any) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("data"), dict) and "values" in part["data"]:
                found.append(part["data"]["values"])
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(picture.chart.to_dict())
    return found
