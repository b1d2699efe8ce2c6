"""Blocks that may grow for long: what is settled in them is kept as HTML, and the parser sees only the rest.

    source of the block  ─┬─ settled: its HTML in `stable`; its source kept in case it has to be taken back
                          └─ rest: parsed again at every frame behind `context`, a few characters that bring the
                             parser into the same block (a fence's first line, a table's head, an item, a letter)

Whichever way a block came in, its HTML is that of the whole block parsed at once: what is settled doesn't depend on the
rest, or is taken back when it does (a list that turns loose, a paragraph that turns out to be a table's head).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from markdown_it.token import Token

from nbmastra.widgets.markdown_html import Html
from nbmastra.widgets.markdown_rules import Block, References, inline_tokens, is_settled, parse_blocks, shown_end

__all__ = ["Growing", "Parsed", "growing", "render_block"]


class Parsed:
    """A text, its blocks, and where its lines start; the first `complete` lines have their end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.blocks = parse_blocks(text)
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.complete = len(self.starts) - 1

    def start(self, line: int) -> int:
        """Where a line starts; the end of the text for one behind it."""
        return self.starts[line] if line <= self.complete else len(self.text)

    def source(self, start: int, end: int) -> str:
        """The text of some lines."""
        return self.text[self.start(start) : self.start(end)]


def render_block(html: Html, block: Block, references: References, *, half: bool = False) -> str:
    """The HTML of a whole block; `half` if its text may go on."""
    if block.kind in ("paragraph", "heading") and not half:
        inline = block.tokens[1]
        inline.children = _long_inline(inline.content, references)
        return html.render(block.tokens)
    return _render(html, block.tokens, references, half)


def _render(
    html: Html, tokens: Sequence[Token], references: References, half: bool, within: tuple[str, str] = ("", "")
) -> str:
    inlines = [token for token in tokens if token.type == "inline" and token.content]
    for token in inlines:
        token.children = inline_tokens(token.content, references, half=half and token is inlines[-1])
    last = next((token for token in reversed(tokens) if token.nesting == 0), None)
    if half and last is not None and last.type == "math_block":
        last.meta["half"] = not last.meta["closed"]
    return html.render(tokens, within)


class Growing:
    """The common part. `stable` only gets longer; a new list says that the old HTML isn't the beginning of the new."""

    kinds: ClassVar[tuple[str, ...]]
    lines: ClassVar[int] = 0  # that must be complete at its beginning
    restarts: ClassVar[bool] = True  # after having been taken back
    end: str

    def __init__(self, html: Html, block: Block, parsed: Parsed, references: References) -> None:
        self._html = html
        self.context = ""
        self.source: list[str] = []
        self.stable: list[str] = []

    def shown_end(self, rest: str) -> int:
        """How much of the rest may be shown, as `markdown_rules.shown_end`."""
        return shown_end(rest)

    def continues(self, block: Block) -> bool:
        """Whether a parse of context and rest still begins with this block; if not, all of it is parsed anew."""
        return block.kind in self.kinds and block.start == 0

    def grow(self, block: Block, parsed: Parsed, references: References) -> tuple[int, str]:
        """Settle what can't change any more; returns where in the parsed text the rest begins, and the rest's HTML."""
        raise NotImplementedError

    def finish(self, block: Block, references: References) -> str:
        """The final HTML, when the block is closed."""
        raise NotImplementedError


class _Fence(Growing):
    kinds = ("fence",)
    lines = 1
    end: str = "</code></pre>"

    def __init__(self, html: Html, block: Block, parsed: Parsed, references: References) -> None:
        super().__init__(html, block, parsed, references)
        self.context = parsed.source(block.start, block.start + 1)
        self.source = [self.context]
        self.stable = [html.render([Token("code_block", "code", 0)]).removesuffix(self.end)]
        self._code: list[str] = []

    def shown_end(self, rest: str) -> int:
        start = rest.rfind("\n") + 1
        return len(rest) if rest[start:].strip(" \t`~") else start  # a closing line isn't code

    def grow(self, block: Block, parsed: Parsed, references: References) -> tuple[int, str]:
        code = block.tokens[0].content
        begin = len(self.context)
        settled = code.rfind("\n") + 1
        if settled:
            self._code.append(code[:settled])
            self.stable.append(self._text(code[:settled]))
            begin, code = parsed.starts[-1], code[settled:]
        return begin, self._text(code) + self.end

    def _text(self, code: str) -> str:
        return self._html.render([Token("text", "", 0, content=code)])

    def finish(self, block: Block, references: References) -> str:
        block.tokens[0].content = "".join((*self._code, block.tokens[0].content))
        return self._html.render(block.tokens)  # in colour now


