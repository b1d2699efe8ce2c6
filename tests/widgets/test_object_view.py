"""A structured object while it is written, and what its schema says of it at the end."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from nbmastra.output import Ended
from nbmastra.widgets.snapshot import snapshot
from tests.support.runs import chunk, finish, start, step_finish, step_start, text
from tests.widgets.views import Watched, dangers, watch


class Leg(BaseModel):
    place: str
    km: float = Field(le=100)


class Broken(BaseModel):
    km: float

    @field_validator("km")
    @classmethod
    def check(cls, _value: float) -> float:
        raise TypeError("a validator's own bug")


def rows(html: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", html)][1:]


def answer(value: Any) -> list[Any]:
    return [start(), step_start(), text(json.dumps(value)), step_finish(), finish()]


def test_an_array_of_records_grows_row_by_row_with_the_newest_lit() -> None:
    watched = Watched(schema=list[Leg])
    watched.feed(start(), step_start())
    watched.feed(text('{"elements":[{"place":"Cl'))
    assert rows(watched.html()) == []
    assert '<span class="nbm-path">[0].place</span>' in watched.html()
    watched.feed(text('ères","km":24}'))
    assert rows(watched.html()) == [["Clères", "24"]]
    assert '<tr class="is-new">' in watched.html()
    watched.feed(text(',{"place":"Tôtes","km":41'))
    html = watched.html()
    assert rows(html) == [["Clères", "24"]]
    assert re.search(r'</table>.*<span class="nbm-v-n">1</span>.*class="is-new"><div><span class="nbm-k">km', html)
    watched.feed(text('0},{"place":"Dieppe","km":8}'))
    assert rows(watched.html()) == [["Clères", "24"], ["Dieppe", "8"]]
    assert "1 element left out: not what the schema asks for" in watched.html()
    watched.feed(text("]}"), step_finish(), finish())
    watched.end()
    assert "does not fit at [1].km" in watched.html()  # `await out.object` raises, and says where
    assert 'class="is-bad"' in watched.html()


def test_a_long_array_costs_what_is_new_and_a_page_can_take_it() -> None:
    watched = Watched(schema=list[Leg])
    watched.feed(start(), step_start(), text('{"elements":['))
    before = len(watched.messages())
    for number in range(400):
        watched.feed(text(f'{"," if number else ""}{{"place":"p{number}","km":{number % 90}}}'))
    sizes = [len(json.dumps(message)) for message in watched.messages()[before:]]
    assert sum(sizes) / len(sizes) < 1200
    assert "… 350 earlier rows" in watched.html()
    assert len(rows(watched.html())) <= 100
    watched.feed(text("]}"), step_finish(), finish())
    watched.end()
    html = watched.html()
    assert len(rows(html)) == 100
    assert "100 of 400 rows" in html
    assert "fits its schema" in html
    assert "is-new" not in html


def test_rows_never_go_away_while_more_come() -> None:
    watched = Watched(schema=list[Leg])
    watched.feed(start(), step_start())
    body = json.dumps({"elements": [{"place": f"p{n}", "km": n} for n in range(12)]})
    shown = [0]
    for at in range(0, len(body), 7):
        watched.feed(text(body[at : at + 7]))
        shown.append(len(rows(watched.html())))
    assert all(a <= b for a, b in pairwise(shown))
    assert shown[-1] == 12


@pytest.mark.parametrize(
    ("chunks", "schema", "words"),
    [
        (answer({"place": "Dieppe", "km": 8}), Leg, "fits Leg"),
        (answer({"place": "Dieppe", "km": 800}), Leg, "does not fit at km"),
        (answer({"km": 8}), Broken, "could not be checked: a validator's own bug"),
        ([start(), step_start(), text('{"place":"Di')], Leg, "incomplete"),
    ],
)
def test_the_schema_judges_at_the_end_in_the_view_and_in_the_snapshot(chunks: Any, schema: Any, words: str) -> None:
    watched = Watched(schema=schema)
    watched.feed(*chunks)
    assert words not in watched.html()
    watched.out.finish(Ended(cancelled="stopped by you") if words == "incomplete" else Ended(True))
    watched.draw()
    assert words in watched.html().replace("&#x27;", "'")
    assert words in snapshot(watched.out)["text/html"].replace("&#x27;", "'")


def test_an_array_is_a_table_in_the_snapshot() -> None:
    watched = watch(answer({"elements": [{"place": "Clères", "km": 24}]}), schema=list[Leg])
    html = snapshot(watched.out)["text/html"]
    assert ">Clères</td>" in html
    assert "fits its schema" in html


def test_hostile_elements_are_text() -> None:
    """B52: also as names of columns and in what a schema says of them."""
    evil = "<img src=x onerror=alert(1)>"
    schema = {"type": "array", "items": {"properties": {evil: {"type": "string"}}}}
    for value in ([{evil: evil}], [{evil: 1}, {evil: evil}]):
        watched = watch(answer({"elements": value}), schema=schema)
        assert "&lt;img" in watched.html()
        assert dangers(watched.html()) == []
        assert dangers(snapshot(watched.out)["text/html"], "style") == []


def test_what_a_processor_made_of_the_array_is_what_is_shown() -> None:
    chunks = [start(), step_start(), text('{"elements":[{"place":"a","km":1}]}')]
    final = chunk("object-result", None, object=[{"place": "b", "km": 2}])
    html = watch([*chunks, final, step_finish(), finish()], schema=list[Leg]).html()
    assert rows(html) == [["b", "2"]]
