"""Which schedule concerns which project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handoffd.schedule.plan import Planned, planned
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
        (("nobody",), set()),
    ],
)
def test_projects_are_meant_by_name_path_or_pattern(patterns: tuple[str, ...], roots: set[str]) -> None:
    """Each once, however many patterns fit."""
    found = planned([shared(*patterns)], {}, NAMES)
    assert sorted(roots) == sorted(one.root for one in found)
    assert {"nightly"} >= {one.schedule for one in found}


def test_a_group_is_meant_by_its_name() -> None:
    """As the settings have it."""
    found = planned([shared("group:web")], {}, NAMES, {"/srv/twin": "web"}.get)
    assert ["/srv/twin"] == [one.root for one in found]
    assert () == planned([shared("group:web")], {}, NAMES)


def test_a_tilde_is_home() -> None:
    """As in a shell."""
    root = str(Path.home() / "shop")
    assert [(root, "nightly")] == [one.key for one in planned([shared("~/*")], {}, {root: "x"})]


def test_a_projects_own_schedules_have_names_of_their_own() -> None:
    """So that both may have a `nightly`; whoever is not supervised any more has none."""
    own = ScheduledStart(name="nightly", cron="@daily", start="X")
    found = planned([shared("shop")], {"/srv/work/shop": (own,), "/srv/gone": (own,)}, NAMES)
    assert [("/srv/work/shop", "nightly"), ("/srv/work/shop", ".ai/nightly")] == [one.key for one in found]


def test_each_project_has_its_own_jitter() -> None:
    """The same after a restart."""
    found = planned([shared("*", jitter_s=600)], {}, NAMES)
    assert len({one.jitter for one in found}) == len(NAMES)
    assert found[0].jitter == Planned(found[0].root, "nightly", found[0].start).jitter
