"""Compare by hand: `python -m tests.conformance.run URL [SCENARIO …]`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.conformance import local, remote
from tests.conformance.compare import compare, wanted_differences

SCENARIOS = json.loads((Path(__file__).parent / "scenarios.json").read_text())


def main(url: str, *names: str) -> None:
    wanted = wanted_differences()
    for scenario in SCENARIOS:
        if names and scenario["id"] not in names:
            continue
        print(f"\n=== {scenario['id']}: {scenario['says']}")
        try:
            theirs = remote.play(url, scenario)
            mine = asyncio.run(local.play(scenario))
        except Exception as error:
            print(f"  FAILED {type(error).__name__}: {str(error)[:600]}")
            continue
        for number, (one, other) in enumerate(zip(theirs, mine, strict=True)):
            for difference in compare(one, other, cut=scenario["steps"][number].get("stop", False)):
                rows = [row for row in wanted if row.covers(scenario["id"], difference)]
                print(f"  {'wanted' if rows else 'DIFFER'} step {number} {difference}")


if __name__ == "__main__":
    main(*sys.argv[1:])
