"""What a message may carry from the kernel: the head of a DataFrame, a figure, a file, any value, as message parts."""

from __future__ import annotations

import base64
import io
import json
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from nbmastra.errors import SettingsError
from nbmastra.widgets.format import one_line, size

__all__ = ["Attachment", "attach", "attachable"]

ROWS = 20
"""So many rows of a table are sent."""
MAX_TEXT, MAX_BYTES = 200_000, 10_000_000
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/x-sh", "application/javascript")


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something that goes with a message: its name, what it is in a few words, and the parts that are sent."""

    name: str
    about: str
    parts: list[dict[str, Any]] = field(repr=False)


def attach(value: Any, name: str = "") -> Attachment:
    """The value as parts of a message. Raises SettingsError for what is too large, can't be read, or is no value.

    A table (pandas, polars): its first 20 rows as CSV; a figure (matplotlib, PIL, altair): a PNG; a path: its text, or
    the file; bytes: a file; anything else: text, as JSON where it is that.
    """
    if isinstance(value, Attachment):
        return value
    if isinstance(value, Path):
        return _file(value, name)
    if hasattr(value, "columns") and callable(getattr(value, "head", None)):
        return _table(value, name or "table")
    picture = _png(value)
    if picture is not None:
        name = name or "figure"
        return Attachment(name, f"PNG, {size(len(picture))}", [_file_part(picture, "image/png", f"{name}.png")])
    if isinstance(value, bytes | bytearray):
        name = name or "file"
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Attachment(name, f"{kind}, {size(len(value))}", [_file_part(bytes(value), kind, name)])
    return _text(name or "value", value if isinstance(value, str) else _json(value), type(value).__name__)


def _table(value: Any, name: str) -> Attachment:
    rows, columns = len(value), len(value.columns)
    head = value.head(ROWS)
    written: str = head.write_csv() if hasattr(head, "write_csv") else head.to_csv()
    shape = f"{rows:,} × {columns}"
    title = f"{name}.head({ROWS})" if rows > ROWS else name
    text = f"{title}, of a table of {shape}:\n\n```csv\n{written.strip()}\n```"
    if len(text) > MAX_TEXT:
        raise SettingsError(f"{name} is too wide to be sent: {size(len(text))}; choose columns of it first")
    return Attachment(title, f"{min(rows, ROWS)} × {columns}", [{"type": "text", "text": text}])


def _png(value: Any) -> bytes | None:
    """A figure as PNG; None if it is none."""
    kind = type(value).__module__.partition(".")[0]
    if callable(getattr(value, "savefig", None)):
        file = io.BytesIO()
        value.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()
    if kind == "PIL" and callable(getattr(value, "save", None)):
        file = io.BytesIO()
        value.save(file, format="png")
        return file.getvalue()
    made = value._repr_png_() if callable(getattr(value, "_repr_png_", None)) else None
    return made if isinstance(made, bytes) else None


def _file(path: Path, name: str) -> Attachment:
    path = path.expanduser()
    try:
        count = path.stat().st_size
        if count > MAX_BYTES:
            raise SettingsError(f"{path.name} is too large to be sent: {size(count)}, at most {size(MAX_BYTES)}")
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror or error}") from None
    name, kind = name or path.name, mimetypes.guess_type(path.name)[0] or ""
    if kind.startswith(_TEXT_TYPES) or not kind:
        try:
            return _text(name, data.decode(), "file")
        except UnicodeDecodeError:
            pass
    kind = kind or "application/octet-stream"
    return Attachment(name, f"{kind}, {size(count)}", [_file_part(data, kind, path.name)])


def _file_part(data: bytes, kind: str, name: str) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{name} is too large to be sent: {size(len(data))}, at most {size(MAX_BYTES)}")
    return {"type": "file", "data": base64.b64encode(data).decode(), "mediaType": kind, "filename": name}


def _text(name: str, text: str, what: str) -> Attachment:
    if len(text) > MAX_TEXT:
        raise SettingsError(f"{name} is too long to be sent: {size(len(text))}, at most {size(MAX_TEXT)} as text")
    whole = f"{name}:\n\n```\n{text}\n```"
    return Attachment(name, f"{one_line(what, 40)}, {size(len(text.encode()))}", [{"type": "text", "text": whole}])


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return str(value)


_PLAIN = (str, bytes, bytearray, list, dict, Path)


def attachable(names: Mapping[str, Any], hidden: Mapping[str, Any]) -> dict[str, str]:
    """Variables that can be attached, with what they are, tables and figures first."""
    first: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in sorted(names.items()):
        if name.startswith("_") or (name in hidden and hidden[name] is value) or isinstance(value, type):
            continue
        if hasattr(value, "columns") and callable(getattr(value, "head", None)):
            first[name] = f"table, {len(value):,} × {len(value.columns)}"
        elif callable(getattr(value, "savefig", None)) or type(value).__module__.startswith("PIL."):
            first[name] = "figure"
        elif isinstance(value, _PLAIN):
            rest[name] = type(cast("object", value)).__name__
    return {**first, **rest}
