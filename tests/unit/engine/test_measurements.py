"""What was measured, as values: they say nothing that nobody said."""

from __future__ import annotations

from handoffd.engine.events import TestEvidence
from handoffd.engine.run import PostCheck


def test_a_measurement_of_nothing_claims_nothing() -> None:
    """No test ran, so none failed, and none passed either."""
    nothing = TestEvidence()

    assert (0, 0, (), None) == (nothing.collected, nothing.counts.passed, nothing.failing, nothing.fault)


def test_a_post_check_that_could_not_be_run_says_so() -> None:
    """It has not failed."""
    assert (False, "no shell") == (
        PostCheck(passed=False, fault="no shell").timed_out,
        PostCheck(passed=False, fault="no shell").fault,
    )
