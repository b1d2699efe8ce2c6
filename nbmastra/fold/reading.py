"""How the fold reads payloads: plain values, every shape tolerated that a server may send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec

from nbmastra.chunks import Chunk
from nbmastra.errors import ChunkError
from nbmastra.fold.parts import ErrorInfo

__all__ = ["ORIGINS", "as_dict", "as_list", "as_text", "error_info", "is_chunk_like", "read", "read_row", "schema_of"]


_T = TypeVar("_T")


def read(chunk: Chunk, decoder: msgspec.json.Decoder[_T], shape: type[_T]) -> _T:
    """The few fields of a payload that are needed, without building the rest. Raises ChunkError."""
    if chunk.head.whole is None:
        try:
            return decoder.decode(chunk.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # a wrong type, half an emoji, or keys behind the payload: the slow way finds out
    try:
        return msgspec.convert(chunk.raw_payload(), shape)
    except (msgspec.ValidationError, ValueError) as error:
        if isinstance(error, ChunkError):
            raise
        raise ChunkError(str(error), chunk_type=chunk.type, path="payload", event=chunk.event) from None


def read_row(chunks: Sequence[Chunk], decoder: msgspec.json.Decoder[_T]) -> list[_T]:
    """The same of several chunks whose payloads stand alone, in one call. Raises ValueError: read one by one then."""
    bodies = b"\n".join([chunk.body for chunk in chunks])
    if bodies.count(b"\n") != len(chunks) - 1:
        raise ValueError("a payload of several lines")
    values = decoder.decode_lines(bodies)
    if len(values) != len(chunks):
        raise ValueError("an empty payload")
    return values


def as_dict(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def error_info(error: object, fallback: str = "the server gave no reason") -> ErrorInfo:
    """Any JSON value as an error: string, `{message, name, statusCode, cause…}`, null or something else."""
    if isinstance(error, str):
        return ErrorInfo(error.strip() or fallback)
    if not isinstance(error, dict):
        return ErrorInfo(fallback if error is None else json.dumps(error, ensure_ascii=False))
    value = as_dict(cast("object", error))
    cause = as_dict(value.get("cause"))
    details = as_dict(value.get("details"))
    message = next(
        (
            text.strip()
            for candidate in (
                value.get("message"),
                cause.get("message"),
                value.get("error"),
                details.get("errorMessage"),
            )
            if (text := as_text(candidate)).strip()
        ),
        "",
    )
    if not message:
        nested = as_dict(value.get("error"))
        message = error_info(nested, fallback).message if nested else fallback
    status = next(
        (
            code
            for candidate in (value, cause, as_dict(value.get("data")))
            if isinstance(code := candidate.get("statusCode", candidate.get("status")), int)
        ),
        None,
    )
    return ErrorInfo(
        message,
        as_text(value.get("name")) or as_text(value.get("id")) or "Error",
        status,
        as_text(value.get("stack")) or None,
        value,
    )


def schema_of(value: object) -> dict[str, Any] | None:
    """A JSON schema that the wire sends as text or as an object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


ORIGINS = ("AGENT", "USER", "SYSTEM", "WORKFLOW", "NETWORK")  # no set: what is looked up may be unhashable


def is_chunk_like(value: object) -> bool:
    """True for a nested chunk; what a tool writes may look like one, so type, run and origin must all be there."""
    nested = as_dict(value)
    return (
        isinstance(nested.get("type"), str) and isinstance(nested.get("runId"), str) and nested.get("from") in ORIGINS
    )
