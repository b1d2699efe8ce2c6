"""Models by pydantic-ai: names, its own test models, what is asked and what comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import (
    Citation,
    ModelMessage,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    WebCitationSource,
)
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel as PydanticTestModel

from nbmastra.errors import SettingsError
from nbmastra.runtime.model import (
    Finish,
    Model,
    ModelEvent,
    ModelRequest,
    PartDelta,
    PartEnd,
    PartStart,
    Raw,
    ResponseMetadata,
    SourceFound,
    ToolCalled,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolSpec,
    Warned,
)
from nbmastra.runtime.provider_events import EventMapper
from nbmastra.runtime.providers import known_models, resolve_model

WEATHER = ToolSpec("weather", "Temperature of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
ASKED = ModelRequest([{"role": "user", "content": "Hi"}], tools=[WEATHER])


async def events(model: PydanticModel | str | Model, request: ModelRequest = ASKED) -> list[ModelEvent]:
    return [event async for event in resolve_model(model).stream(request)]


def speaking(*pieces: Any) -> FunctionModel:
    """pydantic-ai's function model that streams these pieces."""

    async def stream(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return FunctionModel(stream_function=stream)


async def test_text_comes_as_it_is_said() -> None:
    announced, *said, finish = await events(speaking("Hel", "lo"))
    assert isinstance(announced, ResponseMetadata)
    assert said == [
        PartStart("text", "text-0"),
        PartDelta("text", "text-0", "Hel"),
        PartDelta("text", "text-0", "lo"),
        PartEnd("text", "text-0"),
    ]
    assert isinstance(finish, Finish)
    assert finish.usage.output_tokens


async def test_thoughts_and_calls_keep_their_pieces() -> None:
    model = speaking(
        {0: DeltaThinkingPart(content="Hm")},
        {0: DeltaThinkingPart(content="m.")},
        {1: DeltaToolCall("weather", '{"ci', tool_call_id="c1")},
        {1: DeltaToolCall(json_args='ty": "Paris"}')},
    )
    _, *said, finish = await events(model)
    assert said == [
        PartStart("reasoning", "reasoning-0"),
        PartDelta("reasoning", "reasoning-0", "Hm"),
        PartDelta("reasoning", "reasoning-0", "m."),
        PartEnd("reasoning", "reasoning-0"),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"ci'),
        ToolInputDelta("c1", 'ty": "Paris"}'),
        ToolInputEnd("c1"),
        ToolCalled("c1", "weather", '{"city": "Paris"}'),
    ]
    assert isinstance(finish, Finish)
    assert finish.reason == "tool-calls"


async def test_arguments_that_are_no_json_are_passed_on_as_they_are() -> None:
    text = '{"city":"Lima"}<|call|>'
    _, *_, called, _ = await events(speaking({0: DeltaToolCall("weather", text, tool_call_id="c1")}))
    assert called == ToolCalled("c1", "weather", text)


async def test_calls_that_are_written_by_turns_are_whole_and_in_order() -> None:
    model = speaking(
        {0: DeltaToolCall("weather", '{"city":', tool_call_id="c1")},
        {1: DeltaToolCall("weather", "{}", tool_call_id="c2")},
        {0: DeltaToolCall(json_args=' "Paris"}')},
    )
    said = await events(model)
    calls = [event for event in said if isinstance(event, ToolCalled)]
    assert calls == [ToolCalled("c1", "weather", '{"city": "Paris"}'), ToolCalled("c2", "weather", "{}")]
    assert [event.id for event in said if isinstance(event, ToolInputEnd)] == ["c1", "c2"]


async def test_pydantic_ais_test_model_calls_the_tools() -> None:
    said = await events(PydanticTestModel(seed=1))
    [called] = [event for event in said if isinstance(event, ToolCalled)]
    assert (called.tool_name, called.args_text) == ("weather", "{}")
    assert "".join(event.text for event in said if isinstance(event, ToolInputDelta)) == "{}"
    assert [type(event) for event in await events("test", ModelRequest([{"role": "user", "content": "Hi"}]))][
        -1
    ] is Finish


async def test_an_error_of_the_users_own_function_model_is_theirs() -> None:
    with pytest.raises(ZeroDivisionError):
        await events(speaking("a", ZeroDivisionError()))


async def test_closing_the_iterator_ends_the_call() -> None:
    ended = anyio.Event()

    async def stream(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        try:
            for _ in range(10**6):
                yield "word "
        finally:
            ended.set()

    running: Any = resolve_model(FunctionModel(stream_function=stream)).stream(ASKED)
    async for event in running:
        if isinstance(event, PartDelta):
            break
    await running.aclose()
    with anyio.fail_after(5):
        await ended.wait()


async def test_a_text_that_goes_on_after_its_end_is_a_new_part() -> None:
    text, mapper = TextPart("one"), EventMapper()
    citation = Citation([WebCitationSource("https://example.com/a", title="A")])
    stream = [
        PartStartEvent(index=0, part=text),
        PartEndEvent(index=0, part=text),
        PartDeltaEvent(index=0, delta=TextPartDelta("two")),
        PartDeltaEvent(index=0, delta=TextPartDelta("", citations_delta=[citation])),
        PartEndEvent(index=0, part=text),
        PartStartEvent(index=1, part=ToolCallPart("weather", {"city": "Rome"}, "c1")),
        PartEndEvent(index=1, part=ToolCallPart("weather", {"city": "Rome"}, "c1")),
    ]
    assert [ours for event in stream for ours in mapper.events(event)] == [
        PartStart("text", "text-0"),
        PartDelta("text", "text-0", "one"),
        PartEnd("text", "text-0"),
        PartStart("text", "text-0-1"),
        PartDelta("text", "text-0-1", "two"),
        SourceFound({"id": "source-0", "title": "A", "sourceType": "url", "url": "https://example.com/a"}),
        PartEnd("text", "text-0-1"),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city":"Rome"}'),
        ToolInputEnd("c1"),
        ToolCalled("c1", "weather", '{"city":"Rome"}'),
    ]


async def test_raw_events_are_given_where_they_are_asked_for() -> None:
    request = ModelRequest([{"role": "user", "content": "Hi"}], include_raw=True)
    raw = [event.value for event in await events(speaking("Hi"), request) if isinstance(event, Raw)]
    assert raw[0]["event_kind"] == "part_start"
    assert not [event for event in await events(speaking("Hi")) if isinstance(event, Raw)]


async def test_a_setting_that_no_model_has_is_warned_of() -> None:
    settings = {"temperature": 0.5, "temprature": 1, "openai_reasoning_effort": "low", "seed": None}
    warned, *_ = await events(speaking("Hi"), ModelRequest([{"role": "user", "content": "Hi"}], settings=settings))
    assert isinstance(warned, Warned)
    [warning] = warned.warnings
    assert (warning["type"], warning["setting"]) == ("unsupported-setting", "temprature")


async def test_what_is_asked_reaches_the_model() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append((messages, info))
        yield "ok"

    settings = {"temperature": 0.5, "max_output_tokens": 7, "stop_sequences": ["."], "headers": {"x": "y"}}
    asked = ModelRequest(ASKED.messages, tools=[WEATHER], tool_choice="weather", settings=settings)
    await events(FunctionModel(stream_function=stream), asked)
    [(messages, info)] = seen
    assert len(messages) == 1
    assert info.model_settings == {
        "temperature": 0.5,
        "max_tokens": 7,
        "stop_sequences": ["."],
        "extra_headers": {"x": "y"},
        "tool_choice": ["weather"],
    }
    [tool] = info.function_tools
    assert (tool.name, tool.description) == ("weather", "Temperature of a city")


@pytest.mark.parametrize("bad", [None, 7, object(), ["openai:gpt-6-luna"], PydanticTestModel])
def test_what_is_no_model_is_refused(bad: Any) -> None:
    with pytest.raises(SettingsError, match="model= takes a name such as"):
        resolve_model(bad)


def test_a_model_of_ours_stays_as_it_is() -> None:
    ours = resolve_model("test")
    assert resolve_model(ours) is ours
    assert isinstance(ours, Model)
    assert repr(ours) == "<ProviderModel test:test>"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("opnai:gpt-6-luna", "openai:gpt-6-luna"),
        ("gpt-6-luna", "openai:gpt-6-luna"),
        ("anthropc:claude-haiku-5-5", "anthropic:claude-haiku-5-5"),
        ("olama:qwen3", "ollama:qwen3"),
        ("", "write provider:model"),
        ("nonsense", "write provider:model"),
        ("x" * 10_000, "write provider:model"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match="unknown model") as caught:
        resolve_model(name)
    assert nearest in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "openai:gpt-6-luna" in known_models()


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-6-luna", "OPENAI_API_KEY"),
        ("openai-chat:gpt-6-luna", "OPENAI_API_KEY"),
        ("anthropic:claude-haiku-5-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-3.8-flash", "GOOGLE_API_KEY"),
        ("ollama:qwen3", "OLLAMA_BASE_URL"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_missing_key_is_one_line_that_says_which(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(other, raising=False)
    with pytest.raises(SettingsError) as caught:
        resolve_model(name)
    text = str(caught.value)
    assert f"needs {variable}" in text or f"or {variable}" in text
    assert "set it in the environment" in text
    assert "\n" not in text


def test_a_missing_package_is_one_line_that_says_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"needs a package: pip install 'pydantic-ai-slim\[groq\]'$"):
        resolve_model("groq:llama-3.3-70b-versatile")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("pydantic_ai", "models of providers need pydantic-ai: pip install 'nbmastra[models]'"),
        ("anthropic", "model 'anthropic:claude-haiku-5-5' needs a package: pip install 'nbmastra[models]'"),
    ],
)
def test_without_the_extra_one_line_says_so(missing: str, said: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from nbmastra.runtime.providers import resolve_model\n"
        "try: resolve_model('anthropic:claude-haiku-5-5')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"SettingsError {said}\n"


def test_naming_models_loads_no_provider_before_it_is_asked_for() -> None:
    code = "import sys, nbmastra.runtime.providers as p; assert 'pydantic_ai' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
