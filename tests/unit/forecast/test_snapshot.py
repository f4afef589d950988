"""What steps are expected to take: by a project's own past, or by the protocol."""

from __future__ import annotations

from tests.unit.forecast.evenings import OPEN

from handoffd.forecast.snapshot import LEAST_S, Estimate, medians, referenced
from handoffd.journal.history import StepTook


def took(
    seconds: float, tokens: int | None = 100, cost_usd: float | None = 0.5, step: str = "impl"
) -> StepTook:
    """Return what a step took a story."""
    return StepTook(step=step, story="US-1", attempts=1, seconds=seconds, tokens=tokens, cost_usd=cost_usd)


def test_a_step_is_expected_to_take_the_median() -> None:
    """Of each number by itself, over the stories of which it is known."""
    found = medians([took(60, 100, 1.0), took(600, 300, None), took(120, None, 2.0), took(5, step="bdd")])
    assert Estimate(seconds=120, tokens=200, cost_usd=1.5, basis="past") == found["impl"]
    assert 5 == found["bdd"].seconds


def test_what_is_known_of_no_story_is_not_known() -> None:
    """It counts as nothing against a budget, and the plan says how many steps that concerns."""
    (one,) = medians([took(0.2, None, None)]).values()
    assert (None, None, LEAST_S) == (one.tokens, one.cost_usd, one.seconds)
    assert (0, None) == (one.usage.tokens, one.usage.cost_usd)


def test_the_protocol_counts_where_there_is_no_past() -> None:
    """The middle of its range, and the step's time limit; ten minutes for a step without one."""
    impl = referenced("impl", OPEN.steps["impl"])
    assert (600, 10_000, None, "reference") == (impl.seconds, impl.tokens, impl.cost_usd, impl.basis)
    unlimited = OPEN.steps["impl"].model_copy(update={"timeout_min": 0})
    assert (600, None) == (referenced("own", unlimited).seconds, referenced("own", unlimited).tokens)
