"""`out.elements_df()`: a structured array as a table, at any moment of its run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel, Field

from nbmastra.errors import SettingsError
from nbmastra.output import MastraModelOutput
from tests.support.feed import Feed
from tests.support.runs import finish, start, step_finish, step_start, text


class Leg(BaseModel):
    place: str
    km: float = Field(le=100)
    climb_m: int | None = None
    closed: bool = False
    at: datetime | None = None
    tags: list[str] = []


LEGS: list[dict[str, Any]] = [
    {"place": "Clères", "km": 24, "climb_m": 210, "at": "2026-06-14T08:30:00Z"},
    {"place": "Tôtes", "km": 410},
    {"place": "Dieppe", "km": 41.5, "closed": True, "tags": ["sea"], "ferry": "13:00"},
]
DTYPES = {
    "place": "str",
    "km": "Float64",
    "climb_m": "Int64",
    "closed": "boolean",
    "at": "datetime64[us, UTC]",
    "tags": "object",
}


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def whole(value: Any, **about: Any) -> MastraModelOutput:
    chunks = [start(), step_start(), text(json.dumps({"elements": value})), step_finish(), finish()]
    return MastraModelOutput.from_chunks(chunks, **about).wait(5)


def test_elements_are_rows_as_soon_as_they_are_complete_and_only_if_they_fit() -> None:
    """The columns and dtypes are the schema's whatever came so far, and the rows what `element_stream` gives."""
    feed = Feed(start(), step_start())
    out = feed.run(schema=list[Leg])
    assert dtypes(out.elements_df()) == DTYPES
    counts: list[int] = []
    for piece in json.dumps({"elements": LEGS}, ensure_ascii=False).replace("}, {", "}§, {").split("§"):
        feed.push(text(piece[: len(piece) // 2]), text(piece[len(piece) // 2 :]))
        frame = out.elements_df()
        assert dtypes(frame) == DTYPES
        counts.append(len(frame))
    assert counts == [1, 1, 2]  # the second is longer than the schema allows
    feed.push(step_finish(), finish())
    feed.end(done=True)
    out.wait(5)
    frame = out.elements_df()
    assert list(frame["place"]) == ["Clères", "Dieppe"] == [leg.place for leg in out.element_stream]
    assert frame["at"][0] == datetime(2026, 6, 14, 8, 30, tzinfo=UTC)
    assert frame["climb_m"].isna().tolist() == [False, True]
    assert frame["closed"].tolist() == [False, True]
    assert frame["tags"].tolist() == [[], ["sea"]]


def test_fields_that_a_json_schema_does_not_name_come_after_those_that_it_names() -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/leg"}, "$defs": {"leg": {"properties": {"km": {}, "x": {}}}}}
    frame = whole(LEGS, schema=schema).elements_df()
    assert list(frame) == ["km", "x", "place", "climb_m", "at", "closed", "tags", "ferry"]
    assert dtypes(frame)["closed"] == "boolean"
    assert dtypes(frame)["climb_m"] == "Int64"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1, 2], "Int64"), ([1, 2.5], "Float64"), (["a", "b"], "str"), ([1, "b", {"c": 1}], "object"), ([], "object")],
)
def test_elements_that_are_no_objects_are_in_one_column(values: list[Any], dtype: str) -> None:
    frame = whole(values, schema={"type": "array"}).elements_df()
    assert frame["value"].tolist() == values
    assert dtypes(frame) == {"value": dtype}


def test_numbers_that_no_dtype_can_hold_are_kept_as_they_came() -> None:
    items = {"properties": {"n": {"type": "number"}}}
    frame = whole([{"n": 10**400}, {"n": 1}], schema={"type": "array", "items": items}).elements_df()
    assert frame["n"].tolist() == [10**400, 1]


def test_an_object_that_is_no_array_has_no_elements() -> None:
    out = MastraModelOutput.from_chunks([start(), finish()], schema=Leg).wait(5)
    with pytest.raises(SettingsError, match="array"):
        out.elements_df()
