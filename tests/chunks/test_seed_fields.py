"""The models against Mastra's documents: `seed_fields.json` lists their types and fields (field → required)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import AliasChoices

from nbmastra.chunks import CHUNK_TYPES, parse_chunk, payload_model
from nbmastra.chunks.payload import Payload

SEED: dict[str, dict[str, bool]] = json.loads(Path(__file__).with_name("seed_fields.json").read_text())
TOP_LEVEL = {"object": "object"}
NO_UNDEFINED = "JSON has no `undefined`: a real server leaves the key out when a tool returns or writes nothing"
ABORTED = "a real server leaves it out of the `finish` of an aborted run, or of one without a completed step"
OPTIONAL_ANYWAY = {
    ("tool-result", "result"): NO_UNDEFINED,
    ("tool-output", "output"): NO_UNDEFINED,
    ("step-output", "output"): NO_UNDEFINED,
    ("background-task-completed", "result"): NO_UNDEFINED,
    ("finish", "metadata"): ABORTED,
    ("finish", "messages"): ABORTED,
    ("finish", "response"): ABORTED,
}


def model_of(kind: str) -> type[Payload]:
    model = payload_model(kind)
    assert model is not None
    return model


def wire_fields(model: type[Payload]) -> dict[str, bool]:
    """Wire key (all spellings) → required."""
    found: dict[str, bool] = {}
    for field in model.model_fields.values():
        alias = field.validation_alias
        keys = alias.choices if isinstance(alias, AliasChoices) else [alias]
        found |= {str(key): field.is_required() for key in keys}
    return found


def test_the_table_has_all_types_of_the_documents() -> None:
    assert len(SEED) == 38
    assert set(SEED) <= set(CHUNK_TYPES)


@pytest.mark.parametrize("kind", SEED)
def test_every_field_of_the_documents_is_modelled_as_required_or_optional(kind: str) -> None:
    fields = wire_fields(model_of(kind))
    expected = {key: required and (kind, key) not in OPTIONAL_ANYWAY for key, required in SEED[kind].items()}
    if kind in TOP_LEVEL:
        assert expected == {TOP_LEVEL[kind]: True}
        assert parse_chunk({"type": kind, "runId": "r", "from": "AGENT", "object": False}).object is False
        return
    assert {key: fields.get(key) for key in expected} == expected


@pytest.mark.parametrize("kind", SEED)
def test_a_field_that_the_documents_lack_is_never_required(kind: str) -> None:
    required = {key for key, is_required in wire_fields(model_of(kind)).items() if is_required}
    assert required <= set(SEED[kind])


def test_no_exception_is_kept_without_need() -> None:
    for kind, key in OPTIONAL_ANYWAY:
        assert SEED[kind][key] is True
        assert wire_fields(model_of(kind))[key] is False
