"""The browser half of the live widgets in a real Chromium: what is shown, and how it changes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from nbmastra.widgets.document import ROOT, Document
from tests.browser.conftest import Front

pytestmark = pytest.mark.browser


def test_every_operation_is_placed(front: Front) -> None:
    front.start()
    front.display()
    doc = front.doc
    box = doc.add(cls="nbm", attrs={"role": "group", "aria-label": "Run"})
    second = doc.add(box, "p", html="two &amp; <b>more</b>")
    first = doc.add(box, "p", text="<one>", before=second)
    front.send()
    assert front.html() == (
        '<div class="nbm" role="group" aria-label="Run"><p>&lt;one&gt;</p><p>two &amp; <b>more</b></p></div>'
    )
    doc.set_html(second, "two &amp; <b>more 😀</b>!")
    doc.set_cls(first, "x")
    doc.set_attr(box, "role", None)
    front.send()
    doc.patch(second, len("two &amp; <b>more 😀</b>") + 1, "?")
    front.send()
    assert front.html() == (
        '<div class="nbm" aria-label="Run"><p class="x">&lt;one&gt;</p><p>two &amp; <b>more 😀</b>?</p></div>'
    )
    doc.remove(first)
    front.send()
    assert "one" not in front.html()


def test_a_second_display_shows_everything_once(front: Front) -> None:
    """B47: also one opened in the middle, and one opened at the end."""
    front.start()
    front.display()
    id = front.doc.add(tag="p", html="")
    for number in range(10):
        front.doc.patch(id, number, str(number))
        front.send()
        if number == 4:
            front.display()
    front.display()
    assert [front.html(number) for number in range(3)] == ["<p>0123456789</p>"] * 3


def test_messages_that_the_start_holds_already_are_ignored(front: Front) -> None:
    id = front.doc.add(tag="p", html="0")
    early = front.message()
    front.doc.patch(id, 1, "1")
    late = front.message()
    front.start()
    front.display()
    front.page.evaluate("messages => receive(...messages)", [early, late, late])
    front.doc.patch(id, 2, "2")
    front.send()
    assert front.html() == "<p>012</p>"
    assert front.sent() == []


def test_a_gap_asks_for_the_whole_and_goes_on_from_there(front: Front) -> None:
    front.start()
    front.display()
    id = front.doc.add(tag="p", html="0")
    front.message()  # lost
    front.doc.patch(id, 1, "1")
    front.send()
    assert front.html() == ""
    assert front.sent() == [{"act": "sync"}]
    boot = front.boot()
    front.doc.patch(id, 2, "2")
    front.send()  # before the answer
    front.page.evaluate("async boot => { model.set('_boot', boot); await painted(); }", boot)
    assert front.html() == "<p>012</p>"
    assert len(front.sent()) == 1


def test_what_the_page_would_save_is_the_document_as_it_is(front: Front) -> None:
    """B50: a widget state saved by the browser isn't the one from the widget's first second."""
    front.start()
    front.display()
    id = front.doc.add(tag="p", html="now")
    front.send()
    assert front.page.evaluate("model.get('_boot').nodes")[id]["h"] == "now"


def test_growing_html_keeps_selection_scroll_and_what_was_opened(front: Front) -> None:
    front.start()
    front.display()
    html = '<p>To be selected</p><details><summary>More</summary>inside</details><pre style="overflow:auto;width:50px">'
    id = front.doc.add(html=html + "a long line of code that scrolls</pre>")
    front.send()
    front.page.evaluate("""() => {
        const el = shown[0].el;
        getSelection().selectAllChildren(el.querySelector("p"));
        el.querySelector("details").open = true;
        el.querySelector("pre").scrollLeft = 30;
    }""")
    front.doc.set_html(id, html + "a long line of code that scrolls and grows</pre><p>new</p>")
    front.send()
    seen = front.page.evaluate("""() => {
        const el = shown[0].el;
        return [`${getSelection()}`, el.querySelector("details").open, el.querySelector("pre").scrollLeft];
    }""")
    assert seen == ["To be selected", True, 30]
    assert front.html().endswith("grows</pre><p>new</p></div>")


def test_what_the_user_opened_or_closed_stays_so(front: Front) -> None:
    doc = front.doc
    calls = [doc.add(tag="details", attrs={"open": ""}) for _ in range(3)]
    for number, call in enumerate(calls):
        doc.add(call, "summary", text=f"call {number}")
        doc.add(call, text="body")
    front.start()
    front.display()
    front.page.get_by_text("call 0").click()  # closed by the user
    front.page.get_by_text("call 1").click()
    front.page.get_by_text("call 1").click()  # closed and opened again
    front.page.mouse.move(600, 600)
    for call in calls:
        doc.set_attr(call, "open", None)
    front.send()
    is_open = "() => [...shown[0].el.querySelectorAll('details')].map(d => d.open)"
    assert front.page.evaluate(is_open) == [False, True, False]
    for call in calls:
        doc.set_attr(call, "open", "")
    front.send()
    assert front.page.evaluate(is_open) == [False, True, True]


def test_a_call_never_folds_itself_under_the_pointer(front: Front) -> None:
    doc = front.doc
    call = doc.add(tag="details", attrs={"open": ""})
    doc.add(call, "summary", text="call")
    doc.add(call, text="body")
    front.start()
    front.display()
    front.page.get_by_text("body").hover()
    doc.set_attr(call, "open", None)
    front.send()
    expect(front.page.get_by_text("body")).to_be_visible()


def test_the_caret_stands_behind_the_newest_text(front: Front) -> None:
    doc = front.doc
    part = doc.add(cls="nbm-md", attrs={"data-nbm-caret": ""})
    block = doc.add(part, html="<ol>\n<li>one</li>\n<li>two <strong>three</strong></li>\n</ol>\n")
    front.start()
    front.display()
    front.page.evaluate("painted()")
    caret = '<span class="nbm-caret" aria-hidden="true"></span>'
    assert f"<strong>three{caret}</strong>" in front.html()
    doc.set_html(block, "<ol>\n<li>one</li>\n</ol>\n")
    doc.add(part, html="<p>next</p>\n")
    front.send()
    assert f"<p>next{caret}</p>" in front.html()
    assert front.html().count(caret) == 1
    doc.set_attr(part, "data-nbm-caret", None)
    front.send()
    assert caret not in front.html()


def test_elapsed_time_ticks_in_the_browser_and_goes_on_in_a_later_display(front: Front) -> None:
    now = 0.0
    front.doc = doc = Document(clock=lambda: now)
    id = doc.add(tag="dd")
    doc.since(id, 3671.0)
    short = doc.add(tag="dd")
    doc.since(short, 1.0)
    front.page.clock.install(time=0)
    front.page.clock.pause_at(1000)  # else it goes on by itself
    front.start()
    front.display()
    texts = "() => [...shown.at(-1).el.querySelectorAll('dd')].map(e => e.textContent)"
    assert front.page.evaluate(texts) == ["1:01:11", "1.0 s"]
    front.page.clock.run_for(400)
    assert front.page.evaluate(texts)[1] == "1.4 s"
    front.page.clock.run_for(60_000)
    assert front.page.evaluate(texts) == ["1:02:11", "1:01"]
    front.display()
    assert front.page.evaluate(texts) == ["1:02:11", "1:01"]
    doc.since(short, None)
    doc.set_text(short, "61.40 s")
    message = front.message()
    front.page.evaluate("message => receive(message)", message)
    front.page.clock.run_for(5_000)
    assert front.page.evaluate(texts)[1] == "61.40 s"


def test_what_the_kernel_would_refuse_the_browser_refuses_too(front: Front) -> None:
    """B52, B53: a message that no `Document` makes places no script, no handler and no request."""
    requests: list[str] = []
    front.page.on("request", lambda request: requests.append(request.url))
    front.start()
    front.display()
    ops = [
        ["+", "1", ROOT, 0, "script", "", {}, "window.hacked = 1"],
        ["+", "2", ROOT, 0, "iframe", "", {"src": "https://evil.example"}],
        ["+", "3", ROOT, 0, "img", "", {"src": "https://evil.example/x.png", "onerror": "hacked = 1"}],
        ["+", "4", ROOT, 0, "a", "", {"href": "javascript:window.hacked = 1"}, "link"],
        [
            "+",
            "5",
            ROOT,
            0,
            "p",
            "",
            {"style": "background: url(https://evil.example)", "onclick": "hacked = 1"},
            "text",
        ],
        ["+", "6", ROOT, 0, "a", "", {"href": "https://good.example"}, "good"],
    ]
    front.page.evaluate("async ops => { receive({seq: 1, ops}); await painted(); }", ops)
    assert front.html() == (
        '<div>window.hacked = 1</div><div></div><img><a target="_blank" rel="noopener noreferrer">link</a><p>text</p>'
        '<a target="_blank" rel="noopener noreferrer" href="https://good.example">good</a>'
    ).replace('<a target="_blank" rel="noopener noreferrer">link', "<a>link")
    assert requests == []
    assert front.page.evaluate("window.hacked") is None


def test_removing_a_display_leaves_nothing_behind(front: Front) -> None:
    """B49: no listener, timer or frame; the other display goes on."""
    front.page.clock.install(time=0)
    front.page.clock.pause_at(1000)
    clock = front.doc.add(tag="dd")
    front.doc.since(clock, 0.0)
    text = front.doc.add(tag="p", html="0", attrs={"data-nbm-caret": ""})
    front.doc.add(tag="button", text="Stop", attrs={"data-nbm-act": "stop"})
    front.start()
    front.display()
    front.display()
    front.page.evaluate("async () => { window.gone = shown[0].el.querySelector('button'); await shown[0].remove(); }")
    assert front.html(0) == ""
    front.page.evaluate("async () => { shown[0].el.append(gone); gone.click(); }")
    assert front.sent() == []
    front.doc.patch(text, 1, "1")
    message = front.message()
    front.page.evaluate("message => receive(message)", message)
    front.page.clock.run_for(1000)
    assert "01" in front.html(1)
    assert front.html(0).count("<") == 2
    front.page.evaluate("stop()")
    assert front.sent() == []
    left = front.page.evaluate("[model.listeners['msg:custom'].size, model.listeners['change:_boot'].size]")
    assert left == [0, 0]
    assert front.html(1) == ""


def test_the_kernel_is_told_when_the_last_display_is_removed(front: Front) -> None:
    front.start()
    front.display()
    front.display()
    front.page.evaluate("shown[0].remove()")
    assert front.sent() == []
    front.page.evaluate("shown[1].remove()")
    assert front.sent() == [{"act": "gone"}]


def test_a_reader_who_wants_no_motion_gets_none(front: Front) -> None:
    front.page.emulate_media(reduced_motion="reduce")
    box = front.doc.add(cls="nbm")
    front.doc.add(box, html='<span class="nbm-dot"></span><span class="nbm-caret"></span>')
    front.start()
    front.display()
    names = "() => [...document.querySelectorAll('.nbm-dot, .nbm-caret')].map(e => getComputedStyle(e).animationName)"
    assert front.page.evaluate(names) == ["none", "none"]


def test_what_is_rebuilt_keeps_its_elements_and_what_is_open_in_them(front: Front) -> None:
    front.start()
    front.display()
    front.display()
    doc = front.doc
    root = doc.add(cls="nbm")

    def build(*texts: str) -> None:
        for text in texts:
            fold = doc.add(root, "details", "fold")
            doc.add(fold, "summary", text=text)
            doc.add(fold, "p", text=f"in {text}", attrs={"data-nbm-act": "act"})

    build("one", "two", "three")
    front.send()
    folds = "shown[0].el.querySelectorAll('details')"
    front.page.evaluate(f"{folds}[1].open = true; window.kept = [...{folds}]")
    with doc.rebuilt(root):
        build("one", "2", "three", "four")
    front.send()
    assert front.page.evaluate(f"[...{folds}].map((el, i) => el === kept[i])") == [True, True, True, False]
    assert front.page.evaluate(f"[...{folds}].map(el => el.open)") == [False, True, False, False]
    assert "<p data-nbm-act=" in front.html(1)
    for number in (0, 1):
        assert ">2<" in front.html(number)
        assert "in four" in front.html(number)
    with doc.rebuilt(root):
        build("one")
    doc.set_text(doc.kids(doc.kids(root)[0])[1], "changed")
    front.send()
    assert front.page.evaluate(f"{folds}[0] === kept[0]")
    front.page.evaluate("shown[0].el.querySelector('p').click()")
    assert front.sent()[-1]["node"] == doc.kids(doc.kids(root)[0])[1]
    for number in (0, 1):
        assert front.html(number).count("<details") == 1
        assert "changed" in front.html(number)


def test_time_passes_at_the_rate_of_the_kernel(front: Front) -> None:
    now = 0.0
    front.doc = Document(clock=lambda: now)
    front.start()
    front.display()
    clock = front.doc.add(tag="p", html="")
    front.doc.since(clock, 3.0)
    front.doc.pace(0.0)
    front.send()
    front.page.evaluate("() => new Promise(resolve => setTimeout(resolve, 300))")
    assert front.html() == "<p>3.0 s</p>"
    front.display()
    assert front.html(1) == "<p>3.0 s</p>"
    now = 5.0
    front.doc.pace(100.0)
    front.send()
    expect(front.page.locator("p").first).to_have_text(re.compile(r"^\d+:\d\d$"))  # minutes, a second later


def test_moments_are_told_by_the_reader_s_clock_with_their_day_unless_it_is_today(front: Front) -> None:
    front.start()
    front.display()
    page = front.page
    now = page.evaluate("() => new Date().toISOString()")
    for at in (now, "2026-01-31T22:05:00.000Z", "soon <b>"):
        front.doc.add(tag="span", attrs={"data-nbm-at": at})
    front.send()
    expected = page.evaluate(
        """now => [
          new Intl.DateTimeFormat(navigator.language, { hour: "2-digit", minute: "2-digit" }).format(new Date(now)),
          new Intl.DateTimeFormat(navigator.language, { dateStyle: "medium", timeStyle: "short" })
            .format(new Date("2026-01-31T22:05:00.000Z")),
          "",
        ]""",
        now,
    )
    assert page.locator("[data-nbm-at]").all_inner_texts() == expected
