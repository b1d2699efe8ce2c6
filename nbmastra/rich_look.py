"""A run on a terminal, by rich: markdown that grows in place, reasoning dimmed, calls in colour, what runs below."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

__all__ = ["RichLook", "rich_look"]

_STYLES = {"call": "cyan", "result": "green", "error": "red", "warning": "yellow", "info": "blue", "dim": "dim"}
_REDRAW_S = 0.1
_TICK_S = 0.5
"""Times of what runs go on though nothing comes."""
_SPARE_LINES = 4


class RichLook:
    """Prints to a rich console. Finished blocks of markdown are printed for good; what grows and runs is redrawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._parser = MarkdownIt("commonmark").enable("table")
        self._live: Live | None = None
        self._open = ""
        self._running: Sequence[str] = ()
        self._in_reasoning = False
        self._blank_due = False
        self._stale = False
        self._drawn_at = 0.0

    def text(self, piece: str) -> None:
        """A piece of the answer."""
        self._open += piece
        self._stale = True
        if self._open.strip():
            self._space()
        self._show()
        if "\n" in piece:
            self._print_finished()

    def running(self, lines: Sequence[str]) -> None:
        """What runs just now, a line each; it stands below all else, until other lines take its place."""
        if lines != self._running:
            self._running = lines
            self._stale = True
        self._show()

    def reasoning(self, piece: str) -> None:
        """A piece of what the model thinks."""
        if not self._in_reasoning:
            self._in_reasoning = True
            self._show()
            self._space()
        self._console.print(Text(piece, style="dim italic"), end="", soft_wrap=True)

    def end(self) -> None:
        """Print the growing block for good."""
        if self._in_reasoning:
            self._console.print()
            self._in_reasoning = False
            self._blank_due = True
        text, self._open = self._open, ""
        self._show()
        self._print(text)

    def _show(self) -> None:
        """Redraw in place while there is something that changes; not below a line that isn't at its end yet."""
        due = bool(self._open.strip() or self._running) and not self._in_reasoning
        if due and self._live is None:
            self._live = Live(
                _Tail(lambda: self._open, lambda: self._running),
                console=self._console,
                auto_refresh=False,  # a thread's redrawing and our printing would cross
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
        elif not due and self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, text: str, style: str = "") -> None:
        """One line in its colour."""
        self._space()
        self._console.print(Text(text, style=_STYLES.get(style, "")), soft_wrap=True)
        self._blank_due = False

    def flush(self) -> None:
        """Redraw the growing block, if the last time is long enough ago."""
        if self.wait_s == 0 and self._live is not None:
            self._live.refresh()
            self._stale = False
            self._drawn_at = time.monotonic()

    @property
    def wait_s(self) -> float | None:
        """Seconds until a `flush` will show more; None if nothing is waiting to be shown."""
        if self._live is None or not (self._stale or self._running):
            return None
        return max(self._drawn_at + (_REDRAW_S if self._stale else _TICK_S) - time.monotonic(), 0)

    def _print_finished(self) -> None:
        starts = [token.map[0] for token in self._parser.parse(self._open) if token.level == 0 and token.map]
        if len(starts) > 1:
            lines = self._open.splitlines(keepends=True)
            self._open = "".join(lines[starts[-1] :])
            self._print("".join(lines[: starts[-1]]))

    def _print(self, markdown: str) -> None:
        if markdown.strip():
            self._space()
            self._console.print(_rendered(markdown))
            self._blank_due = True

    def _space(self) -> None:
        if self._blank_due:
            self._console.print()
            self._blank_due = False


def rich_look(file: TextIO | None = None, *, no_color: bool = False) -> RichLook:
    """A look for a terminal; `file` is standard output unless another is given."""
    console = Console(file=file, no_color=no_color or None, highlight=False, markup=False, emoji=False)
    return RichLook(console)


class _Tail:
    """The last lines of the growing block and what runs, as many as the screen can redraw."""

    def __init__(self, markdown: Callable[[], str], running: Callable[[], Sequence[str]]) -> None:
        self._markdown = markdown
        self._running = running

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        markdown = self._markdown()
        lines = console.render_lines(_rendered(markdown), options, pad=False) if markdown.strip() else []
        for text in self._running():
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            lines += console.render_lines(line, options, pad=False)
        yield from _joined(lines[-max(console.height - _SPARE_LINES, 1) :])


def _joined(lines: list[list[Segment]]) -> Iterator[Segment]:
    for number, line in enumerate(lines):
        if number:
            yield Segment.line()
        yield from line


def _rendered(markdown: str) -> Markdown:
    # Links are written out: what a model calls a link may lead elsewhere.
    return Markdown(markdown, hyperlinks=False, code_theme="ansi_dark")
