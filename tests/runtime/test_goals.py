"""Goals and task checks of local agents: chunks as a real server has them, and when a run goes on, pauses or ends."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from typing import Any

import pytest

from nbmastra.errors import SettingsError
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Agent, Memory
from nbmastra.runtime.scorers import Scoring
from nbmastra.testing import ScriptedModel, call, fail, say, usage
from nbmastra.tools import tool
from tests.runtime.test_same_chunks import comparable, without_trace
from tests.runtime.wire import chunks, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")

SCRIPT = [[say("Still working on it."), usage(8, 4)], [say("Now it is finished."), usage(12, 5)]]
MEMORY = {"thread": "goal-thread", "resource": "u1"}


def says_finished(scoring: Scoring) -> tuple[int, str]:
    """Does the answer say finished?"""
    finished = "finished" in scoring.output
    return int(finished), "it says finished" if finished else "it does not say finished yet"


@tool
async def look(where: str) -> str:
    """Looks."""
    return f"nothing in {where}"


def own_words(of: list[Any]) -> list[Any]:
    """What the framework itself says is in its own words, and times differ."""
    for chunk in of:
        walk(chunk)
    return of


def walk(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("duration", "updatedAt", "activeDurationMs", "startedAt", "threadId"):
                value[key] = "<time>"
            elif key in ("contents", "pausedReason", "text", "reason") and isinstance(item, str) and _framework(item):
                value[key] = "<words>"
            elif key == "messageId" and item.endswith("-2"):
                value[key] = "<messageId>-2"
            else:
                walk(item)
    elif isinstance(value, list):
        for item in value:
            walk(item)


def _framework(text: str) -> bool:
    words = ("Goal", "<system-reminder", "paused", "evaluation", "Completion Check", "The task isn't complete")
    return any(word in text for word in words)


def goals(out: MastraModelOutput) -> list[dict[str, Any]]:
    """The payloads of a run's goal chunks."""
    return [chunk["payload"] for chunk in chunks(out) if chunk["type"] == "goal"]


async def pursue(
    *turns: list[Any], judge: Any, max_runs: int = 5, memory: Any = None, **more: Any
) -> MastraModelOutput:
    """A run with a goal, to its end."""
    goal = {"objective": "Say that it is finished", "judge": judge, "max_runs": max_runs}
    own = Agent("a", model=ScriptedModel(turns), goal=goal, max_steps=9, **more)
    out = await own.stream("start", memory=memory)
    await out.settled()
    return out


def without_content(of: list[Any]) -> list[Any]:
    """The server leaves out what steps hold after a judge's feedback; ours have it. And it parts UI messages there."""
    for chunk in of:
        for step in chunk.get("payload", {}).get("output", {}).get("steps", [])[1:]:
            step["content"] = "<content>"
        for message in chunk.get("payload", {}).get("response", {}).get("uiMessages", []):
            message["metadata"].pop("mastra", None)
    return of


def unnumbered(of: list[Any]) -> list[Any]:
    """The recording's model took what the judge says for a user's message, and counted its answers anew."""
    return json.loads(re.sub(r'"resp-\d+"', '"resp"', json.dumps(of)))


# --- goals -----------------------------------------------------------------------------------------------------------


