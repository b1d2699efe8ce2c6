"""Every chunk that a real server sent: it fits its model, and nothing of it is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbmastra.chunks import DataChunk, UnknownChunk, family, nested_chunk, parse_chunk, payload_model
from nbmastra.chunks.payload import Payload
from tests.support.recordings import FILES, recorded_chunks, recorded_lines


def test_there_are_recordings_of_every_kind() -> None:
    assert len(FILES) >= 35
    assert {family(chunk.type) for _, chunk in recorded_chunks()} == {
        *("text", "reasoning", "tool", "source, file", "object", "control", "special"),
        *("background task", "workflow", "network", "data"),
    }


@pytest.mark.parametrize("recording", [path.stem for path in FILES])
def test_every_recorded_payload_fits_its_model(recording: str) -> None:
    for name, chunk in recorded_chunks():
        if name == recording:
            assert not isinstance(chunk, UnknownChunk), chunk.type
            payload = chunk.payload
            assert isinstance(payload, Payload) or isinstance(chunk, DataChunk) or chunk.raw_payload() is None


def test_every_recorded_chunk_is_written_as_it_was_read() -> None:
    for _, line in recorded_lines():
        chunk = parse_chunk(line)
        assert chunk.to_json() == line.encode()
        assert json.dumps(chunk.to_wire()) == json.dumps(json.loads(line))  # key order too
        assert parse_chunk(chunk.to_wire()) == chunk


def test_a_model_keeps_every_key_of_its_payload() -> None:
    for _, chunk in recorded_chunks():
        raw = chunk.raw_payload()
        if isinstance(raw, dict) and (model := payload_model(chunk.type)):
            assert _known_to(model.model_validate(raw)) == set(raw)


def _known_to(payload: Payload) -> set[str]:
    wire = payload.model_dump(by_alias=True, exclude_unset=True)
    return {"suspendPayload" if key == "suspendData" else key for key in wire}


def test_a_sub_agents_chunks_are_found_inside_of_its_parents() -> None:
    inner = [nested_chunk(chunk) for name, chunk in recorded_chunks() if name == "supervisor"]
    assert "".join(chunk.delta for chunk in inner if chunk) == "sub-agent says hi"


def test_a_networks_chunks_are_found_inside_of_its_events() -> None:
    events = [chunk for name, chunk in recorded_chunks() if name == "network" and "-execution-event-" in chunk.type]
    inner = [(chunk.type, nested_chunk(chunk)) for chunk in events if not chunk.type.startswith("network-")]
    assert inner
    assert all(found and outer.endswith(f"-event-{found.type}") for outer, found in inner)
    assert "".join(found.delta for _, found in inner if found) == "sub-agent says hi"


@pytest.mark.parametrize(
    "output",
    [
        *(None, 5, "text-delta", [], {}, {"type": "progress", "pct": 50}, {"type": "text-delta", "from": "AGENT"}),
        {"type": 1, "runId": "r", "from": "AGENT"},
        {"type": "x", "runId": "r", "from": "ELSEWHERE"},
        {"type": "x", "runId": "r", "from": []},
    ],
)
def test_what_only_looks_like_a_chunk_is_none(output: Any) -> None:
    payload = {"toolCallId": "c", "toolName": "t", "output": output}
    chunk = parse_chunk({"type": "tool-output", "runId": "r", "from": "USER", "payload": payload})
    assert nested_chunk(chunk) is None
    assert chunk.payload.output == output


def test_a_chunk_that_carries_nothing_has_no_nested_one() -> None:
    chunks = [
        {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "x"}},
        {"type": "tool-output", "runId": "r", "from": "USER"},
        {"type": "background-task-output", "payload": {"taskId": "t"}},
        {"type": "agent-execution-event-text-delta", "runId": "r", "from": "NETWORK", "payload": "no chunk"},
    ]
    assert [nested_chunk(parse_chunk(chunk)) for chunk in chunks] == [None] * 4
