"""Which schedule concerns which project, and what is due: a function of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.schedule.cron import FireTimes
from handoffd.schedule.plan import ON_TIME, Due, Lateness, Missed, Planned, due, jitter, planned
from handoffd.settings.schedule import ScheduledStart, SharedStart

NAMES = {
    "/srv/work/shop": "shop", "/srv/work/blog": "weblog", "/srv/work/deep/er": "er", "/srv/twin": "/srv/twin",
}  # fmt: skip


def shared(*projects: str, **changes: Any) -> SharedStart:
    """Return an entry for these projects."""
    values = {"name": "nightly", "cron": "0 3 * * *", "start": "R-{date}", "projects": projects, **changes}
    return SharedStart(**values)


@pytest.mark.parametrize(
    ("patterns", "roots"),
    [
        (("*",), set(NAMES)),
        (("shop",), {"/srv/work/shop"}),
        (("weblog",), {"/srv/work/blog"}),
        (("blog",), {"/srv/work/blog"}),
        (("twin",), {"/srv/twin"}),
        (("[sw]*",), {"/srv/work/shop", "/srv/work/blog"}),
        (("/srv/work/*",), {"/srv/work/shop", "/srv/work/blog"}),
        (("/srv/work/**",), {"/srv/work/shop", "/srv/work/blog", "/srv/work/deep/er"}),
        (("/srv/**/er",), {"/srv/work/deep/er"}),
        (("/srv/**/twin",), {"/srv/twin"}),
        (("/srv/work/sho?/",), {"/srv/work/shop"}),
        (("/srv/work/sh.p",), set()),
        (("shop", "/srv/twin"), {"/srv/work/shop", "/srv/twin"}),
        (("unknown",), set()),
    ],
)
def test_projects_are_chosen_by_name_path_or_pattern(patterns: tuple[str, ...], roots: set[str]) -> None:
    """Each once, however many patterns fit."""
    found = planned([shared(*patterns)], {}, NAMES)
    assert sorted(roots) == sorted(one.root for one in found)
    assert {"nightly"} >= {one.schedule for one in found}


def test_a_group_is_named_and_a_tilde_is_home() -> None:
    """A group as in the settings, `~` as in a shell."""
    found = planned([shared("group:web")], {}, NAMES, {"/srv/twin": "web"}.get)
    assert ["/srv/twin"] == [one.root for one in found]
    assert () == planned([shared("group:web")], {}, NAMES)
    root = str(Path.home() / "shop")
    assert [(root, "nightly")] == [one.key for one in planned([shared("~/*")], {}, {root: "x"})]


def test_a_projects_own_schedules_have_names_of_their_own() -> None:
    """So that both may have a `nightly`; a project that is no longer supervised has none."""
    own = ScheduledStart(name="nightly", cron="@daily", start="X")
    found = planned([shared("shop")], {"/srv/work/shop": (own,), "/srv/gone": (own,)}, NAMES)
    assert [("/srv/work/shop", "nightly"), ("/srv/work/shop", ".ai/nightly")] == [one.key for one in found]


def test_each_project_has_its_own_jitter() -> None:
    """The same after a restart."""
    found = planned([shared("*", jitter_s=600)], {}, NAMES)
    assert len({one.jitter for one in found}) == len(NAMES)
    assert found[0].jitter == Planned(found[0].root, "nightly", found[0].start).jitter


# --- what is due --------------------------------------------------------------------------------------
DAILY = FireTimes("0 3 * * *", "UTC").latest
THREE = datetime(2026, 1, 10, 3, tzinfo=UTC)
NONE = Lateness(catch_up=False, at_most=timedelta(hours=24))
ONE = Lateness(catch_up=True, at_most=timedelta(hours=24))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_nothing_is_due_before_its_time() -> None:
    """Nor again after it was handled."""
    assert due(DAILY, THREE - DAY, THREE - timedelta(seconds=1), ONE) is None
    assert due(DAILY, THREE, THREE + HOUR, ONE) is None


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=1), ON_TIME])
def test_a_start_that_is_a_little_late_is_on_time(late: timedelta) -> None:
    """Whether or not missed starts are made up for."""
    for lateness in (NONE, ONE):
        assert Due(at=THREE, late=False) == due(DAILY, THREE - DAY, THREE + late, lateness)


def test_a_missed_start_is_made_up_for_or_given_up() -> None:
    """As long as the settings allow."""
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + HOUR, NONE)
    assert Due(at=THREE, late=True) == due(DAILY, THREE - DAY, THREE + HOUR, ONE)
    short = Lateness(catch_up=True, at_most=timedelta(minutes=30))
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + HOUR, short)


def test_of_many_missed_times_the_last_counts() -> None:
    """A week away is one start; a clock that is set back repeats nothing that was handled."""
    assert Due(at=THREE, late=True) == due(DAILY, THREE - 7 * DAY, THREE + HOUR, ONE)
    for now in (THREE + 2 * HOUR, THREE - 5 * HOUR, THREE + timedelta(seconds=5)):
        assert due(DAILY, THREE, now, ONE) is None
    assert Due(at=THREE + DAY, late=False) == due(DAILY, THREE, THREE + DAY, ONE)


def test_jitter_is_not_lateness() -> None:
    """It is added to the time it is due."""
    later = Lateness(catch_up=False, at_most=DAY, jitter=timedelta(minutes=10))
    assert due(DAILY, THREE - DAY, THREE + timedelta(minutes=9), later) is None
    assert Due(at=THREE, late=False) == due(DAILY, THREE - DAY, THREE + timedelta(minutes=10), later)
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + timedelta(minutes=12), later)


@given(st.text(max_size=20), st.floats(0, 3600))
def test_jitter_is_constant_within_its_limit(key: str, most_s: float) -> None:
    """A restart does not move a start; different projects are spread."""
    found = jitter(key, most_s)
    assert found == jitter(key, most_s)
    assert timedelta(0) <= found <= timedelta(seconds=most_s + 0.001)
    assert len({jitter(f"/srv/{number}", 3600) for number in range(100)}) > 90


@given(st.lists(st.integers(1, 60 * 30), min_size=1, max_size=20), st.booleans())
def test_each_time_is_handled_once_however_often_it_is_checked(pauses_min: list[int], catch_up: bool) -> None:
    """After pauses of any length: no time twice, the last one always, in order."""
    lateness = Lateness(catch_up=catch_up, at_most=timedelta(days=365))
    now = handled = THREE - HOUR
    dealt = []
    for pause in pauses_min:
        now += timedelta(minutes=pause)
        found = due(DAILY, handled, now, lateness)
        if found is not None:
            dealt.append(found.at)
            handled = found.at
        assert DAILY(handled, now) is None
    assert sorted(set(dealt)) == dealt
