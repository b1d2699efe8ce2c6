"""Text for terminals that nobody can smuggle commands into: escape sequences and control characters are taken out.

What models, tools and servers say may move the cursor, rewrite what was printed, set the clipboard or the window's
title. `TextCleaner` lets through what is text, at any cut of the stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["TextCleaner", "clean_json", "clean_line", "clean_text"]

_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 controls but tab and line feed, characters that turn the direction of text, halves of emoji."""

_STRINGS = frozenset("]PX^_\x90\x98\x9d\x9e\x9f")
"""What begins a string that terminals act on (title, clipboard, link): after ESC, or as one C1 character."""
_MAX_STRING = 4096
_MAX_PARAMETERS = 64
"""A sequence that has not ended after so many characters is none."""

_Step = Callable[[str, list[str]], None]


class TextCleaner:
    """Cleans a text that comes in pieces, one character after the other, so that no cut makes a difference.

    Sequences vanish. A string that doesn't end on its line was none: what it held is text.
    """

    def __init__(self) -> None:
        self._step: _Step = self._ground
        self._held: list[str] = []
        self._count = 0

    def feed(self, piece: str) -> str:
        """What of the text so far may be printed now."""
        if self._step == self._ground and not _SUSPECT.search(piece):
            return piece
        shown: list[str] = []
        for char in piece:
            self._step(char, shown)
        return "".join(shown)

    def close(self) -> str:
        """The text is over: what was held back, a string that never ended or half a character."""
        shown: list[str] = []
        self._show_held(shown)
        return "".join(shown)

    def _show_held(self, shown: list[str]) -> None:
        shown += ["\ufffd" if "\ud800" <= char <= "\udfff" else char for char in self._held]
        self._held.clear()
        self._step = self._ground

    def _ground(self, char: str, shown: list[str]) -> None:
        if not _SUSPECT.match(char):
            shown.append(char)
        elif char == "\x1b":
            self._step = self._after_escape
        elif char == "\x9b":
            self._begin_control()
        elif char in _STRINGS:
            self._step = self._string
        elif char == "\r":
            shown.append("\n")
            self._step = self._after_return
        elif "\ud800" <= char <= "\udbff":
            self._held.append(char)
            self._step = self._after_half
        elif char >= "\udc00":
            shown.append("\ufffd")

    def _after_return(self, char: str, shown: list[str]) -> None:
        self._step = self._ground
        if char != "\n":
            self._ground(char, shown)

    def _after_half(self, char: str, shown: list[str]) -> None:
        if "\udc00" <= char <= "\udfff":
            pair = self._held.pop() + char
            shown.append(pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
            self._step = self._ground
        else:
            self._show_held(shown)
            self._ground(char, shown)

    def _after_escape(self, char: str, shown: list[str]) -> None:
        if char == "[":
            self._begin_control()
        elif char in _STRINGS:
            self._step = self._string
        elif not " " <= char <= "/":
            self._step = self._ground
            if not "0" <= char <= "~":
                self._ground(char, shown)

    def _begin_control(self) -> None:
        self._count = 0
        self._step = self._control

    def _control(self, char: str, shown: list[str]) -> None:
        self._count += 1
        if not " " <= char <= "?" or self._count > _MAX_PARAMETERS:
            self._step = self._ground
            if not "@" <= char <= "~":
                self._ground(char, shown)

    def _string(self, char: str, shown: list[str]) -> None:
        if char in "\x07\x9c":
            self._held.clear()
            self._step = self._ground
        elif char == "\x1b":
            self._step = self._escape_in_string
        elif char == "\n" or len(self._held) >= _MAX_STRING:
            self._show_held(shown)
            self._ground(char, shown)
        elif not _SUSPECT.match(char):
            self._held.append(char)

    def _escape_in_string(self, char: str, shown: list[str]) -> None:
        if char == "\\":
            self._held.clear()
            self._step = self._ground
        else:
            self._show_held(shown)
            self._after_escape(char, shown)


def clean_text(text: str) -> str:
    """A whole text, fit for a terminal; tabs and line ends stay."""
    if not _SUSPECT.search(text):
        return text
    cleaner = TextCleaner()
    return cleaner.feed(text) + cleaner.close()


def clean_line(text: str, limit: int = 200) -> str:
    """A text on one line of at most `limit` characters."""
    line = " ".join(clean_text(text[: 4 * limit]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"


def clean_json(line: str) -> str:
    """JSON with everything a terminal could take for a command written as `\\uXXXX`: the same value."""
    return _SUSPECT.sub(lambda match: f"\\u{ord(match[0]):04x}", line) if _SUSPECT.search(line) else line
