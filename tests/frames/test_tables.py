"""What all tables promise: one schema for any input, any kind of source, and nothing lost silently."""

from __future__ import annotations

import gzip
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames import TABLES, Column
from nbmastra.output import MastraModelOutput
from nbmastra.recording import demo_recording, load_recording, record
from tests.support import frame_reference, runs
from tests.support.runs import EXPECTED, call, chunk, finish, recorded, result, start, step_finish, step_start, text

DTYPES = {"timestamp": "datetime64[us, UTC]"}
NAMES = sorted(TABLES)


def table(name: str) -> Callable[..., Any]:
    return getattr(frames, name)


def output(names: str, **about: Any) -> MastraModelOutput:
    return MastraModelOutput.from_chunks(recorded(names)[0], **about).wait()


@pytest.fixture(scope="module")
def outputs() -> list[MastraModelOutput]:
    return [output(names) for names in EXPECTED]


def schema(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def expected_schema(columns: tuple[Column[Any], ...]) -> dict[str, str]:
    return {column.name: DTYPES.get(column.dtype, column.dtype) for column in columns}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_the_same_columns_and_dtypes_for_any_input(name: str, outputs: list[MastraModelOutput]) -> None:
    wanted = expected_schema(TABLES[name].select(None))
    assert next(iter(wanted)) == "stream_id"
    assert schema(table(name)([])) == wanted
    assert schema(table(name)(outputs)) == wanted
    for out in outputs:  # only a server's history has spans, only its store has threads
        assert schema(table(name)(out) if name in ("spans_df", "threads_df") else getattr(out, name)()) == wanted


def test_the_reference_page_is_current() -> None:
    assert frame_reference.TARGET.read_text(encoding="utf-8") == frame_reference.reference()


def test_every_column_says_what_it_means() -> None:
    for spec in TABLES.values():
        assert spec.doc
        names = [column.name for column in spec.columns]
        assert len(set(names)) == len(names)
        for column in spec.columns:
            assert column.doc.endswith("."), (spec.name, column.name)
            assert (column.unit == "s") == column.name.endswith("_s") or column.unit == "tokens/s", column.name


def test_columns_are_chosen_by_name_or_group_and_keep_their_order() -> None:
    out = output("tools.sse")
    assert list(out.steps_df(["total_tokens", "model"]).columns) == ["stream_id", "model", "total_tokens"]
    assert list(out.steps_df("place").columns) == ["stream_id", "depth", "path"]
    with pytest.raises(SettingsError, match="no column 'modle': groups are main, place"):
        out.steps_df("modle")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_a_folder_a_pattern_and_a_list_give_what_their_outputs_give(name: str, tmp_path: Path) -> None:
    paths = [
        record(output(names), tmp_path / f"{names}.jsonl").result(timeout=10) for names in ("text.sse", "tools.sse")
    ]
    (tmp_path / "notes.txt").write_text("no recording")
    wanted = table(name)([load_recording(path) for path in paths])
    for source in (tmp_path, str(tmp_path), str(tmp_path / "*.jsonl"), paths, [paths[0], [load_recording(paths[1])]]):
        found = table(name)(source)
        if name == "runs_df":
            assert {Path(path).name for path in found["recording"]} == {path.name for path in paths}
            found["recording"] = wanted["recording"]
        pd.testing.assert_frame_equal(found, wanted)
    assert len(table(name)(tmp_path / "text.sse.jsonl")) == len(table(name)(load_recording(paths[0])))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_no_recording_is_an_error_or_counted(name: str, tmp_path: Path) -> None:
    record(output("text.sse"), tmp_path / "a.jsonl").result(timeout=10)
    good = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "b.jsonl").write_text('{"no": "recording"}\n')
    (tmp_path / "c.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00damaged")
    (tmp_path / "d.jsonl").write_bytes(good)
    with pytest.raises(RecordingError, match=r"b\.jsonl is no recording"):
        table(name)(tmp_path)
    frame, errors = table(name)(tmp_path, strict=False)
    assert len(frame) == 2 * len(table(name)(tmp_path / "a.jsonl"))
    assert [Path(source).name for source in errors["source"]] == ["b.jsonl", "c.jsonl.gz"]
    assert schema(frame) == expected_schema(TABLES[name].select(None))


