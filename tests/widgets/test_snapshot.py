from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nbmastra.output import MastraModelOutput
from nbmastra.widgets.snapshot import safe_markdown, snapshot
from tests.support.runs import (
    EXPECTED,
    call,
    chunk,
    error,
    finish,
    inside,
    recorded,
    result,
    start,
    step_finish,
    step_start,
    text,
    usage,
)
from tests.widgets.asking import AFTER, Scripted, approval, words
from tests.widgets.views import Watched, dangers, watch

# What JupyterLab's sanitiser takes away from an unsigned notebook, so that a snapshot must not need it; `tabindex` too,
# with which keys scroll a wide table: browsers that have no other way lose that there.
TAKEN_AWAY = re.compile(
    r"<(style|svg|math|script|form|input|button)\b|\s(role|aria-(?!hidden|label)[a-z]+|id|class)=|var\(|\dch\b"
)


def of(chunks: list[Any], done: bool = True, **about: Any) -> dict[str, str]:
    return snapshot(watch(chunks, 50, done=done, **about).out)


@pytest.mark.parametrize("names", sorted(EXPECTED))
def test_a_snapshot_of_any_recording_lives_without_script_style_and_kernel(names: str) -> None:
    chunks, done = recorded(names)
    bundle = of(chunks, done)
    html = bundle["text/html"]
    assert set(bundle) == {"text/html", "text/markdown", "text/plain"}
    assert dangers(html) == []
    assert not TAKEN_AWAY.search(html)
    turns = EXPECTED[names]["turns"]
    answer = turns[0]["steps"][-1]["text"] if turns and turns[0]["steps"] and "object" not in EXPECTED[names] else ""
    last = next((line for line in reversed(answer.splitlines()) if re.fullmatch(r"[\w .,;]{4,}", line)), "")
    for shown in (words(html), bundle["text/markdown"], bundle["text/plain"]):
        assert last in shown


def test_the_snapshot_reads_like_the_view() -> None:
    """B50: status, agent, time, prompt, calls like Python, answer, usage, run."""
    used = usage(2890, 522)
    chunks = [
        start("trip"),
        step_start(),
        call("c1", "get_forecast", {"place": "Rouen", "days": 2}),
        result("c1", [{"day": "Sat", "rain": 0.2}, {"day": "Sun", "rain": 6.8}]),
        step_finish("tool-calls", usage(1, 1), continued=True),
        step_start(),
        text("**Saturday** is better."),
        step_finish(used=used),
        finish(used=used),
    ]
    html = of(chunks)["text/html"]
    assert re.search(r"✓ Completed trip \d\d \w{3} \d{4}, \d\d:\d\d UTC, 0\.0\d s", words(html))
    assert "You Why?" in words(html)
    assert "<b>get_forecast</b>(place=&quot;Rouen&quot;, days=2)</code>" in html
    assert "2 records, 0.01 s" in words(html)
    assert re.search(r"<th[^>]*>day</th><th[^>]*text-align:right[^>]*>rain</th>", html)
    assert "<strong>Saturday</strong> is better." in html
    assert "3,412 tokens" in words(html)
    assert html.count("data:image/svg+xml,") == 3
    assert "Timeline" in html


def test_a_failed_run_keeps_what_came_and_says_why() -> None:
    bundle = of([start(), step_start(), text("Both days"), error({"message": "rate limit reached (429)"})])
    html = words(bundle["text/html"])
    assert "✕ Failed a" in html
    assert html.index("Both days") < html.index("rate limit reached (429)")
    assert "rate limit reached" in bundle["text/plain"]


def test_sub_agents_stand_inside_of_their_call() -> None:
    inner = [start("sub", "s"), step_start("s"), text("Three *routes*", run="s"), finish(run="s")]
    html = of(
        [start(), step_start(), call("c1"), *(inside("c1", i) for i in inner), result("c1", {"text": "x"}), finish()]
    )
    assert "Three <em>routes</em>" in html["text/html"]
    assert "routes" not in html["text/plain"]


