"""The pools of a track: executor, account, group, project, by settings of daemon and project."""

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
    RunQueue,
    bid_of,
    bid_of_run,
    entry_of,
    foreseen,
    group_of,
    limits_in,
)
from handoffd.capacity.slots import Line, ordinal
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


def test_limits_come_from_the_settings() -> None:
    """A group without slots has no limit."""
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
def test_a_bid_waits_only_for_limited_pools(
    more: dict[str, Any], pools: list[tuple[str, str]], priority: int
) -> None:
    """Its own priority wins over its group's."""
    entry = entry_of(bid(**more), LIMITS, SCHEDULING)
    assert (pools, priority) == ([tuple(pool) for pool in entry.pools], entry.priority)


def test_the_narrowest_pool_comes_first() -> None:
    """It is the one named when several are full."""
    entry = Entry(bid=bid("/a", account="work"), group="web")
    assert ["project", "group", "account", "executor", "all"] == [pool.kind for pool in entry.all_pools]
    assert ["project", "account", "executor", "all"] == [pool.kind for pool in Entry(bid=bid("/a")).all_pools]


def test_a_bid_has_its_purpose_and_own_settings() -> None:
    """Project, story and step; group and priority of the project."""
    own, key = ProjectSettings(group="web", priority=2), TrackKey("/srv/shop")
    expected = Bid(key=key, executor="codex", account="work", what="shop US-001 bdd", group="web", priority=2)
    assert expected == bid_of(key, track_of(), "codex", "work", own)
    assert "/srv/shop" == bid_of(key, Track(), "codex", "work", own).what


@pytest.mark.parametrize(
    ("recorded", "own", "expected"),
    [
        ({"account": "purse", "group": "web"}, None, ("agent", "purse", "web")),
        ({"account": "purse", "group": "web"}, "api", ("agent", "purse", "web")),
        ({}, "api", ("agent", "agent", "api")),
    ],
)
def test_an_attempt_in_flight_has_the_bid_of_its_start(
    recorded: dict[str, Any], own: str | None, expected: tuple[str, ...]
) -> None:
    """Old releases recorded neither account nor group: then the executor's name and the settings count."""
    dispatch = dispatch_of(**recorded)
    track, settings = track_of(dispatch=dispatch), ProjectSettings(group=own)
    found = bid_of_run(TrackKey("/srv/shop"), track, dispatch, settings)
    assert expected == (found.executor, found.account, found.group)


# --- the queue for people -------------------------------------------------------------------------
SHARED = SchedulingSettings.model_validate(
    {
        "per_executor": {"claude": 2, "aider": 1},
        "per_account": {"work": 1},
        "per_project": 1,
        "groups": {"web": {"slots": 1, "projects": ["/web/*"], "priority": 1}},
    }
)


def line(total: int, running: list[Bid], waiting: list[Bid], most: int = 100) -> Line:
    """Return the queue of these tracks."""
    limits = limits_in(total, SHARED)
    queue = RunQueue(limits)
    for one in running:
        queue.occupy(entry_of(one, limits, SHARED))
    for number, one in enumerate(waiting):
        queue.ask(entry_of(one, limits, SHARED), float(number))
    since = {one.key: float(number) for number, one in enumerate(waiting)}
    return Line(queue, since, foreseen(queue, 100.0, most))


def test_ordinals() -> None:
    """In English."""
    numbers = (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 101, 111, 112, 1002)
    expected = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 101st 111th 112th 1,002nd"
    assert expected == " ".join(map(ordinal, numbers))


