"""Incremental JSON: growing text in, growing value out, at a cost linear in the text.

What an unfinished document shows:

- a container from its bracket on, a string from its opening quote on (it grows);
- a number as far as it is one (1.2 for `1.2e`), closed when the next character, or `close()`, ends it;
- a word (true, false, null) only when complete;
- a key only with the start of its value;
- an escaped surrogate pair when both halves are there, and a surrogate that stays alone as U+FFFD, so an unfinished
  value can always be encoded. The finished value keeps it, as `json.loads` does.

A finished document equals `json.loads` of the whole text (the last duplicate key wins, integers stay exact). It accepts
what RFC 8259 accepts, so no NaN and no Infinity.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, cast

from nbmastra.errors import PartialJsonError

__all__ = ["PartialJson", "PartialJsonError", "recover_json"]

_PLAIN: Any = re.compile(r'[^"\\\x00-\x1f]*').match
_SPACE: Any = re.compile(r"[ \t\n\r]*").match
_NUMBER_CHARS: Any = re.compile(r"[-+.0-9eE]*").match
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SURROGATES = re.compile("[\ud800-\udfff]")
_CODE_UNIT = re.compile("u[0-9a-fA-F]{0,4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SHOWN_PIECES = 32  # a number in more pieces is shown when it ends: joining them each time would cost their square
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class _Tree:
    """The value being built, hung in a list, `root`; with `hide`, lone surrogates show as U+FFFD."""

    def __init__(self, hide: bool) -> None:
        self.hide = hide
        self.root: list[Any] = []
        self.top: Any = self.root  # the innermost open container
        self.key: Any = -1  # of the newest value in `top`: -1 in a list, None in a dict that has none yet
        self.stack: list[tuple[Any, Any]] = []  # open ancestors of `top`, each with the key at which the next one hangs
        self.frozen: Any = None
        self.stale = False  # since the last snapshot
        self.changed = False  # since the last `take_changed`

    def put(self, key: str, value: Any) -> None:
        top = self.top
        if type(top) is dict:
            key = self.key = key if key.isascii() or not self.hide else _SURROGATES.sub("\ufffd", key)
            top[key] = value
        else:
            top.append(value)
        self.stale = self.changed = True

    def open(self, key: str, kind: type[Any]) -> None:
        new = kind()
        self.put(key, new)
        self.stack.append((self.top, self.key))
        self.top = new
        self.key = None if kind is dict else -1

    def replace(self, value: Any) -> None:
        """Put another value in the newest one's place: a number that goes on."""
        shown = self.top[self.key]
        if type(shown) is not type(value) or shown != value:
            self.top[self.key] = value
            self.stale = self.changed = True

    def grow(self, piece: str) -> None:
        """Append to the newest value, a string."""
        if self.hide and not piece.isascii():
            piece = _SURROGATES.sub("\ufffd", piece)
        top, key = self.top, self.key
        text = top[key]
        top[key] = None  # the only other reference goes first: then += grows in place instead of copying
        text += piece
        top[key] = text
        self.stale = self.changed = True

    def snapshot(self) -> Any:
        """A copy of what is open, in which what is closed is shared, since it never changes again."""
        if self.stale:
            node = self.top.copy()
            for parent, key in reversed(self.stack):
                parent = parent.copy()
                parent[key] = node
                node = parent
            self.frozen, self.stale = node[0], False
        return self.frozen

    def exact(self) -> _Tree:
        """A tree that goes on from here and hides nothing."""
        tree = _Tree(hide=False)
        seen = self.frozen, self.stale
        self.stale = True
        tree.root.append(self.snapshot())
        self.frozen, self.stale = seen  # that snapshot is nobody else's: it will grow
        for _, key in self.stack:
            tree.stack.append((tree.top, key))
            tree.top = tree.top[key]
        tree.key, tree.stale = self.key, True
        return tree


