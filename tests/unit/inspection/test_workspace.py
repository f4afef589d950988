"""The projects in a folder of projects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.inspection.making import hostile_states, write, write_state

from handoffd.errors import NotFound
from handoffd.inspection.discovery import (
    MARKERS,
    ListedProject,
    folders_called,
    list_projects,
    looks_like_project,
    others_in,
)


def test_projects_are_known_by_what_lies_in_them(tmp_path: Path) -> None:
    """Any one marker makes a project; other folders, hidden ones and files are none."""
    for number, marker in enumerate(MARKERS[1:]):
        write(tmp_path / f"p{number}", marker)
    (tmp_path / "plain").mkdir()
    write(tmp_path / ".hidden", "go.mod")
    write(tmp_path, "go.mod")

    found = list_projects(str(tmp_path))

    assert [f"p{number}" for number in range(len(MARKERS) - 1)] == [one.dir for one in found]
    assert {"not_initialized"} == {one.status for one in found}


def test_a_project_with_a_state_says_where_it_stands(tmp_path: Path) -> None:
    """Its own name, the name of its folder, and its story."""
    write_state(tmp_path / "s")

    expected = ListedProject(
        name="shop", dir="s", step="impl", status="running", story="US-005", has_framework=True
    )
    assert (expected,) == list_projects(str(tmp_path))


def test_a_broken_state_spoils_nothing(tmp_path: Path) -> None:
    """It is listed as such, and so is every other project."""
    for number, content in enumerate(hostile_states()):
        write(tmp_path / f"bad{number}", ".ai/STATE.json", content)
    (tmp_path / "folder/.ai/STATE.json").mkdir(parents=True)
    write_state(tmp_path / "good")

    found = {one.dir: one.status for one in list_projects(str(tmp_path))}

    assert "running" == found.pop("good")
    assert {"invalid_state"} == set(found.values())
    assert len(hostile_states()) + 1 == len(found)


def test_a_folders_name_may_be_any_bytes(tmp_path: Path) -> None:
    """What is told of it can be printed."""
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    write(root, "setup.py")

    (found,) = list_projects(str(tmp_path))

    assert ("�", "�") == (found.name, found.dir)


def test_what_is_no_folder_is_said_to_be_none(tmp_path: Path) -> None:
    """Neither a file nor nothing can hold projects."""
    write(tmp_path, "file")

    for name in ("file", "gone"):
        with pytest.raises(NotFound):
            list_projects(str(tmp_path / name))


def test_a_word_may_be_the_name_of_a_project_folder(tmp_path: Path) -> None:
    """The first folder counts that has one of that name; what has no marker is none, unless it is sure."""
    write(tmp_path / "one/shop", "go.mod")
    write(tmp_path / "two/shop", "go.mod")
    (tmp_path / "one/plain").mkdir()
    bases = (str(tmp_path / "one"), str(tmp_path / "two"))

    assert {"shop": f"{bases[0]}/shop"} == folders_called(("shop", "plain", "../one", "", ".", "no"), bases)
    assert {"plain": f"{bases[0]}/plain"} == folders_called(("plain",), bases, sure="plain")


def test_other_projects_of_a_folder_are_named(tmp_path: Path) -> None:
    """Those that are known are left out, and so is what is no project or cannot be listed."""
    write(tmp_path / "a", "go.mod")
    write(tmp_path / "b", ".git")
    (tmp_path / "plain").mkdir()

    found = others_in((str(tmp_path), str(tmp_path / "nowhere")), {str(tmp_path / "a")})

    assert ("b",) == found
    assert (True, False, False) == tuple(
        looks_like_project(path) for path in (str(tmp_path / "a"), str(tmp_path / "plain"), "\0")
    )