class _Table(Growing):
    kinds = ("table",)
    lines = 2
    restarts = False
    end = "</table></div>"
    _rows_within = ("<table><tbody>", "</tbody></table>")
    _most_empty = 50_000

    def __init__(self, html: Html, block: Block, parsed: Parsed, references: References) -> None:
        super().__init__(html, block, parsed, references)
        self.context = parsed.source(block.start, block.start + 2)
        self.source = [self.context]
        head = [*_until(block.tokens, "thead_close"), block.tokens[-1]]
        self.stable = [_render(html, head, references, half=False).removesuffix(self.end)]
        self._empty = 0

    def shown_end(self, rest: str) -> int:
        return shown_end(rest, in_table=True)

    def continues(self, block: Block) -> bool:
        # markdown-it ends a table after 65,536 cells that it had to add; only the whole table can tell.
        return super().continues(block) and self._empty < self._most_empty

    def grow(self, block: Block, parsed: Parsed, references: References) -> tuple[int, str]:
        settled: list[Token] = []
        rest: list[Token] = []
        line = 2
        for row in _rows(block.tokens):
            end = row[0].map[1] if row[0].map else 0
            if end <= parsed.complete:
                settled += row
                line = end
            else:
                rest += row
        if settled:
            self._empty += sum(token.type == "inline" and not token.content for token in settled)
            self.stable.append(self._body(settled, references))
        tail = self._body(rest, references, half=True) if rest else ""
        return parsed.starts[line], self._tail(tail)

    def finish(self, block: Block, references: References) -> str:
        rest = [token for row in _rows(block.tokens) for token in row]
        tail = self._body(rest, references) if rest else ""
        return "".join(self.stable) + self._tail(tail)

    def _body(self, rows: list[Token], references: References, half: bool = False) -> str:
        opening = "<tbody>" if len(self.stable) == 1 else ""
        return opening + _render(self._html, rows, references, half, self._rows_within)

    def _tail(self, body: str) -> str:
        return body + ("</tbody>" if body or len(self.stable) > 1 else "") + self.end


def _until(tokens: Sequence[Token], kind: str) -> list[Token]:
    last = next(index for index, token in enumerate(tokens) if token.type == kind)
    return list(tokens[: last + 1])


