"""Prices: which one a model has, and what a run cost by it."""

from __future__ import annotations

from datetime import date

import pytest

from handoffd.engine.run import Usage
from handoffd.execute.meter import PriceTable, cost_of, load_prices, shipped_families
from handoffd.settings.model import Price

CHEAP, DEAR = Price(input=1, output=2), Price(input=10, output=20)
USED = Usage(
    input_tokens=1_000_000, output_tokens=2_000_000, cache_read_tokens=3_000_000, cache_write_tokens=4_000_000
)


def test_every_kind_of_token_has_its_price() -> None:
    """Dollars for a million."""
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    assert pytest.approx(3 + 30 + 0.9 + 15) == cost_of(USED, price)


def test_a_cache_without_a_price_costs_what_input_costs() -> None:
    """Rather too much than too little: caps rest on it."""
    assert 8 + 4 == cost_of(USED, CHEAP)


def test_the_longest_pattern_counts() -> None:
    """It is the one that means the model most exactly."""
    table = PriceTable(({"gpt-*": DEAR, "gpt-5-mini*": CHEAP},))
    assert (CHEAP, DEAR) == (table.price_of("gpt-5-mini-2025-08-07"), table.price_of("gpt-5"))


def test_what_the_settings_say_goes_before_what_ships() -> None:
    """Also by a shorter pattern: a person may have a contract."""
    table = load_prices({"claude-*": CHEAP})
    assert CHEAP == table.price_of("claude-opus-4-5")
    assert DEAR != table.price_of("gpt-5")


def test_an_unknown_model_has_an_unknown_cost() -> None:
    """Its tokens count all the same."""
    table = load_prices({})
    assert table.price_of("my-own-llama") is None
    assert USED == table.priced(USED, "my-own-llama")
    assert USED == table.priced(USED, None)


def test_a_reported_cost_is_never_reckoned_again() -> None:
    """The provider knows its discounts."""
    reported = Usage(input_tokens=1_000_000, cost_usd=0.01, priced="provider")
    assert reported == load_prices({}).priced(reported, "claude-opus-4-5")


def test_a_reckoned_cost_says_so() -> None:
    """It is less sure than a reported one; of nothing used it says nothing."""
    table = PriceTable(({"m": CHEAP},))
    priced = table.priced(Usage(output_tokens=500_000), "m")
    assert (1.0, "table") == (priced.cost_usd, priced.priced)
    assert Usage() == table.priced(Usage(), "m")


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-opus-5-5", 4), ("claude-opus-5-5[1m]", 4), ("claude-opus-5", 5),
        ("claude-opus-4-5-20251101", 5),
        ("claude-opus-4-1-20250805", 15), ("claude-sonnet-4-5-20250929", 3), ("anthropic/claude-opus-4.5", 5),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 1), ("openai/gpt-5.5", 5), ("gpt-5-codex", 1.25),
        ("gpt-5.4-mini", 0.75), ("models/gemini-2.5-pro", 1.25), ("gemini-2.5-flash-lite", 0.1),
        ("gemini-3.5-flash-lite", 0.3), ("Claude-Opus-4-5", 5), ("gpt-5.5-pro", None), ("gpt-4.1", None),
    ],
)  # fmt: skip
def test_models_are_found_by_the_names_that_agents_use(model: str, dollars: float | None) -> None:
    """With a provider before the name, a date or a variant after it; nothing is guessed."""
    price = load_prices({}).price_of(model)
    assert dollars == (None if price is None else price.input)


def test_every_shipped_price_says_where_it_is_from_and_is_plausible() -> None:
    """A slip of a decimal point would be a wrong bill."""
    for family in shipped_families():
        assert family.source.startswith("https://")
        assert family.seen > date(2026, 1, 1)
        for pattern, price in family.prices.items():
            assert 0.05 <= price.input <= 20, pattern
            assert 4 <= price.output / price.input <= 10, pattern
            assert price.cache_read is None or price.cache_read <= price.input / 5, pattern
            assert price.cache_write is None or 1 <= price.cache_write / price.input <= 1.3, pattern


def test_no_pattern_is_there_twice() -> None:
    """The later one would win, and nobody would see it."""
    patterns = [pattern for family in shipped_families() for pattern in family.prices]
    assert len(patterns) == len(set(patterns))
