"""What a recording promises: every run on demand, its header, no secrets, a bar where it takes long."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

import nbmastra
from nbmastra import MastraModelOutput, configure, demo_recording, load_recording, record, replay
from nbmastra.config import settings
from nbmastra.hooks import hooks
from nbmastra.recording import reader

DELTA = {"type": "text-delta", "runId": "r", "from": "AGENT", "payload": {"id": "t", "text": "x"}}


@pytest.fixture
def record_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "record_dir", None)
    monkeypatch.setattr(hooks, "started", None)
    configure(record_dir=tmp_path / "every run")
    return tmp_path / "every run"


def recorded_in(folder: Path, count: int) -> list[Path]:
    """The files, once their runs have ended in them."""
    while True:
        files = sorted(folder.glob("*.jsonl"))
        if len(files) >= count and all(b'{"end"' in file.read_bytes() for file in files):
            return files


@pytest.mark.timeout(20)
def test_every_run_is_recorded_once_one_says_where(record_dir: Path) -> None:
    out = MastraModelOutput.from_chunks([DELTA], agent="a", prompt="Why?").wait(10)
    other = MastraModelOutput.from_chunks([DELTA, DELTA], agent="b").wait(10)
    loaded = [load_recording(path) for path in recorded_in(record_dir, 2)]
    assert {run.stream_id for run in loaded} == {out.stream_id, other.stream_id}
    assert {run.prompt for run in loaded} == {"Why?", None}


@pytest.mark.timeout(20)
def test_a_replay_is_not_recorded_again(record_dir: Path) -> None:
    replay(demo_recording(), 1e6).wait(10)
    MastraModelOutput.from_chunks([DELTA]).wait(10)
    assert len(recorded_in(record_dir, 1)) == 1


def test_a_run_that_cannot_be_recorded_goes_on_and_says_so(record_dir: Path) -> None:
    record_dir.write_text("a file in the directory's place")
    out = MastraModelOutput.from_chunks([DELTA]).wait(10)
    assert out.total.text == "x"
    (notice, *_) = out.state.notices
    assert (notice.code, notice.title) == ("recording", "The run is not recorded")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_the_header_says_what_was_asked_of_whom_and_with_which_versions(tmp_path: Path, suffix: str) -> None:
    out = MastraModelOutput.from_chunks([DELTA], agent="weather", prompt="Rain?", until_idle=True).wait(10)
    path = record(out, tmp_path / f"run{suffix}").result(10)
    header = reader.read_header(path)
    assert (header["nbmastra"], header["agent"], header["prompt"]) == (1, "weather", "Rain?")
    assert header["versions"] == {"nbmastra": nbmastra.__version__, "python": platform.python_version()}
    assert header["created"] == out.created_at.isoformat()
    assert header["stream_id"] == out.stream_id


class Bar:
    """Stands for tqdm's bar, and keeps what it was told."""

    made: list[Bar] = []  # noqa: RUF012

    def __init__(self, **options: Any) -> None:
        self.options, self.done, self.open = options, 0, True
        self.made.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False

    def update(self, count: int) -> None:
        self.done += count


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_loading_one_large_recording_shows_how_far_it_is(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tqdm.auto

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    monkeypatch.setattr(Bar, "made", [])
    out = MastraModelOutput.from_chunks([DELTA] * 50_000).wait(30)
    path = record(out, tmp_path / f"run{suffix}").result(30)
    load_recording(path)
    assert Bar.made == []  # a small one
    monkeypatch.setattr(reader, "_LARGE", 1000)
    for load in (load_recording, replay):
        load(path)
        bar = Bar.made.pop()
        assert bar.options["delay"] == 1
        assert bar.done == 50_000
        assert not bar.open


def test_a_bar_is_no_part_of_the_output_of_a_small_recording(capsys: pytest.CaptureFixture[str]) -> None:
    load_recording(demo_recording())
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
    assert json.loads(demo_recording().read_text().splitlines()[0])["nbmastra"] == 1
