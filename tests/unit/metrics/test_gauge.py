"""Series as values."""

from __future__ import annotations

from handoffd.metrics.recorder import Values, among, single


def test_a_series_without_labels() -> None:
    """It has one value, under no labels."""
    assert {(): 3} == single("slots", "How many.", 3).values


def test_what_projects_invent_is_bounded_and_nothing_is_lost() -> None:
    """The largest stay; the others are one series for each of the labels that projects do not choose."""
    values: Values = {(f"step-{number}", "pass"): float(number) for number in range(1, 101)}
    values["odd", "failing"] = 0.5

    found = among(values, 10)

    assert 12 == len(found)
    assert sum(values.values()) == sum(found.values())
    assert (100, 0.5) == (found["step-100", "pass"], found["other", "failing"])
    assert values == among(values, 101)
