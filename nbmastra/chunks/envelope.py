"""`Chunk`: a small envelope around the bytes that came, its payload decoded only when touched.

The bytes before `"payload":` are the same for thousands of chunks, so they are parsed once into a `Head` that all of
them share; what follows stays raw. Writing a chunk gives back its bytes. A chunk without that shape (`object`,
`data-*`, further top-level keys) has a head of its own that holds all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec
from pydantic import ValidationError

from nbmastra.chunks.registry import delta_key, is_data, is_known, payload_model
from nbmastra.errors import ChunkError, printable

__all__ = ["Chunk", "DataChunk", "Head", "Heads", "UnknownChunk", "make_chunk", "parse_chunk"]

PAYLOAD_MARK = b'"payload":'
_PLAIN_ENVELOPE = {"type", "runId", "from", "payload"}
_MAX_HEADS = 4096


class _Text(msgspec.Struct, gc=False):
    text: str


class _ArgsText(msgspec.Struct, gc=False, rename={"text": "argsTextDelta"}):
    text: str


_DELTA_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "text": msgspec.json.Decoder(_Text).decode,
    "argsTextDelta": msgspec.json.Decoder(_ArgsText).decode,
}


_decode_json: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class _NoDelta:
    text = ""


_NO_DELTA = _NoDelta()


def _no_delta(_body: bytes) -> _NoDelta:
    return _NO_DELTA


def _not_alone(_body: bytes) -> _NoDelta:
    raise msgspec.DecodeError("the payload doesn't stand alone")


class Head:
    """What chunks of one type, run and origin share; for a chunk of unusual shape, all of it (`whole`)."""

    __slots__ = ("_validate", "complete", "decode_delta", "from_", "make", "prefix", "run_id", "type", "whole")

    def __init__(self, envelope: dict[str, Any], prefix: bytes, whole: dict[str, Any] | None = None) -> None:
        kind = envelope.get("type")
        self.type: str = kind if isinstance(kind, str) else ""
        run_id = envelope.get("runId")
        origin = envelope.get("from")
        self.run_id: str | None = run_id if isinstance(run_id, str) else None
        self.from_: str | None = origin if isinstance(origin, str) else None
        self.prefix = prefix
        self.whole = whole
        self.complete = self.run_id is not None and self.from_ is not None
        self._validate: Callable[[bytes], Any] | None = None
        make, decode = _traits(self.type)
        self.decode_delta: Callable[[bytes], Any] = decode if whole is None or decode is _no_delta else _not_alone
        self.make: type[Chunk] = make

    @property
    def validate(self) -> Callable[[bytes], Any]:
        """Parser of the payload's bytes: the type's model, or plain JSON for a type without one."""
        if self._validate is None:
            model = payload_model(self.type)
            if model is None:
                self._validate = json.loads
            else:
                model.model_rebuild()
                self._validate = cast("Callable[[bytes], Any]", model.__pydantic_validator__.validate_json)
        return self._validate


class Chunk(msgspec.Struct, gc=False, eq=False, weakref=False):
    """One chunk: `type`, `run_id`, `from_`, `payload` (a model of its type), `delta` (the text of any delta).

    `event` is its number in its stream, from 0, or -1 where there is none. Source: WIRE, "A chunk".
    """

    type: str
    head: Head
    body: bytes
    event: int = -1
    kept_delta: str | None = None
    """The text of `delta` once the fold has read it: the same object, so that nobody parses it again; else None."""

    @property
    def run_id(self) -> str | None:
        """Id of the run it belongs to; None where the wire has none (task events, tripwire, data)."""
        return self.head.run_id

    @property
    def from_(self) -> str | None:
        """AGENT, USER, SYSTEM, WORKFLOW or NETWORK; None where the wire has none."""
        return self.head.from_

    @property
    def payload(self) -> Any:
        """The payload as the model of its type (plain JSON for unknown types, None if absent); decoded on each access.

        Raises ChunkError, which names type, path and event number, when it doesn't fit.
        """
        head = self.head
        if head.whole is None:
            try:
                return head.validate(self.body)
            except ValueError as error:
                if not _is_syntax(error):
                    raise self._payload_error(error) from None
        try:
            # Further keys behind the payload, half an emoji in a string, or no JSON at all.
            value = self.raw_payload()
            model = payload_model(head.type)
            if model is None or (value is None and "payload" not in (head.whole or ())):
                return value
            model.model_rebuild()
            return model.model_validate(value)
        except ValidationError as error:
            raise self._payload_error(error) from None

    @property
    def delta(self) -> str:
        """The text of a text, reasoning or tool-argument delta without building a model; "" for all other types.

        Raises ChunkError when the text is missing.
        """
        if self.kept_delta is not None:
            return self.kept_delta
        try:
            return self.head.decode_delta(self.body).text
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._slow_delta()

    def _slow_delta(self) -> str:
        # Half of an emoji (a lone surrogate) is JSON that the fast parser refuses; so are keys behind the payload.
        key = delta_key(self.type) or ""
        payload = self.raw_payload()
        value: Any = cast("dict[str, Any]", payload).get(key) if isinstance(payload, dict) else None
        if isinstance(value, str):
            return value
        raise ChunkError("a string is required", chunk_type=self.type, path=f"payload.{key}", event=self._event)

    def raw_payload(self) -> Any:
        """The payload as plain JSON values, nothing checked; None if absent. Raises ChunkError when it isn't JSON."""
        if self.head.whole is not None:
            return self.head.whole.get("payload")
        try:
            return _decode_json(self.body)
        except (ValueError, RecursionError):
            # Keys behind the payload, half an emoji, NaN: what the fast parser refuses.
            return self.to_wire().get("payload")

    @property
    def object(self) -> Any:
        """The (partial) object of an `object` or `object-result` chunk; None if absent."""
        return self._top("object")

    @property
    def data(self) -> Any:
        """The data of a `data-*` chunk; None if absent."""
        return self._top("data")

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Metadata beside the payload; None if absent."""
        value = self._top("metadata")
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    def _top(self, key: str) -> Any:
        if self.head.whole is not None:
            return self.head.whole.get(key)
        if f'"{key}"'.encode() not in self.body:
            return None
        try:
            return self.to_wire().get(key)
        except ChunkError:
            return None

    def to_json(self) -> bytes:
        """The chunk as JSON: for an untouched one, the bytes that came."""
        return self.body if self.head.whole is not None else self.head.prefix + self.body + b"}"

    def to_wire(self) -> dict[str, Any]:
        """The chunk as the wire's dict, keys in their order. Raises ChunkError when its payload isn't JSON."""
        try:
            return json.loads(self.to_json())
        except (ValueError, RecursionError) as error:
            raise ChunkError(f"not JSON ({error})", chunk_type=self.type, path="payload", event=self._event) from None

    def _payload_error(self, error: ValueError) -> ChunkError:
        path, message = "payload", str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = ".".join(["payload", *map(str, first["loc"])])
            message = first["msg"]
        return ChunkError(message, chunk_type=self.type, path=path, event=self._event)

    @property
    def _event(self) -> int | None:
        return self.event if self.event >= 0 else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chunk):
            return NotImplemented
        mine, others = self.to_json(), other.to_json()
        return mine == others or _json_or_bytes(mine) == _json_or_bytes(others)

    __hash__ = None  # type: ignore[assignment]  # equal chunks may have different bytes

    def __repr__(self) -> str:
        text = self.body if len(self.body) <= 120 else self.body[:117] + b"..."
        run = f" run={self.run_id[:8]}" if self.run_id else ""
        return printable(f"<{type(self).__name__} {self.type}{run} {text.decode('utf-8', 'replace')}>", 400)


def _is_syntax(error: ValueError) -> bool:
    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_context=False, include_input=False)[0]["type"] == "json_invalid"
    return True


def _json_or_bytes(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class UnknownChunk(Chunk, gc=False, eq=False):
    """A chunk of a type that this version doesn't know; `payload` is plain JSON, nothing is lost."""


