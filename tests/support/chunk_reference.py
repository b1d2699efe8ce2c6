"""Writes `docs/chunks.md`: every chunk type, its fields and an example. `python -m tests.support.chunk_reference`"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from nbmastra.chunks import CHUNK_TYPES, Chunk, family, parse_chunk, payload_model
from nbmastra.chunks.payload import Payload
from tests.support.recordings import recorded_chunks, sample_lines

TARGET = Path(__file__).parents[2] / "docs" / "chunks.md"
INTRO = """\
# Chunks

A stream is a sequence of chunks: `chunk.type`, `chunk.run_id`, `chunk.from_` (AGENT, USER, SYSTEM, WORKFLOW or
NETWORK) and `chunk.payload`. The payload of each type is listed here, by family (`nbmastra.chunks.family(type)`).

- Attributes are snake_case, the wire is camelCase. Keys that a model doesn't know are kept: `payload.model_extra`.
- `chunk.delta` is the text of any delta; `nested_chunk(chunk)` is the chunk inside of a chunk; `chunk.to_wire()` gives
  back what came.
- A payload is read when it is touched. One that doesn't fit raises `ChunkError` with type, path and event number.
- A type that isn't here is an `UnknownChunk`: its payload is plain JSON, nothing is lost.
- *optional* is what may be absent; the attribute is then None. Times are UTC `datetime`s, or milliseconds where that
  is said.

This page is generated: `python -m tests.support.chunk_reference`.
"""
KINDS = (*CHUNK_TYPES, "agent-execution-event-*", "workflow-execution-event-*", "data-*")
MAX_TEXT, MAX_ITEMS, MAX_KEYS, MAX_DEPTH = 40, 2, 12, 3


def reference() -> str:
    """The text of the page."""
    parts = [INTRO]
    for name in dict.fromkeys(map(family, KINDS)):
        parts.append(f"## {name[0].upper()}{name[1:]}\n")
        parts += [_section(kind) for kind in KINDS if family(kind) == name]
    return "\n".join(parts)


def model_of(kind: str) -> type[Payload]:
    """The model of a type that has one."""
    model = payload_model(kind)
    assert model is not None, kind
    return model


def _section(kind: str) -> str:
    lines = [f"### {kind}\n"]
    if kind == "data-*":
        lines += [
            "What an application, or a part of Mastra, defines for itself: no payload, no run; `chunk.data` is any",
            "JSON, `chunk.id` names the thing it belongs to, a `chunk.transient` one isn't kept in the history.\n",
        ]
    else:
        model = model_of(kind)
        lines.append(f"{inspect.getdoc(model)}\n")
        rows = list(_rows(model))
        if rows:
            lines += ["| attribute | on the wire | type | |", "|---|---|---|---|", *rows, ""]
    return "\n".join([*lines, _example(kind)])


def _rows(model: type[Payload], attribute: str = "", wire: str = "") -> Iterator[str]:
    docs = field_docs(model)
    # What is always there comes first, what hardly anybody reads last.
    fields = sorted(
        model.model_fields.items(), key=lambda item: (not item[1].is_required(), item[0] == "provider_metadata")
    )
    for name, field in fields:
        key = _wire_key(name, field)
        optional = "" if field.is_required() else "*optional* "
        kind, inner, suffix = _type(field.annotation)
        yield f"| `{attribute}{name}` | `{wire}{key}` | {kind} | {optional}{docs[name]} |"
        if inner is not None:
            yield from _rows(inner, f"{attribute}{name}{suffix}.", f"{wire}{key}{suffix}.")


def _wire_key(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    return "` or `".join(map(str, alias.choices)) if isinstance(alias, AliasChoices) else str(alias or name)


def _type(annotation: Any) -> tuple[str, type[Payload] | None, str]:
    """Name of a type, without its None; the model inside of it, and `[]` if that is a list's element."""
    if get_origin(annotation) in (Union, types.UnionType):
        found = [_type(part) for part in get_args(annotation) if part is not type(None)]
        names = list(dict.fromkeys(name for name, _, _ in found))
        inner = next((entry for entry in found if entry[1] is not None), ("", None, ""))
        return "number" if names == ["int", "float"] else " or ".join(names), inner[1], inner[2]
    if annotation is Any:
        return "any JSON", None, ""
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is list:
        name, inner, _ = _type(get_args(annotation)[0])
        return f"list of {name}", inner, "[]"
    if get_origin(annotation) is dict:
        return "dict", None, ""
    if issubclass(annotation, Payload):
        return f"`{annotation.__name__}`", annotation, ""
    return annotation.__name__, None, ""


@cache
def _source_docs(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {
            first.target.id: inspect.cleandoc(second.value.value).replace("\n", " ")
            for first, second in zip(node.body, node.body[1:], strict=False)
            if isinstance(first, ast.AnnAssign)
            and isinstance(first.target, ast.Name)
            and isinstance(second, ast.Expr)
            and isinstance(second.value, ast.Constant)
            and isinstance(second.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def field_docs(model: type[Payload]) -> dict[str, str]:
    """What is written below each field of a model and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Payload):
            found |= _source_docs(base.__module__).get(base.__name__, {})
    return found


def _example(kind: str) -> str:
    prefix = kind.removesuffix("*")
    fits = str.startswith if kind.endswith("*") else str.__eq__
    found: tuple[str, Chunk] | None = None
    for name, chunk in recorded_chunks():
        if fits(chunk.type, prefix) and (found is None or _richness(chunk) > _richness(found[1])):
            found = name, chunk
    if found is None:
        found = "", next(chunk for chunk in map(parse_chunk, sample_lines()) if chunk.type == kind)
    title = f"From the recording `{found[0]}`, shortened" if found[0] else "Made up, as no recording has one"
    return f"{title}:\n\n```json\n{_pretty(_shorten(found[1].to_wire()))}\n```\n"


def _richness(chunk: Chunk) -> int:
    wire = chunk.to_wire()
    payload = wire.get("payload")
    return len(payload) if isinstance(payload, dict) else len(wire)


def _shorten(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if isinstance(value, list | dict) and value and depth >= MAX_DEPTH:
        return ["…"] if isinstance(value, list) else {"…": "…"}
    if isinstance(value, list):
        return [_shorten(item, depth + 1) for item in value[:MAX_ITEMS]] + ["…"] * (len(value) > MAX_ITEMS)
    if isinstance(value, dict):
        kept = {key: _shorten(item, depth + 1) for key, item in list(value.items())[:MAX_KEYS]}
        return kept | ({"…": "…"} if len(value) > MAX_KEYS else {})
    return value


def _pretty(value: Any, indent: str = "") -> str:
    """JSON, each object on one line where it is short enough."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= 100 or not isinstance(value, list | dict):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _pretty(item, inner) for item in value) + f"\n{indent}]"
    items = (f"{inner}{json.dumps(key, ensure_ascii=False)}: {_pretty(item, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
