"""What the models make of what comes: dates, spellings, files, and types that no recording has."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from nbmastra.chunks import CHUNK_TYPES, UnknownChunk, family, nested_chunk, parse_chunk
from nbmastra.chunks.control import finish_reason
from nbmastra.chunks.payload import Payload
from nbmastra.errors import ChunkError
from tests.support.recordings import recorded_chunks, sample_lines

TASK = {"taskId": "t", "toolName": "n", "toolCallId": "c", "runId": "r", "agentId": "a"}


def payload_of(kind: str, payload: Any) -> Any:
    return parse_chunk({"type": kind, "runId": "r", "from": "AGENT", "payload": payload}).payload


def test_every_type_has_a_recording_or_a_sample_that_fits() -> None:
    samples = [parse_chunk(line) for line in sample_lines()]
    assert all(isinstance(chunk.payload, Payload) for chunk in samples)
    recorded = {chunk.type for _, chunk in recorded_chunks()}
    assert set(CHUNK_TYPES) <= recorded | {chunk.type for chunk in samples}
    assert recorded.isdisjoint(chunk.type for chunk in samples)


def test_every_sample_is_written_as_it_was_read_and_keeps_its_keys() -> None:
    for line in sample_lines():
        chunk = parse_chunk(line)
        assert chunk.to_json() == line.encode()
        assert set(chunk.payload.model_dump(by_alias=True, exclude_unset=True)) == set(json.loads(line)["payload"])
        assert chunk.type == "raw" or not chunk.payload.model_extra, "a sample has only what its model knows"


@pytest.mark.parametrize(
    "wire",
    ["2026-01-02T03:04:05.678Z", "2026-01-02T04:04:05.678+01:00", "2026-01-02 03:04:05.678", 1767323045678],
)
def test_a_date_is_a_utc_time_as_text_and_as_milliseconds(wire: str | int) -> None:
    payload = payload_of("background-task-completed", TASK | {"completedAt": wire})
    assert payload.completed_at == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    assert payload.completed_at.utcoffset().total_seconds() == 0


def test_milliseconds_near_1970_are_not_taken_for_seconds() -> None:
    assert payload_of("response-metadata", {"timestamp": 1000}).timestamp == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert payload_of("response-metadata", {"timestamp": None}).timestamp is None


@pytest.mark.parametrize("wire", [1e300, "yesterday", True, [], {}])
def test_what_is_no_date_is_a_chunk_error(wire: Any) -> None:
    with pytest.raises(ChunkError, match=r"payload\.completedAt"):
        payload_of("background-task-completed", TASK | {"completedAt": wire})


@pytest.mark.parametrize("key", ["suspendData", "suspendPayload"])
def test_both_spellings_of_a_tasks_suspension_are_read(key: str) -> None:
    payload = payload_of("background-task-suspended", TASK | {key: {"q": 1}})
    assert payload.suspend_data == payload.suspend_payload == {"q": 1}
    assert payload_of("background-task-suspended", TASK).suspend_data is None


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ("tool_calls", "tool-calls"),
        ("tool-calls", "tool-calls"),
        ("content_filter", "content-filter"),
        ("content-filter", "content-filter"),
        ("stop", "stop"),
        ("max_time", "max_time"),
        ({"unified": "tool_calls", "raw": "tool_use"}, "tool-calls"),
        ("", None),
        (None, None),
        (7, None),
        ({}, None),
    ],
)
def test_a_finish_reason_has_one_spelling(wire: Any, expected: str | None) -> None:
    assert finish_reason(wire) == expected
    payload = payload_of("finish", {"stepResult": {"reason": wire}, "output": {"usage": {}}})
    assert payload.step_result.reason == expected


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ("iVBORw==", b"\x89PNG"),
        ("data:image/png;base64,iVBORw==", b"\x89PNG"),
        ({"0": 137, "1": 80, "2": 78, "3": 71}, b"\x89PNG"),
        ({"type": "Buffer", "data": [137, 80, 78, 71]}, b"\x89PNG"),
        ([137, 80, 78, 71], b"\x89PNG"),
        ("https://example.com/x.png", None),
        ({"0": 1, "2": 3}, None),
        ({"0": 256}, None),
        ({"0": "x"}, None),
        ("", b""),
    ],
)
def test_a_file_gives_its_bytes_however_they_came(data: Any, content: bytes | None) -> None:
    assert payload_of("file", {"data": data, "mimeType": "image/png"}).content() == content


def test_a_nested_usage_stays_as_it_came() -> None:
    usage = {"inputTokens": {"total": 5, "cacheRead": 2}, "outputTokens": {"total": 7, "reasoning": 3}}
    payload = payload_of("step-finish", {"stepResult": {}, "output": {"usage": usage}, "metadata": {}})
    assert payload.output.usage == usage


def test_a_network_event_is_the_chunk_that_it_carries() -> None:
    inner = {"type": "text-delta", "runId": "r2", "from": "AGENT", "payload": {"id": "t", "text": "Hi"}}
    chunk = parse_chunk({"type": "agent-execution-event-x", "runId": "r", "from": "NETWORK", "payload": inner}, event=4)
    assert family(chunk.type) == "network"
    assert not isinstance(chunk, UnknownChunk)
    assert (chunk.payload.type, chunk.payload.run_id, chunk.payload.from_) == ("text-delta", "r2", "AGENT")
    found = nested_chunk(chunk)
    assert found is not None
    assert (found.delta, found.event) == ("Hi", 4)


def test_a_family_is_imported_and_a_model_built_when_its_first_payload_is_read() -> None:
    """Nearly a hundred models cost nothing until somebody needs them; deltas need none."""
    code = """
import sys
from nbmastra.chunks import family, parse_chunk
chunk = parse_chunk('{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"x"}}')
assert (chunk.delta, family(chunk.type), family("goal")) == ("x", "text", "special")
assert not {"pydantic.main", "nbmastra.chunks.text", "nbmastra.chunks.network"} & sys.modules.keys()
assert chunk.payload.text == "x"
from nbmastra.chunks.text import TextDelta, TextEnd
assert (TextDelta.__pydantic_complete__, TextEnd.__pydantic_complete__) == (True, False)
assert "nbmastra.chunks.network" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_attributes_cannot_be_changed() -> None:
    payload = payload_of("text-delta", {"id": "t", "text": "x"})
    with pytest.raises(ValueError, match="frozen"):
        payload.text = "y"
