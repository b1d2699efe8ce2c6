"""Processors of local agents: what they see, change and block, and that only the accepted attempt counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.errors import RunTripwire
from nbmastra.fold import RunState
from nbmastra.output import MastraModelOutput
from nbmastra.runtime import Agent, Memory, Tripwire
from nbmastra.runtime.processors import Abort
from nbmastra.testing import ScriptedModel, call, say, usage
from nbmastra.tools import tool
from tests.runtime.test_same_chunks import comparable
from tests.runtime.wire import chunks, recorded, types

pytestmark = pytest.mark.usefixtures("nothing_stays_behind")


@tool
async def weather(city: str) -> dict[str, Any]:
    """Current temperature of a city."""
    return {"celsius": 21}


class BlockSecrets:
    """As the recorded agent's."""

    id = "block-secrets"

    def process_output_stream(self, part: dict[str, Any], abort: Abort) -> dict[str, Any]:
        """Block."""
        if part["type"] == "text-delta" and "SECRET" in part["payload"]["text"]:
            abort("secret in output", metadata={"rule": "secrets"})
        return part


class Polite:
    """Asks for another answer until it is polite."""

    id = "polite"

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int, int]] = []

    async def process_output_step(
        self, text: str, abort: Abort, retry_count: int, step_number: int, steps: list[Any]
    ) -> None:
        """Judge."""
        self.seen.append((text, retry_count, step_number, len(steps)))
        if "rude" in text:
            abort(f"be polite, not {text}", retry=True, metadata={"rule": "manners"})


async def play(*turns: list[Any], **more: Any) -> MastraModelOutput:
    """A run of a scripted agent with processors, to its end."""
    options = {key: more.pop(key) for key in ("structured_output", "memory_of_run") if key in more}
    own = Agent("a", model=more.pop("model", None) or ScriptedModel(turns), instructions="Answer.", **more)
    out = await own.stream("hello", **options)
    await out.settled()
    return out


# --- blocking ---------------------------------------------------------------------------------------------------------


async def test_a_blocked_stream_has_the_server_s_chunks() -> None:
    model = ScriptedModel([[say("The key is: SECRET-1234, keep it."), usage(6, 9)]], piece_chars=12)
    own = Agent("tripwire", model=model, instructions="Answer.", output_processors=[BlockSecrets()])
    out = await own.stream("hello")
    await out.settled()
    assert comparable(chunks(out)) == comparable(recorded("tripwire"))
    assert out.status == "tripwire"
    assert out.status_reason == "secret in output"
    assert out.tripwire is not None
    assert out.tripwire["metadata"] == {"rule": "secrets"}
    assert await out.text == ""
    assert model.closed == 1


async def test_an_input_that_is_blocked_never_begins_a_run() -> None:
    def no_questions(messages: list[Any], abort: Abort) -> None:
        if "?" in str(messages):
            abort("no questions", metadata={"rule": "questions"})

    model = ScriptedModel([[say("never said")]])
    own = Agent("a", model=model, input_processors=[no_questions])
    out = await own.stream("Why?")
    await out.settled()
    (chunk,) = chunks(out)
    told = {"reason": "no questions", "metadata": {"rule": "questions"}, "processorId": "no-questions"}
    assert chunk == {"type": "tripwire", "runId": out.run_id or chunk["runId"], "from": "AGENT", "payload": told}
    assert model.requests == []
    assert out.status == "tripwire"
    fine = await own.stream("Go.")
    assert await fine.text == "never said"


@pytest.mark.parametrize(("step", "kinds"), [(0, ["start", "tripwire"]), (1, ["step-finish", "tripwire"])])
async def test_a_step_that_is_blocked_before_its_model_is_asked_ends_the_run(step: int, kinds: list[str]) -> None:
    class NotTwice:
        """Counts steps."""

        id = "not-twice"

        def process_input_step(self, step_number: int, abort: Abort) -> None:
            """Block."""
            if step_number == step:
                abort("enough")

    out = await play(
        [say("Look."), call("weather", city="P")], [say("x")], tools=[weather], input_processors=[NotTwice()]
    )
    assert types(chunks(out))[-2:] == kinds
    assert chunks(out)[-1]["from"] == "AGENT"  # as the server tells it there
    assert await out.text == ""
    assert out.status == "tripwire"


