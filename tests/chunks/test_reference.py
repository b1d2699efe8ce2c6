"""The chunk reference: complete, and what the code says today."""

from __future__ import annotations

from nbmastra.chunks import CHUNK_TYPES
from tests.support.chunk_reference import TARGET, field_docs, model_of, reference


def test_the_reference_is_current() -> None:
    current = TARGET.read_text(encoding="utf-8") == reference()
    assert current, "docs/chunks.md is out of date: run `python -m tests.support.chunk_reference`"


def test_every_type_and_every_field_says_what_it_is() -> None:
    for model in map(model_of, (*CHUNK_TYPES, "agent-execution-event-*")):
        assert model.__doc__, model
        assert field_docs(model).keys() >= model.model_fields.keys(), model
        assert all(field_docs(model).values()), model


def test_the_reference_names_every_type_with_an_example() -> None:
    text = TARGET.read_text(encoding="utf-8")
    for kind in (*CHUNK_TYPES, "data-*", "agent-execution-event-*", "workflow-execution-event-*"):
        assert f"\n### {kind}\n" in text
    assert text.count("\n### ") == text.count("```json\n") == len(CHUNK_TYPES) + 3
