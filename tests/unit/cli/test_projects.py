"""`handoffd projects`."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Commands
from tests.support.controlled import Controlled


def test_the_list(control: Controlled, handoffd: Commands) -> None:
    """Name, level, status, root; the condition where there is no status."""
    assert [
        "PROJECT  LEVEL  STATUS           ROOT",
        "shop     2      needs_human      /srv/shop",
        "empty    0      not_initialized  /srv/empty",
    ] == handoffd("projects").lines
    assert 2 == len(handoffd("projects", "--json").json["projects"])


def test_none_is_said(alone: Path, handoffd: Commands) -> None:
    """Also without a daemon."""
    assert ["No project is supervised: handoffd add PROJECT"] == handoffd("projects").lines
