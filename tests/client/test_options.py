"""What a user writes about a run, as it goes over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from nbmastra.client.options import camel, schema_options, stream_body
from nbmastra.errors import SettingsError


class City(BaseModel):
    name: str


def test_options_go_out_in_camel_case_and_none_is_left_out() -> None:
    options: dict[str, Any] = {
        "max_steps": 3,
        "run_id": None,
        "memory": {"thread": "t", "resource": "u"},
        "model_settings": {"max_output_tokens": 9, "topP": 1},
        "request_context": {"user_id": 7},
        "toolChoice": "auto",
        "brand_new_option": {"some_key": 1},
    }
    assert stream_body("hi", False, options) == {
        "messages": [{"role": "user", "content": "hi"}],
        "maxSteps": 3,
        "memory": {"thread": "t", "resource": "u"},
        "modelSettings": {"maxOutputTokens": 9, "topP": 1},
        "requestContext": {"user_id": 7},
        "toolChoice": "auto",
        "brandNewOption": {"some_key": 1},
    }


def test_until_idle_is_true_or_has_a_bound() -> None:
    assert "untilIdle" not in stream_body("hi", False, {})
    assert stream_body("hi", True, {})["untilIdle"] is True
    assert stream_body("hi", {"max_idle_ms": 5}, {})["untilIdle"] == {"maxIdleMs": 5}


def test_messages_are_sent_as_messages() -> None:
    message = {"role": "assistant", "content": "hi"}
    assert stream_body(message, False, {})["messages"] == [message]
    assert stream_body(["a", message], False, {})["messages"] == [{"role": "user", "content": "a"}, message]
    with pytest.raises(SettingsError, match="messages"):
        stream_body([7], False, {})  # type: ignore[list-item]


@pytest.mark.parametrize(("slip", "meant"), [("max_step", "max_steps"), ("memmory", "memory"), ("runid", "run_id")])
def test_a_slip_is_refused_because_servers_ignore_it(slip: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=f"did you mean {meant}"):
        stream_body("hi", False, {slip: 1})


@pytest.mark.parametrize("schema", [City, TypeAdapter(City), City.model_json_schema()])
def test_a_schema_is_a_model_an_adapter_or_json(schema: Any) -> None:
    checked, sent = schema_options(schema, None)
    assert checked is not None
    assert sent == {"schema": City.model_json_schema()}
    assert schema_options(None, {"schema": schema, "model": "a/b"})[1] == {**sent, "model": "a/b"}


def test_an_array_is_sent_as_the_array_that_it_is() -> None:
    checked, sent = schema_options(list[int], None)
    assert checked is not None
    assert checked.is_array
    assert sent == {"schema": {"type": "array", "items": {"type": "integer"}}}


def test_schemas_that_are_none_are_refused() -> None:
    assert schema_options(None, None) == (None, None)
    with pytest.raises(SettingsError, match="once"):
        schema_options(City, {"schema": City})
    with pytest.raises(SettingsError, match="needs a schema"):
        schema_options(None, {"model": "a/b"})
    with pytest.raises(SettingsError):
        schema_options({"type": 5}, None)


def test_camel_case_stays_camel_case() -> None:
    assert [camel(name) for name in ("max_steps", "maxSteps", "model", "a_b_c")] == [
        "maxSteps",
        "maxSteps",
        "model",
        "aBC",
    ]
