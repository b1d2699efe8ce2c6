"""What one does in a run view: stop, answer, and what goes on then."""

from __future__ import annotations

import json
from typing import Any

from nbmastra.output import MastraModelOutput
from nbmastra.widgets.live import Act
from nbmastra.widgets.run_view import RunView
from tests.support.runs import (
    call,
    chunk,
    finish,
    start,
    step_finish,
    step_start,
    text,
)
from tests.widgets.asking import AFTER, Scripted, approval, live_run, shown, wait_shown, words
from tests.widgets.views import flat, watch


def press(view: RunView, name: str, **values: Any) -> None:
    nodes = view.boot()["nodes"]
    node = next(id for id, n in nodes.items() if n["a"].get("data-nbm-act") == name and "disabled" not in n["a"])
    view._handle_custom_msg({"act": name, "arg": "", "node": node, "values": values}, [])


def test_stop_cancels_the_run_and_keeps_what_came() -> None:
    async def endless() -> Any:
        import anyio

        yield start()
        yield step_start()
        yield text("Both")
        await anyio.sleep_forever()

    out = MastraModelOutput.from_chunks(endless())
    view = RunView(out)
    out.log.wait_blocking(2)
    view.on_act(Act("stop"))
    assert view.ended.wait(5)
    assert out.status == "cancelled"
    html = flat({id: {**n, "h": n["h"] or ""} for id, n in view.boot()["nodes"].items()})
    assert "Both" in html
    assert "Stopped by you" in html


def test_approving_goes_on_in_the_same_view_on_the_same_card() -> None:
    """Seven: a new output linked by `.previous`; the view follows the chain."""
    control = Scripted(AFTER)
    out, view = live_run([start(), step_start(), call("c1", "book_train", {"seats": 1}), approval()], control)
    html = shown(view)
    assert "a asks to run book_train" in html
    assert "Approve book_train" in html
    assert 'class="nbm-bar nbm-bar--foot"' not in html
    view.ended.clear()
    press(view, "approve")
    assert view.ended.wait(5)
    assert control.answers == [("c1", "approve", None, None)]
    assert view.out is out.next
    assert view.out.previous is out
    html = shown(view)
    assert html.count('<details class="nbm-call') == 1
    assert "<b>book_train</b>(seats=1)" in html
    assert "Booked." in html
    assert "asks to run" not in html
    assert "Completed" in words(html)


def test_declining_sends_the_reason() -> None:
    denied = chunk("tool-output-denied", {"toolCallId": "c1", "toolName": "book_train", "reason": "too late"})
    control = Scripted([denied, step_finish(), finish()])
    _, view = live_run([start(), step_start(), call("c1", "book_train", {"seats": 1}), approval()], control)
    view.ended.clear()
    press(view, "decline", reason="too late")
    assert view.ended.wait(5)
    assert control.answers == [("c1", "decline", "too late", None)]
    assert "Declined: too late" in words(shown(view))


def test_an_answer_that_was_refused_can_be_given_again() -> None:
    control = Scripted(AFTER, fails="the server is busy")
    _, view = live_run([start(), step_start(), approval()], control)
    press(view, "approve")
    wait_shown(view, "the server is busy")
    view.ended.clear()
    press(view, "approve")
    assert view.ended.wait(5)
    assert len(control.answers) == 1


def test_a_form_asks_for_what_the_resume_schema_names() -> None:
    schema = {
        "type": "object",
        "required": ["speed"],
        "properties": {
            "speed": {"type": "number", "title": "Speed on the flat", "minimum": 5, "maximum": 45},
            "bag": {"type": "string", "enum": ["day bag", "panniers"]},
            "night": {"type": "boolean"},
        },
    }
    payload = {"toolCallId": "c1", "toolName": "ask_rider", "suspendPayload": {"question": "How fast?"}}
    asked = chunk("tool-call-suspended", {**payload, "resumeSchema": json.dumps(schema)})
    control = Scripted(AFTER)
    _, view = live_run([start(), step_start(), call("c1", "ask_rider"), asked], control)
    html = shown(view)
    assert "How fast?" in html
    assert "Speed on the flat" in html
    assert "5 to 45, required" in html
    press(view, "resume", speed="fast", bag='"day bag"', night=False)
    wait_shown(view, "speed: a number is needed")
    view.ended.clear()
    press(view, "resume", speed="21", bag='"panniers"', night=True)
    assert view.ended.wait(5)
    assert control.answers == [("c1", "resume", None, {"speed": 21.0, "bag": "panniers", "night": True})]


def test_data_without_a_simple_schema_is_asked_for_as_json() -> None:
    control = Scripted(AFTER)
    asked = chunk("tool-call-suspended", {"toolCallId": "c1", "toolName": "ask", "suspendPayload": "Which city?"})
    _, view = live_run([start(), step_start(), call("c1", "ask"), asked], control)
    press(view, "resume", json='{"city": ')
    wait_shown(view, "JSON is needed")
    view.ended.clear()
    press(view, "resume", json='{"city": "Lima"}')
    assert view.ended.wait(5)
    assert control.answers == [("c1", "resume", None, {"city": "Lima"})]


def test_a_run_answered_elsewhere_goes_on_in_its_view() -> None:
    control = Scripted(AFTER)
    out, view = live_run([start(), step_start(), approval()], control)
    view.ended.clear()
    out.approve().result(5)
    assert view.ended.wait(5)
    assert "Booked." in shown(view)


def test_a_run_that_cannot_be_answered_here_says_so() -> None:
    html = watch([start(), step_start(), approval()]).html()
    assert "can't be answered from here" in html.replace("&#x27;", "'")
    assert 'data-nbm-act="approve"' not in html
