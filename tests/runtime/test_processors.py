"""Processors of local agents: what they see, change and block, and that only the accepted attempt counts."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmastra.errors import RunTripwire, SettingsError
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


# --- blocking --------------------------------------------------------------------------------------------------------


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


# --- another try -----------------------------------------------------------------------------------------------------


async def test_another_try_is_told_the_reason_and_only_the_accepted_one_counts() -> None:
    polite = Polite()
    model = ScriptedModel([[say("rude words"), usage(6, 9)], [say("Welcome."), usage(8, 2)]])
    memory = Memory("sqlite://")
    turns = iter([[say("rude words"), usage(6, 9)], [say("Welcome."), usage(8, 2)]])
    model = ScriptedModel([lambda _: next(turns)])
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


# --- changing --------------------------------------------------------------------------------------------------------


async def test_what_a_processor_makes_of_a_delta_is_what_is_told_and_kept() -> None:
    def shout(part: dict[str, Any], state: dict[str, Any]) -> dict[str, Any] | None:
        state["count"] = state.get("count", 0) + 1
        if part["type"] == "text-delta":
            part["payload"]["text"] = part["payload"]["text"].upper()
        return None if part["type"] == "source" else part

    model = ScriptedModel([[say("look"), call("weather", city="P")], [say("done")]])
    out = await play(model=model, tools=[weather], output_processors=[shout])
    assert await out.text == "DONE"
    assert (await out.steps)[0].text == "LOOK"
    assert model.requests[1].messages[-2]["content"][0]["text"] == "LOOK"
    assert chunks(out)[-1]["payload"]["output"]["text"] == "DONE"


async def test_dropped_deltas_are_dropped_from_the_conversation_too() -> None:
    def silence(part: dict[str, Any]) -> dict[str, Any] | None:
        return None if part["type"] == "text-delta" and "no" in part["payload"]["text"] else part

    model = ScriptedModel([[say("no no no"), call("weather", city="P")], [say("yes")]])
    out = await play(model=model, tools=[weather], output_processors=[silence])
    assert await out.text == "yes"
    assert (await out.steps)[0].text == ""
    assert [part["type"] for part in model.requests[1].messages[-2]["content"]] == ["tool-call"]


async def test_one_chunk_may_become_several_and_processors_follow_each_other() -> None:
    def twice(part: dict[str, Any]) -> list[dict[str, Any]]:
        return [part, part] if part["type"] == "text-delta" else [part]

    async def star(part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "text-delta":
            part["payload"]["text"] += "*"
        return part

    out = await play([say("a")], output_processors=[twice, star])
    assert await out.text == "a*a*"
    assert chunks(out)[-1]["payload"]["output"]["text"] == "a*a*"


async def test_a_stream_processor_that_raises_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(part: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("nothing")

    with caplog.at_level(logging.ERROR, "nbmastra"):
        out = await play([say("The cat sat on the mat.")], output_processors=[broken])
    assert await out.text == "The cat sat on the mat."
    assert len(caplog.records) == 1
    assert "broken" in caplog.text


async def test_what_a_processor_makes_of_the_input_is_what_the_model_reads() -> None:
    class Reword:
        """Changes what is said, and the system's words."""

        id = "reword"

        async def process_input(self, messages: list[Any], system_messages: list[Any]) -> dict[str, Any]:
            """Change."""
            messages[-1]["content"][0]["text"] = "HELLO"
            extra = {"role": "system", "content": "Be kind."}
            return {"messages": [extra, *messages], "system_messages": [*system_messages, "Be short."]}

    model = ScriptedModel([[say("ok")]])
    await play(model=model, input_processors=[Reword()])
    assert [message["role"] for message in model.requests[0].messages] == ["system"] * 3 + ["user"]
    words = [message["content"] for message in model.requests[0].messages[:3]]
    assert words == ["Answer.", "Be short.", "Be kind."]
    assert model.requests[0].messages[-1]["content"][0]["text"] == "HELLO"


async def test_a_function_may_change_messages_in_place_or_give_others() -> None:
    def in_place(messages: list[Any]) -> None:
        messages[-1]["content"][0]["text"] += " there"

    def others(messages: list[Any]) -> list[Any]:
        return [*messages, {"role": "user", "content": "and?"}]

    model = ScriptedModel([[say("ok")]])
    out = await play(model=model, input_processors=[in_place, others])
    assert [m["content"][0]["text"] for m in model.requests[0].messages[1:]] == ["hello there", "and?"]
    assert chunks(out)[-1]["payload"]["messages"]["user"][0]["content"][0]["text"] == "hello there"


async def test_an_input_processor_that_raises_fails_the_run() -> None:
    def broken(messages: list[Any]) -> None:
        raise KeyError("nothing")

    out = await play([say("x")], input_processors=[broken])
    assert types(chunks(out)) == ["start", "error"]
    assert out.status == "failed"


