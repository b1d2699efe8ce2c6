"""The browser half of the live widgets in a real Chromium: what one clicks, copies, types and slides."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Front

pytestmark = pytest.mark.browser


def test_a_click_sends_the_act_with_its_form_and_disables_the_button_everywhere(front: Front) -> None:
    """B40: one click, one answer."""
    doc = front.doc
    form = doc.add(tag="form")
    field = doc.add(form, "input", attrs={"name": "reason", "id": "reason"})
    doc.add(form, "label", text="Why", attrs={"for": "reason"})
    doc.add(form, "input", attrs={"name": "sure", "type": "checkbox", "checked": ""})
    approve = doc.add(form, "button", text="Approve", attrs={"data-nbm-act": "approve", "data-nbm-arg": "c1"})
    front.start()
    front.display()
    front.display()
    front.page.get_by_label("Why").first.fill("because")  # the label finds its own display's field
    front.page.get_by_role("button").first.dblclick()
    front.page.get_by_role("button").nth(1).click(force=True)
    assert front.sent() == [
        {"act": "approve", "arg": "c1", "values": {"reason": "because", "sure": True}, "node": approve}
    ]
    doc.set_attr(approve, "disabled", "")
    front.send()
    doc.set_attr(approve, "disabled", None)
    doc.set_attr(field, "value", "kernel's")  # what the user wrote stays
    front.send()
    front.page.get_by_label("Why").first.press("Enter")
    assert [act["values"]["reason"] for act in front.sent()] == ["because", "because"]


def test_a_control_with_repeat_acts_each_time(front: Front) -> None:
    front.doc.add(tag="button", text="More", attrs={"data-nbm-act": "more", "data-nbm-repeat": ""})
    select = front.doc.add(tag="select", attrs={"data-nbm-act": "choose", "name": "x", "aria-label": "Choose"})
    front.doc.add(select, "option", text="a")
    front.doc.add(select, "option", text="b")
    front.start()
    front.display()
    for _ in range(3):
        front.page.get_by_role("button").click()
    front.page.get_by_label("Choose").select_option("b")
    assert [act["act"] for act in front.sent()] == ["more"] * 3 + ["choose"]
    assert front.sent()[3]["values"] == {"x": "b"}


def test_html_from_a_model_never_acts(front: Front) -> None:
    """B52: only nodes of the document are controls, whatever markup comes inside of their html."""
    front.doc.add(html='<button data-nbm-act="approve">trap</button><button data-nbm-copy="rm -rf">copy</button>')
    front.start()
    front.display()
    for button in front.page.get_by_role("button").all():
        button.click()
    assert front.sent() == []


def test_copy_gives_the_whole_text(front: Front) -> None:
    front.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    front.page.goto("about:blank")
    front = Front(front.page)
    whole = front.doc.add(tag="pre", text="line 1\nline <2>")
    front.doc.add(tag="button", text="of", attrs={"data-nbm-copyof": whole})
    front.doc.add(tag="button", text="literal", attrs={"data-nbm-copy": "7f3a"})
    front.start()
    front.display()
    front.page.evaluate("""() => {
        window.copied = [];
        Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => { copied.push(text) }}});
    }""")
    front.page.get_by_text("of").click()
    front.page.get_by_text("literal").click()
    expect(front.page.locator("[data-nbm-copied]")).to_have_count(2)
    assert front.page.evaluate("copied") == ["line 1\nline <2>", "7f3a"]


def test_keys_click_the_buttons_that_name_them(front: Front) -> None:
    front.start()
    front.display()
    doc = front.doc
    root = doc.add(cls="nbm", attrs={"tabindex": "-1"})
    keys = {"play": "Space", "on": "ArrowRight"}
    for name, key in keys.items():
        attrs = {"type": "button", "data-nbm-act": name, "data-nbm-key": key, "data-nbm-repeat": ""}
        doc.add(root, "button", text=name, attrs=attrs)
    attrs = {
        "type": "range",
        "min": "0",
        "max": "10",
        "step": "any",
        "value": "2",
        "name": "at",
        "data-nbm-act": "seek",
    }
    slider = doc.add(root, "input", attrs=attrs)
    doc.add(root, "input", attrs={"name": "words"})
    front.send()
    page = front.page
    page.locator(".nbm").focus()
    for key in ("Space", "ArrowRight", "ArrowRight", "Control+ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    assert [act["act"] for act in front.sent()] == ["play", "on", "on"]
    page.locator("[type=range]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert [act["act"] for act in front.sent()][3:] == ["on", "play"]
    assert page.locator("[type=range]").input_value() == "2"
    page.locator("[name=words]").focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    assert len(front.sent()) == 5
    page.locator("[type=range]").focus()
    page.keyboard.press("End")
    page.wait_for_function("sent.some(act => act.act === 'seek' && act.values.at === '10')")
    doc.set_attr(slider, "value", "4")
    front.send()
    assert page.locator("[type=range]").input_value() == "4"
    sent = len(front.sent())
    page.evaluate(
        """() => {
          const slider = document.querySelector("[type=range]");
          slider.value = "7";
          slider.dispatchEvent(new Event("input", { bubbles: true }));
          slider.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
    )
    doc.set_attr(slider, "value", "5")  # where the kernel has got to holds as soon as the slider is let go
    front.send()
    assert page.locator("[type=range]").input_value() == "5"
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert [act["values"]["at"] for act in front.sent()[sent:]] == ["7"]
