"""A run on a terminal, by rich: markdown that grows in place, reasoning dimmed, tool calls in colour."""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

__all__ = ["RichLook"]

_STYLES = {"call": "cyan", "result": "green", "error": "red", "warning": "yellow", "info": "blue", "dim": "dim"}
_REFRESHES_PER_S = 10
_SPARE_LINES = 4


class RichLook:
    """Prints to a rich console. Finished blocks of markdown are printed for good, the growing one is redrawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._parser = MarkdownIt("commonmark").enable("table")
        self._live: Live | None = None
        self._open = ""
        self._in_reasoning = False
        self._blank_due = False

    def text(self, piece: str) -> None:
        """A piece of the answer."""
        self._open += piece
        if self._live is None and self._open.strip():
            self._space()
            self._live = Live(
                console=self._console,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
                get_renderable=lambda: _Tail(self._open),
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        if "\n" in piece:
            self._print_finished()

    def reasoning(self, piece: str) -> None:
        """A piece of what the model thinks."""
        if not self._in_reasoning:
            self._space()
            self._in_reasoning = True
        self._console.print(Text(piece, style="dim italic"), end="", soft_wrap=True)

    def end(self) -> None:
        """Print the growing block for good."""
        if self._in_reasoning:
            self._console.print()
            self._in_reasoning = False
            self._blank_due = True
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._print(self._open)
        self._open = ""

    def line(self, text: str, style: str = "") -> None:
        """One line in its colour."""
        self._space()
        self._console.print(Text(text, style=_STYLES.get(style, "")), soft_wrap=True)
        self._blank_due = False

    def flush(self) -> None:
        """Nothing waits: the growing block is redrawn by its own clock."""

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


class _Tail:
    """The last lines of a block, as many as the screen can redraw."""

    def __init__(self, markdown: str) -> None:
        self._markdown = markdown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(_rendered(self._markdown), options, pad=False)
        yield from _joined(lines[-max(console.height - _SPARE_LINES, 1) :])


def _joined(lines: list[list[Segment]]) -> Iterator[Segment]:
    for number, line in enumerate(lines):
        if number:
            yield Segment.line()
        yield from line


def _rendered(markdown: str) -> Markdown:
    # Links are written out: what a model calls a link may lead elsewhere.
    return Markdown(markdown, hyperlinks=False, code_theme="ansi_dark")
