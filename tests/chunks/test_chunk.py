"""`Chunk`: read, touched and written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.chunks import DataChunk, UnknownChunk, family, parse_chunk
from nbmastra.errors import ChunkError

TEXT = st.text(st.characters(), max_size=8)  # any code point, half an emoji too
LEAVES = (
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["text-delta", "tool-call", "finish", "object", "data-x", "brand-new", "goal"]) | TEXT
KEYS = st.sampled_from(["runId", "from", "payload", "object", "data", "metadata", "id", "type"]) | TEXT


def error_of(read: Callable[[], object]) -> str | None:
    """The message of the ChunkError that reading raises, if it raises one."""
    try:
        read()
    except ChunkError as error:
        return str(error)
    return None


@given(kind=TYPES, before=st.dictionaries(KEYS, JSON, max_size=3), after=st.dictionaries(KEYS, JSON, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_object_with_a_type_is_written_as_it_was_read(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    wire = before | {"type": kind} | {key: value for key, value in after.items() if key != "type"}
    for source in (wire, json.dumps(wire), json.dumps(wire, indent=1).encode()):
        chunk = parse_chunk(source)
        assert chunk.type == kind
        assert chunk.to_wire() == wire
        assert list(chunk.to_wire()) == list(wire)
        assert parse_chunk(chunk.to_json()) == chunk
        assert chunk.raw_payload() == wire.get("payload")
        assert (chunk.object, chunk.data) == (wire.get("object"), wire.get("data"))


@given(payload=JSON, kind=TYPES)
@settings(max_examples=60, deadline=None)
def test_a_payload_fits_or_raises_one_short_error(payload: Any, kind: str) -> None:
    chunk = parse_chunk({"type": kind, "runId": "r", "from": "AGENT", "payload": payload}, event=3)
    for read in (lambda: chunk.payload, lambda: chunk.delta):
        message = error_of(read)
        assert message is None or ("in event 3" in message and len(message) <= 300)


@pytest.mark.parametrize("tail", [',"metadata":{"a":1}}', ',"extra":null}', "}"])
def test_null_absent_and_further_keys_stay_what_they_are(tail: str) -> None:
    """Also where the payload doesn't come last, or the run is missing: no text is lost."""
    line = '{"type":"text-delta","runId":null,"from":"AGENT","payload":{"text":"x","id":"t","z":null,"a":1}' + tail
    chunk = parse_chunk(line)
    assert chunk.to_json() == line.encode()
    assert chunk.run_id is None
    assert chunk.payload.text == chunk.delta == "x"
    assert chunk.payload.model_extra == {"z": None, "a": 1}
    assert chunk.metadata == ({"a": 1} if "metadata" in tail else None)


def test_big_integers_keep_every_digit() -> None:
    big = 123456789012345678901234567890
    chunk = parse_chunk(
        f'{{"type":"tool-call","runId":"r","from":"AGENT","payload":{{"toolCallId":"c","toolName":"t","args":{{"n":{big}}}}}}}'
    )
    assert chunk.payload.args == {"n": big}
    assert chunk.to_wire()["payload"]["args"]["n"] == big


def test_half_an_emoji_is_read_and_written() -> None:
    line = rb'{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\ud83d"}}'
    chunk = parse_chunk(line)
    assert chunk.delta == chunk.payload.text == "\ud83d"
    assert chunk.to_json() == line
    assert parse_chunk(chunk.to_wire()).delta == "\ud83d"


@pytest.mark.parametrize("depth", [150, 400, 5_000, 200_000])
def test_deep_nesting_is_a_value_or_a_chunk_error(depth: int) -> None:
    nest = "[" * depth + "]" * depth
    deep_payload = (
        f'{{"type":"tool-call","runId":"r","from":"AGENT","payload":{{"toolCallId":"c","toolName":"t","args":{nest}}}}}'
    )
    deep_object = f'{{"type":"object","runId":"r","from":"AGENT","object":{nest}}}'
    for line, read in ((deep_payload, lambda chunk: chunk.payload.args), (deep_object, lambda chunk: chunk.object)):
        message = error_of(lambda line=line, read=read: read(parse_chunk(line, event=1)))
        assert message is None or ("event 1" in message and len(message) <= 300)
        assert (message is None) == (depth < 900)


