"""Tools from functions: what a model is told of them, and what of its arguments reaches them."""

from __future__ import annotations

import asyncio
import datetime
import enum
import functools
import json
import math
from typing import Annotated, Any, Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from nbmastra.errors import SettingsError, ToolInputError
from nbmastra.tools import FunctionTool, SchemaTool, Tool, ToolContext, as_tool, as_tools, tool


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Leg(BaseModel):
    km: float
    by: Literal["train", "bus"] = "train"


@tool
def plan(
    start: str,
    legs: list[Leg],
    unit: Unit = Unit.CELSIUS,
    day: datetime.date | None = None,
    count: Annotated[int, Field(description="its own words", ge=1)] = 1,
    note: str = Field("none", description="from the field"),
    *,
    context: ToolContext,
) -> str:
    """Plan a journey.

    With trains where there are some.

    Args:
        start: Where it
            begins.
        legs: The parts of it.
        count: not these words
    """
    return f"{start}: {len(legs)}, {unit}, {day}, {count}, {note}, {context}"


def test_a_schema_tells_types_defaults_enums_models_and_descriptions() -> None:
    schema = plan.parameters
    Draft202012Validator.check_schema(schema)
    properties = schema["properties"]
    assert schema["type"] == "object"
    assert schema["required"] == ["start", "legs"]
    assert properties["start"] == {"type": "string", "description": "Where it begins."}
    assert properties["legs"]["items"] == {"$ref": "#/$defs/Leg"}
    assert schema["$defs"]["Leg"]["properties"]["by"]["enum"] == ["train", "bus"]
    assert schema["$defs"]["Unit"]["enum"] == ["C", "F"]
    assert properties["count"] == {"type": "integer", "minimum": 1, "default": 1, "description": "its own words"}
    assert properties["note"] == {"type": "string", "default": "none", "description": "from the field"}
    assert plan.description == "Plan a journey.\n\nWith trains where there are some."


def test_a_context_parameter_is_not_in_the_schema() -> None:
    assert "context" not in plan.parameters["properties"]


def test_a_tool_can_still_be_called_as_its_function() -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert isinstance(double, Tool)
    assert double(21) == 42
    assert double.name == "double"


