"""Where a skill lies, and what is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.cli.skill import NOTE, Place, place_of, remove, shipped, standing, write
from handoffd.errors import NotFound, StoreError
from handoffd.files.atomic import digest_of


def test_the_place_is_what_was_named(tmp_path: Path) -> None:
    """A folder of skills, a project, else a person's own."""
    assert tmp_path / "x/handoffd/SKILL.md" == place_of(str(tmp_path / "x"), None, tmp_path).file
    assert tmp_path / ".claude/skills/handoffd/SKILL.md" == place_of(None, str(tmp_path), Path("/")).file
    assert tmp_path / ".claude/skills/handoffd/SKILL.md" == place_of(None, None, tmp_path).file
    with pytest.raises(NotFound):
        place_of(None, str(tmp_path / "nope"), tmp_path)


def test_what_was_written_is_known_again(tmp_path: Path) -> None:
    """As it ships, of an older release, or changed by somebody."""
    place = Place(root=tmp_path / "skills")
    assert "absent" == standing(place)

    write(place)
    assert "current" == standing(place)
    assert shipped() == place.file.read_text()

    place.file.write_text("older")
    assert "changed" == standing(place)
    (place.file.parent / NOTE).write_text(f'{{"digest": "{digest_of("older")}"}}')
    assert "outdated" == standing(place)
    for broken in ("{", "[]", '{"digest": 7}', "\xff"):
        (place.file.parent / NOTE).write_text(broken, encoding="latin-1")
        assert "changed" == standing(place)


def test_it_is_taken_away_whole_and_nothing_else_is(tmp_path: Path) -> None:
    """What a person put beside it stays."""
    place = Place(root=tmp_path, below=".claude/skills")
    write(place)
    remove(place)
    assert [] == list((tmp_path / ".claude/skills").iterdir())

    write(place)
    (place.file.parent / "mine.md").write_text("x")
    remove(place)
    remove(place)
    assert ["mine.md"] == os.listdir(place.file.parent)


def test_no_link_below_a_project_is_followed(tmp_path: Path) -> None:
    """An agent may have put it there."""
    (tmp_path / "project/.claude").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project/.claude/skills").symlink_to(tmp_path / "elsewhere")
    place = Place(root=tmp_path / "project", below=".claude/skills")

    for act in (standing, write, remove):
        with pytest.raises(StoreError):
            act(place)
    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_a_folder_of_skills_may_be_a_link(tmp_path: Path) -> None:
    """People keep theirs under version control."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "skills").symlink_to(tmp_path / "dotfiles")

    write(Place(root=tmp_path / "skills"))

    assert (tmp_path / "dotfiles/handoffd/SKILL.md").is_file()
