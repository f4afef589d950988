"""`handoffd status`, with a daemon and without."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Commands
from tests.support.controlled import Controlled


def test_all_or_one(control: Controlled, handoffd: Commands) -> None:
    """One is told whole."""
    every, one = handoffd("status"), handoffd("status", "shop")

    assert (0, 0) == (every.code, one.code)
    assert "empty" in every.out
    assert "empty" not in one.out
    assert "root: /srv/shop (level 2)" in one.out


def test_json_is_the_apis(control: Controlled, handoffd: Commands) -> None:
    """The very same."""
    told = handoffd("status", "shop", "--json").json

    assert (True, "review") == (told["daemon"], told["projects"][0]["tracks"][0]["step"])


def test_without_a_daemon_it_says_so_and_leaves_no_trace(alone: Path, handoffd: Commands) -> None:
    """A look is not a reason to make folders."""
    said = handoffd("status")

    assert 0 == said.code
    assert [
        "No project is supervised: handoffd add PROJECT",
        "",
        "No daemon runs: `handoffd run` goes on from here.",
    ] == (said.lines)
    assert [] == list(alone.iterdir())
    assert {"daemon": False, "projects": []}.items() <= handoffd("status", "--json").json.items()
    assert 4 == handoffd("status", "shop").code
