"""What a growing markdown text costs: bytes sent, kernel time and the slowest frame.

    python benchmarks/bench_markdown.py

400 KB of mixed markdown (prose, lists, tables, code, a few formulas and quotations) arrive in frames of 1,000, 200 and
12 characters; then 400 KB of one kind each, which a renderer that parses the open block anew turns into hours. Bytes
are those of the patches as JSON, times those of the process. Targets for mixed text: at most 2.4 bytes a character and
3 s at 1,000 and 200, 8 bytes at 12, about 15 ms for the slowest frame.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable

from nbmastra.widgets.markdown import MarkdownStream, render_markdown

SIZE = 400_000
_WORDS = (
    "the agent reads every row of the table and keeps what changed since the last run because the server sends no"
    " heartbeat while a tool is running so the view shows when it started and how long it took for each step"
).split()
_CODE = {
    "python": 'def load(path: str, *, limit: int = 100) -> list[dict]:\n    """Read the rows."""\n'
    "    with open(path) as file:\n        rows = [json.loads(line) for line in file]  # one per line\n\n"
    '    if not rows:\n        raise ValueError(f"no rows in {path!r}")\n    return rows[:limit]\n',
    "js": "export async function load(url, { limit = 100 } = {}) {\n  const response = await fetch(url);\n"
    "  // the server answers with lines\n  return (await response.text()).split('\\n').slice(0, limit);\n}\n",
    "bash": 'set -euo pipefail\nfor file in data/*.jsonl; do\n  wc -l "$file"  # rows\ndone\n',
}


def mixed(size: int, seed: int = 7) -> str:
    """Markdown like an assistant's long answer."""
    rnd = random.Random(seed)

    def words(least: int, most: int) -> str:
        return " ".join(rnd.choice(_WORDS) for _ in range(rnd.randint(least, most)))

    def sentence() -> str:
        kind = rnd.random()
        extra = (
            f" **{words(1, 3)}**"
            if kind < 0.2
            else f" `{rnd.choice(_WORDS)}_{rnd.choice(_WORDS)}()`"
            if kind < 0.4
            else f" [{words(1, 3)}](https://docs.example/{rnd.choice(_WORDS)}/{rnd.randint(1, 99)})"
            if kind < 0.5
            else f" *{words(1, 2)}*"
            if kind < 0.6
            else " $x_i^2$"
            if kind < 0.61
            else ""
        )
        return words(8, 18).capitalize() + extra + ". "

    def block() -> str:
        kind = rnd.random()
        if kind < 0.12:
            return "#" * rnd.randint(2, 3) + " " + words(2, 5).capitalize()
        if kind < 0.62:
            return "".join(sentence() for _ in range(rnd.randint(2, 6))).strip()
        if kind < 0.77:
            return "\n".join(f"- **{words(1, 2)}**: {words(4, 14)}" for _ in range(rnd.randint(3, 8)))
        if kind < 0.83:
            return "\n".join(f"{n}. {sentence()}" for n in range(1, rnd.randint(4, 7)))
        if kind < 0.94:
            language = rnd.choice(list(_CODE))
            return f"```{language}\n{_CODE[language] * rnd.randint(1, 3)}```"
        if kind < 0.98:
            rows = [f"| {words(1, 3)} | {rnd.randint(1, 999)} | {words(1, 2)} |" for _ in range(rnd.randint(3, 9))]
            return "\n".join(["| name | rows | state |", "|---|--:|---|", *rows])
        if kind < 0.99:
            return "> " + sentence()
        return "$$\n\\sum_{i=1}^{n} x_i = \\frac{n(n+1)}{2}\n$$"

    blocks: list[str] = []
    length = 0
    while length < size:
        blocks.append(block())
        length += len(blocks[-1]) + 2
    return "\n\n".join(blocks)[:size]


def long_blocks(size: int) -> dict[str, str]:
    """Texts that are one block from beginning to end."""
    words = " ".join(_WORDS)

    def repeated(line: Callable[[int], str]) -> str:
        return "".join(line(n) for n in range(size // len(line(10_000)) + 1))[:size]

    return {
        "fence": "```python\n" + repeated(lambda n: f"value_{n} = compute({n}, 'text')  # {n}\n"),
        "list": repeated(lambda n: f"- item {n} with *some* words and `code`\n"),
        "table": "| a | b | c |\n|---|---|---|\n" + repeated(lambda n: f"| {n} | name {n} | **value** |\n"),
        "paragraph": repeated(lambda n: f"{words} **{n}** "),
        "letters": "a" * size,
        "quotation": repeated(lambda n: f"> {words} {n}\n"),
    }


def measure(text: str, frame: int) -> tuple[float, float, float]:
    """Bytes sent a character, seconds in all, milliseconds of the slowest frame."""
    stream = MarkdownStream()
    sent = 0
    total = worst = 0.0
    gc.collect()
    for begin in range(0, len(text) + frame, frame):
        start = time.process_time()
        if begin < len(text):
            stream.feed(text[begin : begin + frame])
        else:
            stream.close()
        patches = stream.patches()
        spent = time.process_time() - start
        total += spent
        worst = max(worst, spent)
        if patches:
            sent += len(json.dumps(patches, ensure_ascii=False, separators=(",", ":")).encode())
    return sent / len(text), total, worst * 1000


def main() -> None:
    """Print the table."""
    texts = {"mixed": mixed(SIZE), **long_blocks(SIZE)}
    render_markdown(texts["mixed"][:50_000])  # lexers and tables are loaded once
    print(f"{'text':<10} {'frame':>6} {'bytes/char':>11} {'CPU s':>7} {'slowest ms':>11}")
    for name, text in texts.items():
        for frame in (1000, 200, 12) if name == "mixed" else (200,):
            ratio, total, worst = measure(text, frame)
            print(f"{name:<10} {frame:>6,} {ratio:>11.2f} {total:>7.2f} {worst:>11.1f}")
    start = time.process_time()
    html = render_markdown(texts["mixed"])
    snapshot = render_markdown(texts["mixed"], snapshot=True)
    print(f"one-shot, live and snapshot: {time.process_time() - start:.2f} s;", end=" ")
    print(f"{len(html) / SIZE:.2f} and {len(snapshot) / SIZE:.2f} characters of HTML a character")


if __name__ == "__main__":
    main()
