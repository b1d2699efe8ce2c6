"""`chunks_df` by SQL: the same table as the fold's, whatever a recording holds; and how it is chosen."""

from __future__ import annotations

import gc
import gzip
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tqdm.auto import tqdm

from nbmastra.chunks import parse_chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames import bulk, chunks_df, runs
from nbmastra.output import MastraModelOutput
from nbmastra.recording import demo_recording, json_line, load_recording, record
from tests.support.runs import (
    DATA,
    EXPECTED,
    Wire,
    call,
    chunk,
    finish,
    inside,
    recorded,
    result,
    start,
    step_finish,
    step_start,
    text,
)

HEADER = b'{"nbmastra":1,"created":"2026-11-30T12:00:00+00:00","agent":"a","stream_id":"s"}\n'


def both(path: Path) -> pd.DataFrame:
    """The table by SQL, once it is equal to the fold's."""
    wanted = chunks_df(path, engine="fold")
    assert wanted.attrs["engine"] == {"fold": 1, "duckdb": 0, "why_fold": {}}
    found = chunks_df(path, engine="duckdb")
    pd.testing.assert_frame_equal(found, wanted)
    for column in wanted:
        assert type(found[column].dtype) is type(wanted[column].dtype)
    return found


def why(frame: pd.DataFrame) -> str | None:
    """Why the fold read it after all; None if it didn't."""
    reasons = list(frame.attrs["engine"]["why_fold"].values())
    return reasons[0] if reasons else None


