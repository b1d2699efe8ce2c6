"""Traces as outputs: times, nested runs, answers, what is open or odd."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra import frames, load_recording, record
from nbmastra.output import MastraModelOutput
from nbmastra.recording import TraceRuns, runs_of_trace
from nbmastra.recording.traces import settled_at
from tests.support import traces
from tests.support.runs import STREAMS
from tests.support.traces import event, piece, span, step, trace, usage, weather


def one(made: dict[str, Any], **options: Any) -> MastraModelOutput:
    found = runs_of_trace(made, **options)
    assert not found.odd
    [out] = found.outputs
    return out


def recorded(name: str) -> dict[str, Any]:
    return json.loads((STREAMS / name).read_text(encoding="utf-8"))


def seconds(*milliseconds: float) -> list[Any]:
    return [pytest.approx(ms / 1000, abs=1e-6) for ms in milliseconds]


def test_a_run_has_the_times_of_its_spans() -> None:
    out = one(weather(), url="http://localhost:4111")
    assert (out.status, out.agent, out.prompt, out.run_id) == ("success", "weather", "Warm?", "r1")
    assert (out.stream_id, out.created_at, out.elapsed_s) == ("t1-a", traces.BEGAN, pytest.approx(0.150))
    assert out.context["url"] == "http://localhost:4111"
    assert out.text.result(1) == "No, 3 °C."
    first, second = out.steps
    assert [first.started_at, first.first_token_at, first.ended_at] == seconds(10, 30, 90)
    assert [second.started_at, second.first_token_at, second.ended_at] == seconds(95, 115, 140)
    assert (first.model, first.provider, first.finish_reason) == ("m-1", "acme", "tool-calls")
    assert first.output_tokens_per_s == pytest.approx(5 / 0.040)
    [call] = out.tool_calls
    assert [call.started_at, call.called_at, call.ended_at] == seconds(50, 70, 75)
    assert (call.args, call.result, call.status) == ({"city": "Oslo"}, {"c": 3}, "success")


def test_tokens_that_step_and_inference_tell_count_once() -> None:
    out = one(weather())
    frame = frames.usage_df(out)
    assert frame["input_tokens"].tolist() == [20, 30]
    assert frame["cached_input_tokens"].fillna(-1).tolist() == [4, -1]
    assert frame.attrs["reconciliation"]["complete"]
    made = weather()
    for one_span in made["spans"]:
        if one_span["spanType"] == "model_step":
            one_span["attributes"].pop("usage")
    assert frames.usage_df(one(made))["input_tokens"].tolist() == [20, 30]


def test_recorded_traces_have_what_their_runs_had() -> None:
    out = one(recorded("trace-tools.json"))
    calls = frames.tool_calls_df(out)
    assert calls["status"].tolist() == ["success", "error"]
    assert calls["error_message"].tolist()[1] == "no such city"
    assert calls["duration_s"].tolist() == [pytest.approx(0.014), pytest.approx(0.003)]
    assert frames.usage_df(out)["total_tokens"].tolist() == [23, 42]
    assert frames.errors_df(out)["kind"].tolist() == ["tool"]


def test_a_sub_agent_is_a_run_inside_of_its_call_with_tokens_of_its_own() -> None:
    out = one(recorded("trace-supervisor.json"))
    usage_ = frames.usage_df(out, by="run")
    assert usage_["path"].tolist() == ["supervisor", "supervisor/agent-sub"]
    assert usage_["depth"].tolist() == [0, 1]
    assert usage_["total_tokens"].sum() == out.state.grand_usage.total_tokens == 75
    assert out.state.nested[0].text == "sub-agent says hi"
    assert frames.runs_df(out)["nested_runs"].tolist() == [1]


def test_a_call_without_an_id_is_found_by_its_tool() -> None:
    made = weather()
    for one_span in made["spans"]:
        if one_span["spanType"] == "tool_call":
            one_span["attributes"] = {}
    [call] = one(made).tool_calls
    assert (call.tool_call_id, call.result) == ("c1", {"c": 3})


def test_a_trace_without_spans_of_chunks_has_text_and_calls_all_the_same() -> None:
    made = weather()
    kept = [one_span for one_span in made["spans"] if one_span["spanType"] != "model_chunk"]
    told = {
        "s0": {"text": "I look.", "toolCalls": [{"toolCallId": "c1", "toolName": "look", "args": {"city": "Oslo"}}]}
    }
    for one_span in kept:
        one_span["output"] = told.get(one_span["spanId"], one_span.get("output"))
    out = one({**made, "spans": kept})
    assert out.steps[0].text == "I look."
    assert [(call.args, call.result) for call in out.tool_calls] == [({"city": "Oslo"}, {"c": 3})]
    assert out.state.usage.total_tokens == 62


def test_what_is_open_ends_as_truncated_and_says_why() -> None:
    out = one(
        trace(
            span("agent_run", "a", 0, None, entity="weather"),
            span("model_generation", "g", 2, None, "a"),
            step("s0", 10, None, "g", None),
            piece("tool-call", "p1", 50, 70, "s0", toolCallId="c1", toolName="look", toolInput={}),
            span("tool_call", "c", 72, None, "s0", entity="look", toolCallId="c1"),
        )
    )
    assert out.status == "truncated"
    assert "the server had not ended it" in out.status_reason
    assert out.tool_calls[0].status == "cancelled"
    assert frames.errors_df(out)["kind"].tolist() == ["truncated"]


def test_a_run_that_a_processor_blocked_is_open_for_ever_and_a_tripwire() -> None:
    abort = {"reason": "secret in output", "metadata": {"rule": "secrets"}}
    made = trace(
        span("agent_run", "a", 0, None, entity="weather"),
        span("model_generation", "g", 2, None, "a"),
        step("s0", 10, None, "g", None),
        span("processor_run", "p", 12, 60, "a", entity="block-secrets", tripwireAbort=abort, error={"message": "x"}),
    )
    out = one(made)
    assert (out.status, out.status_reason) == ("tripwire", "secret in output")
    assert out.tripwire is not None
    assert frames.errors_df(out)["at_s"].tolist() == seconds(60)
    assert settled_at(made) is None


def answered(*, approved: bool) -> dict[str, Any]:
    waits = {"status": "suspended", "reason": "tool-call-approval", "toolName": "deploy", "toolCallId": "c1"}
    answer = {"approved": approved, "reason": "no", "toolName": "deploy", "toolCallId": "c1"}
    resumed = {"metadata": {"resumed": True}}
    call = span("tool_call", "c", 510, 520, "g2", entity="deploy", output={"ok": 1}, toolCallId="c1")
    return trace(
        span("agent_run", "a", 0, 100, entity="ops", input="Go", output=waits),
        span("model_generation", "g", 2, 100, "a", finishReason="suspended"),
        step("s0", 10, 100, "g", None),
        piece("tool-call", "p1", 50, 70, "s0", toolCallId="c1", toolName="deploy", toolInput={"to": "prod"}),
        event("p2", 90, "s0-i", chunkType="tool-call-approval", output={"toolCallId": "c1", "toolName": "deploy"}),
        span("agent_run", "b", 500, 700, "s0", entity="ops", input=answer, output={"text": "Done."}, **resumed),
        span("model_generation", "g2", 502, 690, "b", finishReason="stop", usage=usage(16, 5), **resumed),
        [call, *step("s1", 521, 523, "g2", "tool-calls", usage(7, 3))] if approved else [],
        step("s2", 530, 680, "g2", "stop", usage(9, 2)),
        piece("text", "p3", 560, 600, "s2", text="Done."),
    )


@pytest.mark.parametrize("approved", [True, False])
def test_an_answer_begins_an_output_of_its_own_that_ends_the_step(approved: bool) -> None:
    first, second = runs_of_trace(answered(approved=approved)).outputs
    assert (first.status, first.status_reason) == ("suspended", "deploy needs approval")
    assert first.state.usage.total_tokens is None
    assert second.previous is first
    assert first.next is second
    assert (second.status, second.run_id, second.prompt) == ("success", "r1", None)
    [call] = second.tool_calls
    assert (call.status, call.denial_reason) == (("success", None) if approved else ("denied", "no"))
    assert [step.usage.total_tokens for step in second.steps] == [10, 11]
    assert frames.usage_df([first, second]).attrs["reconciliation"]["complete"]


def test_a_trace_that_waits_for_an_answer_is_not_settled() -> None:
    made = answered(approved=True)
    assert settled_at(made) == pytest.approx(traces.BEGAN.timestamp() + 0.7)
    unanswered = [one_span for one_span in made["spans"] if one_span["spanId"] in ("a", "g", "s0", "s0-i", "p1", "p2")]
    assert settled_at({"spans": unanswered}) is None


def test_a_workflow_is_a_run_with_the_agents_of_its_steps_inside() -> None:
    inner = weather("t9", "r9")["spans"]
    inner[0]["parentSpanId"] = "w1"
    failed = {"message": "no disk", "name": "DiskError"}
    out = one(
        trace(
            span("workflow_run", "w", 0, 300, entity="report", input={"n": 1}, error=failed),
            span("workflow_step", "w1", 0, 200, "w", entity="ask", status="success", output={"n": 2}),
            span("workflow_step", "w2", 200, 290, "w", entity="save", error=failed),
            inner,
        )
    )
    assert (out.status, out.agent, out.state.run_id) == ("failed", "report", "r1")
    assert [(item.name, item.status) for item in out.state.workflow_steps] == [("ask", "success"), ("save", "error")]
    assert frames.usage_df(out, by="run")["path"].tolist() == ["report/ask"]
    assert frames.runs_df(out)["total_tokens"].tolist() == [62]
    assert frames.errors_df(out)["kind"].tolist() == ["run", "workflow-step"]


def test_runs_under_spans_of_other_kinds_are_found_and_those_spans_kept_apart() -> None:
    made = trace(
        span("generic", "root", 0, 400, entity="http"), span("scorer_run", "s", 300, 390, "root", entity="judge")
    )
    inner = weather()["spans"]
    inner[0]["parentSpanId"] = "root"
    found = runs_of_trace({**made, "spans": made["spans"] + inner})
    assert [out.agent for out in found.outputs] == ["weather"]
    assert [item["spanId"] for item in found.other_spans] == ["root", "s"]
    assert len(found.outputs[0].context["spans"]) == len(inner)


def test_odd_spans_are_counted_and_the_rest_is_read() -> None:
    made = weather()
    by_id = {one_span["spanId"]: one_span for one_span in made["spans"]}
    by_id["p2"]["startedAt"] = "yesterday"
    by_id["c"]["endedAt"] = traces.at(0)
    by_id["p0"]["parentSpanId"] = "gone"
    found = runs_of_trace({"traceId": "t1", "spans": [*made["spans"], by_id["s1"], "no span", {"spanId": 7}]})
    assert found.odd == {
        "a span without an id or a start": 3,
        "a span that ended before it began": 1,
        "a span without its parent": 1,
        "a span that came twice": 1,
    }
    [out] = found.outputs
    assert out.status == "success"
    assert out.state.usage.total_tokens == 62


def test_spans_that_are_each_others_parents_end_nowhere() -> None:
    found = runs_of_trace(trace(span("agent_run", "a", 0, 9, "b"), span("agent_run", "b", 1, 8, "a")))
    assert found.odd == {"a span without its parent": 1}
    assert [out.stream_id for out in found.outputs] == ["a", "b"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = "spanId parentSpanId spanType isEvent startedAt endedAt entityId runId metadata".split()
KEYS += "attributes input output error".split()
INNER = "usage finishReason toolCallId chunkType tripwireAbort completionStartTime warnings status".split()
INNER += "toolInput text toolCalls sources files object resumed modelMetadata providerMetadata toolName reason".split()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_a_server_sends_is_read_and_every_table_made(data: st.DataObject) -> None:
    made = data.draw(st.sampled_from([weather(), answered(approved=True), answered(approved=False)]))
    spans = json.loads(json.dumps(made["spans"]))
    for _ in range(data.draw(st.integers(1, 6))):
        one_span = data.draw(st.sampled_from(spans))
        value = data.draw(JSON | st.sampled_from([other["spanId"] for other in spans]))
        key = data.draw(st.sampled_from(KEYS))
        if key in ("metadata", "attributes", "output") and data.draw(st.booleans()):
            held = one_span[key] if isinstance(one_span.get(key), dict) else {}
            one_span[key] = held | {data.draw(st.sampled_from(INNER)): value}
        else:
            one_span[key] = value
    found: TraceRuns = runs_of_trace({"traceId": "t", "spans": spans})
    settled_at({"spans": spans})
    names = ("runs_df", "steps_df", "usage_df", "tool_calls_df", "errors_df", "spans_df")
    getattr(frames, data.draw(st.sampled_from(names)))(found.outputs)


def test_a_run_of_a_trace_can_be_recorded_and_read_again(tmp_path: Any) -> None:
    out = one(weather(), url="http://localhost:4111")
    again = load_recording(record(out, tmp_path / "a.jsonl").result(10))
    for name in ("steps_df", "usage_df", "tool_calls_df", "errors_df"):
        assert getattr(frames, name)(again).equals(getattr(frames, name)(out))


def test_spans_have_a_table_of_their_own() -> None:
    out = one(recorded("trace-supervisor.json"))
    frame = frames.spans_df(out)
    assert set(frame["stream_id"]) == {out.stream_id}
    assert frame["started_at"].is_monotonic_increasing
    counts = frame["span_type"].value_counts()
    assert (counts["agent_run"], counts["memory_operation"], counts["processor_run"]) == (2, 4, 2)
    assert frame.set_index("span_id")["duration_s"].notna().sum() == (~frame["is_event"]).sum()
    raw = frames.spans_df(out, ["main", "raw"])
    assert raw.loc[raw["span_type"] == "memory_operation", "attributes"].iloc[0]["operationType"] == "recall"
    assert len(frames.spans_df([])) == 0
