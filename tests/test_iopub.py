"""What a fast run costs between kernel and front end: every iopub message of a real kernel is counted and weighed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernel import Kernel

pytestmark = pytest.mark.server  # takes 20 s

DELTAS, LENGTH, RATE = 20_000, 20, 1000  # of a fast model, with its bursts
LAST = "The very last words."
NUMBERS = f"DELTAS, LENGTH, RATE, LAST = {DELTAS, LENGTH, RATE, LAST}"
MODEL = r"""
import anyio, time
from nbmastra import MastraModelOutput

BLOCKS = [
    "## Section {0}\n\n",
    "The *quick* brown fox **jumps** over `lazy_dogs({0})`, again, until [it](https://example.com/{0}) tires. "
    "Nobody counted how often, since nobody was there; what we know comes from notes that others took later.\n\n",
    "- first item of {0}, with *some* words\n- second item, `code` and a longer tail of text\n- third\n\n",
    "```python\ndef f_{0}(x: int) -> int:\n    return x * {0}  # a comment\n```\n\n",
    "| name | value | share |\n|---|--:|--:|\n| row {0} | 12.5 | 3 % |\n| other | 100 | 97 % |\n\n",
    "A second paragraph, é漢字🎉, of section {0}: it says little, but says it in a number of plain sentences.\n\n",
]
blocks = "".join(BLOCKS[n % len(BLOCKS)].format(n) for n in range(20_000))
text = blocks[: DELTAS * LENGTH - len(LAST) - 2] + "\n\n" + LAST
assert len(text) == DELTAS * LENGTH

def chunk(kind, **payload):
    return {"type": kind, "runId": "r", "from": "AGENT", "payload": payload}

async def model():
    yield chunk("start", id="fast")
    began = time.perf_counter()
    for n in range(DELTAS):
        while (ahead := began + n / RATE - time.perf_counter()) > 0:
            await anyio.sleep(ahead)
        yield chunk("text-delta", id="t", text=text[n * LENGTH : (n + 1) * LENGTH])
    used = {"inputTokens": 9, "outputTokens": DELTAS, "totalTokens": DELTAS + 9}
    yield chunk("finish", stepResult={"reason": "stop"}, output={"usage": used})
"""
SHOW = """
from nbmastra.display import show
out = MastraModelOutput.from_chunks(model())
shown = show(out)
out.wait()
assert shown.wait(60)
print(out.status, round(out.elapsed_s, 1))
"""
MAX_MESSAGES_A_SECOND = 31
MAX_LIVE_BYTES, MAX_FINAL_BYTES = 3.2, 6.0  # for a character of the answer


def weight(content: Any) -> int:
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def test_a_fast_run_is_shown_in_few_messages_and_few_bytes(kernel: Kernel) -> None:
    """B48: at 1,000 deltas a second; in each single second of the run, and over the whole."""
    kernel.run(NUMBERS + MODEL)
    cell = kernel.start(SHOW)
    assert (reply := cell.reply())["status"] == "ok", reply
    status, elapsed = cell.shown.text.split()
    elapsed_s = float(elapsed)
    assert status == "success"
    assert elapsed_s < 1.25 * DELTAS / RATE, "the run was slowed down"

    messages = [message for shown in kernel.cells.values() for message in shown.messages]
    began = cell.shown.messages[0]["header"]["date"]
    times = [(m["header"]["date"] - began).total_seconds() for m in messages if m["header"]["date"] >= began]
    times.sort()
    busiest = max(sum(start <= time < start + 1 for time in times) for start in times)
    assert len(times) / elapsed_s <= MAX_MESSAGES_A_SECOND
    assert busiest <= MAX_MESSAGES_A_SECOND

    live = [m["content"] for m in messages if m["msg_type"] == "comm_msg"]
    characters = DELTAS * LENGTH
    live_bytes = sum(map(weight, live))
    assert live_bytes / characters <= MAX_LIVE_BYTES
    assert live_bytes / characters > 1, "the text was shown"
    (final,) = cell.shown.of("update_display_data")
    assert weight(final) / characters <= MAX_FINAL_BYTES

    assert "very last words." in "".join(list(strings(live[-30:]))[-200:])
    assert all(LAST in text for text in final["data"].values())
    print(f"{len(times)} messages in {elapsed_s} s, at most {busiest} a second;")
    print(f"live {live_bytes / characters:.2f}, final {weight(final) / characters:.2f} bytes a character")
