"""What all tracks share."""

from __future__ import annotations

from pathlib import Path

from tests.support.house import house


async def test_records_of_a_run_have_their_place_in_the_state_directory(tmp_path: Path) -> None:
    """Outside of every project, one folder a run."""
    async with house(tmp_path) as here:
        assert tmp_path / "state/runs/d1" == here.services.run_dir("d1")


async def test_the_daemons_environment_is_not_shown(tmp_path: Path) -> None:
    """It holds secrets, and values are logged."""
    async with house(tmp_path) as here:
        assert "s3cret" not in repr(here.services)
