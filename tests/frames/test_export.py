"""Tables as files: the same rows and types as the frame."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.frames import TABLES, export
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record
from tests.support.runs import recorded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for name in ("text", "supervisor", "background-until-idle", "error"):
        record(MastraModelOutput.from_chunks(recorded(f"{name}.sse")[0]).wait(), path / f"{name}.jsonl").result(10)
    return path


@pytest.mark.parametrize("table", TABLES)
def test_parquet_has_the_rows_and_types_of_the_frame(
    table: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbmastra.frames.files._GROUP", 30)  # several groups, with other categories in each
    frame = getattr(frames, table)(folder)
    assert export(folder, tmp_path / "out.parquet", table) == len(frame)
    read = pd.read_parquet(tmp_path / "out.parquet")
    assert list(read.columns) == list(frame.columns)
    for column in TABLES[table].select(None):
        if column.dtype == "object":
            assert read[column.name].isna().tolist() == frame[column.name].isna().tolist()
            continue
        if column.dtype == "category":
            assert isinstance(read[column.name].dtype, pd.CategoricalDtype)
        found, wanted = (data[column.name].astype(object).to_list() for data in (read, frame))
        assert [None if pd.isna(value) else value for value in found] == [
            None if pd.isna(value) else value for value in wanted
        ], column.name


def test_csv_has_a_header_and_all_rows(folder: Path, tmp_path: Path) -> None:
    rows = export(folder, tmp_path / "new" / "calls.csv", "tool_calls_df")
    read = pd.read_csv(tmp_path / "new" / "calls.csv")
    assert (list(read.columns), len(read)) == (list(frames.tool_calls_df(folder).columns), rows)


def test_a_failed_export_leaves_the_old_file(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    (tmp_path / "bad.jsonl").write_text("{}\n")
    sources = [folder, tmp_path / "bad.jsonl"]
    with pytest.raises(RecordingError, match="bad"):
        export(sources, target)
    assert target.read_text() == "old"
    assert export(sources, target, strict=False) == len(frames.chunks_df(folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "out.csv"]


def test_what_cannot_be_written_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ends in \.parquet or \.csv"):
        export(folder, tmp_path / "out.xlsx")
    with pytest.raises(SettingsError, match="there is no table 'chunks'"):
        export(folder, tmp_path / "out.csv", "chunks")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="can't write"):
        export(folder, tmp_path / "file" / "out.csv")
