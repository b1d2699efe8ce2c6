"""A partial object after every 8 characters: the incremental parser against jiter, which reads all again each time.

Targets: with a snapshot after every delta at least 100x jiter at 200 KB; growth exponent up to 2 MB at most 1.2 (1 is
linear, 2 quadratic). The live value grows in place; a snapshot is a plain value of its own, so it costs a copy of the
containers that are still open, here a list of 2,400 sections at 2 MB, and that shows in its exponent.
"""

from __future__ import annotations

import gc
import json
import math
import random
import time
from collections.abc import Callable
from typing import Any

import jiter

from nbmastra.partial_json import PartialJson

DELTA = 8
SIZES = (20_000, 200_000, 2_000_000)
ROUNDS = 3
JITER_PREFIXES = 1_000
MIN_RATIO, MAX_EXPONENT = 100.0, 1.2
WORDS = ("alpha", "beta", 'gamma "q"', "delta", "déjà")


def report(size: int) -> str:
    """A report in sections, each with prose and rows of numbers."""
    rng = random.Random(3)
    sections: list[str] = []
    written = 0
    while written < size:
        section = {
            "id": len(sections),
            "heading": f"Section {len(sections)}",
            "body": "\n".join(" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(3)),
            "rows": [
                {"day": day, "hi": round(rng.random() * 30, 2), "ok": rng.random() > 0.5, "tag": None, "w": [day, -day]}
                for day in range(8)
            ],
        }
        sections.append(json.dumps(section, separators=(",", ":"), ensure_ascii=False))
        written += len(sections[-1]) + 1
    return '{"title":"Report","sections":[' + ",".join(sections) + "]}"


def long_string(size: int) -> str:
    return json.dumps({"answer": "word \n" * (size // 7)})


def live(parser: PartialJson, deltas: list[str]) -> None:
    for delta in deltas:
        parser.feed(delta)


def snapshots(parser: PartialJson, deltas: list[str]) -> None:
    for delta in deltas:
        parser.feed(delta)
        parser.snapshot()


def seconds(text: str, read: Callable[[PartialJson, list[str]], None]) -> float:
    """CPU time of one pass, so that others on the machine count less."""
    deltas = [text[start : start + DELTA] for start in range(0, len(text), DELTA)]
    want: Any = json.loads(text)
    parser = PartialJson()
    gc.collect()
    start = time.process_time()
    read(parser, deltas)
    spent = time.process_time() - start
    assert parser.close() == want
    return spent


def jiter_seconds(text: str) -> float:
    """CPU time for all prefixes; for a long text that of a sample, scaled up."""
    ends = range(DELTA, len(text) + DELTA, DELTA)
    most = len(ends) if len(text) < 2 * SIZES[0] else JITER_PREFIXES
    prefixes = [text[: ends[int((k + 0.5) * len(ends) / most)]].encode() for k in range(most)]
    gc.collect()
    start = time.process_time()
    for prefix in prefixes:
        jiter.from_json(prefix, partial_mode="trailing-strings")
    return (time.process_time() - start) * len(ends) / most


def verdict(good: bool) -> str:
    return "met" if good else "MISSED"


def main() -> None:
    texts = [report(size) for size in SIZES]
    strings = [long_string(size) for size in SIZES]
    alive, frozen, string, peer = ([math.inf] * len(SIZES) for _ in range(4))
    for _ in range(ROUNDS):  # alternating, the best of each counts
        for k, text in enumerate(texts):
            alive[k] = min(alive[k], seconds(text, live))
            frozen[k] = min(frozen[k], seconds(text, snapshots))
            string[k] = min(string[k], seconds(strings[k], live))
            if k < 2:
                peer[k] = min(peer[k], jiter_seconds(text))
    for k, text in enumerate(texts):
        print(
            f"{len(text):>9,} characters: live {alive[k]:.3f} s, snapshot after every delta {frozen[k]:.3f} s", end=""
        )
        print(f"; jiter {peer[k]:.2f} s: {peer[k] / alive[k]:,.0f}x, {peer[k] / frozen[k]:,.0f}x" if k < 2 else "")
    factor = len(texts[2]) / len(texts[1])
    print(f"jiter at least {MIN_RATIO:.0f}x, snapshots, 200 KB: {verdict(peer[1] / frozen[1] >= MIN_RATIO)}")
    for name, spent in (("live", alive), ("one long string, live", string), ("snapshots", frozen)):
        grown = math.log(spent[2] / spent[1]) / math.log(factor)
        print(f"growth exponent from 200 KB to 2 MB, {name}: {grown:.2f} {verdict(grown <= MAX_EXPONENT)}")


if __name__ == "__main__":
    main()