@pytest.mark.parametrize(
    "docstring",
    [
        "Say it.\n\nArgs:\n    name (str): Whom to greet.\n\nReturns:\n    str: it",
        "Say it.\n\nParameters\n----------\nname : str\n    Whom to greet.\n\nReturns\n-------\nstr",
        "Say it.\n\n:param name: Whom to greet.\n:type name: str\n:returns: it",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_a_docstring_describes_parameters_in_all_usual_styles(docstring: str) -> None:
    def greet(name: str) -> str:
        return name

    greet.__doc__ = docstring
    made = as_tool(greet)
    assert made.description == "Say it."
    assert made.parameters["properties"]["name"]["description"] == "Whom to greet."


@given(st.text(max_size=200))
def test_no_docstring_breaks_a_tool(docstring: str) -> None:
    def f(a: int) -> int:
        return a

    f.__doc__ = docstring
    assert "a" in as_tool(f).parameters["properties"]


def test_arguments_come_as_models_enums_and_dates() -> None:
    checked = plan.parse('{"start": "Rome", "legs": [{"km": "3.5"}], "unit": "F", "day": "2026-02-01"}')
    assert checked == {
        "start": "Rome",
        "legs": [Leg(km=3.5)],
        "unit": Unit.FAHRENHEIT,
        "day": datetime.date(2026, 2, 1),
        "note": "none",
    }


def test_names_that_a_model_of_pydantic_cannot_have_are_fine() -> None:
    @tool
    def odd(schema: str, model_config: int, copy: bool, _hidden: int = 1) -> None: ...

    given = {"schema": "s", "model_config": 1, "copy": True, "_hidden": 2}
    assert odd.parse(given) == given


def test_positional_only_arguments_and_further_ones_by_name_reach_the_function() -> None:
    @tool
    def gather(first: int, second: int = 2, /, **more: int) -> Any:
        return [first, second, more]

    assert gather.parameters["additionalProperties"] == {"type": "integer"}
    context = ToolContext()
    assert asyncio.run(gather.run(gather.parse({"first": 1, "x": "7"}), context)) == [1, 2, {"x": 7}]


def test_what_a_partial_was_given_is_not_the_models_to_choose() -> None:
    def rows(count: int, frame: pd.DataFrame) -> int:
        return min(count, len(frame))

    made = as_tool(functools.partial(rows, frame=pd.DataFrame({"a": [1, 2]})))
    assert list(made.parameters["properties"]) == ["count"]
    assert made.name == "rows"
    assert asyncio.run(made.run(made.parse({"count": 9}), ToolContext())) == 2


def test_a_method_is_a_tool_of_its_object() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.value = start

        @tool
        def add(self, by: int = 1) -> int:
            """Add to it."""
            self.value += by
            return self.value

    counter = Counter(3)
    assert list(counter.add.parameters["properties"]) == ["by"]
    assert asyncio.run(counter.add.run(counter.add.parse({"by": 2}), ToolContext())) == 5
    assert counter.add() == 6


def test_what_is_too_much_is_dropped_and_refused_by_a_strict_tool() -> None:
    def add(a: int) -> int:
        return a

    assert as_tool(add).parse({"a": "5", "b": 1}) == {"a": 5}
    strict = tool(strict=True)(add)
    for arguments in ({"a": 5, "b": 1}, {"a": "5"}):
        with pytest.raises(ToolInputError):
            strict.parse(arguments)
    assert strict.parse({"a": 5}) == {"a": 5}


# --- arguments that don't fit ----------------------------------------------------------------------------------------


def test_a_refusal_has_the_shape_of_a_mastra_server() -> None:
    with pytest.raises(ToolInputError) as caught:
        plan.parse({"legs": [{"km": 1}, {"km": "far"}]})
    told = caught.value.to_result()
    assert told["error"] is True
    assert set(told["validationErrors"]) == {"errors", "fields"}
    fields = told["validationErrors"]["fields"]
    assert fields["start"]["errors"] == ["Field required"]
    assert len(fields["legs"]["fields"]["1"]["fields"]["km"]["errors"]) == 1
    assert "legs.1.km" in told["message"]
    assert "plan" in told["message"]


@pytest.mark.parametrize(
    "text",
    [
        '{"city":"Lima"}<|call|>',
        '{"city":"Lima",}',
        '{"city":"Li',
        '{}{"city":"Lima"}',
        "[1]",
        "null",
        '"{}"',
        '{"city": NaN}',
        '{"city": Infinity}',
        '{"city": 1' + "0" * 5000 + "}",
        '{"city":' * 100_000,
    ],
)
def test_a_text_that_is_no_object_is_refused_and_kept(text: str) -> None:  # B23
    @tool
    def weather(city: Any = None) -> None: ...

    with pytest.raises(ToolInputError) as caught:
        weather.parse(text)
    assert caught.value.raw == text
    told = caught.value.to_result()
    assert told["rawArguments"] == text
    assert len(told["message"]) < 3000
    json.dumps(told)


def test_no_text_stands_for_no_arguments() -> None:  # B23
    @tool
    def now() -> None: ...

    assert now.parse("") == now.parse("  ") == now.parse(None) == now.parse("{}") == {}


def test_of_a_name_given_twice_the_last_counts_as_in_javascript() -> None:
    @tool
    def f(a: int) -> None: ...

    assert f.parse('{"a": 1, "a": 2}') == {"a": 2}


def test_values_that_are_no_json_are_refused() -> None:
    @tool
    def f(a: Any) -> None: ...

    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (math.nan, math.inf, {1, 2}, deep, object()):
        with pytest.raises(ToolInputError) as caught:
            f.parse({"a": value})
        assert caught.value.to_result()["error"] is True
    with pytest.raises(ToolInputError):
        f.parse('{"a": 1e999}')


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), _json, max_size=4))
def test_any_json_reaches_a_function_that_takes_anything_unchanged(arguments: dict[str, Any]) -> None:
    @tool
    def anything(**values: Any) -> None: ...

    assert anything.parse(json.dumps(arguments)) == arguments


