"""What tokens cost, as data: the price table that ships, and what the settings say instead.

An agent's own reckoning always goes before it, for that knows of tiers, discounts and cache lifetimes. What
has no price here stays without a cost, because a cost of nothing would look like a cap that holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache

from pydantic import BaseModel, ConfigDict

from handoffd.engine.usage import Usage
from handoffd.protocol import yamltext
from handoffd.settings.model import Price
from handoffd.settings.paths import shared

_MILLION = 1_000_000
_BEFORE_NAME = re.compile(r"[/.]")
"""What can stand between a provider, or a region, and the name of a model."""


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by patterns of model names. Each layer goes before the ones after it."""

    layers: tuple[Mapping[str, Price], ...] = ()

    def price_of(self, model: str) -> Price | None:
        """Return what tokens of a model cost; None when that is not known."""
        names = tuple(_names(model.lower()))
        for layer in self.layers:
            fitting = [
                pattern for pattern in layer if any(fnmatchcase(name, pattern.lower()) for name in names)
            ]
            if fitting:
                return layer[max(fitting, key=len)]
        return None

    def priced(self, usage: Usage, model: str | None) -> Usage:
        """Return a usage with its cost, if the model is known and nobody has told a cost before."""
        if usage.cost_usd is not None or usage.tokens == 0 or model is None:
            return usage
        price = self.price_of(model)
        return usage if price is None else replace(usage, cost_usd=cost_of(usage, price), priced="table")


def cost_of(usage: Usage, price: Price) -> float:
    """Return what a usage costs, in dollars."""
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * cache_read
        + usage.cache_write_tokens * cache_write
    ) / _MILLION


def load_prices(own: Mapping[str, Price]) -> PriceTable:
    """Return the shipped table below `own` prices."""
    families = shipped_families()
    shipped = {pattern: price for family in families for pattern, price in family.prices.items()}
    return PriceTable((own, shipped))


class Family(BaseModel):
    """The prices of one provider: where they stand, and when they were read there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    seen: date
    prices: Mapping[str, Price]


@cache
def shipped_families() -> tuple[Family, ...]:
    """Return the prices that come with handoffd."""
    path = shared("config", "prices.yaml")
    data = yamltext.load(path.read_bytes(), str(path)).data
    return tuple(Family.model_validate(family) for family in data["families"])


def _names(model: str) -> Iterator[str]:
    """Yield a model's name, with and without what may stand before it."""
    yield model
    for found in _BEFORE_NAME.finditer(model):
        yield model[found.end() :]
