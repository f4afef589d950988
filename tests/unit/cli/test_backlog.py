"""`handoffd backlog`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.api.verbs import VERBS


def test_the_stories_that_wait_are_shown(control: Controlled, handoffd: Commands) -> None:
    """With what keeps each."""
    said = handoffd("backlog", "shop")

    assert (0, "") == (said.code, said.err)
    assert "shop: US-001 is in flight" == said.lines[0]
    assert "US-2" in said.lines[2]
    assert said.lines[3].endswith("waits for US-2 (in the backlog)")
    assert "handoffd backlog auto shop on" in said.out


def test_the_project_may_be_left_out(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the current folder, then."""
    monkeypatch.chdir(tmp_path)
    control.supervision.projects[str(tmp_path)] = control.supervision.projects["/srv/shop"]

    assert str(tmp_path) == handoffd("backlog", "--json").json["project"]


def test_programs_get_the_answer_of_the_api(control: Controlled, handoffd: Commands) -> None:
    """All of it."""
    told = handoffd("backlog", "shop", "--json").json

    assert ("US-2", False, None) == (told["next_story"], told["auto_continue"], told["chosen"])
    assert [("US-2", 5, True), ("US-3", 0, False)] == [
        (one["story"], one["priority"], one["startable"]) for one in told["stories"]
    ]


@pytest.mark.parametrize("verb", [name for name in VERBS if name.startswith("backlog_")])
def test_what_can_be_done_about_them_is_in_the_help(handoffd: Commands, verb: str) -> None:
    """Each verb with its line."""
    said = handoffd("backlog", "--help")

    assert 0 == said.code
    assert f"  {verb.removeprefix('backlog_')} " in said.out