class PartialJson:
    """Reads one JSON document piece by piece; its value can be read at any time.

    `max_depth` is how many containers may be open at once. `position` is the number of characters read or, once
    `failed` holds the error, where the text stopped being JSON; the value before that stays readable.

    An open token (string, escape, number, word) is read by `_reader` until it ends. Between tokens `_expected`, a row
    of the grammar at the end of this class, says who reads the next character. A reader takes what it can from
    `text[i:]` and returns the index of the rest.
    """

    def __init__(self, max_depth: int = 1000) -> None:
        self.position = 0
        self.failed: PartialJsonError | None = None
        self._max_depth = max_depth
        self._shown = _Tree(hide=True)
        self._trees = [self._shown]  # and, from the first lone surrogate on, the exact one
        self._expected = self._VALUE
        self._reader: Callable[[PartialJson, str, int], int] | None = None
        self._in_key = False  # the open string is a key
        self._next_key = ""  # of the coming value
        self._token: list[str] = []  # pieces of an open key or number
        self._number_shown = False  # the open number stands in the value already, as far as it goes
        self._escaped = ""  # what came after a backslash
        self._high = ""  # an escaped high surrogate that waits for the other half
        self._word_left: tuple[str, Any] | None = None  # what has to follow, and what it then means

    @property
    def value(self) -> Any:
        """The live value, which grows in place; None before it starts."""
        root = self._shown.root
        return root[0] if root else None

    @property
    def started(self) -> bool:
        """The root value shows, so a `value` of None is a null."""
        return bool(self._shown.root)

    @property
    def complete(self) -> bool:
        """The root value is closed; a number at the root is when white space or `close()` ends it."""
        return self._expected is self._END

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indexes that lead to the newest value: the one that opened, grew or closed last."""
        tree = self._shown
        nodes = [*tree.stack, (tree.top, tree.key)][1:]
        path = [key if type(node) is dict else len(node) - 1 for node, key in nodes]
        return tuple(path if tree.top else path[:-1])

    def closed_items(self, path: tuple[str | int, ...]) -> int:
        """How many items of the list at `path` are closed, and so final; 0 if there is no list (yet)."""
        tree = self._shown
        node: Any = tree.root
        try:
            for key in (0, *path):
                node = node[key]
        except (LookupError, TypeError):
            return 0
        if not isinstance(node, list):
            return 0
        with_open_child = [parent for parent, _ in tree.stack]
        if self._reader in (PartialJson._string, PartialJson._escape) or self._number_shown:
            with_open_child.append(tree.top)
        return len(cast("list[Any]", node)) - any(parent is node for parent in with_open_child)

    def feed(self, text: str) -> Any:
        """Read more text and return the live value; PartialJsonError, now and ever after, if it is not JSON."""
        self._read(text, 0)
        self.position += len(text)
        return self.value

    def snapshot(self) -> Any:
        """The value so far, which later feeds don't change; what is closed is shared, what is open copied on change."""
        return self._shown.snapshot()

    def take_changed(self) -> bool:
        """Whether the value that shows has changed since this was asked last."""
        changed, self._shown.changed = self._shown.changed, False
        return changed

    def close(self) -> Any:
        """Return the finished value; PartialJsonError if the text stopped being JSON or stops in the middle."""
        at_number = self._reader is PartialJson._number and not self._shown.stack
        self._read(" " if at_number else "", 0)  # nothing else ends a number at the root
        if not self.complete:
            raise PartialJsonError("the text ends in the middle", self.position)
        return self.value

    def _read(self, text: str, i: int) -> None:
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        try:
            while i < len(text):
                reader = self._reader or self._expected.get(text[i])
                if reader is None:
                    self._fail(f"unexpected {text[i]!r}", i)
                i = reader(self, text, i)
        except PartialJsonError as error:
            self.failed, self.position = error, error.position
            raise

    def _fail(self, message: str, i: int) -> NoReturn:
        raise PartialJsonError(message, self.position + i)

    def _put(self, value: Any) -> None:
        for tree in self._trees:
            tree.put(self._next_key, value)

    def _end_value(self) -> None:
        self._reader = None
        if self._shown.stack:
            self._expected = self._AFTER_FIELD if type(self._shown.top) is dict else self._AFTER_ITEM
        else:
            self._expected = self._END
            self._shown = self._trees[-1]
            self._trees = [self._shown]

    def _space(self, text: str, i: int) -> int:
        return _SPACE(text, i).end()

    def _colon(self, text: str, i: int) -> int:
        self._expected = self._VALUE
        return i + 1

    def _comma(self, text: str, i: int) -> int:
        self._expected = self._KEY if type(self._shown.top) is dict else self._ITEM
        return i + 1

    def _open(self, text: str, i: int) -> int:
        if len(self._shown.stack) >= self._max_depth:
            self._fail(f"deeper than {self._max_depth}", i)
        is_dict = text[i] == "{"
        for tree in self._trees:
            tree.open(self._next_key, dict if is_dict else list)
        self._expected = self._FIRST_KEY if is_dict else self._FIRST_ITEM
        return i + 1

    def _shut(self, text: str, i: int) -> int:
        for tree in self._trees:
            tree.top, tree.key = tree.stack.pop()
        self._end_value()
        return i + 1

    def _start_string(self, text: str, i: int) -> int:
        self._put("")
        self._reader = PartialJson._string
        return i + 1

    def _start_key(self, text: str, i: int) -> int:
        self._in_key = True
        self._reader = PartialJson._string
        return i + 1

    def _string(self, text: str, i: int) -> int:
        end = _PLAIN(text, i).end()
        if end > i:
            self._grow(text[i:end])
            if end == len(text):
                return end
        if text[end] == "\\":
            self._reader = PartialJson._escape
            return end + 1
        if text[end] != '"':
            self._fail("control character in a string", end)
        if self._high:
            self._grow("")
        if self._in_key:
            self._in_key = False
            self._next_key = self._take_token()
            self._reader = None
            self._expected = self._COLON
        else:
            self._end_value()
        return end + 1

    def _grow(self, piece: str) -> None:
        """Append to the open string; a high surrogate that waited has waited in vain."""
        if self._high:
            piece = self._high + piece
            self._high = ""
        if not piece.isascii() and len(self._trees) == 1 and _SURROGATES.search(piece):
            self._trees.append(self._shown.exact())
        if self._in_key:
            self._token.append(piece)
        elif piece:
            for tree in self._trees:
                tree.grow(piece)

    def _escape(self, text: str, i: int) -> int:
        escaped = self._escaped = self._escaped + text[i]
        if escaped in _ESCAPES:
            self._grow(_ESCAPES[escaped])
        elif not _CODE_UNIT.fullmatch(escaped):
            self._fail(f"bad escape {escaped!r}", i)
        elif len(escaped) < 5:
            return i + 1
        else:
            unit = int(escaped[1:], 16)
            if self._high and 0xDC00 <= unit < 0xE000:
                unit += 0x10000 - 0xDC00 + ((ord(self._high) - 0xD800) << 10)
                self._high = ""
            is_high = 0xD800 <= unit < 0xDC00
            self._grow("" if is_high else chr(unit))
            self._high = chr(unit) if is_high else ""
        self._escaped = ""
        self._reader = PartialJson._string
        return i + 1

    def _number(self, text: str, i: int) -> int:
        end = _NUMBER_CHARS(text, i).end()
        self._token.append(text[i:end])
        self._reader = PartialJson._number
        if end < len(text):
            self._put_number(self._take_token(), end)
            self._number_shown = False
            self._end_value()
        elif len(self._token) <= _SHOWN_PIECES:
            self._show_start("".join(self._token))
        return end

    def _show_start(self, token: str) -> None:
        if start := _NUMBER.match(token):
            with suppress(ValueError):
                self._show_number(_number_value(start))
                self._number_shown = True

    def _put_number(self, token: str, end: int) -> None:
        match = _NUMBER.fullmatch(token)
        if not match:
            self._show_start(token)
            self._fail(f"bad number {token[:40]!r}", end - len(token))
        try:
            value = _number_value(match)
        except ValueError:  # Python limits the digits of an int, for json.loads too
            self._fail(f"number of {len(token)} characters", end - len(token))
        self._show_number(value)

    def _show_number(self, value: float) -> None:
        if not self._number_shown:
            self._put(value)
        else:
            for tree in self._trees:
                tree.replace(value)

    def _word(self, text: str, i: int) -> int:
        word, value = self._word_left or _WORDS[text[i]]
        if text.startswith(word, i):
            self._word_left = None
            self._put(value)
            self._end_value()
            return i + len(word)
        if text[i] != word[0]:
            self._fail(f"expected {word!r}, got {text[i]!r}", i)
        self._word_left = (word[1:], value)
        self._reader = PartialJson._word
        return i + 1

    def _take_token(self) -> str:
        token, self._token = "".join(self._token), []
        return token

    # The grammar: what may stand between tokens, and who reads it.
    _BLANK = dict.fromkeys(" \t\n\r", _space)
    _NUMBER_OR_WORD = dict.fromkeys("-0123456789", _number) | dict.fromkeys("tfn", _word)
    _VALUE = _BLANK | _NUMBER_OR_WORD | {'"': _start_string, "{": _open, "[": _open}
    _ITEM = _VALUE
    _FIRST_ITEM = _VALUE | {"]": _shut}
    _KEY = _BLANK | {'"': _start_key}
    _FIRST_KEY = _KEY | {"}": _shut}
    _COLON = _BLANK | {":": _colon}
    _AFTER_ITEM = _BLANK | {",": _comma, "]": _shut}
    _AFTER_FIELD = _BLANK | {",": _comma, "}": _shut}
    _END = _BLANK.copy()


