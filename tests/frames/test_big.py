"""What is larger than memory: frames of some rows each, SQL over Parquet, Dask; the same numbers as the tables'."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.fold import RunState
from nbmastra.frames import aggregate, chunks_df, cluster, duck, export, iter_chunks_df, parquet, query
from nbmastra.output import MastraModelOutput
from nbmastra.recording import load_recording, record
from tests.support.runs import recorded, start, step_start, text

NAMES = ("text", "supervisor", "background-until-idle", "error", "tools")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        out = MastraModelOutput.from_chunks(recorded(f"{name}.sse")[0], agent=name).wait()
        record(out, path / f"{name}.jsonl").result(timeout=20)
    return path


@pytest.fixture(scope="module")
def exported(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parquet")
    half = sorted(recordings.glob("*.jsonl"))
    export(half[:2], folder / "a.parquet")  # whatever the file is called, it says which table it holds
    export(half[2:], folder / "more" / "b.parquet")
    for table in ("runs_df", "usage_df", "tool_calls_df", "steps_df"):
        export(recordings, folder / f"{table}.parquet", table)
    return folder


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


# --- frames of some rows each ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 40, 10**6])
def test_frames_of_some_rows_are_together_the_table(recordings: Path, rows: int) -> None:
    wanted = chunks_df(recordings, ["main", "raw"])
    parts = list(iter_chunks_df(recordings, ["main", "raw"], rows=rows))
    assert all(len(part) >= rows for part in parts[:-1])
    for part in parts:
        assert [str(dtype) for dtype in part.dtypes] == [str(dtype) for dtype in wanted.dtypes]
    assert plain(pd.concat([part.astype(object) for part in parts], ignore_index=True)) == plain(wanted)


def test_a_long_run_is_cut_where_nobody_notices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nbmastra.recording.files._BLOCK", 300)
    monkeypatch.setattr("nbmastra.frames.runs._AT_ONCE", 3)
    out = MastraModelOutput.from_chunks(recorded("supervisor.sse")[0]).wait()
    path = record(out, tmp_path / "run.jsonl").result(timeout=20)
    wanted = chunks_df(path)
    for source in (path, load_recording(path)):
        parts = list(iter_chunks_df(source, rows=2))
        assert len(parts) > 5
        assert plain(pd.concat([part.astype(object) for part in parts])) == plain(wanted)


def test_sums_are_those_of_the_table(recordings: Path) -> None:
    wanted = chunks_df(recordings)
    for by in ("type", ["stream_id", "tool_name"], ["step"]):
        found = aggregate(recordings, by)
        names = [by] if isinstance(by, str) else by
        assert list(found.columns[: len(names)]) == names
        assert found["chunks"].sum() == len(wanted)
        assert found["bytes"].sum() == wanted["bytes"].sum()
        groups = wanted.assign(**{name: wanted[name].astype(object) for name in names}).groupby(names, dropna=False)
        assert len(found) == len(groups)
        assert sorted(found["chunks"]) == sorted(groups.size())
        assert sorted(found["text_len"]) == sorted(groups["text_len"].sum())
        assert sorted(found["longest_gap_s"].dropna()) == pytest.approx(sorted(groups["gap_s"].max().dropna()))
    assert list(aggregate([]).columns) == list(aggregate(recordings).columns)
    assert aggregate([]).dtypes.astype(str).to_dict() == aggregate(recordings).dtypes.astype(str).to_dict()


def test_what_has_no_chunks_is_refused(recordings: Path) -> None:
    with pytest.raises(SettingsError, match="doesn't keep its chunks"):
        next(iter_chunks_df(RunState()))
    with pytest.raises(SettingsError, match="rows=0"):
        next(iter_chunks_df(recordings, rows=0))
    with pytest.raises(SettingsError, match="by='colour': give columns of chunks_df: stream_id"):
        aggregate(recordings, "colour")


def test_tables_are_the_same_though_texts_are_forgotten(recordings: Path) -> None:
    """A recording's run is folded without keeping what no table tells; an output keeps all."""
    for path in sorted(recordings.glob("*.jsonl")):
        whole = load_recording(path)
        for name in frames.TABLES:
            wanted, found = getattr(frames, name)(whole), getattr(frames, name)(path)
            if name == "runs_df":
                found["recording"] = wanted["recording"]
            pd.testing.assert_frame_equal(found, wanted)


