"""JSON values as HTML: a tree that folds, a tree that grows, a table of records, an image.

Everything has a bound, so that one huge result can't stop a browser; what is left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from nbmastra.widgets.format import as_json, as_records, one_line, short_json
from nbmastra.widgets.markdown import escape

__all__ = [
    "Path",
    "Shown",
    "cell",
    "growing_table",
    "growing_tree",
    "image_source",
    "path_words",
    "records_table",
    "result",
    "tree",
]

MAX_LINES = 300
MAX_ENTRIES = 100
MAX_DEPTH = 12
MAX_STRING = 200
MAX_IMAGE = 2_000_000
ROWS, COLUMNS = 4, 12
TEXT_LINES, TEXT_CHARS = 12, 2_000

Path = tuple[str | int, ...]


class Shown(NamedTuple):
    """HTML of a value, and what it is in words; `cut` if there is more to show."""

    html: str
    words: str = ""
    cut: bool = False


def tree(value: Any, *, bad: Mapping[str, str] | None = None, label: str = "") -> str:
    """The value as nested lists, folded below the second level. `bad` says of paths (legs[1].km) why they don't fit."""
    writer = _Writer(bad or {})
    if isinstance(value, dict | list) and value:
        return f'<ul class="nbm-json"{_label(label)}>{writer.entries(cast("Any", value), 0, ())}</ul>'
    return f'<ul class="nbm-json"{_label(label)}>{writer.line("", value, ())}</ul>'


def _label(label: str) -> str:
    return f' aria-label="{escape(label)}"' if label else ""


class _Writer:
    def __init__(self, bad: Mapping[str, str]) -> None:
        self.bad = bad
        self.left = MAX_LINES

    def entries(self, value: dict[str, Any] | list[Any], depth: int, path: Path) -> str:
        out: list[str] = []
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        for index, (key, item) in enumerate(pairs):
            if index == MAX_ENTRIES or self.left <= 0:
                out.append(_left_out(len(pairs) - index))
                break
            out.append(self.entry(key, item, depth, (*path, key)))
        return "".join(out)

    def entry(self, key: str | int, value: Any, depth: int, path: Path) -> str:
        self.left -= 1
        name = _key(key)
        if not isinstance(value, dict | list) or not value or depth >= MAX_DEPTH or self.left <= 0:
            return self.line(name, value, path)
        container = cast("dict[str, Any] | list[Any]", value)
        if depth == 0 or self._leads_to_bad(path):
            inner = self.entries(container, depth + 1, path)
            return f"<li><div>{name}{_extent(container)}</div><ul>{inner}</ul></li>"
        summary = f'{name}<span class="nbm-gist nbm-muted">{escape(short_json(container))}</span>'
        inner = self.entries(container, depth + 1, path)
        return f"<li><details><summary>{summary}</summary><ul>{inner}</ul></details></li>"

    def line(self, name: str, value: Any, path: Path) -> str:
        why = self.bad.get(path_words(path)) if self.bad else None
        if why is None:
            return f"<li><div>{name}{_value(value)}</div></li>"
        reason = f'<span class="nbm-json__why">{escape(one_line(why))}</span>'
        return f'<li class="is-bad"><div>{name}{_value(value)}{reason}</div></li>'

    def _leads_to_bad(self, path: Path) -> bool:
        words = path_words(path) if self.bad else ""
        return any(bad.startswith(words) and bad[len(words) :][:1] in (".", "[", "") for bad in self.bad)


def growing_tree(value: Any, path: Path) -> str:
    """An object that is being written: open along the newest path, which is lit; what is closed is one line each.

    Costs and changes little per call, however large the object is: of long lists only the end is shown.
    """
    if not isinstance(value, dict | list):
        return f'<ul class="nbm-json"><li class="is-new"><div>{_value(value)}</div></li></ul>'
    return f'<ul class="nbm-json">{_growing(cast("Any", value), path)}</ul>'


