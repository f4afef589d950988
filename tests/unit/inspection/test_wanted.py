"""Which folders a path, a pattern or a workspace of the settings means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handoffd.inspection.discovery import MOST_LEVELS, Wanted, of_workspace, wanted_of
from handoffd.settings.model import Settings, WorkspaceSettings


def wanted(**sections: Any) -> tuple[Wanted, ...]:
    """Return what settings with these sections mean."""
    return wanted_of(Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **sections}))


def pattern(text: str) -> Wanted:
    """Return what one entry of `projects` means."""
    (found,) = wanted(projects=[text])
    return found


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/srv/shop", "/srv/shop"),
        ("/srv/*", "/srv/shop"),
        ("/srv/s?op", "/srv/shop"),
        ("/srv/[a-s]hop", "/srv/shop"),
        ("/srv/*/repo", "/srv/shop/repo"),
        ("/srv/**/repo", "/srv/repo"),
        ("/srv/**/repo", "/srv/a/b/c/repo"),
        ("/srv/**", "/srv/a/b"),
        ("/srv/.*", "/srv/.dotfiles"),
        ("/srv/.config/*", "/srv/.config/shop"),
        ("/srv/*/node_modules/own", "/srv/shop/node_modules/own"),
    ],
)
def test_a_pattern_means_a_folder(text: str, root: str) -> None:
    """Patterns are those of a shell."""
    one = pattern(text)

    assert one.covers(root, [one.base])


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/srv/shop", "/srv/shop/deeper"),
        ("/srv/shop", "/srv"),
        ("/srv/*", "/srv"),
        ("/srv/**", "/srv"),
        ("/srv/*", "/srv/shop/deeper"),
        ("/srv/*", "/other/shop"),
        ("/srv/*", "/srvx/shop"),
        ("/srv/*", "/srv/.hidden"),
        ("/srv/**/repo", "/srv/.cache/repo"),
        ("/srv/**/repo", "/srv/node_modules/repo"),
        ("/srv/*/own", "/srv/node_modules/own"),
        ("/srv/s?op", "/srv/Shop"),
        ("/srv/**/repo", "/srv/" + "a/" * MOST_LEVELS + "repo"),
    ],
)
def test_a_pattern_does_not_mean_a_folder(text: str, root: str) -> None:
    """Hidden ones and those of other people's code are meant by who writes them out; depth is bounded."""
    one = pattern(text)

    assert not one.covers(root, [one.base])


def test_any_depth_said_often_means_what_it_says_once() -> None:
    """And takes no longer: every one more would double the ways to fit."""
    one = pattern("/srv/" + "**/" * 200 + "repo")

    assert (pattern("/srv/**/repo").parts, "/srv") == (one.parts, one.base)
    assert one.covers("/srv/a/b/c/d/e/f/g/repo", [one.base])


def test_below_the_root_of_all_lies_everything() -> None:
    """A base is a folder, and not the beginning of a name."""
    one = of_workspace(WorkspaceSettings(path=Path("/"), depth=2))

    assert one.covers("/projects/a", ["/"])
    assert not one.covers("/", ["/"])


def test_a_walk_need_not_go_where_nothing_is_meant() -> None:
    """Below what fits no more, and below what is meant already."""
    assert (False, True) == pattern("/srv/*/repo").fit(("shop",))
    assert (True, False) == pattern("/srv/*/repo").fit(("shop", "repo"))
    assert (False, False) == pattern("/srv/a*/repo").fit(("shop",))


def test_a_workspace_means_what_lies_below_it() -> None:
    """To its depth, without what is excluded, as git would."""
    one = of_workspace(WorkspaceSettings(path=Path("/projects"), exclude=("/old/", "attic", "!old/keep")))

    assert one.covers("/projects/a", ["/projects"])
    assert one.covers("/projects/a/b", ["/projects"])
    assert one.covers("/data/a/b", ["/projects", "/data"])  # by another name of the same folder
    outside = (
        "/projects",
        "/projects/a/b/c",
        "/projects/.git/a",
        "/projects/old/a",
        "/projects/a/attic",
        "/projects/old/keep",
    )
    assert [] == [root for root in outside if one.covers(root, ["/projects"])]
    assert (True, True) == one.fit(("a",))
    assert (True, False) == one.fit(("a", "b"))


def test_the_settings_are_read_in_an_order_of_their_own() -> None:
    """Roots that are written out come first: what a person named is theirs to trust. Twice is once."""
    found = wanted(
        projects=["/srv/*", "/srv/shop", "/srv/*"],
        workspaces=["/projects", {"path": "/more", "depth": 1, "add": "ask"}],
    )

    told = [(one.kind, one.section, one.text, one.base, one.ask) for one in found]
    assert [
        ("path", "projects", "/srv/shop", "/srv/shop", False),
        ("pattern", "projects", "/srv/*", "/srv", False),
        ("workspace", "workspaces", "/projects", "/projects", False),
        ("workspace", "workspaces", "/more", "/more", True),
    ] == told
