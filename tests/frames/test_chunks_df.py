"""`chunks_df`: built in bulk, equal to looking at each chunk; the same columns for any payload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbmastra import frames
from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.frames import chunks_df
from nbmastra.output import MastraModelOutput
from nbmastra.recording import load_recording, record, replay
from tests.support import random_runs
from tests.support.runs import DATA, EXPECTED, Wire, chunk, inside, recorded, start, step_start, text, usage

RAW = ["main", "raw"]


def output(chunks: list[Any]) -> MastraModelOutput:
    return MastraModelOutput.from_chunks(chunks).wait()


def test_odd_payloads_change_no_column_and_missing_is_not_null() -> None:
    """B56."""
    payloads = [None, {}, {"output": None}, {"output": {"usage": usage(1, 1)}}, [1]]
    chunks: list[Wire] = [{"type": "finish", "runId": "r", "from": "AGENT", "payload": payload} for payload in payloads]
    chunks.append({"type": "finish", "runId": "r", "from": "AGENT"})
    columns = list(chunks_df([], RAW).columns)
    for order in (chunks, chunks[::-1], chunks[:1], chunks[3:4], []):
        frame = output(order).chunks_df(RAW)
        assert list(frame.columns) == columns
        assert len(frame) == len(order)
        told = [None if pd.isna(value) else json.loads(value) for value in frame["payload"]]
        assert told == [wire.get("payload") for wire in order]
        assert frame["payload"].isna().tolist() == ["payload" not in wire for wire in order]


@pytest.mark.parametrize("names", EXPECTED)
def test_the_table_in_bulk_is_what_a_look_at_each_chunk_gives(names: str) -> None:
    chunks, _ = recorded(names)
    frame = output(chunks).chunks_df()
    assert len(frame) == EXPECTED[names]["chunks"]
    assert frame["seq"].tolist() == list(range(len(chunks)))
    assert frame["bytes"].tolist() == [len(item.to_json()) for item in chunks]
    own = frame["depth"] == 0
    assert frame["type"][own].tolist() == [item.type for item, mine in zip(chunks, own, strict=True) if mine]
    for item, (_, row) in zip(chunks, frame.iterrows(), strict=True):
        if row["depth"] == 0:
            assert told(row) == facts(item)


def facts(item: Chunk) -> list[Any]:
    payload = item.raw_payload()
    payload = payload if isinstance(payload, dict) else {}
    ids = [payload.get(key) for key in ("toolName", "toolCallId", "taskId", "messageId")]
    return [item.run_id, item.from_, len(item.delta) if item.type.endswith("-delta") else None, *ids]


def told(row: Any) -> list[Any]:
    names = ("run_id", "from", "text_len", "tool_name", "tool_call_id", "task_id", "message_id")
    return [None if pd.isna(row[name]) else row[name] for name in names]


def test_what_a_sub_agent_streams_is_told_with_its_depth_and_call() -> None:
    """The fold's own runs say what is inside of what."""
    out = output(recorded("supervisor.sse")[0])
    frame = out.chunks_df()
    inner = frame[frame["depth"] == 1]
    (child,) = out.state.nested
    assert inner["type"].astype(str).value_counts().to_dict() == dict(child.counts)
    assert set(inner["parent_tool_call_id"]) == {"d1"}
    assert inner["text_len"].sum() == len(child.text)
    assert set(inner["run_id"]) == {child.run_id}
    assert set(frame["run_id"][frame["depth"] == 0]) == {out.run_id}


def test_runs_in_runs_have_their_depth() -> None:
    chunks = [
        start(),
        step_start(),
        inside("c1", start("child", "r1")),
        inside("c1", {**inside("c2", text("deep", run="r2")), "runId": "r1"}),
        text("top"),
    ]
    frame = output(chunks).chunks_df()
    assert frame["depth"].tolist() == [0, 0, 1, 2, 0]
    assert frame["type"].tolist()[2:] == ["start", "text-delta", "text-delta"]
    assert frame["parent_tool_call_id"].tolist()[2:4] == ["c1", "c2"]
    assert frame["text_len"].tolist()[3:] == [4, 3]