@given(st.text(max_size=60) | _json.map(json.dumps))
def test_any_text_gives_arguments_or_a_refusal(text: str) -> None:
    try:
        checked = plan.parse(text)
    except ToolInputError as error:
        json.dumps(error.to_result()).encode()
    else:
        assert {"start", "legs"} <= checked.keys()


@given(
    st.fixed_dictionaries(
        {"start": st.text(max_size=5), "legs": st.lists(st.fixed_dictionaries({"km": st.integers()}), max_size=2)},
        optional={"unit": st.sampled_from(["C", "F", "K"]), "count": st.integers(-3, 3), "day": st.none()},
    )
)
def test_what_the_schema_allows_is_what_is_accepted(arguments: dict[str, Any]) -> None:
    allowed = Draft202012Validator(plan.parameters).is_valid(arguments)
    try:
        plan.parse(arguments)
    except ToolInputError:
        assert not allowed
    else:
        assert allowed


# --- what can't be a tool --------------------------------------------------------------------------------------------


def _star(*values: int) -> None: ...
def _frame(frame: pd.DataFrame) -> None: ...
def _generator() -> Any:
    yield 1


def _unknown(value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (_star, "take a list instead"),
        (_frame, "can't be described as JSON"),
        (_generator, "is a generator"),
        (_unknown, "Missing"),
        (lambda: 1, "can't be a tool's name"),
        (5, "a tool is a function, not int"),
        (Leg, "not the class Leg"),
    ],
)
def test_what_no_model_could_call_is_refused_at_once(source: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        as_tool(source)


def test_tools_have_one_name_each_that_every_provider_takes() -> None:
    def one() -> None: ...
    def two() -> None: ...

    assert list(as_tools([one, tool(name="zwei")(two)])) == ["one", "zwei"]
    renamed = as_tools({"eins": one, "zwei": as_tool(two)})
    assert [made.name for made in renamed.values()] == ["eins", "zwei"]
    assert as_tools(None) == {}
    with pytest.raises(SettingsError, match="two tools are called one"):
        as_tools([one, one])
    for name in ("with space", "", "ä", "x" * 65, "a.b", "a\n"):
        with pytest.raises(SettingsError, match="can't be a tool's name"):
            as_tools({name: one})
    with pytest.raises(SettingsError, match="as a list"):
        as_tools(one)  # type: ignore[arg-type]


def test_a_renamed_tool_keeps_its_options() -> None:
    @tool(require_approval=True, background={"enabled": True}, description="d", strict=True)
    def one() -> None: ...

    renamed = as_tools({"eins": one})["eins"]
    assert (renamed.require_approval, renamed.background, renamed.description, renamed.strict) == (
        True,
        {"enabled": True},
        "d",
        True,
    )


# --- approval, and tools by schema -----------------------------------------------------------------------------------


def test_approval_is_asked_for_as_the_tool_says_and_in_doubt() -> None:
    def remove(name: str) -> None: ...
    async def slow_check(arguments: dict[str, Any]) -> bool:
        return arguments["name"] == "x"

    def asks(require_approval: Any, name: str = "x") -> bool:
        made = tool(require_approval=require_approval)(remove)
        return asyncio.run(made.needs_approval({"name": name}))

    assert asks(True)
    assert not asks(False)
    assert asks(lambda arguments: arguments["name"] == "x")
    assert not asks(lambda arguments: arguments["name"] == "y")
    assert asks(slow_check)
    assert not asks(slow_check, "y")
    assert asks(lambda arguments: arguments["missing"])


def test_a_tool_by_json_schema_checks_and_runs() -> None:
    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return {"got": arguments}

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    made = SchemaTool("remote", "Far away.", schema, call)
    assert asyncio.run(made.run(made.parse('{"a": 1}'), ToolContext())) == {"got": {"a": 1}}
    with pytest.raises(ToolInputError) as caught:
        made.parse('{"a": "1"}')
    assert list(caught.value.to_result()["validationErrors"]["fields"]) == ["a"]
    broken = SchemaTool("broken", "", {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, call)
    with pytest.raises(ToolInputError, match="can't be used"):
        broken.parse('{"a": 1}')


def test_a_function_tool_is_typed_as_its_function() -> None:
    @tool
    def shout(text: str) -> str:
        return text.upper()

    assert isinstance(shout, FunctionTool)
    assert shout("a").lower() == "a"
