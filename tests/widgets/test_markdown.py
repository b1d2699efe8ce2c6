"""Markdown that grows: the same at any cut, never flickering, sending what is new."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import nh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.rules_block import table

from nbmastra.widgets import markdown as markdown_module
from nbmastra.widgets import markdown_growing
from nbmastra.widgets.markdown import MarkdownStream, Patch, escape, render_code, render_markdown
from tests.widgets.markdown_texts import B54, Browser, Reader, cuts, line_texts, stream, texts

SLOW = settings(deadline=None, max_examples=60)


@contextmanager
def short_pieces() -> Iterator[None]:
    """Sizes at which a long text settles, so small that every short text is a long one."""
    with (
        patch.object(markdown_growing, "_PIECE", 8),
        patch.object(markdown_growing._Table, "_most_empty", 6),
        patch.object(markdown_module, "_LARGE", 40),
    ):
        yield


@SLOW
@given(text=texts, sizes=cuts)
def test_every_cut_gives_the_one_shot_html_and_only_the_last_block_changes(text: str, sizes: list[int]) -> None:
    blocks, _ = stream(text, sizes)
    assert "".join(blocks) == render_markdown(text)


@SLOW
@given(text=texts, sizes=cuts)
def test_long_texts_of_any_kind_end_the_same_at_every_cut(text: str, sizes: list[int]) -> None:
    with short_pieces():
        blocks, _ = stream(text, sizes)
        assert "".join(blocks) == render_markdown(text)


@SLOW
@given(text=line_texts, sizes=cuts)
def test_lists_and_tables_that_grow_end_as_if_parsed_at_once(text: str, sizes: list[int]) -> None:
    with short_pieces():
        blocks, _ = stream(text, sizes)
        assert "".join(blocks) == render_markdown(text)


@SLOW
@given(text=st.one_of(texts, line_texts).filter(lambda text: not re.search(r"[$\\\[\r\0\ud800-\udfff]", text)))
def test_the_final_html_is_markdown_its(text: str) -> None:
    plain = MarkdownIt("commonmark", {"html": False, "maxNesting": 40}).enable("strikethrough")
    plain.block.ruler.before("lheading", "table", table, {"alt": ["paragraph", "reference"]})
    assert _same(render_markdown(text)) == _same(nh3.clean(plain.render(text)))


def _same(html: str) -> str:
    """Without what is ours: attributes, and line ends between elements."""
    html = re.sub(r' (?:tabindex|role|aria-label|class|scope|style|target|rel)="[^"]*"', "", html)
    html = re.sub(r"</?(?:div|span)>", "", html).replace("<br>\n", "<br>")
    block = r"</?(?:p|h\d|hr|pre|ul|ol|li|blockquote|table|thead|tbody|tr|th|td)(?: [^>]*)?>"
    return re.sub(rf"\n*({block})\n*", r"\1", html).strip()


@pytest.mark.parametrize("end", [*range(len(B54) + 1)])
def test_B54_no_prefix_shows_a_marker_or_takes_a_block_back(end: int) -> None:
    markdown = MarkdownStream()
    for character in B54[:end]:
        markdown.feed(character)
        markdown.patches()
    blocks = markdown.blocks
    kinds = [re.match(r"<(\w+)", block)[1] for block in blocks]  # type: ignore[index]  # every block is an element
    assert kinds == ["p", "pre", "div", "p"][: len(kinds)]
    for block, kind in zip(blocks, kinds, strict=True):
        text = Reader(block).text
        if kind == "pre":
            assert 'x = "```"\n'.startswith(text)
        else:
            assert not re.search(r"[\[\]()|*`]|https|--|blocked", text)


def test_B54_block_by_block_in_the_order_of_the_text() -> None:
    browser, markdown, seen = Browser(), MarkdownStream(), []
    for character in B54:
        markdown.feed(character)
        browser.apply(markdown.patches())
        if len(browser.blocks) > len(seen):
            seen.append(browser.blocks[-1])
    assert [re.match(r"<(\w+)", html)[1] for html in seen] == ["p", "pre", "div", "p"]  # type: ignore[index]
    markdown.close()
    assert "".join(markdown.blocks) == render_markdown(B54)
    assert '<a href="https://ex.org/a"' in markdown.blocks[0]


def test_B54_an_abort_in_a_fence_stays_in_its_own_part() -> None:
    aborted, following = MarkdownStream(), MarkdownStream()
    aborted.feed("```py\nx = 1\n")
    aborted.close()
    following.feed("after\n")
    following.close()
    assert len(aborted.blocks) == 1
    assert Reader(aborted.blocks[0]).text == "x = 1\n"
    assert following.blocks == ["<p>after</p>"]


@pytest.mark.parametrize(
    ("half", "shown"),
    [
        ("See [docs](https://ex", "<p>See docs</p>"),
        ("See [docs](https://en.example/A_(b", "<p>See docs</p>"),
        ("See [do", "<p>See do</p>"),
        ("![alt](https://e", "<p>alt</p>"),
        ("a **bold", "<p>a <strong>bold</strong></p>"),
        ("a **bold*", "<p>a <strong>bold</strong></p>"),
        ("a ***both", "<p>a <em><strong>both</strong></em></p>"),
        ("a *em **both", "<p>a <em>em <strong>both</strong></em></p>"),
        ("a ~~gone", "<p>a <s>gone</s></p>"),
        ("a `code **x", "<p>a <code>code **x</code></p>"),
        ("a ``co`de", "<p>a <code>co`de</code></p>"),
        ("a <https://ex.org", "<p>a https://ex.org</p>"),
        ("a **", "<p>a</p>"),
        ("see [1]", "<p>see [1]</p>"),
        ("a\n#", "<p>a</p>"),
        ("a\n```py", "<p>a</p>"),
        ("a\n| b |", "<p>a</p>"),
        ("a\n12", "<p>a</p>"),
        ("- a\n- [x", "<ul><li>a</li></ul>"),
        ("- [x] a", "<ul><li>☑ a</li></ul>"),
        ("costs $5 and", "<p>costs $5 and</p>"),
        ("say $x", "<p>say </p>"),
        ("use $HOME for", "<p>use $HOME for</p>"),
        ("```py\nx\n``", '<pre tabindex="0"><code>x\n</code></pre>'),
    ],
)
def test_B54_half_written_constructs_are_shown_as_what_they_become(half: str, shown: str) -> None:
    markdown = MarkdownStream()
    markdown.feed(half)
    assert "".join(markdown.blocks) == shown


@pytest.mark.parametrize("tex", ["$x^2 +", "$$\\frac{1}{2", "\\(a_{i", "$$\n\\begin{pmatrix} 1 & 2 \\\\ 3"])
def test_B54_a_half_written_formula_is_a_formula(tex: str) -> None:
    markdown = MarkdownStream()
    markdown.feed("so " * (not tex.startswith("$$\n")) + tex)
    html = "".join(markdown.blocks)
    assert "<math" in html
    assert "$" not in html


def test_keep_counts_utf_16_units() -> None:
    markdown = MarkdownStream()
    markdown.feed("👩‍🚀 a")
    assert markdown.patches() == [Patch(0, 0, "<p>👩‍🚀 a</p>")]
    markdown.feed("b")
    (patch,) = markdown.patches()
    before = "<p>👩‍🚀 a"
    assert (patch.keep, patch.add) == (len(before.encode("utf-16-le")) // 2, "b</p>")
    assert patch.keep > len(before)
    assert markdown.patches() == []


def test_a_long_block_counts_utf_16_units_in_what_has_settled() -> None:
    text = "- 🚀 one\n" * 50
    blocks, _ = stream(text, [7])
    assert "".join(blocks) == render_markdown(text)


def test_halves_of_characters_and_line_ends_find_each_other() -> None:
    blocks, _ = stream("a\ud83d\ude00b\r\nc\rd\ud83d", [1])
    assert blocks == ["<p>a😀b\nc\nd�</p>"]


def test_a_closed_text_takes_no_more() -> None:
    markdown = MarkdownStream()
    markdown.feed("a")
    markdown.close()
    with pytest.raises(ValueError, match="closed"):
        markdown.feed("b")
    assert markdown.blocks == ["<p>a</p>"]


_LONG = {
    "fence": "```python\n{}```\n| a |\n|---|\n",
    "list": "{}",
    "table": "| a | b |\n|---|---|\n{}",
    "paragraph": "{}",
    "letters": "{}",
    "brackets": "{}",
}
_UNIT = {
    "fence": "value = compute(1, 'text')  # as <b>\n",
    "list": "- item with *some* words and `code`\n",
    "table": "| 1 | **value** |\n",
    "paragraph": "words with **bold** parts and `code` in a line without an end ",
    "letters": "a",
    "brackets": "[a *b ",
}


@pytest.mark.parametrize("kind", _LONG)
def test_bytes_and_parsing_grow_with_the_text_not_with_its_square(kind: str) -> None:
    work: list[int] = []
    for size in (8_000, 16_000):
        text = _LONG[kind].format(_UNIT[kind] * (size // len(_UNIT[kind])))
        with patch.object(markdown_growing, "parse_blocks", wraps=markdown_growing.parse_blocks) as parse:
            blocks, sent = stream(text, [200], look=False)
        parsed = sum(len(call.args[0]) for call in parse.call_args_list)
        assert "".join(blocks) == render_markdown(text)
        assert sent < 3.2 * len(text) + 2 * len("".join(blocks)) * (kind == "fence")
        work.append(parsed)
    assert work[1] < 2.3 * work[0]
    assert work[1] < 30 * 16_000


def test_a_list_that_turns_loose_and_a_paragraph_that_turns_out_a_table_are_taken_back() -> None:
    loose = "- a\n" * 50 + "\n- b\n" + "- c\n" * 50
    blocks, _ = stream(loose, [5])
    assert blocks == [f"<ul>{'<li><p>a</p></li>' * 50}<li><p>b</p></li>{'<li><p>c</p></li>' * 50}</ul>"]
    head = "long words " * 300
    blocks, _ = stream(f"{head}| b\n---|---\n1 | 2\n", [50])
    assert len(blocks) == 1
    assert blocks[0].count("<th ") == 2


def test_references_serve_the_blocks_after_them_and_are_shown() -> None:
    text = "[a][r] before\n\n[r]: https://r.example/x 'Title'\n\n[a][r] after\n\n[r]: https://other.example/\n\n[r]"
    blocks, _ = stream(text, [3])
    link = '<a href="https://r.example/x" title="Title" target="_blank" rel="noopener noreferrer">'
    assert blocks[0] == "<p>[a][r] before</p>"
    assert blocks[1] == f"<p>[r]: {link}https://r.example/x</a></p>"
    assert blocks[2] == f"<p>{link}a</a> after</p>"
    assert blocks[4] == f"<p>{link}r</a></p>"


@pytest.mark.parametrize(
    ("text", "math"),
    [
        ("$x$", 1),
        ("$a+b$ and $c$", 2),
        ("$n$th", 1),
        ("$2x + 3 = 7$", 1),
        ("$$E=mc^2$$ inline", 1),
        ("$$\nE=mc^2\n$$", 1),
        ("\\(x+1\\)", 1),
        ("\\[\nx\n\\].", 1),
        ("- item\n  $$\n  y\n  $$", 1),
        ("$5 and $6", 0),
        ("between $5 and 6$ a day", 0),
        ("US$5-US$6", 0),
        ("$5, \\$6 and `$code$`", 0),
        ("$ x $", 0),
        ("`$x$`", 0),
        ("\\$x\\$", 0),
        ("\\[sic\\] and \\(never\\)", 0),
        ("$$ never closed\n\nnext", 0),
        ("$$ never *closed*", 0),
    ],
)
def test_formulas_are_mathml_and_prices_are_text(text: str, math: int) -> None:
    assert render_markdown(text).count("<math") == math


def test_tex_that_cannot_be_read_is_shown_as_it_is() -> None:
    html = render_markdown("$\\left(1$ and $\\href{https://e.example}{x}$")
    assert html == "<p><code>$\\left(1$</code> and <code>$\\href{https://e.example}{x}$</code></p>"


def test_tables_have_the_classes_of_the_stylesheet() -> None:
    html = render_markdown("| a | b | c |\n|---|--:|:-:|\n| 1 | 2 |")
    assert html.startswith(
        '<div class="nbm-md__scroll" tabindex="0" role="group" aria-label="Table"><table class="nbm-grid">'
    )
    assert '<th scope="col" class="nbm-num">b</th><th scope="col" class="nbm-center">c</th>' in html
    assert '<tr><td>1</td><td class="nbm-num">2</td><td class="nbm-center"></td></tr>' in html


def test_code_is_coloured_when_its_fence_is_closed() -> None:
    markdown = MarkdownStream()
    markdown.feed("```python\nimport os  # <b>\n")
    assert markdown.blocks == ['<pre tabindex="0"><code>import os  # &lt;b&gt;\n</code></pre>']
    markdown.feed("```\n")
    coloured = '<span class="nbm-hl-k">import </span>os  <span class="nbm-hl-c"># &lt;b&gt;\n</span>'
    assert markdown.blocks == [f'<pre tabindex="0"><code>{coloured}</code></pre>']
    assert render_code("import os  # <b>\n", "python") == markdown.blocks[0]


@pytest.mark.parametrize("language", ["", "nonsense", "../../x", "make", "PYTHON\0"])
def test_code_in_an_unknown_language_is_plain(language: str) -> None:
    assert render_code("<x> = 1", language) == '<pre tabindex="0"><code>&lt;x&gt; = 1</code></pre>'


def test_escape_is_fit_for_text_and_attributes() -> None:
    assert escape("<a b=\"c\" d='e'>&\ud800") == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp;�"
