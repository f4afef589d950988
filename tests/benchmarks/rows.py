"""What a section of the benchmark found, a row for each figure, and the goal it is held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. `value` is None where it could not be measured: then no goal is met or missed."""

    what: str
    value: float | None
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none, or nothing to hold against it."""
        if self.value is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for machines."""
        return {**asdict(self), "met": self.met}


def ratio(one: float | None, other: float | None) -> float | None:
    """Return how many times `other` is in `one`; None where one of them is not known."""
    return round(one / other, 2) if one is not None and other else None


def table(title: str, rows: Iterable[Row], notes: Iterable[str] = ()) -> str:
    """Return a section for people."""
    lines = [f"== {title}", *(f"   {note}" for note in notes)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    value = "-" if row.value is None else f"{row.value:,.2f}" if row.value < 100 else f"{row.value:,.0f}"
    return f"   {row.what:<58}{value:>10} {row.unit:<4}{_goal(row)}".rstrip()


def _goal(row: Row) -> str:
    if row.at_most is None and row.at_least is None:
        return ""
    wanted = f"at most {row.at_most:g}" if row.at_most is not None else f"at least {row.at_least:g}"
    said = {True: "met", False: "MISSED", None: "not measured"}[row.met]
    return f"  {said}: {wanted}"
