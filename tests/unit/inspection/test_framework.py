"""How far a project has adopted the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import WHOLE, write, write_state

from handoffd.inspection.framework import detect_framework


def test_the_level_says_whether_none_some_or_all_of_the_five_are_there(tmp_path: Path) -> None:
    """The hand-off and the history are told of and count for nothing."""
    write(tmp_path, ".ai/HANDOFF.md")
    write(tmp_path, ".ai/history.md")
    assert 0 == detect_framework(str(tmp_path)).level

    write_state(tmp_path)
    assert 1 == detect_framework(str(tmp_path)).level

    for name in WHOLE:
        write(tmp_path, name)
    found = detect_framework(str(tmp_path))
    assert (2, True, True) == (found.level, found.has_handoff, found.has_history)


@pytest.mark.parametrize("name", WHOLE)
def test_each_of_the_five_is_missed(tmp_path: Path, name: str) -> None:
    """All but one are some."""
    write_state(tmp_path)
    for one in WHOLE:
        write(tmp_path, one)
    (tmp_path / name).unlink()

    assert 1 == detect_framework(str(tmp_path)).level


def test_a_folder_of_a_files_name_is_no_file_except_where_a_state_should_be(tmp_path: Path) -> None:
    """Who reads the state will say what is wrong with it."""
    (tmp_path / "PROJECT_MEMORY.md").mkdir()
    (tmp_path / ".ai/STATE.json").mkdir(parents=True)

    found = detect_framework(str(tmp_path))

    assert (False, True) == (found.has_memory, found.has_state)


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    """And nothing is made."""
    assert 0 == detect_framework(str(tmp_path / "gone")).level
    assert [] == list(tmp_path.iterdir())
