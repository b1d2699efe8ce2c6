"""Tool calls and background tasks in the fold, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from nbmastra.fold import RunState, ToolCall
from tests.support.runs import (
    Wire,
    call,
    chunk,
    error,
    finish,
    fold,
    inside,
    result,
    start,
    step_finish,
    step_start,
    text,
)
from tests.test_fold_cases import calls, placeholder, run, task_chunk


def _streamed(*pieces: str, args: Any = None) -> ToolCall:
    about = {"toolCallId": "c1", "toolName": "weather"}
    deltas = [chunk("tool-call-delta", {"toolCallId": "c1", "argsTextDelta": piece}) for piece in pieces]
    begin, end = chunk("tool-call-input-streaming-start", about), chunk("tool-call-input-streaming-end", about)
    chunks = [start(), step_start(), begin, *deltas, end, call("c1", "weather", args), result("c1"), finish()]
    return run(*chunks).state.tool_calls[0]


@pytest.mark.parametrize(
    "pieces", [('{"city":"Lima"', "}<|call|>"), ('{"city":"Lima",}',), ('{}{"city":"Lima"}',)], ids=str
)
def test_b23_arguments_that_the_server_gave_up_are_recovered(pieces: tuple[str, ...]) -> None:
    found = _streamed(*pieces)
    assert found.args == {"city": "Lima"}
    assert found.args_text == "".join(pieces)


def test_b23_arguments_that_were_cut_are_never_silently_empty() -> None:
    found = _streamed('{"city":"Li')
    assert (found.args, found.args_text) == ({"city": "Li"}, '{"city":"Li')
    assert found.args_error


def test_b23_no_arguments_are_no_error() -> None:
    found = _streamed("")
    assert (found.args, found.args_error) == ({}, None)


def test_b24_a_call_id_that_returns_in_a_later_step_is_another_call() -> None:
    out = run(
        *[start(), step_start(), call("call_0", args={"x": 1}), result("call_0", 1)],
        *[step_finish("tool-calls", None, True), step_start(), call("call_0", args={"x": 2}), result("call_0", 2)],
        *[step_finish(), finish()],
    )
    assert [found.args for found in out.tool_calls.result()] == [{"x": 1}, {"x": 2}]
    assert [found.result for found in out.tool_results.result()] == [1, 2]
    assert [[found.result for found in step.tool_calls] for step in out.steps.result()] == [[1], [2]]


def test_b24_the_same_call_told_twice_in_one_step_is_one_call() -> None:
    begin = chunk("tool-call-input-streaming-start", {"toolCallId": "call_0", "toolName": "f"})
    out = run(start(), step_start(), begin, call("call_0", args={"x": 1}), call("call_0", args={"x": 1}), finish())
    assert len(out.state.tool_calls) == 1


def test_b27_a_failed_tool_is_an_error_in_all_its_spellings() -> None:
    boom = chunk("tool-error", {"toolCallId": "c1", "toolName": "f", "error": {"message": "boom"}})
    refused = {"error": True, "message": "city: missing", "validationErrors": {}}
    out = run(
        *[start(), step_start(), call("c1"), boom, call("c2"), result("c2", "no", isError=True)],
        *[call("c4"), result("c4", refused), step_finish(), finish()],
    )
    c1, c2, c4 = out.tool_calls.result()
    assert [found.status for found in (c1, c2, c4)] == ["error"] * 3
    assert [found.error.message for found in (c1, c2, c4) if found.error] == ["boom", "no", "city: missing"]
    assert out.status == "success"


def test_b27_a_result_without_its_call_is_one_of_a_resumed_stream() -> None:
    out = run(result("c3", "ok", args={"x": 1}), text("done"), step_finish(), finish())
    assert calls(out) == [("c3", "success", {"x": 1})]
    assert out.text.result() == "done"


@pytest.mark.parametrize("end", [[chunk("abort")], [error("x")], []], ids=["aborted", "failed", "truncated"])
def test_b27_calls_that_never_came_back_are_cancelled(end: list[Wire]) -> None:
    begun = chunk("tool-call-input-streaming-start", {"toolCallId": "c2", "toolName": "f"})
    out = run(start(), step_start(), call("c1"), begun, *end)
    assert [found.status for found in out.state.tool_calls] == ["cancelled", "cancelled"]


def test_b27_a_question_of_an_aborted_run_waits_no_more() -> None:
    asked = chunk("tool-call-approval", {"toolCallId": "c1", "toolName": "f"})
    out = run(start(), step_start(), call("c1"), asked, chunk("abort"))
    assert (out.status, out.waiting, calls(out)) == ("cancelled", [], [("c1", "cancelled", {})])


def test_a_sub_agent_that_ended_with_its_failed_call_failed_too() -> None:
    boom = chunk("tool-error", {"toolCallId": "c1", "toolName": "f", "error": {"message": "boom"}})
    out = run(start(), step_start(), call("c1"), inside("c1", start("sub", "child")), boom, step_finish(), finish())
    [nested] = out.total.nested
    assert (nested.status, nested.status_reason, out.status) == ("failed", "boom", "success")


def test_what_only_looks_like_a_chunk_is_what_the_tool_wrote() -> None:
    lookalikes = [
        {"type": "finish"},
        {"type": "finish", "runId": "x"},
        {"type": 5, "runId": "x", "from": "AGENT"},
        {"type": "finish", "runId": "x", "from": "ELSEWHERE", "payload": {}},
        [{"type": "finish", "runId": "x", "from": "AGENT"}],
        None,
    ]
    out = run(start(), call("c1"), *(inside("c1", value) for value in lookalikes), result("c1"), finish())
    assert out.state.tool_calls[0].outputs == lookalikes
    assert not out.total.nested


def test_sub_agents_may_lie_deeper_than_anybody_folds() -> None:
    inner = text("deep", run="r60")
    for depth in reversed(range(60)):
        inner = {**inside("c", inner), "runId": f"r{depth}"}
    state: RunState | None = run(start(run="r0"), inner, finish(run="r0")).state
    levels = 0
    while state is not None and state.nested:
        levels, state = levels + 1, state.nested[0]
    assert levels == 39
    assert state is not None
    assert state.tool_calls[0].outputs


# --- background tasks ------------------------------------------------------------------------------------------------


ENDINGS = {
    "completed": ({"result": 1}, "success"),
    "failed": ({"error": {"message": "boom"}}, "error"),
    "cancelled": ({}, "cancelled"),
    "suspended": ({"suspendPayload": {"q": 1}}, "suspended"),
}


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("order", ["in order", "before its start", "before its placeholder", "before its call"])
def test_b36_the_end_of_a_task_counts_wherever_it_comes(kind: str, order: str) -> None:
    more, outcome = ENDINGS[kind]
    end = task_chunk(kind, "t1", **more)
    told = [call("t1"), task_chunk("started", "t1"), task_chunk("running", "t1"), placeholder("t1")]
    place = {"in order": 4, "before its start": 1, "before its placeholder": 3, "before its call": 0}[order]
    told.insert(place, end)
    out = run(start(), step_start(), *told, step_finish(), finish())
    [task] = out.total.tasks
    [found] = out.state.tool_calls
    assert (task.status, found.status, found.background) == (kind, outcome, True)
    assert out.status == "success"


def test_b36_seed_and_server_spell_a_suspension_differently() -> None:
    for key in ("suspendData", "suspendPayload"):
        out = run(
            start(), call("t1"), task_chunk("started", "t1"), task_chunk("suspended", "t1", **{key: {"q": 1}}), finish()
        )
        assert out.total.tasks[0].suspend_payload == {"q": 1}


def test_the_first_ending_of_a_task_is_its_last() -> None:
    """B38's fold side: a late result doesn't undo a cancellation."""
    told = [
        call("t1"),
        task_chunk("started", "t1"),
        task_chunk("cancelled", "t1"),
        task_chunk("completed", "t1", result=1),
    ]
    out = run(start(), *told, task_chunk("running", "t1"), finish())
    assert (out.total.tasks[0].status, calls(out)[0][1]) == ("cancelled", "cancelled")


def test_a_task_that_is_resumed_runs_again_and_its_wait_is_known() -> None:
    told = [call("t1"), task_chunk("started", "t1"), task_chunk("suspended", "t1"), task_chunk("resumed", "t1")]
    state = fold([start(), *told, task_chunk("completed", "t1", result=1), finish()])
    [task] = state.tasks.values()
    assert (task.status, task.suspended_s) == ("completed", 1.0)
    assert state.tool_calls[0].status == "success"


def test_tasks_go_on_when_the_stream_is_cut() -> None:
    out = run(
        start(), call("t1"), task_chunk("started", "t1"), placeholder("t1"), task_chunk("running", "t1"), text("x")
    )
    assert (out.status, out.total.tasks[0].status, calls(out)[0][1]) == ("truncated", "running", "running")
