"""What is reported of simulated flows that do not end."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import click
import pytest
from click.exceptions import Exit

from handoffd.cli.pipelines.checking import check, checked, leave, stuck
from handoffd.forecast.flows import Budget, Stuck, Sum, simulate
from handoffd.protocol.pipelines.loading import load_plan


def chances(flows: int) -> Iterator[Random]:
    """Return a source of chance for each flow."""
    return map(Random, range(flows))


def test_a_flow_that_does_not_end_is_told_with_its_seed() -> None:
    """And with the command that plays it again, alone."""
    trial = Sum(stuck=[Stuck(17, "worst", "a person"), Stuck(23, "best", "nothing")])

    assert [
        "  did not end: 2 flows; the one of seed 17 waits for a person",
        "  next: handoffd pipeline simulate --flows 1 --seed 17 --oracle worst --items 9 docs",
    ] == stuck("docs", trial, items=9)
    assert [] == stuck("docs", Sum())


def test_a_flow_that_does_not_end_is_a_failure() -> None:
    """By the exit code, for scripts."""
    with click.Context(check), pytest.raises(Exit) as left:
        leave(Sum(stuck=[Stuck(17, "worst", "a person")]))

    assert 1 == left.value.exit_code
    leave(Sum())


def test_a_check_plays_as_many_flows_as_there_is_time_for() -> None:
    """And says how many it did not."""
    ticks = iter(range(1_000_000))
    loaded = load_plan("language: 1\npipeline: p\ntasks: {a: {run: x}}", "p.yaml")
    trial = simulate(loaded.plan, chances(500), budget=Budget(lambda: float(next(ticks)), 60))
    lines = checked(loaded.plan, trial, 0, 1, 500)

    assert 0 < trial.flows < 500
    assert f"  {500 - trial.flows} flows not played: a check takes at most 10 s for all of them" == lines[-1]


def test_a_check_says_which_expression_had_no_value() -> None:
    """And in how many flows: none of them goes past it."""
    text = """
language: 1
pipeline: p
params: {n: {type: number, default: 0}}
tasks: {a: {run: x, when: "1 / (params.n - params.n) > 1"}}
"""
    loaded = load_plan(text, "p.yaml")
    lines = checked(loaded.plan, simulate(loaded.plan, chances(20)), 0, 1, 20)

    (said,) = [line for line in lines if "division by zero" in line]
    assert said.startswith("  in 20 flows: a: ")
