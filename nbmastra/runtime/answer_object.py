"""The object in a model's answer: found in the text as it comes, and shown when, and only when, it has changed.

text ─▶ where the JSON is (bare, in a code fence, amid prose) ─▶ PartialJson ─▶ what of it shows, by the schema's kind
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, cast

from nbmastra.partial_json import PartialJson, PartialJsonError

__all__ = ["NOTHING", "AnswerObject", "Kind", "wrap_schema"]

Kind = Literal["object", "array", "enum"]
"""An array comes as `{"elements": […]}`, one of several words as `{"result": …}`. Source: @mastra/core 1.71."""

NOTHING: Any = object()
"""No value, where None is one."""

_FENCE = "```json"
_MARK = "<|message|>"  # some models write their answer behind it
_SPECIAL = re.compile(r'(["\\\n\r\t])')
_BRACES = re.compile(r'([{}"\\])')
_ITEM_ENDS = re.compile(r"(?<=[,}\]])")
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def wrap_schema(schema: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """What kind of object a JSON schema means, and the schema that a model is given: always one of an object."""
    if schema.get("type") == "array":
        inner: Any = {"type": "array", "items": schema.get("items", {})}
        return "array", _wrapped(schema, "elements", inner)
    choices: Any = schema.get("enum")
    if isinstance(choices, list):
        return "enum", _wrapped(schema, "result", {"type": schema.get("type", "string"), "enum": choices})
    return "object", schema


def _wrapped(schema: dict[str, Any], key: str, inner: dict[str, Any]) -> dict[str, Any]:
    made = {"type": "object", "properties": {key: inner}, "required": [key], "additionalProperties": False}
    return {**{name: schema[name] for name in ("$schema", "$defs", "definitions") if name in schema}, **made}


class AnswerObject:
    """Reads an answer piece by piece; at a cost linear in its length. `value` is what shows so far.

    choices: the words of an enum, so that a beginning that fits only one of them shows that one.
    """

    def __init__(self, kind: Kind, choices: Iterable[Any] = ()) -> None:
        self.kind: Kind = kind
        self.pieces = 0
        """How many pieces were read."""
        self._choices = [choice for choice in choices if isinstance(choice, str)]
        self._parser = PartialJson()
        self._read: Callable[[str], None] = self._begin
        self._held = ""  # the answer's start, until it is clear where the JSON is
        self._mend = _Mender()
        self._scan = _Scanner()
        self._scalar: PartialJson | None = None  # prose so far may be a number or a word of JSON
        self._tail = ""  # of prose: the mark may come in two pieces
        self._news = False  # the whole value has changed since something was shown
        self._visible_news = False  # and so has what shows
        self._shown = 0  # elements that showed
        self._told: Any = NOTHING  # the value that was shown last; of an enum or an object amid prose
        self._began = False

    def feed(self, piece: str) -> bool:
        """More of the answer; True if there is another value to be shown."""
        self.pieces += 1
        self._read(piece)
        return self._take_news()

    @property
    def value(self) -> Any:
        """What shows of the object, immune to later feeds; None if nothing does."""
        value = self._parser.snapshot()
        if self.kind == "object":
            return cast("Any", value) if isinstance(value, dict | list) else None
        if self.kind == "enum":
            return self._best_choice(value)
        elements = _elements(value)
        return elements[: self._visible(elements)] if elements is not None else []

    def result(self) -> Any:
        """The object when the answer is complete, NOTHING if it holds none; it may be cut off, as the answer was."""
        parser = self._parser if self._parser.started or self._scalar is None else self._scalar
        with suppress(PartialJsonError):
            parser.close()
        if not parser.started:
            return NOTHING
        value = parser.snapshot()
        if self.kind == "array":
            elements = _elements(value)
            return NOTHING if elements is None else elements
        if self.kind == "enum" and isinstance(value, dict):
            return cast("dict[str, Any]", value).get("result", NOTHING)
        return value

    # --- where the JSON is -----------------------------------------------------------------------------------------

    def _begin(self, piece: str) -> None:
        held = self._held = (self._held + piece).lstrip()
        if not held:
            return
        if held[0] in "{[":
            self._read = self._json
        elif _FENCE.startswith(held[: len(_FENCE)]):
            if len(held) <= len(_FENCE):
                return
            if held[len(_FENCE)].isalnum() or held[len(_FENCE)] == "_":
                self._read = self._prose
            else:
                held = held[len(_FENCE) :]
        else:
            self._read = self._prose
        self._held = ""
        self._read(held)

    def _json(self, piece: str) -> None:
        mended = self._mend.mend(piece)
        try:
            for part in _ITEM_ENDS.split(mended) if self.kind == "array" else (mended,):
                self._parser.feed(part)
                self._look()
        except PartialJsonError:  # what follows a value is the model's chatter, what breaks one leaves the rest
            self._look()
            self._read = _ignore

    def _prose(self, piece: str) -> None:
        around = self._tail + piece
        if _MARK in around:
            self._parser, self._scalar, self._scan, self._tail = PartialJson(), None, _Scanner(), ""
            self._read = self._begin
            self._begin(around.partition(_MARK)[2])
            return
        self._tail = around[1 - len(_MARK) :]
        if self._scalar is None:
            self._scalar = PartialJson()
        if self._scalar.failed is None:
            with suppress(PartialJsonError):
                self._scalar.feed(piece)
        for found in self._scan.objects(piece):
            parser = PartialJson()
            with suppress(PartialJsonError):
                parser.feed(_Mender().mend(found))
                self._parser, self._news, self._visible_news = parser, True, True

    # --- what shows ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """After a piece that ends where an element ends: has what shows changed?"""
        changed = self._parser.take_changed()
        self._news |= changed
        if self.kind != "array":
            self._visible_news |= changed
            return
        elements = _elements(self._parser.value) or []
        visible = self._visible(elements)
        self._visible_news |= visible != self._shown or (changed and bool(elements) and visible == len(elements))

    def _visible(self, elements: list[Any]) -> int:
        """Elements that show: of the last one, as long as it grows, only a container that has something in it."""
        if not elements or self._parser.complete:
            return len(elements)
        last = elements[-1]
        return len(elements) if isinstance(last, dict | list) and last else len(elements) - 1

    def _take_news(self) -> bool:
        if not self._parser.started:
            return False
        if self.kind == "enum":
            best = self._best_choice(self._parser.value)
            news = best is not None and best != self._told
            self._told = best if news else self._told
            return news
        if self.kind == "array":
            first, self._began = not self._began, True
            if not first and not (self._news and self._visible_news):
                return False
            self._shown = self._visible(_elements(self._parser.value) or [])
        elif not (self._news and isinstance(self._parser.value, dict | list)):
            return False
        self._news = self._visible_news = False
        if self._read == self._prose:  # an object amid prose comes as a whole: it may be the one before
            value = self.value
            again, self._told = value == self._told, value
            return not again
        return True

    def _best_choice(self, value: Any) -> str | None:
        word: Any = cast("dict[str, Any]", value).get("result") if isinstance(value, dict) else None
        if not isinstance(word, str) or not word:
            return None
        fitting = [choice for choice in self._choices if choice.startswith(word)]
        return fitting[0] if len(fitting) == 1 else word if fitting else None


def _elements(value: Any) -> list[Any] | None:
    """The elements of an array: wrapped, as models are asked for, or bare, as some write them all the same."""
    inner: Any = cast("dict[str, Any]", value).get("elements") if isinstance(value, dict) else value
    return cast("list[Any]", inner) if isinstance(inner, list) else None


def _ignore(_piece: str) -> None:
    """The value is complete, or broken."""


class _Mender:
    """Escapes line breaks and tabs inside of strings, which models forget."""

    def __init__(self) -> None:
        self._in_string = False
        self._escaped = False

    def mend(self, piece: str) -> str:
        out: list[str] = []
        for token in _SPECIAL.split(piece):
            if not token:
                continue
            if self._escaped:
                self._escaped = False
            elif token == "\\":
                self._escaped = True
            elif token == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                token = _CONTROL.get(token, token)
            out.append(token)
        return "".join(out)


class _Scanner:
    """Finds the outermost `{…}` in prose whose braces match; quotes count there too, as Mastra has it."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._parts: list[str] = []

    def objects(self, piece: str) -> list[str]:
        """Those that end in this piece."""
        found: list[str] = []
        for token in _BRACES.split(piece):
            if not token:
                continue
            if self._depth:
                self._parts.append(token)
            if self._escaped:
                self._escaped = False
            elif token == "\\":
                self._escaped = True
            elif token == '"':
                self._in_string = not self._in_string
            elif token == "{" and not self._in_string:
                if not self._depth:
                    self._parts = ["{"]
                self._depth += 1
            elif token == "}" and not self._in_string and self._depth:
                self._depth -= 1
                if not self._depth:
                    found.append("".join(self._parts))
        return found
