"""Token usage: all spellings, sums that keep what is missing missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmastra.usage import FIELDS, Usage, parse_usage, sum_usage

COUNTS = st.none() | st.integers(0, 10**9)
USAGES = st.builds(Usage, *[COUNTS] * len(FIELDS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["total", "x"]), inner, max_size=3),
    max_leaves=5,
)
NAMES = "inputTokens outputTokens totalTokens reasoningTokens cachedInputTokens cacheCreationInputTokens raw".split()


def test_a_flat_usage_is_read_as_it_is() -> None:
    wire = {"inputTokens": 10, "outputTokens": 20, "totalTokens": 30, "reasoningTokens": 5, "cachedInputTokens": 3}
    assert parse_usage({**wire, "raw": {"inputTokens": 99}}) == Usage(10, 20, 30, 5, 3)


def test_a_nested_usage_is_the_same_as_a_flat_one() -> None:
    wire = {
        "inputTokens": {"total": 40, "noCache": 30, "cacheRead": 8, "cacheWrite": 2},
        "outputTokens": {"total": 6, "text": 4, "reasoning": 2},
    }
    assert parse_usage(wire) == Usage(40, 6, 46, 2, 8, 2)


def test_a_provider_keeps_its_own_total_and_only_a_missing_one_is_summed_up() -> None:
    """B16."""
    own = parse_usage({"inputTokens": 10, "outputTokens": 5, "reasoningTokens": 100, "totalTokens": 115})
    lacking = parse_usage({"inputTokens": 1, "outputTokens": 1})
    assert (own.total_tokens, lacking.total_tokens, (own + lacking).total_tokens) == (115, 2, 117)


def test_a_number_that_nobody_reported_stays_missing() -> None:
    assert parse_usage({"inputTokens": 7}) == Usage(input_tokens=7)
    assert sum_usage([Usage(1), Usage(2, output_tokens=0)]) == Usage(3, 0)
    assert sum_usage([]) == Usage()
    assert not Usage().reported
    assert Usage(0).reported
    assert not Usage(0).nonzero


@pytest.mark.parametrize("wire", [None, 5, "10", [], {}, {"inputTokens": "10"}, {"inputTokens": True}])
def test_an_unknown_shape_is_no_usage(wire: Any) -> None:
    assert parse_usage(wire) == Usage()


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_whatever_a_server_sends_is_read_without_an_error(wire: dict[str, Any]) -> None:
    used = parse_usage(wire)
    assert all(value is None or type(value) is int for value in map(used.__getattribute__, FIELDS))


@given(USAGES, USAGES, USAGES)
def test_sums_do_not_depend_on_order_or_grouping(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a


@given(USAGES, USAGES)
def test_or_else_fills_only_what_is_missing(a: Usage, b: Usage) -> None:
    filled = a.or_else(b).to_dict()
    assert filled == {**b.to_dict(), **a.to_dict()}


@given(USAGES, USAGES)
def test_what_is_taken_out_of_a_total_never_makes_it_negative_or_known(a: Usage, b: Usage) -> None:
    left = a.minus(b).to_dict()
    assert left.keys() == a.to_dict().keys()
    assert all(value >= 0 for value in left.values())
    assert (a + b).minus(b).to_dict().items() >= a.to_dict().items()


def test_its_repr_names_what_was_reported() -> None:
    assert repr(Usage(1234, total_tokens=2000)) == "Usage(input_tokens=1,234, total_tokens=2,000)"
    assert repr(Usage()) == "Usage(not reported)"


@given(USAGES, USAGES)
def test_a_sum_and_its_difference_give_the_whole_again(part: Usage, whole: Usage) -> None:
    together = part + whole.difference(part)
    assert {key: n for key, n in together.to_dict().items() if n} == {key: n for key, n in whole.to_dict().items() if n}
