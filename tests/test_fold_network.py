"""Agent networks in the fold; synthetic, since no recording has one. Source: WIRE "Families"; chunks/network.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import Wire, chunk, finish, fold, start, step_finish, step_start, text, usage


def net(kind: str, **payload: Any) -> Wire:
    return {**chunk(kind, payload, "net"), "from": "NETWORK"}


def decides(primitive: str, kind: str, iteration: int = 0, used: Wire | None = None) -> list[Wire]:
    about = {"primitiveId": primitive, "primitiveType": kind, "prompt": "do it", "iteration": iteration}
    return [
        net("routing-agent-start", agentId="router", networkId="team", runId=f"d{iteration}", inputData={"task": "t"}),
        net("routing-agent-end", **about, selectionReason="fits", usage=used, runId=f"d{iteration}"),
    ]


def agent(*inner: Wire, run: str = "x", result: Any = "hi", used: Wire | None = None) -> list[Wire]:
    return [
        net("agent-execution-start", agentId="sub", args={"prompt": "say hi", "primitiveId": "sub"}, runId=run),
        *(net(f"agent-execution-event-{item['type']}", **item) for item in inner),
        net("agent-execution-end", agentId="sub", result=result, runId=run, usage=used),
    ]


def run_of_sub(run: str = "x") -> list[Wire]:
    used = usage(5, 5)
    return [
        start("sub", run),
        step_start(run),
        text("hi", run=run),
        step_finish(used=used, run=run),
        finish(used=used, run=run),
    ]


def iteration_done(complete: bool = False, iteration: int = 0) -> Wire:
    return net("network-execution-event-step-finish", task="t", isComplete=complete, iteration=iteration, runId="net")


def ended(result: Any = "The answer.", used: Wire | None = None) -> Wire:
    return net("network-execution-event-finish", result=result, isComplete=True, usage=used)


def test_an_iteration_is_a_step_and_what_it_calls_is_a_tool_call_with_a_run_inside() -> None:
    state = fold([*decides("sub", "agent", used=usage(3, 1)), *agent(*run_of_sub()), iteration_done(True), ended()])
    [turn] = state.turns
    [step] = turn.steps
    [call] = step.tool_calls
    assert (state.status, state.agent_id, state.run_ids) == ("success", "team", ["net"])
    assert (call.tool_name, call.args, call.status, call.result) == ("sub", {"prompt": "say hi"}, "success", "hi")
    [run] = call.nested
    assert (run.text, run.agent_id, run.status) == ("hi", "sub", "success")
    assert (turn.text, state.result, turn.finish_reason) == ("The answer.", "The answer.", "stop")
    assert (state.unknown, state.bad_payloads) == ({}, 0)


def test_tokens_of_agents_stand_at_their_run_and_the_rest_at_the_network() -> None:
    state = fold(
        [
            *decides("sub", "agent", used=usage(3, 1)),
            *agent(*run_of_sub()),
            iteration_done(True),
            ended(used=usage(8, 6)),
        ]
    )
    assert (state.usage.input_tokens, state.usage.output_tokens) == (3, 1)
    assert state.nested[0].usage.total_tokens == 10
    assert state.grand_usage.total_tokens == 14


def test_iterations_follow_each_other_with_an_agent_a_tool_and_a_workflow() -> None:
    tool = [
        net(
            "tool-execution-start",
            args={"toolName": "look", "toolCallId": "c1", "args": {"city": "Paris"}},
            runId="net",
        ),
        net("tool-execution-end", toolCallId="c1", toolName="look", result={"celsius": 21}),
    ]
    inner = [
        {**chunk("workflow-start", {"workflowId": "wf"}, "y"), "from": "WORKFLOW"},
        {**chunk("workflow-step-start", {"stepName": "s", "id": "s"}, "y"), "from": "WORKFLOW"},
        {**chunk("workflow-step-result", {"stepName": "s", "id": "s", "status": "success"}, "y"), "from": "WORKFLOW"},
        {**chunk("workflow-finish", {"workflowStatus": "success"}, "y"), "from": "WORKFLOW"},
    ]
    workflow = [
        net("workflow-execution-start", workflowId="wf", name="wf", args={"prompt": "{}"}, runId="y"),
        *(net(f"workflow-execution-event-{item['type']}", **item) for item in inner),
        net("workflow-execution-end", workflowId="wf", result={"ok": True}, runId="y"),
    ]
    state = fold(
        [
            *decides("sub", "agent", 0),
            *agent(*run_of_sub()),
            iteration_done(iteration=0),
            *decides("look", "tool", 1),
            *tool,
            iteration_done(iteration=1),
            *decides("wf", "workflow", 2),
            *workflow,
            iteration_done(True, 2),
            ended(),
        ]
    )
    assert [(call.tool_name, call.status, call.result) for call in state.tool_calls] == [
        ("sub", "success", "hi"),
        ("look", "success", {"celsius": 21}),
        ("wf", "success", {"ok": True}),
    ]
    assert [len(step.tool_calls) for step in state.steps] == [1, 1, 1]
    assert [step.is_continued for step in state.steps] == [True, True, False]
    assert state.tool_calls[1].args == {"city": "Paris"}
    assert [part.id for part in state.tool_calls[2].nested[0].workflow_steps] == ["s"]
    assert len(state.turns) == 1


def test_the_routers_own_words_are_the_text() -> None:
    state = fold(
        [
            net("routing-agent-start", agentId="router", networkId="team"),
            net("routing-agent-text-start", runId="d0"),
            net("routing-agent-text-delta", text="All "),
            net("routing-agent-text-delta", text="done."),
            net("routing-agent-end", primitiveType="none", isComplete=True, usage=usage(2, 2)),
            iteration_done(True),
            ended("All done."),
        ]
    )
    assert (state.text, state.text_pieces) == ("All done.", ["All ", "done."])
    assert state.steps[0].usage.total_tokens == 4


@pytest.mark.parametrize("kind", ["agent", "workflow", "tool"])
def test_a_call_that_waits_suspends_the_network(kind: str) -> None:
    asked = {"toolCallId": "c1", "toolName": "deploy", "args": {"target": "prod"}, "runId": "x"}
    begun = net(f"{kind}-execution-start", args={"toolName": "deploy", "toolCallId": "c1"}, runId="x")
    approval = fold([*decides("deploy", kind), begun, net(f"{kind}-execution-approval", **asked)])
    assert (approval.status, approval.status_reason) == ("suspended", "deploy needs approval")
    [call] = approval.waiting.values()
    assert (call.tool_call_id, call.args) == ("c1", {"target": "prod"})
    waits = fold(
        [*decides("deploy", kind), begun, net(f"{kind}-execution-suspended", **asked, suspendPayload={"q": 1})]
    )
    assert (waits.status, waits.tool_calls[0].suspend_payload) == ("suspended", {"q": 1})


@pytest.mark.parametrize("kind", ["routing-agent", "agent-execution", "workflow-execution", "tool-execution"])
def test_an_aborted_network_is_cancelled(kind: str) -> None:
    state = fold([*decides("sub", "agent"), net(f"{kind}-abort", primitiveType="agent", primitiveId="sub")])
    assert state.status == "cancelled"


def test_a_failed_execution_is_a_failed_call() -> None:
    state = fold(
        [
            *decides("sub", "agent"),
            net("agent-execution-start", agentId="sub", args={"prompt": "p"}, runId="x"),
            net("agent-execution-end", agentId="sub", runId="x", error={"message": "no key"}),
            iteration_done(True),
            ended("failed"),
        ]
    )
    [call] = state.tool_calls
    assert (call.status, call.error and call.error.message, call.has_result) == ("error", "no key", False)


def test_validation_is_seen_once_per_check_and_an_object_grows_to_its_result() -> None:
    state = fold(
        [
            *decides("sub", "agent"),
            *agent(*run_of_sub()),
            net("network-validation-start", runId="net", iteration=0, checksCount=1),
            net("network-validation-end", runId="net", iteration=0, passed=True, results=[], reason="good"),
            net("network-object", object={"n": 1}),
            net("network-object", object={"n": 1, "m": 2}),
            net("network-object-result", object={"n": 1, "m": 2, "k": 3}),
            iteration_done(True),
            ended(),
        ],
        expect_object=True,
    )
    goals = [part for part in state.parts if part.kind == "goal"]
    assert len(goals) == 1
    assert state.object is not None
    assert (state.object.value, state.object.done) == ({"n": 1, "m": 2, "k": 3}, True)


def test_an_event_of_a_run_that_nobody_announced_is_kept_at_a_call_of_its_own() -> None:
    state = fold([net("agent-execution-event-text-delta", **text("hi", run="z")), ended(None)])
    [call] = state.tool_calls
    assert call.nested[0].text == "hi"


def test_nonsense_in_the_place_of_a_chunk_is_a_notice_and_not_the_end() -> None:
    state = fold([*decides("sub", "agent"), net("agent-execution-event-text-delta", payload=1), ended("ok")])
    assert (state.status, state.bad_payloads) == ("success", 1)
