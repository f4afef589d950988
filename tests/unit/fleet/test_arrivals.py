"""Which projects come and go by what the settings mean."""

from __future__ import annotations

from pathlib import Path

from handoffd.fleet.enrolment import Placed, arrivals, departures
from handoffd.inspection.discovery import Wanted, wanted_of
from handoffd.settings.model import Settings


def wanted(**sections: object) -> Wanted:
    """Return the one thing that these settings mean."""
    (found,) = wanted_of(Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **sections}))
    return found


def placed(base: str | None, **sections: object) -> Placed:
    """Return an entry with the place where its base lies."""
    return Placed(wanted=wanted(**sections), base=base)


WORK = placed("/projects", workspaces=["/projects"])


def test_what_is_meant_stays() -> None:
    """By the entry that brought it, or by another one."""
    brought = {"/projects/a": "/projects", "/projects/b": "/gone/*", "/srv/c": "/srv/c"}

    assert frozenset() == departures(brought, (WORK, placed("/srv/c", projects=["/srv/c"])))


def test_what_is_meant_no_more_goes() -> None:
    """The entry is gone, or narrower than it was."""
    brought = {"/projects/a": "/projects", "/projects/x/b": "/projects", "/srv/c": "/srv/*"}

    narrow = placed("/projects", workspaces=[{"path": "/projects", "depth": 1}])
    assert {"/projects/x/b", "/srv/c"} == departures(brought, (narrow,))
    without = placed("/projects", workspaces=[{"path": "/projects", "exclude": ["/x/"]}])
    assert {"/projects/x/b", "/srv/c"} == departures(brought, (without,))
    assert brought.keys() == departures(brought, ())


def test_nothing_goes_while_its_place_is_gone() -> None:
    """A disk that is not mounted, a link that leads nowhere: the settings have not changed."""
    brought = {"/data/a": "/projects", "/data/b": "/other"}

    assert {"/data/b"} == departures(brought, (placed(None, workspaces=["/projects"]),))


def test_a_place_behind_a_link_is_the_same_place() -> None:
    """Projects lie where the link leads."""
    assert frozenset() == departures({"/data/a": "/projects"}, (placed("/data", workspaces=["/projects"]),))


def test_thousands_that_are_written_out_are_not_compared_with_each_other() -> None:
    """Each is looked up: comparing them all took minutes of the daemon's time."""
    roots = [f"/srv/{number}" for number in range(20_000)]
    entries = tuple(placed(root, projects=[root]) for root in roots[1:])

    assert {roots[0]} == departures(dict(zip(roots, roots, strict=True)), entries)


def test_what_is_new_comes() -> None:
    """In the order in which it was found; what a person removed does not."""
    assert ("/b", "/d") == arrivals(["/b", "/a", "/c", "/d"], {"/a"}, {"/c"})


def test_the_shape_of_an_entry_is_told_by_its_kind() -> None:
    """A root that is written out means itself alone."""
    root = placed("/srv/c", projects=["/srv/c"])

    assert (True, False) == (root.covers("/srv/c"), root.covers(str(Path("/srv/c/d"))))
