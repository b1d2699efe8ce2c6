"""Task checks of local agents: chunks as a real server has them, and whether a run goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.scorers import Scoring
from nbmastra.testing import ScriptedModel, say
from tests.runtime.test_goals import SCRIPT, broken, own_words, says_finished
from tests.runtime.test_same_chunks import comparable
from tests.runtime.wire import chunks, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


def without_ui(of: list[Any]) -> list[Any]:
    """A scorer's feedback is a UI message of its own on the server."""
    for chunk in of:
        chunk.get("payload", {}).get("response", {}).pop("uiMessages", None)
    return of


async def test_a_task_check_has_the_server_s_chunks() -> None:
    local = Agent(
        "task-complete",
        model=ScriptedModel(SCRIPT),
        instructions="Answer.",
        memory=Memory("sqlite://"),
        default_options={"is_task_complete": {"scorers": [says_finished]}, "max_steps": 4},
    )
    out = await local.stream("start", memory={"thread": "t", "resource": "u1"})
    await out.settled()
    ours = own_words(without_ui(comparable(chunks(out))))
    theirs = own_words(without_ui(comparable(recorded("task-complete"))))
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


async def check(*turns: list[Any], max_steps: int = 2, **more: Any) -> tuple[MastraModelOutput, list[dict[str, Any]]]:
    """A run with a task check, and the payloads of its checks."""
    out = await Agent("a", model=ScriptedModel(turns)).stream("start", max_steps=max_steps, is_task_complete=more)
    await out.settled()
    return out, [chunk["payload"] for chunk in chunks(out) if chunk["type"] == "is-task-complete"]


def zero(_scoring: Scoring) -> tuple[int, str]:
    """Never satisfied."""
    return 0, "not yet"


def one(_scoring: Scoring) -> bool:
    """Always satisfied."""
    return True


async def test_all_scorers_have_to_pass_or_any() -> None:
    _, both = await check([say("a")], scorers=[zero, one])
    assert [payload["passed"] for payload in both] == [False, False]
    assert [result["passed"] for result in both[0]["results"]] == [False, True]
    assert "reason" not in both[0]  # of the first that passed, which gave none, as on the server
    assert [payload["maxIterationReached"] for payload in both] == [False, True]
    _, any_of = await check([say("a")], scorers=[zero, one], strategy="any")
    assert [payload["passed"] for payload in any_of] == [True]


async def test_one_after_another_stops_where_the_outcome_is_clear() -> None:
    _, failed = await check([say("a")], scorers=[zero, one], parallel=False, max_steps=1)
    assert [result["scorerId"] for result in failed[0]["results"]] == ["zero"]
    _, passed = await check([say("a")], scorers=[zero, one, zero], parallel=False, strategy="any")
    assert [result["scorerId"] for result in passed[0]["results"]] == ["zero", "one"]


async def test_a_scorer_that_breaks_has_failed_and_the_run_goes_on() -> None:
    out, payloads = await check([say("a")], scorers=[broken], suppress_feedback=True)
    assert [payload["results"][0]["errored"] for payload in payloads] == [True, True]
    assert payloads[0]["suppressFeedback"] is True
    assert payloads[0]["reason"].startswith("Scorer threw an error")
    assert out.status == "success"


@pytest.mark.parametrize("parallel", [True, False])
async def test_a_scorer_that_takes_too_long_has_failed(parallel: bool) -> None:
    async def slow(_scoring: Scoring) -> bool:
        await asyncio.Event().wait()
        return True

    _, payloads = await check([say("a")], scorers=[slow, one], timeout=0.02, parallel=parallel, max_steps=1)
    assert payloads[0]["timedOut"] is True
    assert payloads[0]["passed"] is False
    assert payloads[0]["results"][0]["errored"] is True
    assert len(payloads[0]["results"]) == (2 if parallel else 1)


async def test_on_complete_is_told_each_check_and_fails_the_run_if_it_raises() -> None:
    told: list[bool] = []

    async def note(scores: Any) -> None:
        told.append(scores.passed)

    await check([say("a")], [say("b")], scorers=[lambda scoring: scoring.output == "b"], on_complete=note)
    assert told == [False, True]
    out, _ = await check([say("a")], scorers=[one], on_complete=lambda _: 1 / 0)
    assert out.status == "failed"
    assert "division" in out.status_reason


async def test_a_scorer_or_a_list_of_them_will_do() -> None:
    local = Agent("a", model=ScriptedModel([[say("a")]]))
    for given in (one, [one], {"scorers": [one]}):
        out = await local.stream("start", is_task_complete=given)
        await out.settled()
        assert types(chunks(out)).count("is-task-complete") == 1


async def test_the_task_is_checked_before_the_goal_and_goes_on_first() -> None:
    goal = {"objective": "x", "judge": lambda _: True}
    local = Agent("a", model=ScriptedModel([[say("a")], [say("b")]]), goal=goal)
    out = await local.stream("start", is_task_complete=lambda scoring: scoring.output == "b")
    await out.settled()
    assert [kind for kind in types(chunks(out)) if kind in ("is-task-complete", "goal", "step-finish")] == [
        "is-task-complete",
        "step-finish",
        "is-task-complete",
        "goal",
        "goal",
        "step-finish",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "is_task_complete= needs scorers"),
        ([], "is_task_complete= needs scorers"),
        ({"scorers": [3]}, "is_task_complete=: a function, a model or a model's name, not int"),
        ({"scorers": [one], "strategy": "most"}, "strategy= is all or any, not 'most'"),
        ({"scorers": [one], "timeout": 0}, "timeout= takes seconds above 0"),
        ({"scorers": [one], "scorer": 1}, "is_task_complete= has no 'scorer'"),
        ({"scorers": [one], "on_complete": 3}, "on_complete= takes a function"),
    ],
)
def test_a_wrong_task_check_is_said_at_once(given: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=ScriptedModel([[say("a")]])).stream("x", is_task_complete=given)
