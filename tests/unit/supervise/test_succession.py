"""Whether one story follows another by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.engine.track import Ledger
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.supervise.succession import goes_on_by_itself


@pytest.mark.parametrize(
    ("chosen", "project", "daemon", "expected"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, False, True, False),
        (None, True, False, True),
        (True, False, False, True),
        (False, True, True, False),
    ],
)
def test_a_persons_choice_goes_before_the_projects_settings_and_these_before_the_daemons(
    chosen: bool | None, project: bool | None, daemon: bool, expected: bool
) -> None:
    """Where nobody says anything, it waits."""
    settings = Settings(state_dir=Path("/s"), runtime_dir=Path("/r"), auto_continue=daemon)
    own = ProjectSettings(auto_continue=project)
    assert expected is goes_on_by_itself(Ledger(auto_continue=chosen), own, settings)
