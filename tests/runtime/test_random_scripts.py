"""Whatever a model says: what the fold makes of a local run is what the script says, and tokens add up."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.chunks import parse_chunk
from nbmastra.fold import RunState
from nbmastra.runtime import Agent
from nbmastra.testing import ScriptedModel, call, call_raw, say, think, usage
from nbmastra.tools import tool

TEXTS = st.text(max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@tool
async def echo(value: Any = None) -> Any:
    """Gives back what it gets."""
    return value


def part() -> st.SearchStrategy[tuple[str, Any]]:
    """A part of a turn, as kind and content."""
    return st.one_of(
        st.tuples(st.just("say"), TEXTS.filter(bool)),
        st.tuples(st.just("think"), TEXTS.filter(bool)),
        st.tuples(st.just("call"), JSON),
        st.tuples(st.just("raw"), TEXTS),
    )


TURNS = st.lists(
    st.tuples(st.lists(part(), max_size=5), st.tuples(st.integers(0, 999), st.integers(0, 999))), min_size=1, max_size=4
)
MADE = {
    "say": say,
    "think": think,
    "call": lambda value: call("echo", value=value),
    "raw": lambda text: call_raw("echo", text),
}


@settings(max_examples=60, deadline=None)
@given(TURNS, st.integers(1, 9))
def test_the_fold_of_a_run_is_what_its_script_says(turns: list[Any], pieces: int) -> None:
    script = [[*(MADE[kind](value) for kind, value in parts), usage(*tokens)] for parts, tokens in turns]
    model = ScriptedModel([*script, [say("end")]], piece_chars=pieces)
    out = Agent("a", model=model, tools=[echo], max_steps=10).stream("go").result()
    out.wait(10)
    assert out.status == "success"
    ran = turns[: len(out.steps) - 1] if len(out.steps) > len(turns) else turns[: len(out.steps)]
    for step, (parts, tokens) in zip(out.steps, ran, strict=False):
        assert step.text == "".join(value for kind, value in parts if kind == "say")
        assert step.reasoning == "".join(value for kind, value in parts if kind == "think")
        calls = [(kind, value) for kind, value in parts if kind in ("call", "raw")]
        assert [one.args_text for one in step.tool_calls] == [
            json.dumps({"value": value}, ensure_ascii=False, separators=(",", ":")) if kind == "call" else value
            for kind, value in calls
        ]
        assert [one.result for one, (kind, _) in zip(step.tool_calls, calls, strict=True) if kind == "call"] == [
            value for kind, value in calls if kind == "call"
        ]
        assert (step.usage.input_tokens, step.usage.output_tokens) == tokens
        assert step.is_continued == bool(calls)
    assert out.state.usage.input_tokens == sum(step.usage.input_tokens or 0 for step in out.steps)
    # Read again from its bytes, it is the same run.
    again = RunState()
    again.apply_all([parse_chunk(chunk.to_json()) for chunk in out.log], 0.0)
    again.close(0.0, done=True)
    assert (again.status, again.text, again.usage) == (out.status, out.state.text, out.state.usage)
    assert [one.result for one in again.tool_calls] == [one.result for one in out.state.tool_calls]
    # What is told of the conversation fits what the model is sent.
    last = model.requests[-1].messages
    told = out.message_list[: len(last)]
    assert [message["role"] for message in told] == [message["role"] for message in last]
