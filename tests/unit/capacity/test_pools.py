"""What a track belongs to: executor, account, group, project, by settings and by its own words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.house import bid, dispatch_of, track_of

from handoffd.capacity.runqueue import (
    ALL,
    Bid,
    Entry,
    Limits,
    Pool,
    bid_of,
    bid_of_run,
    entry_of,
    group_of,
    limits_in,
)
from handoffd.engine.track import Track, TrackKey
from handoffd.settings.model import ProjectSettings, SchedulingSettings

SCHEDULING = SchedulingSettings.model_validate(
    {
        "per_executor": {"claude": 2},
        "per_account": {"work": 3},
        "per_project": 1,
        "groups": {
            "web": {"slots": 2, "priority": 5, "projects": ["/srv/web/*", "/srv/site"]},
            "all": {"priority": -1, "projects": ["/srv/*"]},
        },
    }
)
LIMITS = limits_in(4, SCHEDULING)


def test_limits_are_those_of_the_settings() -> None:
    """A group without slots of its own has no limit."""
    pools = [
        ALL, Pool("executor", "claude"), Pool("account", "work"), Pool("group", "web"), Pool("group", "all"),
        Pool("project", "/srv/shop"), Pool("executor", "codex"),
    ]  # fmt: skip
    assert [4, 2, 3, 2, None, 1, None] == [LIMITS.of(pool) for pool in pools]
    assert Limits(total=7) == limits_in(7, SchedulingSettings())


@pytest.mark.parametrize(
    ("root", "own", "expected"),
    [
        ("/srv/web/shop", None, "web"),
        ("/srv/web/deep/shop", None, "web"),
        ("/srv/site", None, "web"),
        ("/srv/site2", None, "all"),
        ("/srv/web", None, "all"),
        ("/home/shop", None, None),
        ("/srv/web/shop", "all", "all"),
        ("/home/shop", "unheard-of", "unheard-of"),
    ],
)
def test_a_project_is_in_the_group_it_names_or_the_first_that_names_it(
    root: str, own: str | None, expected: str | None
) -> None:
    """By its path or by a pattern."""
    assert expected == group_of(bid(root, group=own), SCHEDULING)


@pytest.mark.parametrize(
    ("more", "pools", "priority"),
    [
        ({"root": "/srv/web/a"}, [("executor", "claude"), ("group", "web")], 5),
        ({"root": "/srv/web/a", "priority": 0}, [("executor", "claude"), ("group", "web")], 0),
        ({"root": "/srv/a", "account": "work"}, [("executor", "claude"), ("account", "work")], -1),
        ({"root": "/a", "executor": "codex"}, [], 0),
        ({"root": "/a", "executor": "codex", "group": "unheard-of", "priority": 3}, [], 3),
    ],
)
def test_a_bid_stands_in_line_for_what_is_limited(
    more: dict[str, Any], pools: list[tuple[str, str]], priority: int
) -> None:
    """Its own priority goes before its group's."""
    entry = entry_of(bid(**more), LIMITS, SCHEDULING)
    assert (pools, priority) == ([tuple(pool) for pool in entry.pools], entry.priority)


def test_the_narrowest_pool_comes_first() -> None:
    """Where one is named that is full, it is this one."""
    entry = Entry(bid=bid("/a", account="work"), group="web")
    assert ["project", "group", "account", "executor", "all"] == [pool.kind for pool in entry.all_pools]
    assert ["project", "account", "executor", "all"] == [pool.kind for pool in Entry(bid=bid("/a")).all_pools]


def test_a_bid_tells_what_it_is_for() -> None:
    """Project, story and step; and what its project's own settings say."""
    own, key = ProjectSettings(group="web", priority=2), TrackKey("/srv/shop")
    expected = Bid(key=key, executor="codex", account="work", what="shop US-001 bdd", group="web", priority=2)
    assert expected == bid_of(key, track_of(), "codex", "work", own)
    assert "/srv/shop" == bid_of(key, Track(), "codex", "work", own).what


@pytest.mark.parametrize("account", ["purse", None])
def test_an_attempt_in_flight_has_the_bid_it_was_started_on(account: str | None) -> None:
    """Records of old releases do not tell the account: it is the executor's name then."""
    dispatch = dispatch_of(account=account)
    found = bid_of_run(TrackKey("/srv/shop"), track_of(dispatch=dispatch), dispatch, ProjectSettings())
    assert ("agent", account or "agent") == (found.executor, found.account)


@pytest.mark.parametrize(
    ("recorded", "own", "counts"), [("web", None, "web"), (None, "api", "api"), ("web", "api", "web")]
)
def test_an_attempt_in_flight_counts_in_the_group_it_was_started_in(
    recorded: str | None, own: str | None, counts: str
) -> None:
    """After a restart its project's settings may not be read yet; old releases did not record the group."""
    dispatch = dispatch_of(group=recorded)
    settings = ProjectSettings(group=own)

    assert counts == bid_of_run(TrackKey("/srv/shop"), track_of(dispatch=dispatch), dispatch, settings).group
