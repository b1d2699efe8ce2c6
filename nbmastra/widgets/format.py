"""Values as short text: numbers, times, sizes, calls that read like Python, the gist of a result.

All of it is plain text; whoever places it in HTML escapes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, cast

from nbmastra.fold import ErrorInfo

__all__ = [
    "as_json",
    "as_records",
    "error_line",
    "gist",
    "iso",
    "number",
    "one_line",
    "plain",
    "seconds",
    "short_json",
    "signature",
    "size",
]

# Control characters and those that reorder text: harmless in HTML, but a name must not look like another one.
_DECEIVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MAX_ITEMS = 6


def one_line(text: str, limit: int = 200) -> str:
    """The text as one line that deceives nobody, cut to `limit` characters."""
    line = " ".join(_DECEIVING.sub("\ufffd", text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain(text: str) -> str:
    """The text with its lines and spaces, without characters that deceive."""
    return _DECEIVING.sub("\ufffd", text)


def number(value: int) -> str:
    """1234567 → 1,234,567"""
    return f"{value:,}"


def seconds(value: float) -> str:
    """A final time: 0.84 s, 12.3 s, 1:05, 1:02:05."""
    if value < 10:
        return f"{max(value, 0):.2f} s"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: int) -> str:
    """Bytes: 812 B, 4.1 KB, 12 MB."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def signature(name: str, args: Any, *, open: bool = False, limit: int = 300) -> tuple[str, str]:
    """The call as Python writes it, as name and rest: ("get_forecast", '(place="Rouen", days=2)').

    `open`: the arguments are still being written, so nothing is closed at the end.
    """
    if isinstance(args, Mapping):
        items = cast("Mapping[str, Any]", args).items()
        inner = ", ".join(f"{one_line(str(key), 60)}={_python(value)}" for key, value in islice(items, 40))
    else:
        inner = "" if args is None else _python(args)
    rest = f"({inner}" if open else f"({inner})"
    if open:
        rest = rest.rstrip("}]")
    if len(rest) > limit:
        rest = rest[: limit - 2] + ("…" if open else "…)")
    return one_line(name, 100) or "tool", rest


def _python(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return _quoted(value, 120)
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if depth > 2:
        return "[…]" if isinstance(value, list) else "{…}"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        parts = [_python(item, depth + 1) for item in items[:_MAX_ITEMS]]
        if len(items) > _MAX_ITEMS:
            parts[2:] = ["…", _python(items[-1], depth + 1)]
        return f"[{', '.join(parts)}]"
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value)
        parts = [f'"{one_line(str(k), 40)}": {_python(v, depth + 1)}' for k, v in islice(entries.items(), _MAX_ITEMS)]
        return f"{{{', '.join([*parts, '…'] if len(entries) > _MAX_ITEMS else parts)}}}"
    return one_line(str(value), 120)


def _quoted(text: str, limit: int) -> str:
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return _DECEIVING.sub("\ufffd", json.dumps(cut, ensure_ascii=False))


def short_json(value: Any, limit: int = 100) -> str:
    """A value on one line, deep parts and long lists left out: {from: "Rouen", km: 24, wind: {…}}."""
    text = "".join(_short(value, 0))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _short(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if depth and items:
            yield "[…]"
            return
        yield f"[{len(items)} items] " if len(items) > _MAX_ITEMS else "["
        for i, item in enumerate(items[:3] if len(items) > _MAX_ITEMS else items):
            yield ", " if i else ""
            yield from _short(item, depth + 1)
        yield ", …" if len(items) > _MAX_ITEMS else "]"
    elif isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value)
        if depth and entries:
            yield "{…}"
            return
        yield "{"
        for i, (key, item) in enumerate(islice(entries.items(), _MAX_ITEMS)):
            yield f"{', ' if i else ''}{one_line(str(key), 40)}: "
            yield from _short(item, depth + 1)
        yield ", …}" if len(entries) > _MAX_ITEMS else "}"
    elif isinstance(value, str):
        yield _quoted(value, 60)
    else:
        yield as_json(value)


def gist(value: Any) -> str:
    """A result in a few words: 27 records, 9 items, {…}, "text…"."""
    if as_records(value) is not None:
        return _plural(len(value), "record")
    if isinstance(value, list) and len(cast("list[Any]", value)) > _MAX_ITEMS:
        return _plural(len(cast("list[Any]", value)), "item")
    return short_json(value)


def _plural(count: int, word: str) -> str:
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def as_records(value: Any) -> Sequence[dict[str, Any]] | None:
    """The value if it is a list of objects that have something in them, so that a table suits it."""
    if not isinstance(value, list) or not value:
        return None
    items = cast("list[Any]", value)
    return items if all(isinstance(item, dict) and bool(cast("Any", item)) for item in items) else None


def error_line(error: ErrorInfo) -> str:
    """An error in a line: TimeoutError: no answer in 300 ms."""
    message = one_line(error.message)
    return message if error.name in ("", "Error") or message.startswith(error.name) else f"{error.name}: {message}"


def as_json(value: Any, indent: int | None = None) -> str:
    """Any value as JSON text; what JSON doesn't know, as its `str`."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, RecursionError):
        return "…"


def iso(start: datetime, seconds: float = 0.0) -> str:
    """A moment, so many seconds after another, as UTC: 2026-06-14T14:02:11.250Z."""
    at = (start + timedelta(seconds=seconds)).astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
