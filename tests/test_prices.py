"""Prices: own ones first, then the list; what isn't known is missing."""

from __future__ import annotations

import socket
import sys
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price

from nbmastra.errors import PriceUnknown, SettingsError
from nbmastra.prices import price, require_price
from nbmastra.usage import Usage

USAGE = Usage(input_tokens=1_000_000, output_tokens=500_000)
CACHED = Usage(input_tokens=1_000_000, output_tokens=0, cached_input_tokens=400_000)
OWN = {"mine": {"input": 2, "output": 8, "cached_input": 0.5}, "azure/gpt-4o": {"input": 1, "output": 1}}


def listed(model: str, provider: str, **tokens: int) -> Decimal:
    return calc_price(ListedUsage(**tokens), model, provider_id=provider).total_price


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini", "openai"),
        ("gpt-4o-mini", "openai.responses"),
        ("gpt-4o-mini", None),
        ("openai/gpt-4o-mini", None),
        ("openai/gpt-4o-mini", "openai"),
        ("openai:gpt-4o-mini", None),
    ],
)
def test_a_listed_model_has_its_price_by_any_of_its_names(model: str, provider: str | None) -> None:
    expected = listed("gpt-4o-mini", "openai", input_tokens=1_000_000, output_tokens=500_000)
    assert expected > 0
    assert price(USAGE, model, provider) == expected
    assert require_price(model, provider)(USAGE) == expected


def test_a_servers_name_of_a_provider_is_understood() -> None:
    assert price(USAGE, "gpt-4o", "azure.chat") == price(USAGE, "gpt-4o", "azure") is not None
    assert price(USAGE, "gemini-2.5-pro", "google.generative-ai") is not None
    assert price(USAGE, "openai/gpt-4o", "openrouter") is not None


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("scripted-1", "scripted"),
        ("scripted-1", None),
        ("gpt-4o", "ollama"),
        ("ollama/gpt-4o", None),
        ("", None),
        (None, None),
        (None, "openai"),
        ("gpt-4o", "."),
        ("/", "/"),
    ],
)
def test_an_unknown_model_or_provider_has_no_price(model: str | None, provider: str | None) -> None:
    assert price(USAGE, model, provider) is None
    with pytest.raises(PriceUnknown, match="isn't known: give prices of your own"):
        require_price(model, provider)


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=5), Usage(total_tokens=5)])
def test_missing_tokens_have_no_price(usage: Usage) -> None:
    assert price(usage, "gpt-4o-mini", "openai") is None
    assert price(usage, "mine", own=OWN) is None


def test_no_tokens_cost_nothing() -> None:
    assert price(Usage(input_tokens=0, output_tokens=0), "gpt-4o-mini", "openai") == 0


def test_own_prices_are_per_million_tokens_and_come_first() -> None:
    assert price(USAGE, "mine", own=OWN) == 6
    assert price(USAGE, "mine", "scripted", own=OWN) == 6
    assert price(USAGE, "scripted/mine", own=OWN) == 6
    assert price(USAGE, "gpt-4o", "azure.chat", own=OWN) == Decimal("1.5")
    assert require_price("mine", own=OWN)(USAGE) == 6
    assert price(USAGE, "gpt-4o-mini", "openai", own={"gpt-4o-mini": {"input": 0, "output": 0}}) == 0


def test_cached_tokens_have_their_own_price_or_that_of_input() -> None:
    assert price(CACHED, "mine", own=OWN) == Decimal("1.4")
    assert price(CACHED, "plain", own={"plain": {"input": 2, "output": 8}}) == 2
    expected = listed("gpt-4o-mini", "openai", input_tokens=1_000_000, cache_read_tokens=400_000, output_tokens=0)
    assert price(CACHED, "gpt-4o-mini", "openai") == expected
    assert expected < listed("gpt-4o-mini", "openai", input_tokens=1_000_000, output_tokens=0)


def test_input_that_leaves_out_the_cache_is_completed() -> None:
    usage = Usage(input_tokens=10, output_tokens=1, cached_input_tokens=500, cache_creation_input_tokens=90)
    expected = listed(
        "claude-sonnet-4-5",
        "anthropic",
        input_tokens=600,
        output_tokens=1,
        cache_read_tokens=500,
        cache_write_tokens=90,
    )
    assert price(usage, "claude-sonnet-4-5", "anthropic.messages") == expected
    assert price(usage, "mine", own=OWN) == (Decimal(100) * 2 + Decimal(500) / 2 + 8) / 1_000_000


@pytest.mark.parametrize(
    "rates",
    [
        {},
        5,
        {"input": 1},
        {"input": 1, "output": 2, "cache": 3},
        {"input": -1, "output": 1},
        {"input": "1", "output": 1},
    ],
)
def test_own_prices_that_are_wrong_say_what_is_expected(rates: Any) -> None:
    with pytest.raises(SettingsError, match=r"prices of 'mine': expected .*USD per million tokens"):
        price(USAGE, "mine", own={"mine": rates})


def test_without_the_extra_only_own_prices_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price(USAGE, "gpt-4o-mini", "openai") is None
    assert price(USAGE, "mine", own=OWN) == 6
    with pytest.raises(PriceUnknown, match=r"pip install nbmastra\[prices\]"):
        require_price("gpt-4o-mini", "openai")


def test_prices_ask_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise AssertionError("a price must not need a network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert price(USAGE, "gpt-4o-mini", "openai") is not None
