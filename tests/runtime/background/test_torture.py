"""The short form of `make torture-tasks`: kernels are killed at random points of a schedule of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.run import torture

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]


@pytest.mark.parametrize("executor", ["local", "dask"])
def test_no_task_is_lost_doubled_or_stuck_and_no_stream_untrue_when_kernels_are_killed(
    url: str, executor: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("cluster") if executor == "dask" else None
    count = torture(url, address, tmp_path, tasks=30, kills=4, seed=8)
    assert count.findings == []
    assert (count.kills, count.clean) == (4, True)
    assert count.tasks >= 30
