from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from nbmastra.partial_json import recover_json
from tests.support.json_documents import documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("{}", {}),
        ('{"city":"Lima"}', {"city": "Lima"}),
        ('{"city":"Lima"}<|call|>', {"city": "Lima"}),
        ('{"city":"Lima",}', {"city": "Lima"}),
        ('{"days":[1,2,],}<|call|>', {"days": [1, 2]}),
        ('{}{"city":"Lima"}', {"city": "Lima"}),
        ('{} {} {"city":"Li"}{"city":"Lima"}<|call|>', {"city": "Lima"}),
        ('{}{"city":"Lima"}{}', {"city": "Lima"}),
        ('{"city":"Lima"}{}', {"city": "Lima"}),
        ("{}<|call|>", {}),
        ("null", None),
        ("[]", []),
        ("0", 0),
    ],
)
def test_b23_arguments_are_recovered(text: str, value: Any) -> None:
    got, error = recover_json(text)
    assert error is None
    assert repr(got) == repr(value)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ('{"city":"Li', {"city": "Li"}, "the text ends in the middle at character 11"),
        ('{"city":', {}, "the text ends in the middle"),
        ('{"a":1,"city":Lima}', {"a": 1}, "unexpected 'L' at character 14"),
        ('{}{"city":"Li', {"city": "Li"}, "the text ends in the middle at character 13"),
        ('{}, {"city":"Lima"}', {}, "unexpected ',' at character 2"),
        ('<|call|>{"city":"Lima"}', None, "unexpected '<' at character 0"),
        ('{"a":1,,}', {"a": 1}, "unexpected ','"),
        ("Infinity", None, "unexpected 'I'"),
        ("  ", None, "the text ends in the middle"),
        ("[" + "9" * 5000, [], "the text ends in the middle"),
        ("1e", 1, "bad number '1e' at character 0"),
        ("\x1b[0m", None, r"unexpected '\x1b'"),
    ],
)
def test_b23_arguments_that_cannot_be_recovered_come_with_an_error(text: str, value: Any, message: str) -> None:
    got, error = recover_json(text)
    assert repr(got) == repr(value)
    assert error is not None
    assert error.startswith(message)


@given(documents())
@settings(max_examples=100, deadline=None)
def test_b23_valid_json_is_read_as_json_loads_does_and_no_cut_is_silent(text: str) -> None:
    want = json.loads(text)
    assert repr(recover_json(text)) == repr((want, None))
    for end in range(1, len(text)):
        value, error = recover_json(text[:end])
        try:
            whole = json.loads(text[:end])
        except ValueError:
            assert error
        else:
            assert repr((value, error)) == repr((whole, None))
