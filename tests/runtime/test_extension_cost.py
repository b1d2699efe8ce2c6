"""What processors and structured output cost grows with the number of deltas, no faster; what is off is free."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import nbmastra
from nbmastra.chunks import Chunk
from nbmastra.fold import RunState
from nbmastra.runtime import Agent
from nbmastra.runtime.loop import AgentRun
from nbmastra.runtime.options import read_options
from nbmastra.testing import ScriptedModel, say

PACKAGE = str(Path(nbmastra.__file__).parent)


def same(part: dict[str, Any], state: dict[str, Any], stream_parts: list[Any]) -> dict[str, Any]:
    """Leaves all chunks as they are."""
    state["seen"] = len(stream_parts)
    return part


async def calls_of(text: str, **options: Any) -> int:
    """Calls of this package's functions for a run whose text comes in pieces of 4 characters, and its fold."""
    own = Agent("a", model=ScriptedModel([[say(text)]], piece_chars=4))
    run = AgentRun(own.runs.setup("hello", read_options({}, options)))
    state = RunState(expect_object="schema" in options)
    count = 0

    def take(chunk: Chunk) -> None:
        state.apply(chunk, 0.0)

    def trace(frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(trace)
    try:
        await run.run(take)
    finally:
        sys.setprofile(None)
    assert state.text == text
    return count


def text_of(kind: str, words: int) -> str:
    """A text that is as long as it has words."""
    if kind == "list":
        items = ",".join(f'{{"n":{index}}}' for index in range(words))
        return f'{{"elements":[{items}]}}'
    return '{"a":"' + "word " * words + '"}'


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "processors": {"output_processors": [same, same]},
    "object": {"schema": {"type": "object"}},
    "list": {"schema": {"type": "array"}},
}


@pytest.mark.parametrize("kind", OPTIONS)
async def test_a_delta_costs_the_same_however_long_the_answer_is(kind: str) -> None:
    small = await calls_of(text_of(kind, 50), **OPTIONS[kind])
    large = await calls_of(text_of(kind, 400), **OPTIONS[kind])
    assert large < small * 8 * 1.2


async def test_an_agent_without_extensions_pays_nothing_for_them() -> None:
    own = Agent("a", model=ScriptedModel([[say("x")]]))
    assert AgentRun(own.runs.setup("hello", read_options({}, {}))).extensions == []
