"""A run's tables from its trace are those of its stream, on the real server, but for what `DIFFERENT` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbmastra import frames
from nbmastra.client import MastraClient
from nbmastra.engine import Engine
from nbmastra.output import MastraModelOutput
from tests.support.mastra import run_mastra_server

pytestmark = pytest.mark.server

TABLES = ("runs_df", "steps_df", "usage_df", "tool_calls_df", "errors_df", "timeline_df")
PAGE = Path(__file__).parents[2] / "docs" / "history.md"
CLOSE_S = 0.8
"""How far a time may lie from that of the stream: a network and two clocks lie between them."""
BUSY = 0.6
"""On a busy machine the stream is read late: by so much of a long duration the trace's may be shorter."""


def missing(value: Any) -> bool:
    return not isinstance(value, dict | list) and bool(pd.isna(value))


def same(a: Any, b: Any) -> bool:
    if missing(a) or missing(b):
        return missing(a) and missing(b)
    if isinstance(a, pd.Timestamp):
        return abs((a - b).total_seconds()) < CLOSE_S
    if isinstance(a, float):
        return abs(a - b) < max(CLOSE_S, BUSY * a)
    return a == b


def more(a: Any, b: Any) -> bool:
    return missing(a) or same(a, b)


def less(a: Any, b: Any) -> bool:
    return missing(b) or same(a, b)


DIFFERENT: dict[tuple[str, str], Callable[[Any, Any], bool]] = {
    ("all", "stream_id"): lambda a, b: len(a) == 32 and len(b) == 16,
    ("runs_df", "previous"): lambda a, b: missing(a) == missing(b),
    ("runs_df", "chunks"): lambda a, b: b > 0,
    ("runs_df", "time_to_first_token_s"): less,
    ("runs_df", "model"): more,
    ("steps_df", "time_to_first_token_s"): less,
    ("steps_df", "output_tokens_per_s"): lambda a, b: missing(a) == missing(b) and (missing(a) or b > 0),
    ("steps_df", "model"): more,
    ("steps_df", "provider"): more,
    ("usage_df", "model"): more,
    ("usage_df", "provider"): more,
    ("tool_calls_df", "args_text"): less,
    ("tool_calls_df", "duration_s"): lambda a, b: missing(a) == missing(b) and (missing(a) or b < a + CLOSE_S),
}
"""Columns that are not the same, as in the page's table, and what holds for stream and trace all the same."""

OBJECT = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "number"}}}


def memory(thread: str) -> dict[str, str]:
    return {"thread": thread, "resource": "history"}


def run_agents(client: MastraClient) -> dict[str, list[MastraModelOutput]]:
    """One run of each kind; two streams where somebody had to answer."""

    def run(agent: str, **options: Any) -> MastraModelOutput:
        return client.agent(agent).stream("hello", **options).result(20).wait(30)

    found = {
        name: [run(name)]
        for name in ("text", "tools", "bad-args", "error", "error-first", "tripwire", "data", "durable-tools")
    }
    found["supervisor"] = [run("supervisor", memory=memory("supervisor"))]
    found["task-complete"] = [run("task-complete", memory=memory("task-complete"))]
    found["object"] = [run("object", schema=OBJECT)]
    for name, agent in (("approved", "approve"), ("durable-approved", "durable-approve")):
        waits = run(agent, memory=memory(name))
        found[name] = [waits, waits.approve().result(20).wait(30)]
    for name, agent in (("declined", "approve"), ("durable-declined", "durable-approve")):
        waits = run(agent, memory=memory(name))
        found[name] = [waits, waits.decline(reason="not today").result(20).wait(30)]
    waits = run("ask", memory=memory("asked"))
    found["asked"] = [waits, waits.resume({"answer": "Oslo"}).result(20).wait(30)]
    cut = client.agent("slow").stream("hello", memory=memory("cut")).result(20)
    next(iter(cut.text_stream))
    cut.cancel()
    found["cancelled"] = [cut.wait(10)]
    found["until-idle"] = [run("background", memory=memory("until-idle"), until_idle=True)]
    found["workflow"] = [client.workflow("asks-agent").stream({"prompt": "hi"}).result(20).wait(20)]
    return found


def written(client: MastraClient, wanted: int) -> bool:
    """Servers write spans some seconds late; a run that a processor blocked is never ended."""
    rows = client.traces(per_page=100).result(30)
    return len(rows) == wanted and all(row["endedAt"] or row["entityId"] == "tripwire" for row in rows)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[tuple[MastraModelOutput, ...]]]]:
    """Streams with what the history gives for them. The model is slow, so that times differ by what they measure."""
    engine = Engine("nbmastra-history")
    folder = tmp_path_factory.mktemp("history")
    with run_mastra_server(folder, CHUNK_DELAY_MS="20") as server:
        client = MastraClient(server.url, engine=engine)
        streams = run_agents(client)
        # A part after an answer is a topmost span of its own in durable runs only; until idle, a stream holds two runs.
        while not written(client, len(streams) + 3):
            pass
        history = client.history(cache=folder).result(30)
        assert len(history) == sum(map(len, streams.values())) + 1
        assert history.notes == []
        found: dict[str, list[tuple[MastraModelOutput, ...]]] = {}
        for name, outs in streams.items():
            runs = [run for id in outs[0].state.run_ids for run in client.history(run_id=id, cache=folder).result(30)]
            found[name] = [(outs[0], *runs)] if name == "until-idle" else list(zip(outs, runs, strict=True))
        yield found
    engine.close()


