"""The files that ship are known by their names in a project."""

from __future__ import annotations

from pathlib import Path

from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.workspace import Workspace, is_sample, project_file, project_files, story_file


def test_only_the_sample_is_taken_for_the_sample(shop: Rehearsal, foreign: Rehearsal) -> None:
    """It is known by a table in its pyproject.toml, also when it was copied and renamed."""
    moved = shop.root.rename(shop.root.parent / "elsewhere")

    assert (True, False) == (is_sample(Workspace(str(moved))), is_sample(Workspace(str(foreign.root))))


def test_one_file_is_the_same_as_among_all() -> None:
    """Both ways to a file lead to the same text."""
    files = project_files()

    assert files["shop/pricing.py"] == project_file("shop/pricing.py")
    assert files["shop/pricing.py"] != story_file("shop/pricing.py")
    assert [] == [name for name in files if Path(name).is_absolute() or name.endswith(".sample")]
