"""The long form: every store and executor, 50 kills each; prints the table. `python -m tests.torture [SEED]`."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path

from tests.support.postgres import run_postgres
from tests.torture.run import Count, local_cluster, torture

STORES, EXECUTORS = ("SQLite", "PostgreSQL"), ("local", "Dask")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, default=random.randrange(10**6))
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--executor", choices=EXECUTORS, action="append")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nbmastra-torture-"))
    print(f"seed {given.seed}", flush=True)
    print("| store | executor | tasks | kills | tries again | lost | doubled | stuck | untrue streams | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    clean = True
    for store in given.store or STORES:
        for executor in given.executor or EXECUTORS:
            count = _one(folder / f"{store}-{executor}", store, executor, given)
            clean = clean and count.clean
            numbers = (count.tasks, count.kills, count.retries, count.lost, count.doubled, count.stuck, count.untrue)
            print(f"| {store} | {executor} | {' | '.join(map(str, numbers))} | {count.seconds:.0f} |", flush=True)
            for finding in count.findings[:20]:
                print(f"  {finding}", flush=True)
    if clean:
        shutil.rmtree(folder)
    return not clean


def _one(folder: Path, store: str, executor: str, given: argparse.Namespace) -> Count:
    folder.mkdir(parents=True)
    options = {"tasks": given.tasks, "kills": given.kills, "seed": given.seed}
    if executor == "Dask":
        with local_cluster() as address:
            return _in_store(folder, store, address, options)
    return _in_store(folder, store, None, options)


def _in_store(folder: Path, store: str, address: str | None, options: dict[str, int]) -> Count:
    if store == "SQLite":
        return torture(f"sqlite:///{folder}/tasks.db", address, folder, **options)
    with run_postgres(folder / "postgres.log") as url:
        return torture(url, address, folder, **options)


if __name__ == "__main__":
    raise SystemExit(main())