def _rows(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The rows of a table's body."""
    row: list[Token] = []
    body = False
    for token in tokens:
        body = body or token.type == "tbody_open"
        if body and token.type.startswith(("tr", "td", "inline")):
            row.append(token)
            if token.type == "tr_close":
                yield row
                row = []


class _List(Growing):
    kinds = ("bullet_list", "ordered_list")

    def __init__(self, html: Html, block: Block, parsed: Parsed, references: References) -> None:
        super().__init__(html, block, parsed, references)
        opening, closing = block.tokens[0], block.tokens[-1]
        self._kind = block.kind
        self.end = f"</{opening.tag}>"
        self.stable = [html.render([opening, closing]).removesuffix(self.end)]
        # An item whose content begins so far right that no line of the list can belong to it
        self._item = ("1" if block.kind == "ordered_list" else "") + opening.markup + "    x\n"
        self.context = self._item
        self._loose = False

    def continues(self, block: Block) -> bool:
        if block.kind != self._kind or block.start != 0:
            return False
        loose = not block.tokens[2].hidden  # the paragraph of our own item
        if loose != self._loose and self.source:
            return False
        self._loose = loose
        return True

    def grow(self, block: Block, parsed: Parsed, references: References) -> tuple[int, str]:
        items = list(_items(block.tokens))
        starts = [item[0].map[0] if item[0].map else 0 for item in items]
        last = max(index for index, start in enumerate(starts) if start < parsed.complete)
        begin = len(self.context)
        if last > 1:
            settled = [token for item in items[1:last] for token in item]
            self.stable.append(_render(self._html, settled, references, half=False))
            self.context = self._item + "\n" * self._loose
            begin = parsed.starts[starts[last]]
            items = items[last - 1 :]
        rest = [token for item in items[1:] for token in item]
        return begin, _render(self._html, rest, references, half=True) + self.end

    def finish(self, block: Block, references: References) -> str:
        rest = [token for item in list(_items(block.tokens))[1:] for token in item]
        return "".join((*self.stable, _render(self._html, rest, references, half=False), self.end))


def _items(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    item: list[Token] = []
    level = tokens[0].level + 1
    for token in tokens[1:-1]:
        item.append(token)
        if token.type == "list_item_close" and token.level == level:
            yield item
            item = []


class _Paragraph(Growing):
    """A paragraph, which may become a heading by a line of `=` or `-` under it."""

    kinds = ("paragraph", "heading")

    def __init__(self, html: Html, block: Block, parsed: Parsed, references: References) -> None:
        super().__init__(html, block, parsed, references)
        self._tag = ""
        self._refused = 0
        self._retag(block)

    def _retag(self, block: Block) -> None:
        opening, closing = block.tokens[0], block.tokens[-1]
        if opening.tag != self._tag:
            self._tag = opening.tag
            self.end = f"</{opening.tag}>"
            head = self._html.render([opening, closing]).removesuffix(self.end)
            self.stable = [head, *self.stable[1:]]

    def _content(self, block: Block) -> str:
        return block.tokens[1].content[len(self.context) :]

    def shown_end(self, rest: str) -> int:
        return len(rest) if self.context and "\n" not in rest else shown_end(rest)

    def continues(self, block: Block) -> bool:
        return super().continues(block) and not block.tokens[0].markup.startswith("#")

    def grow(self, block: Block, parsed: Parsed, references: References) -> tuple[int, str]:
        self._retag(block)
        text = self._content(block)
        begin = parsed.text.index(text, len(self.context)) if text else len(self.context)
        start = 0
        while True:
            cut, self._refused = _cut(text, start, self._refused)
            if cut is None:
                return begin + start, self._inline(text[start:], references, half=True) + self.end
            self.stable.append(self._inline(text[start:cut], references, half=False))
            self.context = "x"
            start = cut

    def finish(self, block: Block, references: References) -> str:
        self._retag(block)
        rest = self._html.render(_long_inline(self._content(block), references))
        return "".join((*self.stable, rest, self.end))

    def _inline(self, text: str, references: References, half: bool) -> str:
        return self._html.render(inline_tokens(text, references, half=half))


_PIECE = 1024
_MOST_PIECES = 4
_IN_WORD = re.compile(r"(?<=[^\W_])(?=[^\W_])")


def _long_inline(text: str, references: References) -> list[Token]:
    """Inline content, parsed piece by piece if it is long. It says the same as parsed at once, unless a construct is
    longer than 4,096 characters: such a one is text."""
    tokens: list[Token] = []
    start = 0
    while (cut := _cut(text, start, 0)[0]) is not None:
        tokens += inline_tokens(text[start:cut], references)
        start = cut
    return [*tokens, *inline_tokens(text[start:], references)]


def _cut(text: str, start: int, refused: int) -> tuple[int | None, int]:
    """Where the piece that begins at `start` ends, None if the text isn't long enough yet, and how many places were
    refused, because something was still open there. What follows later doesn't change the answer."""
    for count in range(refused + 1, _MOST_PIECES + 1):
        cut = _boundary(text, start, start + count * _PIECE)
        if cut is None:
            return None, count - 1
        if count == _MOST_PIECES or is_settled(text[start:cut]):
            return cut, 0
    raise AssertionError("the last place is never refused")


def _boundary(text: str, start: int, begin: int) -> int | None:
    """The first place from `begin` on, inside a word if there is one soon, where no rule looks across.

    A line with a `|` before the place may be a table's head, which is read as a whole."""
    while True:
        place = _in_word(text, begin)
        if place is None or text.rfind("|", start, place) <= text.rfind("\n", start, place):
            return place
        begin = text.find("\n", place) + 1
        if not begin:
            return None


def _in_word(text: str, begin: int) -> int | None:
    end = begin + _PIECE
    for match in _IN_WORD.finditer(text, begin, end):
        place = match.start()
        if re.search(r"&#?\w*\Z", text[max(place - 40, 0) : place]) is None:
            return place
    return end if len(text) > end else None


_GROWING: dict[str, type[Growing]] = {
    "bullet_list": _List,
    "fence": _Fence,
    "ordered_list": _List,
    "paragraph": _Paragraph,
    "table": _Table,
}


def growing(html: Html, block: Block, parsed: Parsed, references: References) -> Growing | None:
    """The block as one that grows, from its beginning; None if its kind is always parsed as a whole."""
    kind = _GROWING.get(block.kind)
    if kind is None or block.start + kind.lines > parsed.complete:
        return None
    return kind(html, block, parsed, references)
