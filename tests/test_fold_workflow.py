"""Workflows in the fold: a recording against its truth by hand, and the ways in which steps go."""

from __future__ import annotations

from typing import Any

import pytest

from nbmastra.chunks import parse_chunk
from nbmastra.client.decode import RecordDecoder
from nbmastra.fold import RunState, WorkflowStep
from tests.support.runs import Wire, chunk, finish, fold, recording, start, step_finish, step_start, text, usage


def record(kind: str, **payload: Any) -> Wire:
    return {**chunk(kind, payload, "w"), "from": "WORKFLOW"}


def step(kind: str, id: str = "s", **payload: Any) -> Wire:
    return record(f"workflow-step-{kind}", stepName=id, id=id, **payload)


def ended(status: str = "success", used: Wire | None = None, **payload: Any) -> Wire:
    return record("workflow-finish", workflowStatus=status, output={"usage": used or {}}, **payload)


def through(id: str, inner: Wire) -> Wire:
    """What an agent streams through the step that runs it."""
    return {**step("output", id, output=inner), "from": "USER"}


def facts(part: WorkflowStep) -> tuple[str, Any, str, Any]:
    return part.id, part.args, part.status, part.result


BEGIN = record("workflow-start", workflowId="wf")


def test_the_recorded_workflow_means_what_was_read_from_it_by_hand() -> None:
    decoder = RecordDecoder()
    state = fold(decoder.feed(recording("workflow.records")), done=decoder.done)
    assert (state.status, state.agent_id, state.run_ids, state.result) == ("success", "arithmetic", ["w1"], {"n": 7})
    assert [facts(part) for part in state.workflow_steps] == [
        ("double", {"n": 3}, "success", {"n": 6}),
        ("increment", {"n": 6}, "success", {"n": 7}),
    ]
    assert [part.outputs for part in state.workflow_steps] == [[{"type": "progress", "pct": 50}], []]
    [turn] = state.turns
    assert (turn.finish_reason, turn.usage.reported, turn.steps) == ("stop", False, [])
    assert (state.events, state.notices, state.bad_payloads, len(state.unknown)) == (7, [], 0, 0)
    assert [part for part in state.parts if part.kind == "workflow-step"] == state.workflow_steps


def test_steps_are_timed_by_their_own_chunks() -> None:
    state = fold([BEGIN, step("start"), step("output", output=1), step("result", status="success"), ended()])
    [part] = state.workflow_steps
    assert (part.started_at, part.ended_at, part.duration_s) == (1.0, 3.0, 2.0)


def test_a_step_that_a_loop_runs_again_is_a_further_step() -> None:
    once = [step("start", payload=1), step("result", status="success", output=2)]
    again = [step("start", payload=2), step("result", status="success", output=4)]
    state = fold([BEGIN, *once, *again, ended()])
    assert [(part.args, part.result) for part in state.workflow_steps] == [(1, 2), (2, 4)]


def test_steps_side_by_side_keep_their_own_output() -> None:
    state = fold(
        [
            BEGIN,
            step("start", "a"),
            step("start", "b"),
            step("output", "b", output="of b"),
            step("output", "a", output="of a"),
            step("result", "b", status="success", output=2),
            step("result", "a", status="success", output=1),
            ended(),
        ]
    )
    assert [(part.id, part.outputs, part.result) for part in state.workflow_steps] == [
        ("a", ["of a"], 1),
        ("b", ["of b"], 2),
    ]


def test_an_agent_in_a_step_is_a_run_of_its_own_whose_tokens_count_once() -> None:
    inner = [start("sub", "x"), step_start("x"), text("hi", run="x"), step_finish(used=usage(5, 5), run="x")]
    inner.append(finish(used=usage(5, 5), run="x"))
    state = fold(
        [
            BEGIN,
            step("start"),
            *(through("s", item) for item in inner),
            step("result", status="success", output={"text": "hi"}),
            ended(used=usage(5, 5)),
        ]
    )
    [part] = state.workflow_steps
    [run] = part.nested
    assert (run.text, run.agent_id, run.status, run.parent_call) == ("hi", "sub", "success", part)
    assert (state.usage.reported, state.grand_usage.total_tokens, state.text) == (False, 10, "")