def test_the_json_of_an_object_stands_once() -> None:
    bundle = of([start(), step_start(), text('{"n": 12345}'), step_finish(), finish()], schema={"type": "object"})
    for shown in bundle.values():
        assert shown.count("12345") == 1


def test_a_rejected_text_is_in_no_snapshot() -> None:
    """B21"""
    trip = chunk("tripwire", {"reason": "pii", "processorId": "p"}, run=None)
    for shown in of([start(), step_start(), text("secret"), trip]).values():
        assert "secret" not in shown
        assert "pii" in shown


def test_an_answered_run_is_one_snapshot_with_one_card() -> None:
    control = Scripted(AFTER)
    watched = Watched(control=control)
    watched.feed(start(), step_start(), text("I can book."), call("c1", "book_train", {"seats": 1}), approval())
    watched.end()
    after = watched.out.approve().result(5)
    after.wait(5)
    html = words(snapshot(after, watched.out)["text/html"])
    assert html.index("I can book.") < html.index("book_train (seats=1)") < html.index("Booked.")
    assert html.count("book_train") == 1 + html.count("book_train 0.0")  # the call, and its lanes in the timeline
    assert "I can book." not in words(snapshot(after)["text/html"])


def test_snapshots_grow_with_the_text_and_not_faster() -> None:
    """At most 6 bytes a character for all three together, markdown with everything in it."""
    piece = "Sunday brings **27 km/h** and `rain`, [see](https://weather.example/a).\n\n- one\n- two\n\n"
    text_chunk = text(piece * 2000)
    bundle = of([start(), step_start(), text_chunk, step_finish(), finish()])
    assert sum(len(shown.encode()) for shown in bundle.values()) <= 6 * 2000 * len(piece)


@pytest.mark.parametrize(
    "evil",
    [
        "<img src=x onerror=alert(1)>",
        "![a](https://evil.example/p.png?q=S)",
        "![a][r]\n\n[r]: https://evil.example/?q=S",
        "[x](javascript:alert(1))",
        "[x](\n  javascript:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x][r]\n\n[r]:\n javascript:alert(1)",
        "<javascript:alert(1)>",
        "> <script>1</script>",
        "- `\n<svg/onload=1>",
        "```\n```\n<iframe src=x>",
        "\\![a](https://evil.example)",
        "\\\\![a](https://evil.example)",
    ],
)
def test_markdown_that_renders_everything_stays_safe(evil: str) -> None:
    """B52, B53: some readers of text/markdown render raw HTML and load images."""
    assert harmful(safe_markdown(evil)) == []
    bundle = of([start(evil), step_start(), text(evil), call("c", evil, {evil: evil}), result("c", evil), error(evil)])
    assert harmful(bundle["text/markdown"]) == []
    assert dangers(bundle["text/html"]) == []


def harmful(markdown: str) -> list[str]:
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markdown)
    return dangers(html) + re.findall(r"<img|<svg|<script|<iframe", html)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("![]()<>`~ \n\\:/ahttpsimgjv-#&;1"), max_size=60))
def test_no_text_makes_markdown_that_loads_or_acts(markdown: str) -> None:
    assert harmful(safe_markdown(markdown + "![a](https://evil.example)<img src=x>[x](javascript:y)")) == []


def test_ordinary_markdown_stays_as_it_is() -> None:
    ordinary = (
        "# A\n\nSee [docs](https://ex.org/a), 3 < 4, `code`.\n\n```html\n<img src=x> ![a](b)\n```\n\n| a |\n|---|\n"
    )
    assert safe_markdown(ordinary) == ordinary


def test_plain_text_holds_no_terminal_commands() -> None:
    plain = of([start("\x1b[31mx"), step_start(), text("a\x1b]52;c;aGk=\x07b\x9bc"), finish()])["text/plain"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain)


def test_a_finished_output_shows_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    out = MastraModelOutput.from_chunks([start(), step_start(), text("Hi"), step_finish(), finish()])
    out.wait(5)
    assert "Hi" in snapshot(out)["text/plain"]