@pytest.mark.parametrize(
    ("total", "running", "waiting", "expected"),
    [
        (1, [bid("/a", "codex")], bid("/b", "codex"), "for a slot (1 of 1 in use: a)"),
        (9, [bid("/a"), bid("/b")], bid("/c"), "for a claude slot (2 of 2 in use: a, b)"),
        (9, [bid("/a", "aider")], bid("/b", "aider"), "for an aider slot (1 of 1 in use: a)"),
        (9, [bid("/a", account="work")], bid("/b", account="work"),
         "for a slot of account work (1 of 1 in use: a)"),
        (9, [bid("/web/a")], bid("/web/b"), "in group web (1 of 1 in use: a)"),
        (9, [bid("/a")], bid("/a", key=TrackKey("/a", "2")), "in its project (1 of 1 in use: a)"),
        (2, [bid(f"/{name}", "codex") for name in "abcd"], bid("/z", "codex"),
         "for a slot (4 of 2 in use: a, b, c, …)"),
    ],
)  # fmt: skip
def test_a_full_pool_is_named(total: int, running: list[Bid], waiting: Bid, expected: str) -> None:
    """With its running tracks, of many only some."""
    assert f"1st {expected}" == line(total, running, [waiting]).words(waiting.key, None)


def test_places_are_in_the_order_of_admission() -> None:
    """Not of asking: a track for another executor may be admitted before."""
    waiting = [bid("/c"), bid("/d"), bid("/e", "codex")]
    found = line(3, [bid("/a", "codex"), bid("/b"), bid("/x")], waiting)
    assert [2, 3, 1] == [found.place(one.key) for one in waiting]
    assert "2nd for a claude slot (2 of 2 in use: b, x)" == found.words(waiting[0].key, None)
    assert "1st for a slot (3 of 3 in use: a, b, x)" == found.words(waiting[2].key, None)


def test_far_places_are_estimated() -> None:
    """The text has a lower bound."""
    waiting = [bid(f"/{number}") for number in range(5)]
    found = line(1, [bid("/a")], waiting, most=3)
    assert None is found.place(waiting[4].key)
    assert "4th or later for a slot (1 of 1 in use: a)" == found.words(waiting[4].key, None)


def test_tracks_with_room_wait_for_the_machine() -> None:
    """The first has just the reason; the others have their place, too."""
    waiting = [bid("/a"), bid("/b"), bid("/c")]
    found, why = line(9, [], waiting), "memory: 12 MiB free, 512 wanted"
    assert [why, f"{why}; 2nd in line"] == [found.words(one.key, why) for one in waiting[:2]]
    assert "1st in line" == found.words(waiting[0].key, None)
    assert None is found.words(TrackKey("/unknown"), why)


def test_the_whole_table() -> None:
    """All limits, pools without one, and all waiting tracks, the next one first."""
    waiting = [bid("/c"), bid("/web/d"), bid("/e", "codex", priority=2)]
    view = line(2, [bid("/a"), bid("/b", "gemini")], waiting).view(10.0, "load: high")
    limits = {
        f"{one.kind} {one.name}".strip(): (one.limit, one.in_use, one.waiting, one.holders)
        for one in view.limits
    }
    assert {
        "all": (2, 2, 3, ("a", "b")),
        "executor claude": (2, 1, 2, ("a",)),
        "executor aider": (1, 0, 0, ()),
        "account work": (1, 0, 0, ()),
        "group web": (1, 0, 1, ()),
        "account claude": (None, 1, 2, ("a",)),
        "account gemini": (None, 1, 0, ("b",)),
        "executor gemini": (None, 1, 0, ("b",)),
    } == limits
    assert "load: high" == view.closed
    assert [("c", 0, None, 1, 10.0), ("d", 1, "web", 2, 9.0), ("e", 2, None, 3, 8.0)] == [
        (one.what, one.priority, one.group, one.place, one.waited_s) for one in view.waiting
    ]
    assert "1st for a slot (2 of 2 in use: a, b)" == view.waiting[0].why


def test_full_projects_are_in_the_table() -> None:
    """If one of their tracks waits."""
    view = line(9, [bid("/a"), bid("/b")], [bid("/a", key=TrackKey("/a", "2"))]).view(0.0, None)
    assert [("/a", 1)] == [(one.name, one.limit) for one in view.limits if one.kind == "project"]
