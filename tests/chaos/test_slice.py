"""A short slice of the chaos: each named point, random instants between, all checked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from tests.chaos.clones import FLAVOURS
from tests.chaos.driver import Campaign
from tests.chaos.house import House, Zygote
from tests.chaos.judging import judged
from tests.chaos.kills import ALONE, Toll, plans

SEED = "slice"
MOST_KILLS = 120
"""A point that is not reached by then is not reached any more."""
PATIENCE_S = 20.0
"""How long a point is waited for: on a busy machine a daemon needs some seconds to begin."""


def enough(toll: Toll) -> bool:
    """Return whether a daemon was killed at every point, and some elsewhere."""
    every_point = all(toll.points[point] for point in ALONE)
    return toll.all >= MOST_KILLS or (every_point and toll.random >= len(ALONE) // 2)


def test_stories_survive_a_kill_at_every_named_point() -> None:
    """Nothing lost, nothing twice, no process left behind; and every story ends as it should."""
    chance = Random(SEED)
    # Not pytest's folders: the path of a socket has room for about a hundred bytes only.
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base, Zygote() as zygote:
        house = House(Path(base, "house"), range(2), flavours=FLAVOURS[:1])
        campaign = Campaign(house, zygote, chance)
        try:
            campaign.run(plans(chance, (1,), PATIENCE_S), enough)
            found = judged(SEED, campaign)
        finally:
            campaign.abandon()

    assert set(ALONE) == set(found.toll.points)
    assert 0 == found.broken, found.complaint()
    assert found.stories >= 2
