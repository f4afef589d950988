"""One visit of a project's folder: what is found in one go, and what of it counts when a part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, StoreError
from handoffd.files.errors import PROJECT_GONE
from handoffd.files.locks import project_lock_path
from handoffd.project.folder import Found, visit

TABLE, SETTINGS, STATE = ".ai/step-rules.yaml", ".ai/handoffd.yaml", ".ai/STATE.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with a step table and a STATE.json."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / TABLE).write_text("steps: {}\n")
    (root / STATE).write_text("{}\n")
    return root


def visited(root: Path, *, texts: bool = True, first: bool = True) -> Found:
    """Return what a visit finds in the main track and in another one."""
    return visit(root.parent, root, ("main", "US-007"), texts=texts, first=first)


def test_everything_that_a_look_needs_is_found_at_once(root: Path) -> None:
    """Files that are missing are found missing."""
    found = visited(root)

    assert project_lock_path(root.parent, root) == found.lock
    assert {SETTINGS: None, TABLE: "steps: {}\n"} == found.texts
    assert ["{}\n", None] == [seen and seen.text for seen in found.states.values()]
    assert (False, None) == (found.halves, found.error)


def test_the_files_of_a_running_project_are_not_read(root: Path) -> None:
    """Nor is it looked for halves again: it was at first."""
    (root / ".ai/.STATE.json.0123456789abcdef.tmp").touch()

    assert (True, None) == (visited(root).halves, visited(root, texts=False).texts)
    assert not visited(root, first=False).halves


def test_what_comes_before_something_unreadable_counts(root: Path) -> None:
    """An unsafe table hides the tracks; a STATE.json that is no text hides neither lock nor table."""
    (root / STATE).write_bytes(b"\xff")
    found = visited(root)
    assert (True, {}) == (found.texts is not None, found.states)
    assert isinstance(found.error, InvalidFile)

    (root / TABLE).unlink()
    (root / TABLE).symlink_to("/etc/passwd")
    found = visited(root)
    assert (None, {}) == (found.texts, found.states)
    assert "symbolic link" in str(found.error)


def test_a_folder_that_is_gone_is_told_at_once(root: Path) -> None:
    """There is no lock to have for what is not there."""
    with pytest.raises(StoreError) as gone:
        visited(root / "nowhere")

    assert PROJECT_GONE == gone.value.code
