"""How something stands when somebody asks, as a value: one series with its labels."""

from __future__ import annotations

from dataclasses import dataclass, field

Values = dict[tuple[str, ...], float]
"""A number for each tuple of label values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One series. `name` is without the prefix;"""

    name: str
    help: str
    values: Values = field(default_factory=dict)
    labels: tuple[str, ...] = ()


def single(name: str, text: str, value: float) -> Gauge:
    """Return a series without labels."""
    return Gauge(name=name, help=text, values={(): value})


def among(values: Values, most: int) -> Values:
    """Return the `most` largest of the values; the others are summed up, with `other` as their first label.

    Projects name steps: one that invents a hundred of them shall not make a hundred series.
    """
    if len(values) <= most:
        return dict(values)
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(ordered[:most])
    for labels, value in ordered[most:]:
        rest = ("other", *labels[1:])
        kept[rest] = kept.get(rest, 0.0) + value
    return kept