async def test_a_step_s_request_may_be_changed_for_that_step_only() -> None:
    class First:
        """Changes the first step's request."""

        id = "first"

        def process_input_step(self, messages: list[Any], step_number: int, tools: list[str]) -> Any:
            """Change."""
            if step_number:
                return None
            assert tools == ["weather"]
            return {
                "messages": [*messages, {"role": "user", "content": "quick"}],
                "system_messages": ["New."],
                "tool_choice": "none",
                "active_tools": [],
                "model_settings": {"temperature": 0.5},
            }

    model = ScriptedModel([[call("weather", city="P")], [say("ok")]])
    await play(model=model, tools=[weather], input_processors=[First()])
    first, second = model.requests
    assert [message["content"] for message in first.messages if message["role"] == "system"] == ["New."]
    assert first.messages[-1]["content"][0]["text"] == "quick"
    assert (first.tool_choice, first.tools, first.settings) == ("none", [], {"temperature": 0.5})
    assert second.messages[0]["content"] == "Answer."
    assert second.tools[0].name == "weather"
    assert "quick" not in str(second.messages)


async def test_the_kept_answer_may_be_changed_after_it_was_told() -> None:
    class Redact:
        """Takes words out of what is kept."""

        id = "redact"

        def process_output_step(self, messages: list[Any]) -> list[Any]:
            """Change."""
            messages[-1]["content"][0]["text"] = "[gone]"
            return messages

    memory = Memory("sqlite://")
    model = ScriptedModel([[say("1234"), call("weather", city="P")], [say("done")]])
    own = Agent("a", model=model, tools=[weather], output_processors=[Redact()], memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    content = model.requests[1].messages[-2]["content"]
    assert content[0]["text"] == "[gone]"
    assert content[1]["type"] == "tool-call"
    assert "1234" not in str(await memory.messages("t"))
    assert chunks(out)[-1]["payload"]["output"]["steps"][0]["content"][0]["text"] == "[gone]"


async def test_a_tool_s_result_may_be_changed_before_anyone_reads_it() -> None:
    class Colder:
        """Changes results."""

        id = "colder"

        async def process_tool_result(self, result: Any, tool_name: str, args: Any) -> Any:
            """Change."""
            assert (tool_name, args) == ("weather", {"city": "P"})
            return {**result, "celsius": 3}

    model = ScriptedModel([[call("weather", city="P")], [say("done")]])
    out = await play(model=model, tools=[weather], output_processors=[Colder()])
    assert out.tool_calls[0].result == {"celsius": 3}
    assert model.requests[1].messages[-1]["content"][0]["output"]["value"] == {"celsius": 3}


async def test_a_tool_s_result_may_block_the_run() -> None:
    class No:
        """Blocks."""

        id = "no"

        def process_tool_result(self, abort: Abort) -> None:
            """Block."""
            abort("bad result")

    out = await play([say("Look."), call("weather", city="P")], tools=[weather], output_processors=[No()])
    assert types(chunks(out))[-2:] == ["tool-call", "tripwire"]
    assert "from" not in chunks(out)[-1]
    assert out.status_reason == "bad result"


async def test_the_whole_result_is_seen_and_may_be_changed_for_memory_or_blocked() -> None:
    class Last:
        """Sees the result."""

        id = "last"

        def process_output_result(self, messages: list[Any], result: dict[str, Any], abort: Abort) -> list[Any]:
            """See."""
            seen.append((result["text"], result["finish_reason"], len(result["steps"])))
            if result["text"] == "bad":
                abort("no such result")
            messages[-1]["content"][0]["text"] = "kept"
            return messages

    seen: list[Any] = []
    memory = Memory("sqlite://")
    own = Agent("a", model=ScriptedModel([[say("told")]]), output_processors=[Last()], memory=memory)
    out = await own.stream("hello", memory={"thread": "t", "resource": "u"})
    await out.settled()
    assert seen == [("told", "stop", 1)]
    assert await out.text == "told"
    assert "kept" in str(await memory.messages("t"))
    assert "told" not in str(await memory.messages("t"))
    blocked = await play([say("bad")], output_processors=[Last()])
    assert types(chunks(blocked))[-2:] == ["step-finish", "tripwire"]
    assert blocked.status == "tripwire"


async def test_a_step_processor_that_raises_fails_the_run_as_on_the_server() -> None:
    class Broken:
        """Raises."""

        def process_output_step(self, text: str) -> None:
            """Raise."""
            raise KeyError("nothing")

    out = await play([say("x")], output_processors=[Broken()])
    assert types(chunks(out))[-2:] == ["text-end", "error"]
    assert out.status == "failed"


# --- state, scope and settings ---------------------------------------------------------------------------------------


async def test_state_is_shared_by_the_methods_of_a_processor_and_new_in_each_run() -> None:
    class Both:
        """Stands on both sides."""

        id = "both"

        def process_input(self, state: dict[str, Any]) -> None:
            """Note."""
            state["input"] = state.get("input", 0) + 1

        def process_output_stream(self, part: dict[str, Any], state: dict[str, Any], stream_parts: list[Any]) -> Any:
            """Note."""
            state["parts"] = len(stream_parts)
            return part

        def process_output_result(self, state: dict[str, Any]) -> None:
            """Tell."""
            seen.append(dict(state))

    seen: list[dict[str, Any]] = []
    both = Both()
    own = Agent("a", model=ScriptedModel([[say("x")]]), input_processors=[both], output_processors=[both])
    for _ in range(2):
        await (await own.stream("hello")).settled()
    assert seen == [{"input": 1, "parts": 4}, {"input": 1, "parts": 4}]  # text-start, -delta, -end, step-finish


async def test_processors_know_run_agent_thread_and_context() -> None:
    seen: dict[str, Any] = {}

    def note(messages: list[Any], **rest: Any) -> None:
        seen.update(rest)

    own = Agent("a", model=ScriptedModel([[say("x")]]), input_processors=[note], memory=Memory("sqlite://"))
    memory = {"thread": "t", "resource": "u"}
    out = await own.stream("hello", memory=memory, request_context={"k": 1}, run_id="r")
    await out.settled()
    names = ("run_id", "agent_id", "thread_id", "resource_id", "request_context", "retry_count")
    assert [seen[name] for name in names] == ["r", "a", "t", "u", {"k": 1}, 0]


async def test_options_of_a_run_replace_the_agent_s_processors() -> None:
    own = Agent("a", model=ScriptedModel([[say("SECRET")]]), output_processors=[BlockSecrets()])
    out = await own.stream("hello", output_processors=[])
    await out.settled()
    assert await out.text == "SECRET"


class Empty:
    """No processor."""


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("input_processors", BlockSecrets(), "input_processors= takes a list"),
        ("output_processors", [3], "output_processors= takes functions, or objects with a method"),
        ("output_processors", [Empty()], "not Empty"),
        ("output_processors", [BlockSecrets], r"takes objects: BlockSecrets\(\), not the class"),
        ("output_processors", [lambda part, abrot: part], "process_output_stream asks for 'abrot'"),
        ("input_processors", [lambda messages, part: part], "process_input asks for 'part'"),
    ],
)
def test_a_wrong_processor_is_said_at_once(option: str, value: Any, words: str) -> None:
    model = ScriptedModel([[say("x")]])
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=model, **{option: value})
    with pytest.raises(SettingsError, match=words):
        Agent("a", model=model).stream("hello", **{option: value})  # type: ignore[typeddict-item]


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


