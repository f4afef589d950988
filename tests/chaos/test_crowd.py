"""A short slice of the raids: several stories of one project at once, and a kill at each point of theirs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.chaos.crowd import Crowd, Raid, broken
from tests.chaos.house import Zygote
from tests.chaos.judging import replayed, until_gone
from tests.chaos.kills import OF_STORIES, Plan

PATIENCE_S = 20.0
"""How long a point is waited for: the first story has to be opened, and landed, before."""


def test_stories_side_by_side_survive_a_kill_at_each_point_of_theirs() -> None:
    """None is lost, none runs twice, and the branch never ends at a commit that was not tested."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base, Zygote() as zygote:
        crowd = Crowd(Path(base, "crowd"))
        raid = Raid(crowd, zygote)
        try:
            raid.run([Plan(PATIENCE_S, False, point, 1) for point in OF_STORIES], len(OF_STORIES))
            left = until_gone(crowd)
            complaints = [*raid.faults, *broken(crowd), *map(str, replayed(crowd)), *left]
        finally:
            raid.abandon()
    assert [] == complaints
    assert set(OF_STORIES) == set(raid.toll.points)