def test_a_file_that_turns_out_to_be_damaged_leaves_no_rows_behind(tmp_path: Path) -> None:
    """Its chunks were collected while it was read."""
    lines = ['{"nbmastra":1}', *(json.dumps({"t": 0, "chunk": text(f"{n}" * 99)}) for n in range(20_000))]
    (tmp_path / "a.jsonl").write_text("\n".join([lines[0], lines[1], ""]))
    packed = gzip.compress("\n".join(lines).encode())
    (tmp_path / "b.jsonl.gz").write_bytes(packed[: len(packed) // 2] + random.Random(1).randbytes(9999))
    frame, errors = frames.chunks_df(tmp_path, strict=False)
    assert (len(frame), len(errors)) == (1, 1)


def test_what_is_not_there_and_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no"):
        frames.runs_df(tmp_path / "typo.jsonl")
    assert len(frames.runs_df(tmp_path)) == 0
    with pytest.raises(SettingsError, match="not int"):
        frames.runs_df(7)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="RunState doesn't keep"):
        frames.chunks_df(output("text.sse").state)


def test_a_state_gives_all_tables_that_need_no_chunks() -> None:
    out = output("supervisor.sse")
    assert out.usage_df()["total_tokens"].tolist() == frames.usage_df(out.state)["total_tokens"].tolist()


def test_calls_have_the_rows_that_the_fold_has(outputs: list[MastraModelOutput]) -> None:
    for out, wanted in zip(outputs, EXPECTED.values(), strict=True):
        calls = [call for turn in wanted["turns"] for step in turn["steps"] for call in step["tool_calls"]]
        frame = out.tool_calls_df()
        frame = frame[frame["depth"] == 0]
        assert frame["tool_call_id"].tolist() == [call["id"] for call in calls]
        assert frame["status"].tolist() == [call["status"] for call in calls]
        assert [None if value is pd.NA else value for value in frame["args"]] == [call["args"] for call in calls]
        assert out.tasks_df()["status"].tolist() == [task["status"] for task in wanted["tasks"]]


def test_runs_tell_how_they_ended(outputs: list[MastraModelOutput]) -> None:
    frame = frames.runs_df(outputs)
    for out, wanted, (_, row) in zip(outputs, EXPECTED.values(), frame.iterrows(), strict=True):
        assert (row["stream_id"], row["status"]) == (out.stream_id, out.status)
        assert (row["turns"], row["chunks"]) == (len(wanted["turns"]), wanted["chunks"])
        assert row["nested_runs"] == len(wanted["nested"])


def test_each_failure_is_told_once(outputs: list[MastraModelOutput]) -> None:
    frame = frames.errors_df(outputs)
    found = {
        names: list(zip(rows["kind"], rows["error_message"], strict=True))
        for names, out in zip(EXPECTED, outputs, strict=True)
        if len(rows := frame[frame["stream_id"] == out.stream_id])
    }
    assert found["background-until-idle.sse"] == [("tool", "source offline")]  # call and task tell the same
    assert [kind for kind, _ in found["error.sse"]] == ["run"]
    assert [kind for kind, _ in found["tripwire.sse"]] == ["tripwire"]
    assert [kind for kind, _ in found["bad-args.sse"]] == ["tool"]
    assert "approve.sse" not in found
    assert "declined.sse" not in found
    assert "aborted.sse" not in found


def test_chunks_that_cannot_be_read_are_rows_of_errors() -> None:
    out = MastraModelOutput.from_chunks([start(), "{broken", chunk("text-delta", {"id": 1}), finish()]).wait()
    assert out.errors_df()["kind"].tolist() == ["decode-error", "bad-payload"]
    assert frames.runs_df(out)["unread"].tolist() == [2]


def test_half_an_emoji_and_endless_numbers_make_no_table_fail() -> None:
    half = "\ud83d"
    chunks = [
        start(half),
        step_start(),
        call(half, half, {"a": half}),
        result(half, {"error": True, "validationErrors": [], "message": half}, half),
        chunk("source", {"id": half, "sourceType": half, "title": half, "url": half}),
        step_finish(used={"inputTokens": 10**30, "outputTokens": 1}),
        finish(used={"inputTokens": 10**30, "outputTokens": 1}),
    ]
    out = MastraModelOutput.from_chunks(chunks, prompt=half).wait()
    for name in NAMES:
        frame = table(name)(out)
        objects = [column.name for column in TABLES[name].select(None) if column.dtype == "object"]
        frame.drop(columns=objects).to_csv()
        assert len(frame) or name in ("messages_df", "spans_df", "tasks_df", "threads_df")
    assert out.steps_df()["input_tokens"].isna().all()


async def test_tables_of_a_live_run_grow_with_it() -> None:
    async def chunks() -> Any:
        begun.wait(10)
        yield start()
        yield step_start()
        yield text("Hello")
        assert len(out.chunks_df()) == 3
        assert out.runs_df()["status"].tolist() == ["running"]
        assert out.steps_df()["duration_s"].isna().all()
        yield step_finish(used=runs.usage(5, 2))
        assert out.usage_df()["total_tokens"].tolist() == [7]
        yield finish(used=runs.usage(5, 2))

    begun = threading.Event()
    out = MastraModelOutput.from_chunks(chunks())
    begun.set()
    await out.text
    assert len(out.chunks_df()) == 5
    assert out.usage_df().attrs["reconciliation"]["complete"]


@pytest.mark.parametrize("name", NAMES)
def test_the_demo_has_a_table_of_each_kind(name: str) -> None:
    assert schema(table(name)(demo_recording())) == expected_schema(TABLES[name].select(None))
