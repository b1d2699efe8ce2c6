"""Tables of a recording of 1,000,000 chunks (160 MB), against read_json + json_normalize; alternating, medians.

Targets: `chunks_df` through the fold at least 4x as fast, with DuckDB at least 20x, each at most 350 MB above the start
(peak); sums over chunks and the tables of a run below 110 MB. All give one row per chunk; the peer has no turn, no
step, no nested runs and no dates. What is compared is the time by the clock: DuckDB uses several cores. CPU time stands
beside it, which tells more on a machine that others use too.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pandas as pd
import psutil
from sample_stream import chunks

from nbmastra.frames import aggregate, chunks_df, runs_df, usage_df

CHUNKS = 1_000_000


def write_recording(path: Path, count: int) -> None:
    """Write `count` chunks as a recording, a few milliseconds apart."""
    rng, at = random.Random(3), 0.0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write('{"nbmastra":1,"created":"2026-11-30T11:00:00+00:00","agent":"agent","stream_id":"s"}\n')
        for chunk in islice(chunks(), count):
            at += rng.randrange(3, 30) / 1000
            file.write(f'{{"t":{at:.6g},"chunk":{json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))}}}\n')


def peer(path: Path) -> pd.DataFrame:
    """What a pandas user writes, no deeper than it must be."""
    lines = pd.read_json(path, lines=True)[1:]
    whole = pd.json_normalize(lines["chunk"], max_level=0)
    payload = pd.json_normalize(whole["payload"], max_level=0)
    return pd.DataFrame(
        {
            "at_s": lines["t"].to_numpy(),
            "run_id": whole["runId"],
            "type": whole["type"],
            "from": whole["from"],
            "text_len": payload["text"].str.len(),
            "tool_name": payload["toolName"],
            "tool_call_id": payload["toolCallId"],
        }
    )


PEER = "read_json + json_normalize"
VARIANTS: dict[str, Callable[[Path], pd.DataFrame]] = {
    PEER: peer,
    "chunks_df, fold": lambda path: chunks_df(path, engine="fold"),
    "chunks_df, DuckDB": lambda path: chunks_df(path, engine="duckdb"),
    "aggregate": aggregate,
    "usage_df": usage_df,
    "runs_df": runs_df,
}
WANTED = {"chunks_df, fold": (4, 350), "chunks_df, DuckDB": (20, 350), "aggregate": (0, 110), "usage_df": (0, 110)}
"""At least so many times as fast as the peer, and at most so many MB above the start."""


def worker(variant: str, path: Path) -> None:
    """One measurement, in a process of its own."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    clock, cpu = time.perf_counter(), time.process_time()
    frame = VARIANTS[variant](path)
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"cpu": cpu, "clock": clock, "mb": (peak - before) / 1e6}
    if "type" in frame:  # chunks, or their sums by type
        found["text"] = int(frame["text_len"][frame["type"] != "tool-call-delta"].sum())
        found["rows"] = int(frame["chunks"].sum()) if "chunks" in frame else len(frame)
    print(json.dumps(found))


def main(rounds: int) -> None:
    """Measure all variants and print them."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        write_recording(path, CHUNKS)
        for _ in range(rounds):
            for variant in VARIANTS:
                command = [sys.executable, __file__, variant, str(path)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[variant].append(json.loads(done.stdout))
    counted = [run for runs in found.values() for run in runs if "rows" in run]
    assert {run["rows"] for run in counted} == {CHUNKS}
    assert len({run["text"] for run in counted}) == 1
    for variant, runs in found.items():
        cpu, clock, mb = (statistics.median(run[key] for run in runs) for key in ("cpu", "clock", "mb"))
        by_clock, by_cpu = (
            statistics.median(theirs[key] / mine[key] for theirs, mine in zip(found[PEER], runs, strict=True))
            for key in ("clock", "cpu")
        )
        line = f"{variant:<28} {clock:6.1f} s {cpu:6.1f} CPU s {mb:6,.0f} MB above the start"
        if variant != PEER:
            line += f"   {by_clock:5.1f} times as fast, {by_cpu:.1f} times less CPU time"
        fast, small = WANTED.get(variant, (0, float("inf")))
        print(line + ("" if by_clock >= fast and mb <= small else f"   MISSED: {fast} times, {small} MB"))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(sys.argv[1], Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