async def test_a_goal_has_the_server_s_chunks() -> None:
    goal = {"objective": "Say that it is finished", "judge": says_finished, "max_runs": 3}
    memory = Memory("sqlite://")
    local = Agent("goal", model=ScriptedModel(SCRIPT[:1]), instructions="Answer.", memory=memory, goal=goal)
    out = await local.stream("start", memory=MEMORY)
    await out.settled()
    ours, theirs = (
        own_words(without_content(without_trace(comparable(unnumbered(stream)))))
        for stream in (chunks(out), recorded("goal"))
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
    kept = [message["role"] for message in await memory.messages("goal-thread")]
    assert kept == ["user", "assistant", "assistant", "assistant"]  # what the judge said isn't the user's


async def test_a_script_goes_on_after_what_the_judge_says() -> None:
    out = await pursue([say("not yet")], [say("finished")], judge=says_finished)
    assert [step.text for step in out.steps] == ["not yet", "finished"]
    assert goals(out)[-1]["status"] == "done"


async def test_a_goal_that_is_reached_ends_the_run_and_each_answer_is_judged_once() -> None:
    seen: list[Scoring] = []

    async def judge(scoring: Scoring) -> bool:
        seen.append(scoring)
        return len(seen) == 2

    out = await pursue([say("a")], judge=judge)
    first, second, third, fourth = goals(out)
    assert first["pending"] is True
    assert first["results"] == []
    assert first["suppressFeedback"] is True
    assert (second["passed"], second["shouldContinue"], second["status"]) == (False, True, "active")
    assert third["iteration"] == 2
    assert third["pending"] is True
    assert (fourth["passed"], fourth["shouldContinue"], fourth["status"]) == (True, False, "done")
    assert [result["scorerId"] for result in fourth["results"]] == ["judge"]
    assert "reason" not in fourth
    assert [scoring.iteration for scoring in seen] == [1, 2]
    assert seen[0].task == "Say that it is finished"
    assert seen[0].output == "a"
    assert seen[0].max_iterations == 5
    assert out.status == "success"
    assert [part.payload["iteration"] for part in out.state.parts if part.kind == "goal"] == [1, 2]


async def test_the_model_is_told_the_objective_and_then_what_is_missing() -> None:
    model = ScriptedModel([[say("<b>")]])
    verdicts = iter([(0, "more <detail>"), (1, "good")])
    local = Agent("a", model=model, goal={"objective": "Explain <b>", "judge": lambda _: next(verdicts)})
    await (await local.stream("start")).settled()
    first, second = model.requests
    assert [message["role"] for message in first.messages] == ["user", "user"]
    assert "Explain &lt;b&gt;" in first.messages[-1]["content"][0]["text"]
    assert [message["role"] for message in second.messages] == ["user", "user", "assistant", "user"]
    assert "more &lt;detail&gt;" in second.messages[-1]["content"][0]["text"]


async def test_a_model_judges_and_tells_its_reason_while_it_thinks() -> None:
    def verdict(decision: str, reason: str) -> list[Any]:
        return [say(f'{{"decision": "{decision}", "reason": "{reason}"}}')]

    answers = iter([verdict("continue", "the second half is missing"), verdict("done", "all is there")])
    judge = ScriptedModel([lambda _: next(answers)], native_schema=True)
    out = await pursue([say("a")], judge=judge)
    thoughts = [one["activity"][0]["message"] for one in goals(out) if "activity" in one]
    assert "the second half is missing" in thoughts
    assert "all is there" in thoughts
    assert len(thoughts) > 4  # it grows
    finals = [one for one in goals(out) if "pending" not in one]
    assert [one["reason"] for one in finals] == ["the second half is missing", "all is there"]
    assert finals[0]["results"][0]["scorerId"] == "goal-scorer"
    assert judge.requests[0].response_schema is not None
    assert "Say that it is finished" in judge.requests[0].messages[-1]["content"][0]["text"]


async def test_a_judge_that_waits_for_the_user_ends_the_run_and_the_next_one_goes_on_counting() -> None:
    verdicts = iter([{"decision": "waiting", "reason": "which colour?"}, {"decision": "done", "reason": "blue"}])
    goal = {"objective": "Paint it", "judge": lambda _: next(verdicts), "max_runs": 2}
    local = Agent("a", model=ScriptedModel([[say("Which colour?")]]), goal=goal, memory=Memory("sqlite://"))
    first = await local.stream("start", memory=MEMORY)
    await first.settled()
    last = goals(first)[-1]
    assert (last["waitingForUser"], last["shouldContinue"], last["status"]) == (True, False, "active")
    assert last["results"][0]["score"] == 0.5
    assert first.status == "success"
    second = await local.stream("blue", memory=MEMORY)
    await second.settled()
    assert [(one["iteration"], one["status"]) for one in goals(second)] == [(2, "active"), (2, "done")]


async def test_a_goal_that_waits_with_no_run_left_is_paused_by_the_next_run() -> None:
    goal = {"objective": "Paint it", "judge": lambda _: "waiting", "max_runs": 1}
    local = Agent("a", model=ScriptedModel([[say("?")]]), goal=goal, memory=Memory("sqlite://"))
    first = await local.stream("start", memory=MEMORY)
    await first.settled()
    assert goals(first)[-1]["status"] == "active"
    assert goals(first)[-1]["maxRunsReached"] is True
    second = await local.stream("blue", memory=MEMORY)
    await second.settled()
    (paused,) = goals(second)
    assert paused["status"] == "paused"
    assert paused["pausedReason"] == paused["reason"]
    assert paused["maxRunsReached"] is True
    assert paused["iteration"] == 1
    assert "pending" not in paused


async def broken(_scoring: Scoring) -> bool:
    """A judge that raises."""
    raise KeyError("no such rule")


@pytest.mark.parametrize(
    "judge", [broken, lambda _: "maybe", lambda _: {"score": "high"}, ScriptedModel([[say("no verdict")]])]
)
async def test_a_judge_that_breaks_pauses_the_goal_and_says_why(judge: Any) -> None:
    out = await pursue([say("a")], judge=judge)
    last = goals(out)[-1]
    assert (last["judgeFailed"], last["status"], last["shouldContinue"]) == (True, "paused", False)
    assert last["results"][0]["errored"] is True
    assert last["pausedReason"] == last["results"][0]["reason"]
    assert last["reason"].startswith("Scorer threw an error: ")
    assert out.status == "success"


async def test_a_judge_s_model_that_fails_pauses_the_goal() -> None:
    out = await pursue([say("a")], judge=ScriptedModel([[fail(RuntimeError("no judge today"))]]))
    assert goals(out)[-1]["pausedReason"] == "Scorer threw an error: no judge today"


async def test_a_plain_judge_runs_in_a_thread_of_its_own() -> None:
    threads: list[int] = []

    def judge(_scoring: Scoring) -> bool:
        threads.append(threading.get_ident())
        return True

    out = await pursue([say("a")], judge=judge)
    assert threads != [out._engine.start(_thread).result()]


async def _thread() -> int:
    return threading.get_ident()


async def test_a_step_with_tool_calls_is_judged_when_its_answer_is_there() -> None:
    out = await pursue([call("look", where="here")], [say("a")], judge=lambda _: True, tools=[look])
    assert [kind for kind in types(chunks(out)) if kind in ("step-finish", "goal", "tool-result")] == [
        "tool-result",
        "step-finish",
        "goal",
        "goal",
        "step-finish",
    ]


async def test_a_failed_step_is_not_judged() -> None:
    out = await pursue([say("a"), fail(RuntimeError("gone"))], judge=lambda _: True)
    assert goals(out) == []
    assert out.status == "failed"


async def test_a_blocked_step_is_neither_judged_nor_scored() -> None:
    def block(text: str, abort: Any) -> None:
        abort("no")

    class Block:
        """Blocks."""

        process_output_step = staticmethod(block)

    goal = {"objective": "x", "judge": lambda _: True}
    local = Agent("a", model=ScriptedModel([[say("a")]]), goal=goal, output_processors=[Block()])
    out = await local.stream("start", is_task_complete=lambda _: True)
    await out.settled()
    assert goals(out) == []
    assert "is-task-complete" not in types(chunks(out))
    assert out.status == "tripwire"


async def test_a_goal_that_is_done_is_pursued_anew_by_the_next_run() -> None:
    goal = {"objective": "x", "judge": lambda _: True}
    local = Agent("a", model=ScriptedModel([[say("a")]]), goal=goal, memory=Memory("sqlite://"))
    for _ in range(2):
        out = await local.stream("start", memory=MEMORY)
        await out.settled()
        assert [(one["iteration"], one["status"]) for one in goals(out)] == [(1, "active"), (1, "done")]


async def test_a_retried_answer_is_judged_when_it_is_accepted() -> None:
    class Polite:
        """Asks for another answer."""

        def process_output_step(self, text: str, abort: Any) -> None:
            """Judge."""
            if text == "rude":
                abort("be polite", retry=True)

    answers = iter(["rude", "kind"])
    seen: list[str] = []
    goal = {"objective": "x", "judge": lambda scoring: seen.append(scoring.output) is None}
    model = ScriptedModel([lambda _: [say(next(answers))]])
    local = Agent("a", model=model, goal=goal, output_processors=[Polite()], max_processor_retries=1)
    out = await local.stream("start")
    await out.settled()
    assert seen == ["kind"]
    assert await out.text == "kind"


async def test_max_steps_ends_a_goal_that_would_go_on() -> None:
    local = Agent("a", model=ScriptedModel([[say("a")]]), goal={"objective": "x", "judge": lambda _: False})
    out = await local.stream("start", max_steps=2)
    await out.settled()
    assert goals(out)[-1]["shouldContinue"] is True
    assert goals(out)[-1]["iteration"] == 2
    assert len(await out.steps) == 2
    assert not (await out.steps)[1].is_continued


async def test_a_goal_without_a_judge_has_no_goal_chunks() -> None:
    out = await pursue([say("a")], judge=None)
    assert goals(out) == []
    assert "data-signal" in types(chunks(out))


async def test_a_run_may_have_a_goal_of_its_own_or_none() -> None:
    local = Agent("a", model=ScriptedModel([[say("a")]]), goal={"objective": "x", "judge": lambda _: True})
    own = await local.stream("start", goal={"objective": "y", "judge": lambda _: (1, "fine")})
    none = await local.stream("start", goal=False)
    await own.settled()
    await none.settled()
    assert goals(own)[-1]["objective"] == "y"
    assert goals(own)[-1]["reason"] == "fine"
    assert goals(none) == []
    assert "data-signal" not in types(chunks(none))


async def test_cancelling_stops_a_judge() -> None:
    began, stopped = asyncio.Event(), threading.Event()

    async def judge(_scoring: Scoring) -> bool:
        loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return True

    loop = asyncio.get_running_loop()
    local = Agent("a", model=ScriptedModel([[say("a")]]), goal={"objective": "x", "judge": judge})
    out = await local.stream("start")
    await began.wait()
    out.cancel()
    await out.settled()
    assert out.status == "cancelled"
    assert stopped.wait(5)


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (3, "goal= takes a dict of objective, judge, max_runs, prompt, not int"),
        ({}, "goal= needs an objective"),
        ({"objective": " "}, "goal= needs an objective"),
        ({"objective": "x", "jugde": 1}, "goal= has no 'jugde'"),
        ({"objective": "x", "max_runs": 0}, "max_runs= takes a whole number above 0"),
        ({"objective": "x", "max_runs": True}, "max_runs= takes a whole number above 0"),
        ({"objective": "x", "judge": 3}, "judge= of a goal: a function, a model or a model's name, not int"),
        ({"objective": "x", "judge": Agent}, "an object, Agent"),
        ({"objective": "x", "prompt": 3}, "prompt= of a goal"),
    ],
)
def test_a_wrong_goal_is_said_at_once(goal: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=ScriptedModel([[say("a")]]), goal=goal)
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=ScriptedModel([[say("a")]])).stream("x", goal=goal)