# --- SQL -------------------------------------------------------------------------------------------------------------


def test_sql_sums_what_the_tables_sum(recordings: Path, exported: Path) -> None:
    chunks, runs = chunks_df(recordings), frames.runs_df(recordings)
    found = query(exported, "select type, count(*) as n, sum(bytes) as bytes from chunks group by type order by type")
    wanted = chunks.groupby("type", observed=True).agg(n=("seq", "count"), bytes=("bytes", "sum")).reset_index()
    assert plain(found) == plain(wanted)
    assert str(found["bytes"].dtype) == "Int64"
    total = query(exported, "select sum(input_tokens) as input, sum(cost_usd) as cost from usage")
    assert total["input"].item() == runs["input_tokens"].sum()
    joined = query(exported, "select stream_id, created_at, output_tokens from runs order by stream_id")
    assert plain(joined) == plain(runs.sort_values("stream_id")[["stream_id", "created_at", "output_tokens"]])
    assert joined["created_at"].dtype == runs["created_at"].dtype
    assert (
        query(exported, "select count(*) as n from runs where status = $status", {"status": "failed"})["n"].item() == 1
    )


def test_a_query_sees_the_tables_and_nothing_else(exported: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    local = pd.DataFrame({"a": [1]})
    assert len(local) == 1
    for sql in (
        f"select * from read_csv('{secret}')",
        f"select * from read_text('{secret}')",
        f"copy runs to '{tmp_path / 'out.csv'}'",
        f"attach '{tmp_path / 'x.db'}'",
        "select * from 'http://127.0.0.1:9/x.parquet'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "from glob('/*')",
        "select * from local",
    ):
        with pytest.raises(SettingsError):
            query(exported, sql)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_what_a_file_holds_is_data_whatever_it_says(tmp_path: Path) -> None:
    hostile = "'; drop view chunks; select * from read_text('/etc/hostname') --"
    folder = tmp_path / "it's [1] *"
    out = MastraModelOutput.from_chunks([start(), step_start(), text("x")], agent=hostile, prompt=hostile).wait()
    export(out, folder / "it's.parquet", "runs_df")
    assert query(folder, "select prompt from runs")["prompt"].tolist() == [hostile]


def test_recordings_without_parquet_are_told_or_converted(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    out = MastraModelOutput.from_chunks(recorded("tools.sse")[0]).wait()
    path = record(out, folder / "a.jsonl").result(timeout=20)
    with pytest.raises(SettingsError, match=r"no Parquet of tool_calls .* `nbmastra export .*--table tool_calls_df`"):
        query(folder, "select * from tool_calls")
    sql = "select count(*) as n from chunks"
    assert query(folder, sql, convert=True)["n"].item() == len(chunks_df(folder))
    assert sorted(file.name for file in folder.iterdir()) == ["a.jsonl", "chunks.parquet"]
    again = record(out, folder / "b.jsonl").result(timeout=20)
    later = path.stat().st_mtime_ns + 10**10
    os.utime(again, ns=(later, later))
    with pytest.warns(UserWarning, match=r"chunks\.parquet is older than a recording beside it"):
        assert query(folder, sql)["n"].item() == len(chunks_df(path))
    with pytest.warns(UserWarning, match=r"chunks\.parquet is older than a recording beside it"):
        frames.dask(folder)
    assert query(folder, sql, convert=True)["n"].item() == len(chunks_df(folder))


def test_converting_never_has_a_row_twice(tmp_path: Path) -> None:
    out = MastraModelOutput.from_chunks(recorded("tools.sse")[0]).wait()
    path = record(out, tmp_path / "a.jsonl").result(timeout=20)
    export(tmp_path, tmp_path / "everything.parquet")
    sql = "select count(*) as n from chunks"
    assert query(tmp_path, sql, convert=True)["n"].item() == len(chunks_df(path))
    later = path.stat().st_mtime_ns + 10**10
    os.utime(path, ns=(later, later))
    with pytest.raises(SettingsError, match=r"everything\.parquet is older than a recording: delete it"):
        query(tmp_path, sql, convert=True)
    (tmp_path / "everything.parquet").unlink()
    assert query(tmp_path, sql, convert=True)["n"].item() == len(chunks_df(path))


def test_queries_that_cannot_be_answered_say_why(exported: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(SettingsError, match="syntax error"):
        query(exported, "selct 1")
    with pytest.raises(SettingsError, match="no Parquet of tasks"):
        query(exported, "select * from tasks")
    with pytest.raises(SettingsError, match=r"nothing.* does not exist[^$]*Tables that are there: .*chunks"):
        query(exported, "select * from nothing")
    with pytest.raises(RecordingError, match="there is no folder"):
        query(tmp_path / "nowhere", "select 1")
    with pytest.raises(SettingsError, match="the query is empty"):
        query(exported, " -- nothing")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(RecordingError, match=r"bad\.parquet is no Parquet file"):
        query(tmp_path, "select 1")
    for module in (duck, parquet):
        monkeypatch.setattr(module, "installed", lambda: False)
    with pytest.raises(SettingsError, match=r"pip install 'nbmastra\[big\]'"):
        query(exported, "select 1")


def test_files_of_other_things_are_left_out(exported: Path, tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    pd.DataFrame({"stream_id": ["s"]}).to_parquet(tmp_path / "runs.parquet")  # named as a table is: taken for it
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.parquet").write_bytes(b"junk")
    assert {table: [file.name for file in files] for table, files in parquet.parquet_files(tmp_path).items()} == {
        "runs_df": ["runs.parquet"]
    }


# --- Dask ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[Any]:
    """One worker process, reachable from this machine only, and gone afterwards."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, host="127.0.0.1", dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        assert made.scheduler_address.startswith("tcp://127.0.0.1:")
        yield client


def test_totals_of_a_cluster_are_those_of_pandas(recordings: Path, exported: Path, local_cluster: Any) -> None:
    wanted = chunks_df(recordings)
    for folder in (recordings, exported):
        found = frames.dask(folder)
        assert list(found.columns) == list(wanted.columns)
        sums = found.groupby("type")["bytes"].sum().compute()
        assert sums.sort_index().to_dict() == wanted.groupby("type", observed=True)["bytes"].sum().to_dict()
        assert found["text_len"].sum().compute() == wanted["text_len"].sum()
        runs = frames.runs_df(recordings)
        usage = frames.dask(folder, "usage")
        for column in ("input_tokens", "output_tokens", "total_tokens"):
            assert usage[column].sum().compute() == runs[column].sum()


def test_parts_have_the_types_that_dask_is_told(recordings: Path, exported: Path) -> None:
    for folder in (recordings, exported):
        for table in ("chunks", "usage_df", "tool_calls", "runs", "steps"):
            found = frames.dask(folder, table)
            for part in range(found.npartitions):
                frame = found.partitions[part].compute(scheduler="synchronous")
                assert frame.dtypes.astype(str).to_dict() == found.dtypes.astype(str).to_dict(), (folder, table)
    calls = frames.dask(recordings, "tool_calls", ["args"]).compute(scheduler="synchronous")
    assert [json.loads(value) for value in calls["args"].dropna()] == [
        value for value in frames.tool_calls_df(recordings)["args"] if value is not pd.NA
    ]


def test_what_dask_cannot_do_is_said(recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(frames.dask(tmp_path).compute(scheduler="synchronous")) == 0
    with pytest.raises(SettingsError, match="there is no table 'colours': runs, chunks"):
        frames.dask(recordings, "colours")
    with pytest.raises(RecordingError, match="there is no folder"):
        frames.dask(tmp_path / "nowhere")
    monkeypatch.setattr(cluster, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"^Dask needs `pip install 'nbmastra\[dask\]'`$"):
        frames.dask(recordings)
