"""One visit of a project's folder: everything found at once, and what counts when a part fails."""

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
    """Return the result of a visit for the main track and another one."""
    return visit(root.parent, root, ("main", "US-007"), texts=texts, first=first)


def test_a_visit_reads_everything_for_a_look(root: Path) -> None:
    """A missing file is found missing."""
    found = visited(root)

    assert project_lock_path(root.parent, root) == found.lock
    assert {SETTINGS: None, TABLE: "steps: {}\n"} == found.texts
    assert ["{}\n", None] == [seen and seen.text for seen in found.states.values()]
    assert (False, None) == (found.halves, found.error)


def test_later_visits_read_less(root: Path) -> None:
    """Without the files of a running project, and without half-written files after the first visit."""
    (root / ".ai/.STATE.json.0123456789abcdef.tmp").touch()

    assert (True, None) == (visited(root).halves, visited(root, texts=False).texts)
    assert not visited(root, first=False).halves


def test_a_visit_keeps_everything_before_an_unreadable_file(root: Path) -> None:
    """An unsafe table hides the tracks; a binary STATE.json hides neither lock nor table."""
    (root / STATE).write_bytes(b"\xff")
    found = visited(root)
    assert (True, {}) == (found.texts is not None, found.states)
    assert isinstance(found.error, InvalidFile)

    (root / TABLE).unlink()
    (root / TABLE).symlink_to("/etc/passwd")
    found = visited(root)
    assert (None, {}) == (found.texts, found.states)
    assert "symbolic link" in str(found.error)


def test_a_missing_folder_is_an_error(root: Path) -> None:
    """It has no lock."""
    with pytest.raises(StoreError) as gone:
        visited(root / "nowhere")

    assert PROJECT_GONE == gone.value.code
