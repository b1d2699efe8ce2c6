"""Runs made from a recording, to try an analysis on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.errors import RecordingError, SettingsError
from nbmastra.testing import varied_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied_runs(tmp_path_factory.mktemp("varied") / "runs", 120)


def test_they_are_whole_recordings_that_differ_in_all_that_an_analyst_asks_for(folder: Path) -> None:
    runs = frames.runs_df(folder)
    assert len(runs) == 120
    assert runs["unread"].sum() == 0
    assert runs["stream_id"].is_unique
    assert runs["run_id"].is_unique
    assert {"success", "failed", "truncated"} <= set(runs["status"])
    assert 0.8 < runs["status"].eq("success").mean() < 0.97
    assert runs["model"].nunique() == 3
    assert runs["duration_s"].nunique() > 100
    assert runs["total_tokens"].nunique() > 90
    assert runs["created_at"].is_monotonic_increasing
    assert runs["created_at"].max() - runs["created_at"].min() > pd.Timedelta(days=7)
    assert runs["failed_tool_calls"].sum() > 0
    assert runs.attrs["unpriced_models"] == ["in-house-1"]


def test_their_tokens_sum_in_each_run(folder: Path) -> None:
    reconciliation = frames.usage_df(folder).attrs["reconciliation"]
    assert reconciliation["complete"]
    assert reconciliation["beyond_steps"] == []
    assert reconciliation["unpriced_models"] == ["in-house-1"]
    assert frames.steps_df(folder).attrs["unpriced_models"] == ["in-house-1"]


def test_one_tool_gets_slow_in_the_last_days_and_no_other(folder: Path) -> None:
    calls = frames.tool_calls_df(folder)
    assert (calls["duration_s"].dropna() > 0).all()
    late = calls["started_at"] >= pd.Timestamp("2026-03-07", tz="UTC")
    p95 = calls.groupby(["tool_name", late], observed=True)["duration_s"].quantile(0.95).unstack()
    times = (p95[True] / p95[False]).sort_values()
    assert times.index[-1] == "campsites"
    assert times.iloc[-1] > 4
    assert times.iloc[-2] < 2


def test_a_seed_gives_the_same_runs_and_others_are_others(tmp_path: Path) -> None:
    end = datetime(2026, 1, 9, tzinfo=UTC)

    def texts(name: str, seed: int) -> list[str]:
        folder = varied_runs(tmp_path / name, 3, seed=seed, days=2, end=end)
        return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]

    assert texts("a", 7) == texts("b", 7) != texts("c", 8)
    assert len(frames.runs_df(varied_runs(tmp_path / "none", 0))) == 0


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        varied_runs(tmp_path / "runs", -1)
    (tmp_path / "file").write_text("{}\n")
    with pytest.raises(RecordingError, match="is no recording"):
        varied_runs(tmp_path / "runs", 1, recording=tmp_path / "file")
    with pytest.raises(RecordingError, match="can't write"):
        varied_runs(tmp_path / "file", 1)
