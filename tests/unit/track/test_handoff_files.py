"""The look at a project's hand-off files: identity, content, and what must not be read."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.house import dispatch_of, make_project

from handoffd.protocol.handoff import Absent, Found, HandoffMark, Malformed, Stale
from handoffd.protocol.state import Status
from handoffd.track.ai_folder import HandoffFiles

PASS = "---\nstep: bdd\nstatus: pass\n---\n"


def write(root: str, text: str, name: str = "HANDOFF.md") -> Path:
    """Write one of the hand-off files."""
    file = Path(root, ".ai", name)
    file.write_text(text)
    return file


def test_without_files_there_is_no_mark_and_no_handoff(tmp_path: Path) -> None:
    """Nothing is nothing, not an error."""
    files = HandoffFiles(make_project(tmp_path))

    assert HandoffMark() == files.mark()
    assert (Absent(), HandoffMark()) == files.read(dispatch_of())


def test_a_handoff_as_it_was_at_the_dispatch_is_stale(tmp_path: Path) -> None:
    """Rewritten with the same bytes, it counts."""
    root = make_project(tmp_path)
    file, files = write(root, PASS), HandoffFiles(root)
    dispatch = dispatch_of(mark=files.mark())

    assert isinstance(files.read(dispatch)[0], Stale)
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    reading, mark = files.read(dispatch)

    assert isinstance(reading, Found)
    assert Status.PASS is reading.handoff.status
    assert mark == files.mark() != dispatch.mark


def test_both_files_are_read(tmp_path: Path) -> None:
    """executor-result alone is a hand-off; together the worse counts."""
    root = make_project(tmp_path)
    files = HandoffFiles(root)
    write(root, "status: failing\nreason: scope_warning\n", "executor-result")
    write(root, PASS)

    reading, _ = files.read(dispatch_of())

    assert isinstance(reading, Found)
    assert (Status.FAILING, "scope_warning") == (reading.handoff.status, reading.handoff.reason)


def test_what_is_no_plain_file_is_a_malformed_handoff(tmp_path: Path) -> None:
    """A link (to anywhere) is not followed, and the reason is told."""
    root = make_project(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(PASS)
    Path(root, ".ai/HANDOFF.md").symlink_to(secret)
    files = HandoffFiles(root)

    reading, mark = files.read(dispatch_of())

    assert isinstance(reading, Malformed)
    assert "symbolic link" in str(reading.problem)
    assert HandoffMark() == mark


def test_copies_are_kept_where_no_executor_can_reach_them(tmp_path: Path) -> None:
    """What was judged can be looked at later, whatever the next attempt writes."""
    root = make_project(tmp_path)
    write(root, PASS)
    folder = tmp_path / "state"
    folder.mkdir()

    HandoffFiles(root).copy_to(folder)

    assert {"HANDOFF.md": PASS} == {file.name: file.read_text() for file in folder.iterdir()}
