"""A scripted model's deltas through agent, fold and output, against pydantic-ai's function model giving the same.

Targets: 10,000 deltas in under 3 times pydantic-ai's time; time grows linearly with the deltas (exponent below 1.2).
"""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel

from nbmastra import Agent
from nbmastra.testing import ScriptedModel, say

DELTAS = 10_000
SIZES = (10_000, 20_000, 40_000, 80_000)
ROUNDS = 5
WORD = "words "


async def by_pydantic_ai(deltas: int) -> float:
    """Seconds that pydantic-ai takes to give the deltas as events."""
    words = [WORD] * deltas

    async def stream(_messages: list[Any], _info: AgentInfo) -> AsyncIterator[str]:
        for word in words:
            yield word

    model = FunctionModel(stream_function=stream)
    request = ModelRequest(parts=[UserPromptPart("go")])
    gc.collect()
    begun = time.perf_counter()
    async with model.request_stream([request], None, ModelRequestParameters()) as response:
        events = [event async for event in response]
    seconds = time.perf_counter() - begun
    assert len(events) >= deltas
    return seconds


async def by_agent(deltas: int) -> float:
    """Seconds until the answer of an agent is there, and every chunk was read."""
    agent = Agent("bench", model=ScriptedModel([[say(WORD * deltas)]], piece_chars=len(WORD)))
    gc.collect()
    begun = time.perf_counter()
    out = await agent.stream("go")
    chunks = [chunk async for chunk in out.full_stream]
    text = await out.text
    seconds = time.perf_counter() - begun
    assert len(text) == deltas * len(WORD)
    assert len(chunks) > deltas
    return seconds


async def main() -> int:
    """Print the table; 1 if a target is missed."""
    await by_agent(100)
    theirs: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        theirs.append(await by_pydantic_ai(DELTAS))
        ours.append(await by_agent(DELTAS))
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(
        f"{DELTAS:,} deltas   pydantic-ai {statistics.median(theirs) * 1000:7.0f} ms   agent, fold and output ", end=""
    )
    print(f"{statistics.median(ours) * 1000:7.0f} ms   {ratio:.2f}x (target: under 3x)")
    times = [min([await by_agent(size) for _ in range(3)]) for size in SIZES]
    for size, seconds in zip(SIZES, times, strict=True):
        print(f"{size:7,} deltas   {seconds * 1000:7.0f} ms   {seconds / size * 1e6:5.1f} µs each")
    exponent = math.log(times[-1] / times[0]) / math.log(SIZES[-1] / SIZES[0])
    print(f"time grows with the deltas to the power of {exponent:.2f} (target: below 1.2)")
    return int(ratio >= 3 or exponent >= 1.2)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
