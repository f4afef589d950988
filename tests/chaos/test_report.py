"""The plan of a campaign, and its report."""

from __future__ import annotations

from itertools import islice
from random import Random

from tests.chaos.checker import Violation
from tests.chaos.kills import Toll, plans
from tests.chaos.report import Found, Total, as_json, progress, table

from handoffd.failpoints import POINTS

RESTART = {"cpu_ms": 70, "ready_ms": 140}


def total(*violations: Violation) -> Total:
    """Return two houses, the second one with violations."""
    toll = Toll(random=6, launchers=1, shims=2, live=8, idle=1, daemons=12)
    toll.points.update(POINTS)
    whole = Total("7", 2)
    whole.houses += [
        Found("7/1", toll, 3, 20, 90, notices=8, repeated=2),
        Found("7/2", toll, 4, 30, 110, violations=list(violations), kept="/tmp/7-2"),
    ]
    return whole


def test_every_point_has_its_turn() -> None:
    """And as many daemons die at random instants between them."""
    drawn = list(islice(plans(Random(1), points=POINTS), 2 * len(POINTS)))

    assert set(POINTS) == {plan.point for plan in drawn if plan.point}
    assert len(POINTS) == sum(plan.point is None for plan in drawn)


def test_the_same_seed_plans_the_same_deaths() -> None:
    """They are drawn before anything happens."""
    assert list(islice(plans(Random("7/1")), 50)) == list(islice(plans(Random("7/1")), 50))


def test_the_table_tells_everything_that_was_killed() -> None:
    """Each point, and who else; what was done meanwhile; what was broken."""
    text = table(as_json(total(), 90.0, RESTART))

    assert [] == [point for point in POINTS if f"| killed at `{point}` | 2 |" not in text]
    assert f"| **kills in all** | **{2 * (len(POINTS) + 9)}** |" in text
    assert "| launchers killed | 2 |" in text
    assert "| stories brought to their end | 7 |" in text
    assert "| notices delivered | 8 |" in text
    assert "| delivered again | 2 |" in text
    assert "| **violations** | **0** |" in text


def test_a_violation_is_told_with_its_seed_and_its_lines() -> None:
    """So that the run can be inspected and repeated."""
    broken = Violation("started twice", "dispatch d1 was started 2 times", ("first line", "second line"), 5)
    found = as_json(total(broken), 90.0, RESTART)
    (complaint,) = found["complaints"]

    assert 1 == found["violations"]
    assert "seed 7/2" in complaint
    assert "kept in /tmp/7-2" in complaint
    assert "started twice: dispatch d1 was started 2 times\n    first line\n    second line" in complaint


def test_progress_says_how_far_it_is() -> None:
    """Before the first house is done, too."""
    assert "9 of 100 kills (9/min" in progress(Total("7", 2), [Toll(random=9)], 100, 60.0)
