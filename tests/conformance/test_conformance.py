"""One scenario file drives a real Mastra server and our runtime; the chunks are compared field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import local, remote
from tests.conformance.compare import DOCS, compare, wanted_differences
from tests.support.mastra import MastraServer, run_mastra_server

SCENARIOS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "scenarios.json").read_text())
WANTED = wanted_differences()

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MastraServer]:
    with run_mastra_server(tmp_path_factory.mktemp("conformance"), CONFORMANCE="1") as running:
        yield running


@pytest.fixture(scope="module")
def used() -> set[int]:
    """Rows of the table of wanted differences that covered one."""
    return set()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["id"] for scenario in SCENARIOS])
async def test_the_runtime_says_what_a_server_says(
    scenario: dict[str, Any], server: MastraServer, used: set[int], record_conformance: Any
) -> None:
    theirs = remote.play(server.url, scenario)
    mine = await local.play(scenario)
    assert len(theirs) == len(mine)
    unwanted: list[str] = []
    rows: set[int] = set()
    for number, (one, other) in enumerate(zip(theirs, mine, strict=True)):
        for difference in compare(one, other, cut=scenario["steps"][number].get("stop", False)):
            covering = [index for index, row in enumerate(WANTED) if row.covers(scenario["id"], difference)]
            rows.update(covering)
            if not covering:
                unwanted.append(f"step {number}: {difference}")
    used.update(rows)
    record_conformance(scenario["id"], "differs" if unwanted else f"{len(rows)} wanted" if rows else "equal")
    assert not unwanted, "\n".join(unwanted)


def test_every_row_of_the_table_is_a_difference_that_is_there(used: set[int]) -> None:
    """Looks at what all scenarios found: fails if only some of them were run."""
    unused = [f"{row.scenario} {row.place}" for index, row in enumerate(WANTED) if index not in used]
    assert not unused, f"{DOCS.name} has rows that nothing differs in any more: {unused}"


def test_there_are_at_least_twenty_scenarios_and_each_says_what_it_shows() -> None:
    assert len({scenario["id"] for scenario in SCENARIOS}) == len(SCENARIOS) >= 20
    assert all(scenario["says"] and scenario["steps"] for scenario in SCENARIOS)