def write(path: Path, chunks: list[Wire], *, gap: float = 0.01) -> Path:
    """A recording with these chunks, written as the journal does."""
    lines = [HEADER]
    for number, wire in enumerate(chunks):
        line = json_line(parse_chunk(wire))
        assert line is not None
        lines.append(b'{"t":%a,"chunk":%b}\n' % (round(number * gap, 6), line))
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize("names", EXPECTED)
def test_recorded_streams_have_the_folds_table(names: str, tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks(recorded(names)[0]).wait()
    frame = both(record(out, tmp_path / "run.jsonl").result(timeout=20))
    assert why(frame) is None
    assert len(frame) == EXPECTED[names]["chunks"]


@pytest.mark.parametrize("path", sorted((DATA / "chunks").glob("*.sse")), ids=lambda path: path.stem)
def test_networks_and_odd_tools_have_the_folds_table(path: Path, tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks(ChunkDecoder().feed(path.read_bytes())).wait()
    assert why(both(record(out, tmp_path / "run.jsonl").result(timeout=20))) is None


def test_the_demo_has_the_folds_table() -> None:
    assert why(both(demo_recording())) is None


def args(piece: Any, call_id: Any = "c", tool: Any = "f", run: str = "r") -> Wire:
    return chunk("tool-call-delta", {"argsTextDelta": piece, "toolCallId": call_id, "toolName": tool}, run)


def metadata(piece: str) -> Wire:
    return chunk("reasoning-delta", {"id": "t", "text": piece, "providerMetadata": {"openai": {"itemId": "rs_0"}}})


PIECES = st.sampled_from(
    [
        *(
            text(piece)
            for piece in ("abc", "", "é\U0001f600", 'say "hi"\n', "a\\b\\\\", "\u0001", "\x00", "\x7f\u2028")
        ),
        text("\ud83d"),
        text("other run", run="q"),
        text("other text", id="u"),
        metadata("hm"),
        metadata('"\t"'),
        args("{"),
        args('"a":1}'),
        args("{", "d"),
        args("{", "c", "g"),
        args(5),
        args("{", None),
        args("{", "c", None),
        {**text("with"), "metadata": {"a": 1}},
        {"runId": "r", "type": "text-delta", "from": "AGENT", "payload": {"id": "t", "text": "keys elsewhere"}},
        chunk("text-delta", {"text": "no id"}),
        chunk("text-delta", {"id": "t", "text": 5}),
        chunk("text-delta", {"id": "t", "text": None}),
        chunk("text-delta", {"id": "t"}),
        chunk("text-delta", [1]),
        chunk("text-delta", {"id": "t", "text": "a"}, run=None),
        chunk("text-end", {"id": "t"}),
        start(),
        step_start(),
        step_finish(),
        step_finish("tool-calls"),
        finish(),
        finish("tool-calls"),
        call("c"),
        result("c", {"text": "no delta"}),
        result("unknown"),
        inside("c", text("inner", run="child")),
        inside("c", {**inside("e", text("deep", run="r2")), "runId": "child"}),
        inside("c", {"type": "not-a-chunk"}),
        {"type": "data-x", "data": {"payload": 1}},
        {"type": "object", "object": [1], "runId": "r", "from": "AGENT"},
        {"type": "brand-new", "runId": "r", "from": "MARS", "payload": {"toolCallId": 7, "taskId": "x"}},
        chunk("abort"),
        chunk("tripwire", {"reason": "no"}, run=None),
    ]
)
RUNS = st.lists(st.tuples(PIECES, st.integers(1, 4)), max_size=14)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
@example([(step_start(), 1), (args("{"), 3), (step_finish(), 1), (result("c"), 1), (text("x"), 2)])
@example([(text("x"), 2), (inside("c", text("inner", run="child")), 2), (text("x"), 3)])
def test_streams_in_any_order_have_the_folds_table(tmp_path: Path, pieces: list[tuple[Wire, int]]) -> None:
    path = write(tmp_path / "run.jsonl", [piece for piece, count in pieces for _ in range(count)])
    assert why(both(path)) is None


LINES = st.lists(
    st.sampled_from(
        [
            b'{"t":1,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"ab"}}}',
            b'{"t":0.5,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\\n"}}}',
            b'{"t":1e1,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"c"}}}',
            b'{"t":01,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"c"}}}',
            b'{"t":NaN,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"c"}}}',
            b'{"t":"2","chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"c"}}}',
            b'{"t":-3,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"c"}}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"a","text":"bcd"}}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"a"},"from":"USER"}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"a"}},"t":9}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"a",}}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"a\tb"}}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\\x"}}}',
            b'{"t":2,"chunk":{"type":"text-delta","runId":"r","from":"AGENT","payload":{"id":"t","text":"\xff"}}}',
            b'{"t": 2, "chunk": {"type": "step-start", "runId": "r", "from": "AGENT", "payload": {}}}',
            b'{"t":2,"raw":"{\\"type\\":\\"text-delta\\""}',
            b'{"t":2,"chunk":{"type":5}}',
            b'{"t":2}',
            b'{"end":{"status":"success","done":true,"t":3}}',
            b'{"end":5}',
            b"",
            b"  ",
            b"\x01",
            b"not json",
        ]
    ),
    max_size=8,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"]), st.integers(0, 40))
def test_files_that_somebody_spoiled_have_the_folds_table(
    tmp_path: Path, lines: list[bytes], end: bytes, cut: int
) -> None:
    path = tmp_path / "run.jsonl"
    whole = b"".join(line + end for line in lines)
    path.write_bytes(HEADER + whole[: len(whole) - cut])
    both(path)


def test_a_batch_ends_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [start(), step_start(), *[args("{")] * 5, *[text("abc")] * 7, step_finish(), finish()]
    path = write(tmp_path / "run.jsonl", chunks * 3)
    for rows in (1, 2, 3, 7):
        monkeypatch.setattr(bulk, "_ROWS", rows)
        assert why(both(path)) is None


def test_runs_after_runs_keep_their_own_rows(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.jsonl", [start(), step_start(), *[args("{", f"c{number}")] * 4, text("x")])
    (tmp_path / "bad.jsonl").write_text("{}\n")
    (tmp_path / "odd.jsonl").write_bytes(HEADER + b"\n" + b'{"t":1,"chunk":{"type":"start"}}\n')
    wanted, _ = chunks_df(tmp_path, strict=False, engine="fold")
    found, unread = chunks_df(tmp_path, strict=False, engine="duckdb")
    pd.testing.assert_frame_equal(found, wanted)
    assert found["tool_call_id"].dropna().tolist() == [f"c{number}" for number in range(3) for _ in range(4)]
    assert [Path(path).name for path in unread["source"]] == ["bad.jsonl"]
    assert found.attrs["engine"]["duckdb"] == 3
    assert list(found.attrs["engine"]["why_fold"].values()) == ["a line is blank"]


def test_what_sql_cannot_tell_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [start(), step_start(), text("x"), text("y")])
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(path.read_bytes() + b"{\n")
    assert why(chunks_df(path, ["main", "raw"], engine="duckdb")) == "SQL doesn't read payloads"
    assert why(both(broken)) == "a line is broken"
    assert why(both(packed))
    assert why(chunks_df(load_recording(path), engine="duckdb")) is None  # what is in memory has no file to read


def test_duckdb_is_taken_for_large_recordings_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run.jsonl", [start(), step_start(), *[text("x")] * 20])
    assert chunks_df(path).attrs["engine"]["duckdb"] == 0
    monkeypatch.setattr(bulk, "LARGE", path.stat().st_size)
    assert chunks_df(path).attrs["engine"]["duckdb"] == 1
    monkeypatch.setattr(bulk, "installed", lambda: False)
    without = chunks_df(path)
    assert without.attrs["engine"]["fold"] == 1
    assert "nbmastra[big]" in (why(without) or "")
    with pytest.raises(SettingsError, match=r"^engine='duckdb' needs `pip install 'nbmastra\[big\]'`$"):
        chunks_df(path, engine="duckdb")
    with pytest.raises(SettingsError, match="give one of auto, fold, duckdb"):
        chunks_df(path, engine="spark")  # type: ignore[call-overload]


@pytest.mark.parametrize("engine", ["fold", "duckdb"])
def test_long_loads_show_how_far_they_are(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run.jsonl", [start(), step_start(), *[text("x")] * 20])
    bars: list[tqdm[Any]] = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            assert options.pop("delay") == 1  # nobody sees a bar of a short load
            super().__init__(*args, **options, file=StringIO())
            if not self.disable:
                bars.append(self)

    for module in (bulk, runs):
        monkeypatch.setattr(module, "tqdm", Bar)
    chunks_df(path, engine=engine)
    assert [(bar.unit, bar.n) for bar in bars] == [("B", path.stat().st_size) if engine == "duckdb" else ("chunk", 22)]


def test_garbage_collection_goes_on_after_reading(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [start()])
    chunks_df(path)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(RecordingError):
        chunks_df(tmp_path / "bad.jsonl")
    assert gc.isenabled()
