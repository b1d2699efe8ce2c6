"""The index of a run folder: the same table with and without it, and only what is new is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from nbmastra.errors import RecordingError
from nbmastra.frames import index, runs_df
from nbmastra.frames.index import INDEX
from nbmastra.output import MastraModelOutput
from nbmastra.recording import record
from tests.support.runs import recorded


def fill(folder: Path, *names: str) -> None:
    for name in names:
        out = MastraModelOutput.from_chunks(recorded(f"{name}.sse")[0], prompt="é \ud83d").wait()
        record(out, folder / f"{name}.jsonl").result(timeout=10)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read, as they are."""
    found: list[str] = []
    read = index.run_of

    def noting(path: Path) -> object:
        found.append(path.name)
        return read(path)

    monkeypatch.setattr(index, "run_of", noting)
    return found


def test_a_folder_is_read_once_and_then_only_what_is_new(tmp_path: Path, reads: list[str]) -> None:
    fill(tmp_path, "text", "tools", "error")
    first = runs_df(tmp_path)
    pd.testing.assert_frame_equal(first, runs_df(sorted(tmp_path.glob("*.jsonl"))))
    reads.clear()
    pd.testing.assert_frame_equal(runs_df(tmp_path), first)
    assert reads == []
    fill(tmp_path, "goal", "text")  # the second one is written anew
    again = runs_df(str(tmp_path))
    assert reads == ["goal.jsonl", "text.jsonl"]
    pd.testing.assert_frame_equal(again, runs_df(sorted(tmp_path.glob("*.jsonl"))))


def test_a_file_that_has_gone_leaves_table_and_index(tmp_path: Path) -> None:
    fill(tmp_path, "text", "tools")
    runs_df(tmp_path)
    (tmp_path / "text.jsonl").unlink()
    assert [Path(path).name for path in runs_df(tmp_path)["recording"]] == ["tools.jsonl"]
    assert "text.jsonl" not in (tmp_path / INDEX).read_text()


@pytest.mark.parametrize("damage", ["", "{", "[]\n", '{"nbmastra_index": 1}\n', "header", "made_by", "row"])
def test_an_index_that_cannot_be_used_is_made_anew(damage: str, tmp_path: Path) -> None:
    fill(tmp_path, "text")
    wanted = runs_df(tmp_path)
    path = tmp_path / INDEX
    header, line = path.read_text().splitlines()
    if damage == "header":  # an older version's columns
        damage = json.dumps(json.loads(header) | {"columns": ["stream_id"]}) + "\n" + line
    elif damage == "made_by":  # a version whose fold may have counted otherwise
        row = json.loads(line)
        row["row"] = [7 if isinstance(value, int) else value for value in row["row"]]
        damage = json.dumps(json.loads(header) | {"made_by": "0.0.0"}) + "\n" + json.dumps(row)
    elif damage == "row":
        damage = header + "\n" + json.dumps(json.loads(line) | {"row": []})
    path.write_text(damage)
    pd.testing.assert_frame_equal(runs_df(tmp_path), wanted)
    assert path.read_text().splitlines() == [header, line]


def test_what_is_no_recording_is_not_kept_in_the_index(tmp_path: Path) -> None:
    fill(tmp_path, "text")
    (tmp_path / "notes.jsonl").write_text("{}\n")
    for _ in range(2):
        with pytest.raises(RecordingError, match="notes"):
            runs_df(tmp_path)
        frame, errors = runs_df(tmp_path, strict=False)
        assert (len(frame), len(errors)) == (1, 1)


def test_a_folder_that_cannot_be_written_has_a_table_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "text")
    monkeypatch.setattr(Path, "write_text", _refuse)
    assert len(runs_df(tmp_path)) == 1
    assert os.listdir(tmp_path) == ["text.jsonl"]


def _refuse(*_args: object, **_options: object) -> int:
    raise PermissionError("read-only")


def test_own_prices_are_not_those_of_the_index(tmp_path: Path) -> None:
    fill(tmp_path, "tools")
    assert runs_df(tmp_path)["cost_usd"].isna().all()
    assert runs_df(tmp_path, prices={"scripted-1": {"input": 1, "output": 1}})["cost_usd"].notna().all()
