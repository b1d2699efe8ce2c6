"""What tokens cost: the one price lookup. A price that isn't known is missing (None), never 0.

Prices are the user's own, or those of the extra `genai-prices` (the list is in the package; nothing is downloaded).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Protocol, cast

from nbmastra.errors import PriceUnknown, SettingsError

__all__ = ["OwnPrices", "Tokens", "price", "require_price"]

OwnPrices = Mapping[str, Mapping[str, float]]
"""Own prices by model, in USD per million tokens: `{"my-model": {"input": 1.5, "output": 6, "cached_input": 0.4}}`.

Without `cached_input`, cached tokens cost as much as others. A model may be named with its provider: `azure/my-model`.
"""

_OWN_KEYS = {"input", "output", "cached_input"}
_MILLION = 1_000_000


class Tokens(Protocol):
    """The numbers that a price is made of; `nbmastra.usage.Usage` has them."""

    @property
    def input_tokens(self) -> int | None: ...
    @property
    def output_tokens(self) -> int | None: ...
    @property
    def cached_input_tokens(self) -> int | None: ...
    @property
    def cache_creation_input_tokens(self) -> int | None: ...


def price(
    usage: Tokens, model: str | None, provider: str | None = None, *, own: OwnPrices | None = None
) -> Decimal | None:
    """What the tokens cost in USD; None if the model's price or the input or output tokens aren't known.

    `model` is `gpt-4o`, or with its provider `openai/gpt-4o` or `openai:gpt-4o`; `provider` may be a server's
    `openai.responses`. Raises SettingsError if `own` isn't what it should be.
    """
    if not model or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached, written = usage.cached_input_tokens or 0, usage.cache_creation_input_tokens or 0
    tokens = usage.input_tokens
    if cached + written > tokens:
        tokens += cached + written  # some providers don't count what came from the cache as input
    mine = _own_price(own or {}, model, provider)
    if mine is not None:
        rate = {key: Decimal(str(value)) for key, value in mine.items()}
        cost = (tokens - cached) * rate["input"] + cached * rate.get("cached_input", rate["input"])
        return (cost + usage.output_tokens * rate["output"]) / _MILLION
    return _listed_price(model, provider, tokens, usage.output_tokens, cached, written)


def require_price(
    model: str | None, provider: str | None = None, *, own: OwnPrices | None = None
) -> Callable[[Tokens], Decimal | None]:
    """The price as a function of the tokens, for a cost budget.

    Raises PriceUnknown, before anything is spent, if the model has no known price.
    """
    if price(_NO_TOKENS, model, provider, own=own) is None:
        name = f"{provider}/{model}" if provider else model or "a model without a name"
        raise PriceUnknown(
            f"the price of {name} isn't known: give prices of your own ({{{model!r}: {{'input': …, 'output': …}}}}, "
            f"USD per million tokens){'' if _has_list() else ', or pip install nbmastra[prices]'}"
        )
    return lambda usage: price(usage, model, provider, own=own)


class _NoTokens:
    input_tokens = output_tokens = cached_input_tokens = cache_creation_input_tokens = 0


_NO_TOKENS = _NoTokens()


def _own_price(own: OwnPrices, model: str, provider: str | None) -> Mapping[str, float] | None:
    for name in [*(f"{by}/{model}" for by in _providers(provider)), model, _split(model)[1]]:
        if name in own:
            rates = own[name]
            if not _are_rates(rates):
                raise SettingsError(
                    f"prices of {name!r}: expected {{'input': …, 'output': …, 'cached_input': … (optional)}} "
                    f"in USD per million tokens, not {rates!r}"
                )
            return rates
    return None


def _are_rates(rates: object) -> bool:
    if not isinstance(rates, Mapping):
        return False
    found = cast("Mapping[str, object]", rates)
    return {"input", "output"} <= found.keys() <= _OWN_KEYS and all(
        isinstance(rate, int | float | Decimal) and rate >= 0 for rate in found.values()
    )


def _providers(provider: str | None) -> Iterator[str]:
    """A provider as it is, then without what Mastra puts behind it (`azure.chat`)."""
    if provider:
        yield provider
        if "." in provider:
            yield provider.partition(".")[0]


def _split(model: str) -> tuple[str, str]:
    """Provider and name of a model that is named with its provider; else "" and its name."""
    prefix, mark, rest = model.partition("/" if "/" in model else ":")
    return (prefix, rest) if mark else ("", model)


def _has_list() -> bool:
    try:
        import genai_prices  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an extra
    except ImportError:
        return False
    return True


def _listed_price(
    model: str, provider: str | None, input_: int, output: int, cached: int, written: int
) -> Decimal | None:
    try:
        from genai_prices import Usage, calc_price  # an extra, and slow to import
    except ImportError:
        return None
    tokens = Usage(input_tokens=input_, output_tokens=output, cache_read_tokens=cached, cache_write_tokens=written)
    prefix, bare = _split(model)
    # Where the list doesn't know the provider, a model isn't priced by its name: it may run at home, for nothing.
    tries = [(name, by) for by in _providers(provider) for name in (model, bare)] or [(bare, prefix or None)]
    for name, by in tries:
        try:
            return calc_price(tokens, name, provider_id=by).total_price
        except (LookupError, ValueError):
            continue
    return None