def test_a_networks_chunks_are_told_as_what_they_carry() -> None:
    chunks = ChunkDecoder().feed((DATA / "chunks" / "network.sse").read_bytes())
    out = output(chunks)
    frame = out.chunks_df()
    assert [int(count) for count in frame["depth"].value_counts().sort_index()] == [
        sum(count for kind, count in out.state.counts.items() if "-execution-event-" not in kind or kind in OWN_EVENTS),
        sum(run.events for run in out.state.nested),
    ]


OWN_EVENTS = ("network-execution-event-step-finish", "network-execution-event-finish")


def test_times_are_gaps_within_a_stream_and_dates_from_its_start(tmp_path: Path) -> None:
    lines = [
        {"nbmastra": 1, "created": "2026-11-30T12:00:00+02:00", "stream_id": "s"},
        *({"t": t, "chunk": text("x")} for t in (0.25, 0.5, 2)),
    ]
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    frame = chunks_df(tmp_path)
    assert frame["at_s"].tolist() == [0.25, 0.5, 2.0] * 2
    assert frame["gap_s"].isna().tolist() == [True, False, False] * 2
    assert frame["gap_s"].dropna().tolist() == [0.25, 1.5] * 2
    assert frame["timestamp"].iloc[2] == pd.Timestamp("2026-11-30 10:00:02", tz="UTC")


PIECES = st.lists(
    st.sampled_from(
        [
            text("abc"),
            text("é\U0001f600"),
            text("\ud83d"),
            {**text("with"), "metadata": {"a": 1}},
            chunk("text-delta", {"id": "t"}),
            chunk("text-delta", None, run=None),
            chunk("reasoning-delta", {"id": "t", "text": "hm"}),
            chunk("tool-call-delta", {"toolCallId": "c", "toolName": "f", "argsTextDelta": "{}"}),
            {"type": "data-x", "data": {"payload": 1}},
            {"type": "object", "object": [1], "runId": "r", "from": "AGENT"},
            {"type": "brand-new", "runId": "r", "from": "MARS", "payload": {"toolCallId": 7}},
            inside("c", {"type": "not-a-chunk"}),
            inside("c", text("inner", run="child")),
        ]
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(PIECES)
def test_what_stands_beside_a_chunk_changes_nothing_in_its_row(chunks: list[Wire]) -> None:
    frame = (
        output(chunks).chunks_df(RAW).drop(columns=["stream_id", "seq", "turn", "step", "at_s", "timestamp", "gap_s"])
    )
    alone = [output([wire]).chunks_df(RAW)[frame.columns] for wire in chunks]
    for index, row in enumerate(alone):
        assert row.iloc[0].astype(object).to_dict() == pytest.approx(
            frame.iloc[index].astype(object).to_dict(), nan_ok=True
        )


def tables_are_equal_live_recorded_and_replayed(items: Sequence[Any], path: Path) -> None:
    async def chunks() -> Any:
        for item in items:
            yield item

    live = MastraModelOutput.from_chunks(chunks(), agent="x", prompt="p", until_idle=True)
    path = record(live, path).result(timeout=20)
    live.wait()
    again = replay(path, 1e6).wait()
    for name in frames.TABLES:
        table = getattr(frames, name)
        wanted = table(live)
        for found in (table(path), table(load_recording(path)), table(again)):
            if name == "runs_df":
                found["recording"] = wanted["recording"]
            pd.testing.assert_frame_equal(found, wanted)


def test_a_live_output_its_recording_and_its_replay_have_equal_tables(tmp_path: Path) -> None:
    for names in ("supervisor.sse", "background-until-idle.sse", "error.sse", "ask.sse", "durable-cut.sse"):
        tables_are_equal_live_recorded_and_replayed(recorded(names)[0], tmp_path / f"{names}.jsonl")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random_runs.runs())
def test_any_live_output_its_recording_and_its_replay_have_equal_tables(
    tmp_path: Path, facts: random_runs.Facts
) -> None:
    tables_are_equal_live_recorded_and_replayed(facts.chunks, tmp_path / "run.jsonl")