async def test_a_stream_that_is_blocked_in_a_later_step_keeps_the_earlier_ones() -> None:
    out = await play(
        [say("Look."), call("weather", city="P")],
        [say("SECRET")],
        tools=[weather],
        output_processors=[BlockSecrets()],
    )
    assert types(chunks(out))[-2:] == ["text-start", "tripwire"]
    assert (await out.steps)[0].text == "Look."
    assert (await out.steps)[1].text == ""


async def test_an_abort_without_a_reason_names_its_processor() -> None:
    out = await play([say("hi")], output_processors=[lambda part, abort: abort()])
    assert out.status_reason == "Tripwire triggered by <lambda>"


# --- another try ------------------------------------------------------------------------------------------------------


async def test_another_try_is_told_the_reason_and_only_the_accepted_one_counts() -> None:
    polite = Polite()
    model = ScriptedModel([[say("rude words"), usage(6, 9)], [say("Welcome."), usage(8, 2)]])
    memory = Memory("sqlite://")
    model = ScriptedModel([[say("rude words"), usage(6, 9)], [say("Welcome."), usage(8, 2)]])
    own = Agent("a", model=model, output_processors=[polite], max_processor_retries=2, memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    assert polite.seen == [("rude words", 0, 0, 0), ("Welcome.", 1, 1, 1)]
    assert await out.text == "Welcome."
    assert out.status == "success"
    assert out.tripwire is None
    assert "".join([piece async for piece in out.text_stream]).endswith("Welcome.")
    first, second = await out.steps
    assert (first.finish_reason, first.text, first.rejected) == ("retry", "", True)
    assert (second.finish_reason, second.text, second.rejected) == ("stop", "Welcome.", False)
    asked = model.requests[1].messages
    assert [message["role"] for message in asked] == ["system", "user"]  # the rejected answer is forgotten
    assert "be polite, not rude words" in asked[0]["content"]
    finish = next(chunk for chunk in chunks(out) if chunk["type"] == "step-finish")["payload"]
    assert finish["stepResult"]["retryReason"] == "be polite, not rude words"
    assert finish["stepResult"]["retryMetadata"] == {"rule": "manners"}
    assert finish["stepResult"]["retryProcessorId"] == "polite"
    assert finish["processorRetryCount"] == 1
    usage_of_all = await out.usage
    assert (usage_of_all.input_tokens, usage_of_all.output_tokens) == (14, 11)  # tokens of both were paid
    kept = await memory.messages("t")
    assert "rude" not in str(kept)
    assert "Welcome." in str(kept)


@pytest.mark.parametrize(("retries", "steps"), [(None, 1), (0, 1), (1, 2), (3, 4)])
async def test_tries_end_at_max_processor_retries_with_a_tripwire(retries: int | None, steps: int) -> None:
    polite = Polite()
    out = await play([say("rude")], output_processors=[polite], max_processor_retries=retries)
    reasons = [step.finish_reason for step in await out.steps]
    assert reasons == ["retry"] * (steps - 1) + ["tripwire"]
    assert types(chunks(out))[-2:] == ["step-finish", "finish"]
    assert out.status == "tripwire"
    assert await out.text == ""
    noted = chunks(out)[-1]["payload"]["output"]["steps"][-1]["tripwire"]
    assert noted == {
        "reason": "be polite, not rude",
        "retry": True,
        "metadata": {"rule": "manners"},
        "processorId": "polite",
    }


async def test_tries_are_counted_in_a_row() -> None:
    answers = iter([[say("rude")], [call("weather", city="P")], [say("rude")], [say("fine")]])
    out = await play(
        model=ScriptedModel([lambda _: next(answers)]),
        tools=[weather],
        output_processors=[Polite()],
        max_processor_retries=1,
    )
    assert [step.finish_reason for step in await out.steps] == ["retry", "tool-calls", "retry", "stop"]
    assert await out.text == "fine"


async def test_a_rejected_step_runs_no_tools() -> None:
    ran: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Notes."""
        ran.append(text)
        return "noted"

    answers = iter([[say("rude"), call("note", text="bad")], [call("note", text="good")], [say("done")]])
    await play(
        model=ScriptedModel([lambda _: next(answers)]),
        tools=[note],
        output_processors=[Polite()],
        max_processor_retries=1,
    )
    assert ran == ["good"]


async def test_the_object_of_a_rejected_attempt_does_not_count() -> None:
    class NoX:
        """Doesn't like x."""

        id = "no-x"

        def process_output_step(self, text: str, abort: Abort) -> None:
            """Judge."""
            if "x" in text:
                abort("no x", retry=True)

    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answers = iter([[say('{"name":"x"}')], [say('{"name":"y"}')]])
    out = await play(
        model=ScriptedModel([lambda _: next(answers)]),
        output_processors=[NoX()],
        max_processor_retries=1,
        structured_output={"schema": schema},
    )
    assert await out.object == {"name": "y"}
    assert await out.text == '{"name":"y"}'
    results = [chunk["object"] for chunk in chunks(out) if chunk["type"] == "object-result"]
    assert results == [{"name": "x"}, {"name": "y"}]  # as on the server
    blocked = await play([say('{"name":"x"}')], output_processors=[NoX()], structured_output={"schema": schema})
    with pytest.raises(RunTripwire, match="no x"):
        await blocked.object


async def test_an_answer_without_an_object_fails_only_if_no_processor_rejects_it() -> None:
    answers = iter([[say("rude")], [say('{"name":"y"}')]])
    out = await play(
        model=ScriptedModel([lambda _: next(answers)]),
        output_processors=[Polite()],
        max_processor_retries=1,
        structured_output={"schema": {"type": "object"}},
    )
    assert "error" not in types(chunks(out))
    assert await out.object == {"name": "y"}
    assert out.status == "success"


# --- who knows of it --------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(verdicts=st.lists(st.sampled_from(["ok", "retry", "block"]), min_size=1, max_size=6), retries=st.integers(0, 3))
async def test_whatever_processors_decide_text_steps_and_status_agree(verdicts: list[str], retries: int) -> None:
    decisions = iter([*verdicts, *["ok"] * 9])
    numbers = iter(range(99))

    class Judge:
        """Decides by the list."""

        def process_output_step(self, abort: Abort) -> None:
            """Decide."""
            decision = next(decisions)
            if decision != "ok":
                abort(decision, retry=decision == "retry")

    out = await play(
        model=ScriptedModel([lambda _: [say(f"attempt {next(numbers)}")]]),
        output_processors=[Judge()],
        max_processor_retries=retries,
    )
    tries = next((index for index, one in enumerate([*verdicts, "ok"]) if one != "retry" or index == retries), 0)
    accepted = [*verdicts, "ok"][tries] == "ok"
    steps = await out.steps
    assert len(steps) == tries + 1
    assert [step.rejected for step in steps] == [True] * tries + [not accepted]
    assert await out.text == (f"attempt {tries}" if accepted else "")
    assert "".join(step.text for step in steps) == await out.text
    assert out.status == ("success" if accepted else "tripwire")
    again = RunState()
    for chunk in out.log:
        again.apply(chunk, 0.0)
    assert again.text == await out.text


async def test_a_sub_agent_s_rejected_answers_never_reach_its_caller() -> None:
    def turns(*texts: str) -> Any:
        answers = iter(texts)
        return ScriptedModel([lambda _: [say(next(answers))]])

    again = Agent("again", model=turns("rude", "kind"), output_processors=[Polite()], max_processor_retries=1)
    blocked = Agent("blocked", model=turns("rude"), output_processors=[Polite()])
    stopped = Agent("stopped", model=turns("SECRET"), output_processors=[BlockSecrets()])
    agents = [again, blocked, stopped]
    calls = [call(f"agent-{one.name}", prompt="x") for one in agents]
    out = await play(calls, [say("done")], agents=agents)
    assert [one.result["text"] for one in out.tool_calls] == ["kind", "", ""]
    assert await out.text == "done"


async def test_a_blocked_answer_is_not_kept_in_memory() -> None:
    memory = Memory("sqlite://")
    own = Agent("a", model=ScriptedModel([[say("rude")]]), output_processors=[Polite()], memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    assert [message["role"] for message in await memory.messages("t")] == ["user"]


async def test_a_tripwire_may_be_raised_by_hand_too() -> None:
    def by_hand(part: dict[str, Any]) -> dict[str, Any]:
        raise Tripwire("no", metadata=[1])

    out = await play([say("x")], output_processors=[by_hand])
    assert out.tripwire == {"reason": "no", "metadata": [1], "processorId": "by-hand"}


async def test_options_given_with_an_answer_hold_from_there_on() -> None:
    @tool(require_approval=True)
    async def deploy(target: str) -> str:
        """Deploys."""
        return "done"

    own = Agent("a", model=ScriptedModel([[call("deploy", target="x")], [say("SECRET")]]), tools=[deploy])
    out = await own.stream("go")
    await out.settled()
    assert out.run_id is not None
    after = await own.approve_tool_call(out.run_id, output_processors=[BlockSecrets()])
    await after.settled()
    assert after.status == "tripwire"