NAMES = (
    "text tools bad-args error error-first tripwire data durable-tools supervisor task-complete object approved "
    "durable-approved declined durable-declined asked workflow"
).split()


# Without a first token, which the trace of a blocked step doesn't know, a timeline has no wait for it.
CASES = [(name, table) for name in NAMES for table in TABLES if (name, table) != ("tripwire", "timeline_df")]


@pytest.mark.parametrize(("name", "table"), CASES)
def test_tables_of_a_trace_are_those_of_its_stream(
    name: str, table: str, pairs: dict[str, list[tuple[MastraModelOutput, ...]]]
) -> None:
    for stream, trace in pairs[name]:
        wanted, found = (getattr(frames, table)([out]) for out in (stream, trace))
        assert len(found) == len(wanted)
        assert list(map(str, found.dtypes)) == list(map(str, wanted.dtypes))
        for column in wanted.columns:
            holds = DIFFERENT.get((table, column)) or DIFFERENT.get(("all", column)) or same
            for a, b in zip(wanted[column], found[column], strict=True):
                assert holds(a, b), (column, a, b)


def test_the_page_names_all_columns_that_differ() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == set(DIFFERENT)


def test_a_part_after_an_answer_follows_the_one_before(pairs: dict[str, list[tuple[MastraModelOutput, ...]]]) -> None:
    for name in ("approved", "durable-approved", "declined", "durable-declined", "asked"):
        (_, first), (_, second) = pairs[name]
        assert (first.status, second.status) == ("suspended", "success")
        assert second.previous is first
        assert frames.runs_df([second])["previous"].tolist() == [first.stream_id]


def test_answers_and_objects_of_a_trace_are_those_of_its_stream(
    pairs: dict[str, list[tuple[MastraModelOutput, ...]]],
) -> None:
    for name in ("text", "tools", "supervisor", "object", "approved"):
        for stream, trace in pairs[name]:
            assert trace.total.text == stream.total.text
            told = ("url", "thread", "resource")
            assert [trace.context.get(key) for key in told] == [stream.context.get(key) for key in told]
    [(_, trace)] = pairs["object"]
    assert trace.object.result(1) == {"name": "Ada", "age": 36, "tags": ["math", "code"]}
    [(stream, trace)] = pairs["text"]
    assert [part.url for part in trace.state.parts if part.kind == "source"] == ["https://example.com/a"]
    assert trace.state.counts["file"] == stream.state.counts["file"] == 1


def test_runs_until_idle_have_together_what_their_stream_has(
    pairs: dict[str, list[tuple[MastraModelOutput, ...]]],
) -> None:
    [(stream, *runs)] = pairs["until-idle"]
    assert len(runs) == 2
    columns = ["tool_call_id", "tool_name", "status", "result", "error_message", "background", "task_id"]
    wanted, found = frames.tool_calls_df(stream, columns), frames.tool_calls_df(runs, columns)
    pd.testing.assert_frame_equal(wanted.drop(columns="stream_id"), found.drop(columns="stream_id"))
    columns = ["task_id", "tool_name", "agent_id", "status", "args", "result", "error_message"]
    wanted, found = frames.tasks_df(stream, columns), frames.tasks_df(runs, columns)
    pd.testing.assert_frame_equal(wanted.drop(columns="stream_id"), found.drop(columns="stream_id"))
    assert frames.usage_df(runs)["total_tokens"].tolist() == frames.usage_df(stream)["total_tokens"].tolist()
    assert frames.usage_df(runs).attrs["reconciliation"]["complete"]


def test_a_run_that_was_stopped_was_aborted_at_the_server(
    pairs: dict[str, list[tuple[MastraModelOutput, ...]]],
) -> None:
    [(stream, trace)] = pairs["cancelled"]
    assert (stream.status_reason, trace.status_reason) == ("stopped by you", "aborted at the server")
    columns = [
        "run_id",
        "agent_id",
        "status",
        "prompt",
        "turns",
        "steps",
        "tool_calls",
        "total_tokens",
        "error_message",
    ]
    wanted, found = frames.runs_df(stream, columns), frames.runs_df(trace, columns)
    pd.testing.assert_frame_equal(wanted.drop(columns="stream_id"), found.drop(columns="stream_id"))
    assert trace.total.text.startswith("Paragraph 0")
    assert len(frames.errors_df([stream, trace])) == 0
