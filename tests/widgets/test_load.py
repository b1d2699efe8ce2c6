"""Huge and odd input: shown shortened, counted, with a way to the whole; what goes to a page stays small."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from nbmastra import ToolCallsTable
from nbmastra.widgets.live import Act
from nbmastra.widgets.snapshot import snapshot
from tests.support.runs import call, finish, result, start, step_finish, step_start, text
from tests.widgets.views import Watched, dangers, watch

MB = 1_000_000
HUGE = {
    "text": "x" * (50 * MB),
    "one line in a list": ["y" * (5 * MB)],
    "records": [{"name": "n" * 40_000, "number": number} for number in range(1250)],
    "deep": {f"k{number}": {"inner": ["z" * 1000] * 40} for number in range(100)},
}


def sent(watched: Watched) -> int:
    """Bytes of everything that a page would get."""
    return len(json.dumps(watched.messages())) + len(json.dumps(watched.view.boot()["nodes"]))


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.timeout(300)
def test_a_result_of_50_megabytes_is_shortened_and_the_whole_is_there_to_be_copied(name: str) -> None:
    watched = watch([start(), step_start(), call("c"), result("c", HUGE[name]), step_finish(), finish()])
    assert sent(watched) < 400_000
    assert len(json.dumps(snapshot(watched.out))) < 100_000
    assert watched.out.state.tool_calls[0].result == HUGE[name]
    nodes = watched.view.boot()["nodes"]
    copy = next(id for id, node in nodes.items() if node["a"].get("data-nbm-act") == "copy")
    with watched.view.frame():
        watched.view._acts[copy](Act("copy", node=copy))
    copied = watched.view.boot()["nodes"][copy]["a"]["data-nbm-copy"]
    assert MB // 20 < len(copied) <= MB  # of more than that, the beginning
    table = ToolCallsTable(watched.out)
    assert len(json.dumps(table.boot())) < 100_000
    table.close()


def test_a_line_of_a_megabyte_costs_what_it_is_long() -> None:
    watched = Watched()
    watched.feed(start(), step_start())
    for _ in range(50):
        watched.feed(text("x" * 20_000))
    assert len(json.dumps(watched.messages())) < 3 * MB
    watched.feed(step_finish(), finish())
    watched.end()
    assert watched.html().count("x") >= MB


def test_5000_calls_cost_what_is_new_and_are_all_in_the_table() -> None:
    watched = Watched()
    watched.feed(start(), step_start())
    sizes: list[int] = []
    for first in range(0, 5000, 1000):
        before = len(watched.messages())
        watched.feed(*(one for n in range(first, first + 1000) for one in (call(f"c{n}", x=n), result(f"c{n}", n))))
        sizes.append(len(json.dumps(watched.messages()[before:])))
    assert max(sizes) < 1.5 * min(sizes)
    table = ToolCallsTable(watched.out)
    assert len(table.boot()["rows"]) == 5000
    table.close()


ODD: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    [math.nan, {"a": math.inf}],
    10**400,
    "\u202eright to left\u202c שלום עולם",
    "e\u0301\u0301\u0301 👩\u200d👩\u200d👧 \U0001f1eb\U0001f1f7",
    "\x00\x07\x1b[31m\x7f\x9b",
    "half \ud83d of an emoji",
    "\u2028\u2029\ufeff",
    {"": {"\u202e": None}},
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: ascii(value)[:30])
def test_odd_values_are_shown_by_views_and_snapshots_and_are_json_for_every_browser(value: Any) -> None:
    """NaN and Infinity are no JSON for a browser, half an emoji is no UTF-8 for a socket."""
    shown = str(value)
    chunks = [start(), step_start(), text(shown), call("c", name=shown[:50] or "f", args={"a": value})]
    watched = watch([*chunks, result("c", value, shown[:50] or "f"), step_finish(), finish()], agent=shown)
    table = ToolCallsTable(watched.out)
    for sent in (watched.messages(), watched.view.boot(), snapshot(watched.out), table.boot()):
        json.dumps(sent, allow_nan=False, ensure_ascii=False).encode()
    for html in (watched.html(), snapshot(watched.out)["text/html"]):
        assert dangers(html, "style") == []
    table.close()


def test_a_value_that_holds_itself_is_shown() -> None:
    watched = watch([start(), step_start(), call("c"), result("c", {"a": 1}), step_finish(), finish()])
    endless: dict[str, Any] = {"a": 1}
    endless["again"] = [endless]
    watched.out.state.tool_calls[0].result = endless
    table = ToolCallsTable(watched.out)
    assert "again" in snapshot(watched.out)["text/html"] or "…" in snapshot(watched.out)["text/html"]
    assert json.dumps(table.boot())
    table.close()
