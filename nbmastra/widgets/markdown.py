"""Markdown that is still being written → safe HTML, block by block; only what changed is sent.

    feed(text) ─▶ rest ─parse─▶ closed blocks ─▶ final HTML, never parsed again
                    ▲               │
                    └── open block ◀┘  parsed again from its last settled place (see `markdown_growing`)

A block is closed when a complete line shows that the next one has begun, or, unless it is a list, by an empty line.
The last line is held back while it could still become something else (`#`, `- `, half a fence, a table's first row).
The HTML of a closed text is the same however it was cut into pieces.
"""

from __future__ import annotations

from typing import NamedTuple

from nbmastra.widgets.markdown_growing import Growing, Parsed, growing, render_block
from nbmastra.widgets.markdown_html import Html, escape, render_code, whole
from nbmastra.widgets.markdown_rules import Block, References, defined, shown_end

__all__ = ["MarkdownStream", "Patch", "escape", "render_code", "render_markdown"]


class Patch(NamedTuple):
    """The HTML of block number `block` is its old HTML cut to `keep` UTF-16 units, then `add`; a new block keeps 0.

    JavaScript strings are sliced by UTF-16 units: `html = html.slice(0, keep) + add`.
    """

    block: int
    keep: int
    add: str


_LARGE = 4096
_GO_ON_AFTER_EMPTY = ("bullet_list", "ordered_list", "code_block")
_LIVE = Html()
_SNAPSHOT = Html(snapshot=True)


class MarkdownStream:
    """One growing text: `feed` it, send its `patches` at every frame, `close` it. Not thread-safe."""

    def __init__(self, html: Html = _LIVE) -> None:
        self._fed: list[str] = []
        self._closed = False
        self._rest = ""  # the source behind what is closed and settled
        self._seen = 0  # its length when it was last rendered
        self._behind = False  # it got longer since then
        self._done: list[str] = []
        self._references: References = {}
        self._growing: Growing | None = None
        self._whole = False  # the open block has shown that it must not grow
        self._open: tuple[list[str], str] | None = None  # the open block's HTML: what only gets longer, the end
        self._sent = _Sent(0)
        self._html = html

    def feed(self, text: str) -> None:
        """Add text. Raises ValueError after `close`."""
        if self._closed:
            raise ValueError("this text is closed")
        self._fed.append(text)

    def close(self) -> None:
        """The text is finished: its last block becomes closed, whatever was open in it."""
        self._closed = True

    @property
    def blocks(self) -> list[str]:
        """The HTML of every top-level block; all are final but the last one of a text that isn't closed."""
        self._advance()
        if self._open is None:
            return list(self._done)
        stable, end = self._open
        return [*self._done, "".join((*stable, end))]

    def patches(self) -> list[Patch]:
        """What changed since the last call, in order of blocks; [] if nothing did."""
        self._advance(catch_up=True)
        patches: list[Patch] = []
        for number in range(self._sent.block, len(self._done)):
            patches += self._sent.become([], self._done[number])
            self._sent = _Sent(number + 1)
        if self._open is not None:
            patches += self._sent.become(*self._open)
        return patches

    def _advance(self, *, catch_up: bool = False) -> None:
        text = self._take()
        if text:
            self._rest += text
            self._behind = True
        # A large block that can't settle (a long quotation, a list in an item) is rendered when it has become an eighth
        # longer, or a frame brings nothing new.
        late = len(self._rest) > _LARGE and len(self._rest) * 8 < self._seen * 9 and (text or not catch_up)
        if self._closed or (self._behind and not late):
            self._rest = self._render(self._rest)
            self._seen = len(self._rest)
            self._behind = False

    def _take(self) -> str:
        """What was fed since the last time, with `\\n` line ends and whole characters."""
        text = "".join(self._fed)
        self._fed = []
        if not self._closed and text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            self._fed = [text[-1]]  # its other half may come
            text = text[:-1]
        return whole(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")

    def _render(self, rest: str) -> str:
        """Close, settle and render; returns what of the rest remains to be parsed again."""
        while True:
            grown = self._growing
            context = grown.context if grown else ""
            end = len(rest) if self._closed else grown.shown_end(rest) if grown else shown_end(rest)
            parsed = Parsed(context + rest[:end])
            if grown and not (parsed.blocks and grown.continues(parsed.blocks[0])):
                rest = "".join(grown.source) + rest
                self._growing, self._whole = None, not grown.restarts
            elif grown and self._is_open(parsed, 0):
                begin, tail = grown.grow(parsed.blocks[0], parsed, self._references)
                grown.source.append(parsed.text[len(context) : begin])
                self._open = grown.stable, tail
                return rest[begin - len(context) :]
            elif grown:  # what follows is parsed again, since more of it was shown than may be outside of this block
                self._done.append(grown.finish(parsed.blocks[0], self._references))
                self._growing, self._open = None, None
                rest = rest[parsed.start(parsed.blocks[0].end) - len(context) :]
            else:
                block = self._close_blocks(parsed)
                if block is None:
                    self._open = None
                    return "" if self._closed else rest[rest.rfind("\n", 0, end) + 1 :]
                rest = rest[parsed.start(block.start) :]
                self._growing = None if self._whole else growing(self._html, block, parsed, self._references)
                if self._growing is None:
                    self._open = [], render_block(self._html, block, self._references, half=True)
                    return rest
                rest = rest[sum(map(len, self._growing.source)) :]

    def _close_blocks(self, parsed: Parsed) -> Block | None:
        """Render the closed blocks for good; returns the open one."""
        for index, block in enumerate(parsed.blocks):
            if self._is_open(parsed, index):
                return block
            self._done.append(render_block(self._html, block, self._references))
            self._references = defined(block, self._references)
            self._whole = False
        return None

    def _is_open(self, parsed: Parsed, index: int) -> bool:
        block = parsed.blocks[index]
        if self._closed or index < len(parsed.blocks) - 1:
            return False
        if block.has_end():
            return block.end > parsed.complete
        return block.kind in _GO_ON_AFTER_EMPTY or block.end >= parsed.complete


class _Sent:
    """What the browser has of one block."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._new = True
        self._stable: list[str] = []
        self._count = 0
        self._units = 0
        self._end = ""

    def become(self, stable: list[str], end: str) -> list[Patch]:
        """The patch, if one is needed."""
        if stable is not self._stable:
            self._end = "".join((*self._stable[: self._count], self._end))
            self._stable, self._count, self._units = stable, 0, 0
        more = "".join(stable[self._count :])
        old, new = self._end, more + end
        keep = _common(old, new)
        patch = Patch(self.block, self._units + _units(new[:keep]), new[keep:])
        changed = self._new or keep < max(len(old), len(new))
        self._new, self._end = False, end
        self._count, self._units = len(stable), self._units + _units(more)
        return [patch] if changed else []


def _common(a: str, b: str) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def render_markdown(text: str, *, snapshot: bool = False) -> str:
    """The HTML of a finished text: what a closed `MarkdownStream` shows, or, for saved notebooks, the same with literal
    styles instead of classes, plain code, and formulas as TeX."""
    stream = MarkdownStream(_SNAPSHOT if snapshot else _LIVE)
    stream.feed(text)
    stream.close()
    return "".join(stream.blocks)
