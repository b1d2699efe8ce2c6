"""`chunks_df` of a recording of 1,000,000 chunks, against read_json + json_normalize; alternating, medians.

Targets: at least 4x as fast, at most 350 MB above the start (peak). Both give one row per chunk; the peer has no turn,
no step, no nested runs and no dates. Both use one core, so CPU time is compared: others use this machine too.
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
from itertools import islice
from pathlib import Path

import pandas as pd
import psutil
from sample_stream import chunks

from nbmastra.frames import chunks_df

CHUNKS = 1_000_000
ROUNDS = 3
VARIANTS = ("read_json + json_normalize", "chunks_df")


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


def worker(variant: str, path: Path) -> None:
    gc.collect()
    before = psutil.Process().memory_info().rss
    start = time.process_time()
    frame = chunks_df(path) if variant == "chunks_df" else peer(path)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    text = frame["text_len"][frame["type"] != "tool-call-delta"].sum()
    print(json.dumps({"rows": len(frame), "text": int(text), "seconds": seconds, "mb": (peak - before) / 1e6}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        write_recording(path, CHUNKS)
        found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
        for _ in range(ROUNDS):
            for variant in VARIANTS:
                command = [sys.executable, __file__, variant, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[variant].append(json.loads(done.stdout))
    peers, ours = (found[variant] for variant in VARIANTS)
    ratios = [theirs["seconds"] / mine["seconds"] for theirs, mine in zip(peers, ours, strict=True)]
    assert {run["rows"] for run in peers + ours} == {CHUNKS}
    assert len({run["text"] for run in peers + ours}) == 1
    for variant, runs in found.items():
        seconds, mb = (statistics.median(run[key] for run in runs) for key in ("seconds", "mb"))
        print(f"{variant:<28} {seconds:6.1f} CPU s   {mb:6,.0f} MB above the start")
    print(f"chunks_df is {statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
