"""Huge and odd input: shown shortened, counted, with a way to the whole; what goes to a page stays small."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from nbmastra import ToolCallsTable
from nbmastra.widgets.format import number
from nbmastra.widgets.live import Act
from nbmastra.widgets.pages import MAX_SHOWN, PER_PAGE
from nbmastra.widgets.snapshot import snapshot
from tests.support.runs import Wire, call, chunk, finish, result, start, step_finish, step_start, text
from tests.widgets import asking
from tests.widgets.asking import Scripted, approval, live_run
from tests.widgets.browser_copy import BrowserCopy
from tests.widgets.views import Watched, dangers, flat, watch

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
        watched.feed(
            *(one for n in range(first, first + 1000) for one in (call(f"c{n}", args={"x": n}), result(f"c{n}", n)))
        )
        sizes.append(len(json.dumps(watched.messages()[before:])))
    assert max(sizes) < 1.5 * min(sizes)
    table = ToolCallsTable(watched.out)
    assert len(table.boot()["rows"]) == 5000
    table.close()


def shown(watched: Watched) -> list[str]:
    """The numbers of the calls whose cards are in the page, in their order."""
    return re.findall(r"\(x=(\d+)\)", re.sub("<[^>]+>", "", watched.html()))


def failed(call_id: str) -> Wire:
    return chunk("tool-error", {"toolCallId": call_id, "toolName": "f", "error": {"message": "no"}})


def press_more(watched: Watched) -> None:
    nodes = watched.view.boot()["nodes"]
    button = next(id for id, node in nodes.items() if node["a"].get("data-nbm-act") == "more")
    with watched.view.frame():
        watched.view._acts[button](Act("more", node=button))
    watched.follow()


@pytest.mark.parametrize("per_frame", [1, 40, 6000])
def test_of_thousands_of_calls_the_newest_and_those_that_are_open_are_in_the_page_and_the_others_a_click_away(
    per_frame: int,
) -> None:
    calls = [one for n in range(1, 2500) for one in (call(f"c{n}", args={"x": n}), result(f"c{n}", n))]
    watched = watch(
        [start(), step_start(), call("c0", args={"x": 0}), text("Hm"), *calls], per_frame=per_frame, done=False
    )
    numbers = [int(n) for n in shown(watched)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert MAX_SHOWN - PER_PAGE <= len(numbers) <= MAX_SHOWN + 2 * PER_PAGE
    assert numbers[-MAX_SHOWN // 2 :] == list(range(2500 - MAX_SHOWN // 2, 2500))
    folded = 2500 - len(numbers)
    assert f"{number(folded)} earlier tool calls" in watched.html() or f"{number(folded + 1)} earlier" in watched.html()
    assert len(watched.view._acts) < 1000
    press_more(watched)
    more = [int(n) for n in shown(watched)]
    first = next(n for n in reversed(numbers) if n - 1 not in numbers)  # of those at the end
    assert sorted({*more} - {*numbers}) == list(range(first - PER_PAGE, first))
    assert more == sorted(more)
    with watched.view.frame():
        watched.view._parts.update()
    assert [int(n) for n in shown(watched)] == more  # they stay


def test_calls_that_failed_are_counted_among_the_folded_and_lines_next_to_each_other_are_one() -> None:
    watched = Watched()
    watched.feed(start(), step_start(), call("open", args={"x": 0}))
    for n in range(1, 1000):
        watched.feed(call(f"c{n}", args={"x": n}), failed(f"c{n}") if n % 10 == 0 else result(f"c{n}", n))
    assert watched.html().count("earlier tool calls") == 1
    watched.feed(
        result("open", 1),
        *(one for n in range(1000, 1030) for one in (call(f"c{n}", args={"x": n}), result(f"c{n}", n))),
    )
    [(calls, failures)] = re.findall(r"([\d,]+) earlier tool calls, (\d+) failed", watched.html())
    assert calls == number(1030 - len(shown(watched)))
    assert int(failures) == len(range(10, min(1000, 1030 - len(shown(watched))), 10))
    for _ in range(100):
        if "earlier tool calls" not in watched.html():
            break
        press_more(watched)
    assert shown(watched) == [str(n) for n in range(1030)]
    again = flat(BrowserCopy(watched.view.boot()["nodes"]).shown())  # as a page would have it that is loaded now
    assert re.sub(r'since="[\d.]+"', "", watched.html()) == re.sub(r'since="[\d.]+"', "", again)


def pair(n: int) -> list[Wire]:
    return [call(f"c{n}", args={"x": n}), result(f"c{n}", n)]


def test_data_and_warnings_between_calls_keep_no_call_in_the_page() -> None:
    watched = Watched()
    watched.feed(start(), step_start())
    for n in range(600):
        watched.feed(*pair(n), chunk("data-progress", run=None, data={"n": n}), chunk("text-delta", "no payload"))
    assert len(shown(watched)) <= MAX_SHOWN + PER_PAGE
    assert watched.html().count("nbm-folded") < 10
    assert len(watched.view.boot()["nodes"]) < 100 * MAX_SHOWN


def test_what_changes_behind_the_line_is_counted_once_and_shown_as_it_is_now() -> None:
    watched = Watched()
    watched.feed(start(), step_start(), *(one for n in range(500) for one in pair(n)))
    watched.feed(*(result(f"c{n}", f"again {n}") for n in range(400)))
    folded = 500 - len(shown(watched))
    assert f"{folded} earlier tool calls" in watched.html()
    for _ in range(500 // PER_PAGE):
        if "Show more" in watched.html():
            press_more(watched)
    assert shown(watched) == [str(n) for n in range(500)]
    assert "Show more" not in watched.html()


def test_a_call_that_was_answered_keeps_its_card_however_much_comes_at_once() -> None:
    control = Scripted([result("ask", "booked", "book_train"), *(one for n in range(500) for one in pair(n)), finish()])
    out, view = live_run([start(), step_start(), call("ask", "book_train"), approval("ask")], control)
    view.ended.clear()
    out.approve().result(5)
    assert view.ended.wait(5)
    html = asking.shown(view)
    assert html.count("<b>book_train</b>") == 1
    assert "booked" in html
    assert 'data-nbm-act="approve"' not in html


def test_plain_output_keeps_texts_and_sources_whole_however_many_there_are() -> None:
    long = "word " * 200
    chunks: list[Wire] = [start(), step_start()]
    for n in range(300):
        source = {"id": f"s{n}", "sourceType": "url", "url": f"https://example.com/{n}", "title": f"Source {n}"}
        chunks += [
            text(f"{long}{n}", id=f"t{n}"),
            chunk("text-end", {"id": f"t{n}"}),
            *pair(n),
            chunk("source", source),
        ]
    html = snapshot(watch([*chunks, step_finish(), finish()], per_frame=10_000).out)["text/html"]
    assert all(f"{long}{n}</p>" in html for n in range(300))
    assert all(f'href="https://example.com/{n}"' in html for n in range(300))
    assert all(f"(x={n})" in html for n in range(300))


def test_the_plain_output_of_5000_calls_has_cards_for_the_last_and_a_line_for_each_of_the_others() -> None:
    calls = [one for n in range(5000) for one in (call(f"c{n}", args={"x": n}), result(f"c{n}", {"n": n}))]
    watched = watch([start(), step_start(), *calls, step_finish(), finish()], per_frame=10_001)
    html = snapshot(watched.out)["text/html"]
    assert html.count("<details") < 2 * MAX_SHOWN
    assert html.count("<") < 6000
    assert all(f"(x={n})" in html for n in range(5000 - MAX_SHOWN))
    assert dangers(html, "style") == []


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