def test_equality_of_deeply_nested_chunks_is_no_crash() -> None:
    nest = "[" * 5_000 + "]" * 5_000
    lines = [f'{{"type":"x","runId":"{run}","from":"AGENT","payload":{nest}}}' for run in "ab"]
    first, second = map(parse_chunk, lines)
    assert first != second


def test_b11_data_and_unknown_types_pass_whole() -> None:
    """B11: a data chunk without payload, or a new type, must not end the stream, and nothing of it is lost."""
    wires = [
        {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "Hi"}},
        {"type": "data-workspace-metadata", "data": {"k": 1}},
        {"type": "brand-new-2027", "runId": "r", "from": "AGENT", "payload": {"x": [1]}},
    ]
    delta, data, unknown = map(parse_chunk, wires)
    assert (delta.delta, data.delta, unknown.delta) == ("Hi", "", "")
    assert isinstance(data, DataChunk)
    assert (data.data, data.id, data.transient, data.payload, data.run_id) == ({"k": 1}, None, False, None, None)
    assert isinstance(unknown, UnknownChunk)
    assert unknown.payload == {"x": [1]}
    assert [chunk.to_wire() for chunk in (delta, data, unknown)] == wires
    assert [family(chunk.type) for chunk in (delta, data, unknown)] == ["text", "data", "unknown"]


def test_b12_a_bad_payload_names_type_path_and_event_once() -> None:
    """B12: no dump of a hundred union branches; the error says where to look, in one short line."""
    chunk = parse_chunk('{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t"}}', event=7)
    for read in (lambda: chunk.payload, lambda: chunk.delta):
        with pytest.raises(ChunkError) as caught:
            read()
        error = caught.value
        assert (error.chunk_type, error.path, error.event) == ("text-delta", "payload.text", 7)
        for part in ("text-delta", "payload.text", "event 7"):
            assert str(error).count(part) == 1
        assert len(str(error)) < 300


@pytest.mark.parametrize(
    "source", ['{"runId":"r"}', "42", "null", '"text"', "[]", "", "{", '{"type":1}', '{"type":null}', b"\xff"]
)
def test_b12_what_is_no_chunk_is_refused_in_one_short_error(source: str | bytes) -> None:
    """B12: JSON that isn't an object, or has no type, is no crash."""
    with pytest.raises(ChunkError) as caught:
        parse_chunk(source, event=7)
    assert "event 7" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_error_names_the_path_inside_of_the_payload() -> None:
    wire = {"type": "goal", "payload": {"results": [{"passed": True}, {"passed": "perhaps"}]}}
    with pytest.raises(ChunkError, match=r"payload\.objective"):
        _ = parse_chunk(wire).payload
    finish = {"stepResult": {"isContinued": "perhaps"}, "output": {}}
    with pytest.raises(ChunkError, match=r"payload\.stepResult\.isContinued"):
        _ = parse_chunk({"type": "finish", "runId": "r", "from": "AGENT", "payload": finish}).payload


def test_a_hostile_payload_cannot_replace_a_models_own_methods() -> None:
    payload = {"id": "t", "text": "x", "model_dump": 1, "__class__": 2, "__dict__": 3, "copy": 4}
    chunk = parse_chunk({"type": "text-delta", "runId": "r", "from": "AGENT", "payload": payload})
    assert chunk.payload.model_dump(by_alias=True, exclude_unset=True) == payload
    assert chunk.to_wire()["payload"] == payload


def test_an_object_chunk_has_an_object_and_no_payload() -> None:
    for value in (False, 0, [], {}, None, {"a": [1]}):
        chunk = parse_chunk({"type": "object", "runId": "r", "from": "AGENT", "object": value})
        assert (chunk.object, chunk.payload, chunk.delta) == (value, None, "")
        assert not isinstance(chunk, UnknownChunk)