def path_words(path: Path) -> str:
    """A path as people write it: legs[1].wind.gust_kmh."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _growing(value: dict[str, Any] | list[Any], path: Path, depth: int = 0) -> str:
    keys: Sequence[str | int] = list(value) if isinstance(value, dict) else range(len(value))
    hidden = max(0, (len(keys) - 20) // 20 * 20)  # in steps, so that most frames change the end only
    out = [_left_out(hidden, "earlier")] if hidden else []
    for key in keys[hidden:]:
        item: Any = value[key]  # type: ignore[index]
        name, newest = _key(key), bool(path) and key == path[0]
        if newest and isinstance(item, dict | list) and item and depth < MAX_DEPTH:
            container = cast("dict[str, Any] | list[Any]", item)
            # No count here: it would change with every item, and with it all that follows.
            out.append(f"<li><div>{name}</div><ul>{_growing(container, path[1:], depth + 1)}</ul></li>")
        elif isinstance(item, dict | list) and item:
            out.append(f'<li><div>{name}<span class="nbm-muted">{escape(short_json(item))}</span></div></li>')
        elif newest:
            out.append(f'<li class="is-new"><div>{name}{_value(item, end=True)}</div></li>')
        else:
            out.append(f"<li><div>{name}{_value(item)}</div></li>")
    return "".join(out)


def _key(key: str | int) -> str:
    cls = "nbm-v-n" if isinstance(key, int) else "nbm-k"
    return f'<span class="{cls}">{escape(one_line(str(key), 80))}</span>: '


def _extent(value: dict[str, Any] | list[Any]) -> str:
    return f'<span class="nbm-muted">[{len(value)}]</span>' if isinstance(value, list) else ""


def _left_out(count: int, word: str = "more") -> str:
    return f'<li class="nbm-muted"><div>… {count:,} {word}</div></li>'


def _value(value: Any, *, end: bool = False) -> str:
    if isinstance(value, str):
        text = value
        if len(text) > MAX_STRING:
            text = "…" + text[-MAX_STRING:] if end else text[:MAX_STRING] + "…"
        return f'<span class="nbm-v-s">{escape(as_json(text))}</span>'
    if isinstance(value, bool) or value is None:
        return f'<span class="nbm-v-b">{as_json(value)}</span>'
    if isinstance(value, int | float):
        return f'<span class="nbm-v-n">{escape(as_json(value))}</span>'
    return f'<span class="nbm-muted">{escape(short_json(value))}</span>'


def growing_table(records: Sequence[dict[str, Any]], columns: Sequence[str] | None = None, *, lit: bool = True) -> str:
    """A table that gets rows: of many the last ones, the newest lit. Most rows change the end of the HTML only."""
    hidden = max(0, (len(records) - 50) // 50 * 50)
    earlier = f'<p class="nbm-muted nbm-line">… {hidden:,} earlier rows</p>' if hidden else ""
    table = records_table(records[hidden:], "Elements", None, columns)
    newest = table.rfind("<tr>")
    return earlier + (f'{table[:newest]}<tr class="is-new">{table[newest + 4 :]}' if lit else table)


def records_table(
    records: Sequence[dict[str, Any]], label: str, limit: int | None = ROWS, columns: Sequence[str] | None = None
) -> str:
    """A table with a column per key of the first records, or those named; numbers stand on the right."""
    columns = columns or list(dict.fromkeys(key for record in records[:50] for key in record))
    columns = columns[:COLUMNS]
    rows = records if limit is None else records[:limit]
    numeric = {column for column in columns if _numeric([row.get(column) for row in rows])}
    head = "".join(f'<th scope="col"{_num(c in numeric)}>{escape(one_line(str(c), 60))}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_num(c in numeric)}>{cell(row.get(c))}</td>" for c in columns) + "</tr>" for row in rows
    )
    return (
        f'<div class="nbm-md__scroll" tabindex="0" role="group" aria-label="{escape(label)}"><table class="nbm-grid">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numeric(values: list[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in there)


def _num(numeric: bool) -> str:
    return ' class="nbm-num"' if numeric else ""


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return ""
    if isinstance(value, str):
        return escape(one_line(value, 80))
    return escape(as_json(value) if isinstance(value, int | float) else short_json(value, 60))


def result(value: Any, label: str, *, whole: bool = False) -> Shown:
    """Whatever a tool gave, as it reads best."""
    records = as_records(value)
    if records is not None:
        limit = MAX_LINES if whole else ROWS
        words = f"{len(records):,} record{'' if len(records) == 1 else 's'}"
        return Shown(records_table(records, label, limit), words, len(records) > limit)
    source = image_source(value)
    if source is not None:
        return Shown(f'<img class="nbm-image" alt="{escape(label)}" src="{source}">', "image")
    if isinstance(value, str):
        text = value[: 50 * TEXT_CHARS] if whole else "\n".join(value[:TEXT_CHARS].split("\n")[:TEXT_LINES])
        cut = len(text) < len(value)
        words = f"{len(value):,} characters" if cut else ""
        return Shown(f'<pre class="nbm-pre">{escape(text + ("…" if cut else ""))}</pre>', words, cut and not whole)
    words = f"{len(cast('list[Any]', value)):,} items" if isinstance(value, list) else ""
    return Shown(tree(value), words)


_RASTER = re.compile(r"image/(png|jpeg|gif|webp)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=]+")


def image_source(value: Any, mime: str | None = None, data: str | None = None) -> str | None:
    """A data URI of a raster image, from an object with a media type and base64 data; None for anything else."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        mime = next((fields[k] for k in ("mimeType", "mediaType", "mime_type") if isinstance(fields.get(k), str)), None)
        data = next((fields[k] for k in ("base64", "data") if isinstance(fields.get(k), str)), None)
    if mime is None or data is None or len(data) > MAX_IMAGE:
        return None
    return f"data:{mime};base64,{data}" if _RASTER.fullmatch(mime) and _BASE64.fullmatch(data) else None