async def test_plain_methods_run_in_a_thread_but_for_those_of_chunks() -> None:
    class Where:
        """Notes threads."""

        def process_input(self) -> None:
            """Note."""
            threads.append(threading.get_ident())

        def process_output_stream(self, part: dict[str, Any]) -> dict[str, Any]:
            """Note."""
            threads.append(threading.get_ident())
            return part

    threads: list[int] = []
    where = Where()
    out = await play([say("x")], input_processors=[where], output_processors=[where])

    async def engine_thread() -> int:
        return threading.get_ident()

    engine = await out._engine.start(engine_thread)
    assert threads[0] != engine
    assert set(threads[1:]) == {engine}


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


async def test_the_prompt_may_be_rewritten_on_its_way_to_the_model_and_is_not_kept() -> None:
    class Short:
        """Shortens."""

        id = "short"

        def process_llm_request(self, prompt: list[Any], step_number: int) -> list[Any]:
            """Change."""
            return [prompt[0], {"role": "user", "content": [{"type": "text", "text": f"step {step_number}"}]}]

    model = ScriptedModel([[say("ok")]])
    out = await play(model=model, input_processors=[Short()])
    assert [message["role"] for message in model.requests[0].messages] == ["system", "user"]
    assert model.requests[0].messages[1]["content"][0]["text"] == "step 0"
    assert chunks(out)[-1]["payload"]["messages"]["user"][0]["content"][0]["text"] == "hello"


async def test_processors_do_not_take_the_schema_from_the_model() -> None:
    class New:
        """Has its own system message."""

        def process_input_step(self, system_messages: list[Any]) -> Any:
            """Change."""
            assert len(system_messages) == 1
            return {"system_messages": ["New."]}

    model = ScriptedModel([[say('{"elements":[]}')]])
    await play(model=model, input_processors=[New()], structured_output={"schema": {"type": "array"}})
    first, second = (message["content"] for message in model.requests[0].messages if message["role"] == "system")
    assert first == "New."
    assert "elements" in second
