"""`nbmastra runs` and `nbmastra export`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from nbmastra.cli import main
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record
from tests.support.runs import recorded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    for name in ("text", "tools", "error", "background-until-idle"):
        out = MastraModelOutput.from_chunks(recorded(f"{name}.sse")[0], prompt=f"ask \x1b[31m{name}\nagain").wait()
        record(out, path / f"{name}.jsonl").result(10)
    return path


def test_runs_are_listed_with_how_they_ended_and_a_total(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder)]) == 0
    said = capsys.readouterr().out
    head, *rows, empty, total = said.splitlines()
    assert head.split()[:3] == ["STARTED", "(UTC)", "AGENT"]
    assert (len(rows), empty) == (4, "")
    assert "background-until-idle.jsonl" in rows[-1]  # the newest is the last
    assert "2 (1 failed)" in rows[-1]
    assert total.startswith("4 runs; 3 success, 1 failed; ")
    assert "tokens" in total
    assert "\x1b" not in said


def test_a_part_of_the_runs_can_be_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder), "--limit", "1"]) == 0
    assert "4 runs (1 shown)" in capsys.readouterr().out
    assert main(["runs", str(folder), "--status", "failed", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["agent_id"] == "error"


def test_what_is_no_recording_is_told_and_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.jsonl").write_text("{}\n")
    assert main(["runs", str(folder)]) == 0
    said = capsys.readouterr()
    assert "4 runs" in said.out
    assert "left out" in said.err
    assert main(["runs", str(folder / "typo")]) == 1


def test_an_empty_folder_has_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 runs"


def test_a_folder_is_exported(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "calls.parquet"
    assert main(["export", str(folder), str(target), "--table", "tool_calls_df"]) == 0
    rows = len(pd.read_parquet(target))
    assert f"{rows} rows of tool_calls_df" in capsys.readouterr().out
    assert main(["export", str(folder), str(target), "--table", "nothing"]) == 2