def test_a_workflows_own_tokens_are_what_its_runs_do_not_explain() -> None:
    inner = [start("sub", "x"), finish(used=usage(5, 5), run="x")]
    state = fold([BEGIN, step("start"), *(through("s", item) for item in inner), ended(used=usage(8, 6))])
    assert (state.usage.input_tokens, state.usage.output_tokens) == (3, 1)
    assert state.grand_usage.total_tokens == 14


def test_what_a_step_writes_that_only_looks_like_a_chunk_is_its_output() -> None:
    written = [{"type": "text-delta"}, {"type": "x", "runId": "y"}, None, [1], "text"]
    state = fold([BEGIN, step("start"), *(step("output", output=value) for value in written), ended()])
    assert state.workflow_steps[0].outputs == written
    assert state.nested == []


def test_a_suspended_step_waits_and_says_for_what() -> None:
    state = fold(
        [
            BEGIN,
            step("start", payload={"n": 1}),
            step(
                "suspended", suspendPayload={"question": "Sure?", "__streamState": {}}, resumeSchema='{"type":"object"}'
            ),
            ended("suspended"),
        ],
        done=False,
    )
    [part] = state.workflow_steps
    assert (state.status, state.status_reason) == ("suspended", "s waits for input")
    assert (part.status, part.suspend_payload, part.resume_schema) == (
        "suspended",
        {"question": "Sure?"},
        {"type": "object"},
    )
    assert list(state.waiting.values()) == [part]
    assert [(notice.code, notice.tool_call_id) for notice in state.notices] == [("suspension", "s")]


def test_a_resumed_run_goes_on_in_the_same_stream() -> None:
    state = fold(
        [
            BEGIN,
            step("start"),
            step("suspended", suspendPayload={"q": 1}),
            ended("suspended"),
            BEGIN,
            step("start", resumePayload={"by": "me"}),
            step("result", status="success", output=3),
            ended(finalWorkflowResult=3),
        ],
        done=False,
    )
    assert (state.status, state.result, state.waiting) == ("success", 3, {})
    assert state.workflow_steps[-1].result == 3


@pytest.mark.parametrize(
    ("status", "payload", "expected", "words"),
    [
        ("failed", {"metadata": {"errorMessage": "bad input"}}, "failed", "bad input"),
        ("failed", {"metadata": {"error": {"message": "no disk"}}}, "failed", "no disk"),
        ("canceled", {}, "cancelled", "aborted at the server"),
        ("tripwire", {"tripwire": {"reason": "secret"}}, "tripwire", "secret"),
        ("paused", {}, "suspended", "waits for input"),
        ("bailed", {}, "success", "stop"),
    ],
)
def test_every_ending_has_its_status(status: str, payload: Wire, expected: str, words: str) -> None:
    state = fold([BEGIN, ended(status, **payload)], done=False)
    assert state.status == expected
    assert words in state.status_reason


def test_a_failed_step_fails_the_run_with_its_error() -> None:
    state = fold([BEGIN, step("start"), step("result", status="failed", error={"message": "boom"}), ended("failed")])
    [part] = state.workflow_steps
    assert (part.status, part.error and part.error.message) == ("error", "boom")
    assert (state.status, state.status_reason) == ("failed", "boom")


def test_cancelling_says_so_and_ends_what_was_open() -> None:
    state = fold([BEGIN, step("start"), record("workflow-canceled"), ended("canceled")], done=False)
    assert state.status == "cancelled"


def test_without_its_finish_a_workflow_is_truncated() -> None:
    assert fold([BEGIN, step("start")], done=False).status == "truncated"


def test_a_stream_that_begins_in_the_middle_makes_the_step_it_speaks_of() -> None:
    state = fold([step("result", "late", status="success", output=1), ended(finalWorkflowResult=1)], done=False)
    assert [facts(part) for part in state.workflow_steps] == [("late", None, "success", 1)]
    assert state.status == "success"


def test_waiting_and_progress_are_seen_while_they_last() -> None:
    state = RunState()
    for item in (BEGIN, step("start"), step("waiting"), step("progress", completed=2, total=5)):
        state.apply(parse_chunk(item), 0.0)
    [part] = state.workflow_steps
    assert part.status == "waiting"
    assert part.progress is not None
    assert (part.progress["completed"], part.progress["total"]) == (2, 5)
