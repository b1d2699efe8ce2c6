from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.widgets import document
from nbmastra.widgets.document import ROOT, Document
from tests.widgets.browser_copy import BrowserCopy

TEXT = st.text(st.sampled_from("abc<>é日😀👩‍🚀\ud800"), max_size=12)
STEP = st.tuples(
    st.sampled_from(["add", "patch", "html", "cls", "attr", "since", "remove", "send"]), st.integers(0), TEXT
)


def shown(doc: Document) -> dict[str, Any]:
    return BrowserCopy(doc.state()).shown()


def change(doc: Document, kind: str, number: int, text: str) -> None:
    """One change that fits the document, chosen by a number."""
    ids = list(doc.state())
    id = ids[number % len(ids)]
    kids = doc.kids(id)
    if kind == "add" and not doc.html(id):
        before = kids[number % len(kids)] if kids and number % 3 == 0 else None
        doc.add(
            id,
            "p",
            "xyz"[number % 4 :],
            html=text if number % 2 else None,
            before=before,
            attrs={"title": text[:2]} if text else None,
        )
    elif id != ROOT and kind == "html" and not kids:
        doc.set_html(id, text)
    elif id != ROOT and kind == "patch" and not kids:
        units = doc.html(id).encode("utf-16-le")
        keep = number % (len(units) // 2 + 1)
        if not b"\xd8" <= units[2 * keep - 1 : 2 * keep] <= b"\xdb":  # between the halves of a character is no place
            doc.patch(id, keep, text)
    elif id != ROOT and kind == "cls":
        doc.set_cls(id, "xyz"[number % 4 :])
    elif id != ROOT and kind == "attr":
        doc.set_attr(id, "title", text[:2] or None)
    elif id != ROOT and kind == "since":
        doc.since(id, float(number % 100) if number % 3 else None)
    elif id != ROOT and kind == "remove":
        doc.remove(id)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_a_display_that_applies_the_operations_has_the_document(steps: list[tuple[str, int, str]]) -> None:
    doc = Document(clock=lambda: 0.0)
    copies = [BrowserCopy(doc.state())]
    for kind, number, text in steps:
        if kind == "send":
            ops = json.loads(json.dumps(doc.take(), ensure_ascii=False).encode())
            for copy in copies:
                copy.apply(ops)
                assert copy.shown() == shown(doc)
            copies.append(BrowserCopy(doc.state()))  # a display opened now
        else:
            change(doc, kind, number, text)


def test_several_changes_of_one_node_in_a_frame_are_one_operation() -> None:
    doc = Document()
    id = doc.add(tag="p", html="It")
    doc.patch(id, 2, " is")
    doc.set_cls(id, "a")
    assert doc.take() == [["+", id, ROOT, 0, "p", "a", {}, "It is"]]
    doc.patch(id, 5, " 2")
    doc.patch(id, 6, "21")
    doc.patch(id, 8, " degrees")
    doc.set_attr(id, "title", "x")
    doc.set_attr(id, "title", "y")
    assert doc.take() == [["=", id, 5, " 21 degrees"], ["a", id, {"title": "y"}]]
    assert doc.take() == []


def test_new_html_is_sent_from_where_it_differs() -> None:
    doc = Document()
    id = doc.add(html="<p>one 😀 two</p>")
    doc.take()
    doc.set_html(id, "<p>one 😀 three</p>")
    assert doc.take() == [["=", id, 11, "hree</p>"]]  # the emoji counts twice, as in the browser
    doc.set_html(id, "<p>one 😀 three</p>")
    assert doc.take() == []


def test_text_is_shown_as_text() -> None:
    doc = Document()
    id = doc.add(text="<img src=x onerror=alert(1)>")
    assert doc.html(id) == "&lt;img src=x onerror=alert(1)&gt;"


def test_time_goes_on_for_a_display_opened_later() -> None:
    now = 100.0
    doc = Document(clock=lambda: now)
    id = doc.add()
    doc.since(id, 7.5)
    now = 101.0
    assert doc.take()[1] == ["s", id, 8.5]
    now = 120.0
    assert doc.state()[id]["s"] == 27.5
    doc.since(id, None)
    assert doc.take() == [["s", id]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("onclick", "x"),
        ("srcdoc", "x"),
        ("href", "javascript:alert(1)"),
        ("href", " https://a.example"),
        ("href", "//evil.example"),
        ("src", "https://evil.example/x.png"),
        ("src", "data:image/svg+xml;base64,PHN2Zz4="),
        ("style", "background:url(https://evil.example)"),
        ("style", "--x: url(https://evil.example)"),
    ],
)
def test_an_attribute_that_could_act_or_load_is_refused(name: str, value: str) -> None:
    """B52, B53: no handler, no script, no remote request, whatever a server or model says."""
    doc = Document()
    with pytest.raises(ValueError, match="not allowed"):
        doc.add(tag="a", attrs={name: value})
    id = doc.add(tag="a")
    with pytest.raises(ValueError, match="not allowed"):
        doc.set_attr(id, name, value)


@pytest.mark.parametrize("tag", ["script", "iframe", "style", "link", "object", "svg", "video"])
def test_a_tag_that_could_act_or_load_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        Document().add(tag=tag)


def test_a_node_has_either_html_or_children() -> None:
    doc = Document()
    leaf = doc.add(html="x")
    with pytest.raises(ValueError, match="no children"):
        doc.add(leaf)
    box = doc.add()
    doc.add(box)
    with pytest.raises(ValueError, match="no html"):
        doc.set_html(box, "x")


def test_kernel_and_browser_allow_the_same_tags_and_attributes() -> None:
    script = (files("nbmastra.widgets") / "static" / "live.js").read_text("utf-8")
    for name, kernel in (("TAG", document._TAG), ("ATTRIBUTE", document._ATTRIBUTE)):
        block = script.split(f"const {name} = new RegExp(", 1)[1].split(");", 1)[0]
        browser = "".join(re.findall(r'"([^"]*)"', block))
        assert browser == f"^({kernel.pattern})$"


def test_a_clock_that_starts_at_nothing_ticks() -> None:
    document = Document(clock=lambda: 5.0)
    node = document.add(ROOT, "span")
    document.take()
    document.since(node, 0.0)
    assert document.take() == [["s", node, 0.0]]
    document.since(node, None)
    assert document.take() == [["s", node]]
