"""What a task has come to, by its hand-off and by how that was judged."""

from __future__ import annotations

import pytest

from handoffd.engine.flow.assignment import Assignment
from handoffd.protocol.delivery import Delivered
from handoffd.protocol.handoff import Handoff
from handoffd.protocol.state import Status
from handoffd.protocol.task_prompt import Brief

OUTCOMES = ("ready", "blocked")


def claimed(claim: Handoff, judged: Status, *problems: str) -> Assignment:
    """Return a task whose attempt claimed this, and was judged so."""
    task = Assignment(
        flow="team-7k2q", node="solve", visit=1, number=3, outcomes=OUTCOMES,
        brief=Brief(flow="team-7k2q", pipeline="team", node="solve", visit=1),
    )  # fmt: skip
    delivered = Delivered(outcome=claim.outcome, problems=problems)
    return task.heard(delivered).claimed(claim, judged)


@pytest.mark.parametrize("problems", [("solution.json is missing",), ()])
def test_work_that_is_not_as_it_claims_has_no_outcome(problems: tuple[str, ...]) -> None:
    """A file is missing, or the tests are red: it is tried again, and its outcome is not taken for one."""
    task = claimed(Handoff(status=Status.PASS, outcome="ready"), Status.FAILING, *problems)

    assert (None, False) == (task.outcome, task.ends_with(Status.FAILING))


def test_work_that_says_itself_that_it_failed_may_name_an_outcome() -> None:
    """A declared one is what the task has come to: no further attempt is made."""
    task = claimed(Handoff(status=Status.FAILING, outcome="blocked"), Status.FAILING)
    other = claimed(Handoff(status=Status.FAILING, outcome="tired"), Status.FAILING)

    assert ("blocked", True) == (task.outcome, task.ends_with(Status.FAILING))
    assert (None, False) == (other.outcome, other.ends_with(Status.FAILING))


def test_complete_work_has_the_outcome_that_it_claims() -> None:
    """Once it was found to be complete."""
    task = claimed(Handoff(status=Status.PASS, outcome="ready"), Status.PASS)

    assert ("ready", True) == (task.outcome, task.ends_with(Status.PASS))