def _number_value(match: re.Match[str]) -> float:
    return float(match[0]) if match[1] or match[2] else int(match[0])


class _Forgiving(PartialJson):
    _KEY = PartialJson._FIRST_KEY
    _ITEM = PartialJson._FIRST_ITEM

    def read_to_end(self, text: str, start: int) -> PartialJsonError | None:
        try:
            self._read(text, start)
            self.position = len(text)
            self.close()
        except PartialJsonError as error:
            return error
        return None


def recover_json(text: str) -> tuple[Any, str | None]:
    """Read the arguments of a tool call, which don't always come as clean JSON: the value and None, or an error text.

    - No text is `{}`. Trailing commas are let pass, and so is what follows a complete value (a token of the model).
    - After an empty object the last complete object counts: some send `{}` first and then the arguments.
    - Anything else gives what could be read, None if nothing, and the error; never `{}` alone for lost arguments.
      A number at a cut counts as far as it is one: 1.2 for `1.2e`.
    """
    found: Any = {}
    start = 0
    while start < len(text):
        parser = _Forgiving()
        error = parser.read_to_end(text, start)
        if not parser.complete:
            return (found, None) if found else (parser.value, str(error))
        found = parser.value if start == 0 else parser.value or found
        if error is None or (start == 0 and found != {}):
            break
        start = error.position
        if text[start] != "{":
            return found, str(error) if found == {} and "{" in text[start:] else None
    return found, None
