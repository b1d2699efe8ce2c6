"""Files of chunks that other programs wrote."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nbmastra import frames
from nbmastra.errors import RecordingError
from nbmastra.frames import TABLES
from nbmastra.recording import from_client_js, load_recording, record
from tests.support.runs import Wire, expected, recorded, recording, summary

WRITERS: dict[str, Callable[[list[Wire]], str]] = {
    "array": json.dumps,
    "indented array": lambda chunks: json.dumps(chunks, indent=2),
    "lines": lambda chunks: "\n".join(map(json.dumps, chunks)),
}


def wires(name: str) -> list[Wire]:
    return [chunk.to_wire() for chunk in recorded(name)[0]]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["tools.sse", "supervisor.sse", "ask.sse", "error.sse", "tripwire.sse"])
def test_arrays_and_lines_of_chunks_are_the_run_that_they_were(name: str, writer: str, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text(WRITERS[writer](wires(name)), encoding="utf-8")
    out = from_client_js(path)
    assert summary(out.state) == expected(name)


@pytest.mark.parametrize("name", ["tools.sse", "background-until-idle.sse", "aborted.sse"])
def test_the_text_of_an_event_stream_is_the_run_that_it_was(name: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.sse.gz"
    path.write_bytes(gzip.compress(recording(name)))
    assert summary(from_client_js(path).state) == expected(name)


def test_what_cannot_be_read_is_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    lines = [json.dumps(wire) for wire in wires("tools.sse")]
    path.write_text("\n".join([*lines[:3], "{broken", "17", '{"no": "type"}', *lines[3:]]), encoding="utf-8")
    out = from_client_js(path)
    assert (out.status, out.state.decode_errors) == ("success", 3)
    assert list(out.errors_df()["kind"]).count("decode-error") == 3
    assert frames.runs_df(out)["unread"].item() == 3


def test_an_array_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    text = json.dumps(wires("tools.sse"))
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    out = from_client_js(path)
    assert out.status == "truncated"
    assert out.state.decode_errors == 1
    assert out.state.events > 5


@pytest.mark.parametrize("text", ["", "[]", "hello", '{"messages": []}', "[1, 2]"])
def test_a_file_without_chunks_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match=r"dump\.json holds no chunks"):
        from_client_js(path)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_times_that_nobody_knows_are_missing_never_zero(name: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(wires("background-until-idle.sse")), encoding="utf-8")
    out = from_client_js(path)
    again = load_recording(record(out, tmp_path / "kept.jsonl").result(10))
    for source in (out, again):
        frame = getattr(frames, name)(source)
        told = [column.name for column in TABLES[name].columns if column.timed and column.name in frame]
        assert frame[told].isna().all(axis=None)
    assert frames.messages_df(out)["created_at"].notna().any()  # those are the server's own