class DataChunk(Chunk, gc=False, eq=False):
    """A `data-*` chunk: `data` and, if given, `id` and `transient` beside it."""

    @property
    def id(self) -> str | None:
        """Id that later chunks of the same thing carry; None if absent."""
        return self._top("id")

    @property
    def transient(self) -> bool:
        """True if the chunk isn't to be kept in the message history."""
        return bool(self._top("transient"))


@lru_cache(maxsize=512)
def _traits(kind: str) -> tuple[type[Chunk], Callable[[bytes], Any]]:
    """The class of a type's chunks, and the decoder of its deltas."""
    key = delta_key(kind)
    make = DataChunk if is_data(kind) else Chunk if is_known(kind) else UnknownChunk
    return make, _DELTA_DECODERS[key] if key else _no_delta


class Heads(dict[bytes, Head]):
    """Heads by the bytes before the payload; a server that never repeats one costs time, not memory."""

    def __missing__(self, prefix: bytes) -> Head:
        envelope = _read_envelope(prefix + PAYLOAD_MARK + b"null}")
        if not isinstance(envelope, dict) or not _PLAIN_ENVELOPE.issuperset(cast("dict[str, Any]", envelope)):
            raise ValueError("not a plain envelope")
        checked = cast("dict[str, Any]", envelope)
        if not isinstance(checked.get("type"), str):
            raise ValueError("no type")
        if len(self) >= _MAX_HEADS:
            self.clear()
        head = self[prefix] = Head(checked, prefix + PAYLOAD_MARK)
        return head


def _read_envelope(text: bytes) -> Any:
    try:
        return _decode_json(text)
    except ValueError:  # half an emoji, NaN: what the fast parser refuses
        return json.loads(text)


def make_chunk(line: bytes, heads: Heads, event: int = -1) -> Chunk:
    """The chunk in one JSON text (no line end). Raises ValueError when its envelope can't be read.

    The payload of a plain envelope isn't looked at here: that it is JSON is found when it is touched.
    """
    if line.endswith(b"}"):
        prefix, mark, body = line.partition(PAYLOAD_MARK)
        if mark:
            try:
                head = heads[prefix]
            except ValueError:
                pass
            else:
                # Where run or origin is missing they may stand behind the payload; such chunks are few, so look.
                if head.complete or _is_json(body[:-1]):
                    return head.make(head.type, head, body[:-1], event)
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"a chunk is a JSON object, not {type(value).__name__}")
    whole = cast("dict[str, Any]", value)
    if not isinstance(whole.get("type"), str):
        raise ValueError("a chunk needs a type")
    head = Head(whole, b"", whole)
    return head.make(head.type, head, line, event)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def parse_chunk(source: bytes | str | dict[str, Any], *, event: int = -1) -> Chunk:
    """The chunk in JSON bytes, JSON text or a wire dict. Raises ChunkError when it isn't one."""
    try:
        if isinstance(source, dict):
            line = _written(source).encode("utf-8", "surrogatepass")
        else:
            line = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
            line = line.strip()
        return make_chunk(line, _SHARED_HEADS, event)
    except (ValueError, TypeError, RecursionError) as error:
        raise ChunkError(f"not a chunk ({error})", event=event if event >= 0 else None) from None


_SHARED_HEADS = Heads()
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes one for each call
