"""What simulated flows say, and when they stop."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from handoffd.forecast.flows import Budget, Played, Stuck, Sum, play, simulate
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Plan

HEAD = "language: 1\npipeline: p\nparams: {n: {type: number, maximum: 3}}\ntasks:\n"


def plan_of(tasks: str) -> Plan:
    """Return the plan of a few tasks."""
    return load_plan(HEAD + tasks, "p.yaml").plan


def clock_of(step: float) -> Callable[[], float]:
    """Return a clock that goes on by `step` whenever it is read."""
    times = iter(range(1_000_000))
    return lambda: next(times) * step


def test_a_budget_ends_the_simulation() -> None:
    """Only whole flows count; without one, all are played."""
    plan = plan_of("  a: {run: x}\n  b: {run: x, needs: [a]}\n")
    flows = [Random(seed) for seed in range(20)]
    some = simulate(plan, flows, budget=Budget(clock_of(1.0), 30.5))

    assert 0 < some.flows < 20
    assert some.flows == some.ends.total()
    assert [] == some.stuck
    assert 20 == simulate(plan, flows).flows


def test_a_flow_is_cut_in_its_middle() -> None:
    """It then says nothing about the plan."""
    plan = plan_of("".join(f"  t{number}: {{run: x}}\n" for number in range(9)))
    played = play(plan, Random(1), budget=Budget(clock_of(1.0), 3.5))

    assert played.cut
    assert 3 == played.events
    assert not play(plan, Random(1)).cut


def test_an_expression_without_a_value_is_counted_with_its_words() -> None:
    """In how many flows: what was read differs, and is left out."""
    plan = plan_of('  a: {run: x, when: "10 / (params.n - params.n) > 1"}\n  b: {run: x}\n')
    found = simulate(plan, [Random(seed) for seed in range(10)])

    assert {"a: '10 / (params.n - params.n) > 1' has no value: division by zero": 10} == found.valueless
    assert {} == simulate(plan_of("  a: {run: x}\n"), [Random(1)]).valueless


def test_the_part_of_the_flows_that_opened_few_tasks() -> None:
    """The median, and what all but one of a hundred stay below."""
    trial = Sum(opened=[*range(100, 0, -1)])

    assert (51, 100, 1) == (trial.at_most(0.5), trial.at_most(0.99), trial.at_most(0))


def test_an_open_flow_counts_as_one_that_did_not_end() -> None:
    """Whatever the machine says that it waits for."""
    trial = Sum()
    trial.add(Played(ended=None, opened=4, events=9, tasks=frozenset(), outcomes=frozenset()), 3, "best")

    assert ([Stuck(3, "best", "nothing")], [4]) == (trial.stuck, trial.opened)
