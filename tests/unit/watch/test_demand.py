"""What watching takes of the kernel."""

from __future__ import annotations

import pytest

from handoffd.settings import WatchSettings
from handoffd.watch.demand import Demand, demand


@pytest.mark.parametrize(
    ("roots", "watches", "instances", "events"),
    [
        (0, 0, 2, 0),
        (1, 2, 2, 16),
        (250, 500, 2, 4000),
        (251, 501, 3, 4000),
        (1000, 1250, 5, 4000),
        (2000, 2500, 5, 8000),
        (2001, 2502, 5, 8016),
    ],
)
def test_a_watch_for_each_project_and_the_fullest_shard_twice(
    roots: int, watches: int, instances: int, events: int
) -> None:
    """A shard for 250 projects, four at most by default."""
    assert Demand(watches=watches, instances=instances, events=events) == demand(roots, WatchSettings())


def test_shards_are_a_setting() -> None:
    """With one of them, everything is there twice for a moment."""
    assert Demand(watches=2000, instances=2, events=16000) == demand(1000, WatchSettings(shards=1))
