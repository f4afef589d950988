"""What watching takes of the kernel."""

from __future__ import annotations

import sys
from typing import Literal

import pytest

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Demand, demand

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no inotify")


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
def test_with_watchfiles_the_fullest_shard_is_there_twice(
    roots: int, watches: int, instances: int, events: int
) -> None:
    """A shard for 250 projects, four at most by default."""
    settings = WatchSettings(backend="watchfiles")

    assert Demand(watches=watches, instances=instances, events=events) == demand(roots, settings)


def test_shards_are_a_setting() -> None:
    """With one of them, everything is there twice for a moment."""
    settings = WatchSettings(backend="watchfiles", shards=1)

    assert Demand(watches=2000, instances=2, events=16000) == demand(1000, settings)


@pytest.mark.parametrize("backend", ["inotify", pytest.param("auto", marks=ON_LINUX)])
def test_read_directly_it_is_a_watch_for_each_project(backend: Literal["inotify", "auto"]) -> None:
    """In one instance; a queue that overflows says so, so that it need not be of any length."""
    assert Demand(watches=1000, instances=1, events=0) == demand(1000, WatchSettings(backend=backend))
