"""Files are written whole, inside the project, and only when they change; the shipped files of the sample."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.workspace import (
    MARK,
    OutsideProject,
    Workspace,
    is_sample,
    project_file,
    project_files,
    story_file,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty project, with a neighbour that must not be touched."""
    (tmp_path / "root").mkdir()
    (tmp_path / "neighbour").mkdir()
    return Workspace(str(tmp_path / "root"))


@pytest.mark.parametrize("name", ["../neighbour/file", "link/file", "/etc/passwd"])
def test_nothing_outside_is_read_or_written(workspace: Workspace, name: str, tmp_path: Path) -> None:
    """Neither dots nor a symbolic link lead out of the project."""
    (tmp_path / "root/link").symlink_to(tmp_path / "neighbour")

    for attempt in (workspace.read, lambda path: workspace.write(path, "x")):
        with pytest.raises(OutsideProject):
            attempt(name)
    assert [] == list((tmp_path / "neighbour").iterdir())


def test_a_planted_temporary_link_is_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    """A link in place of our temporary file makes the write fail; its target stays."""
    victim = tmp_path / "neighbour/victim"
    victim.write_text("mine")
    (tmp_path / f"root/.file.{MARK}").symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        workspace.write("file", "new")
    assert "mine" == victim.read_text()


def test_the_same_text_is_not_written_again(workspace: Workspace, tmp_path: Path) -> None:
    """Its inode and time stay."""
    workspace.write("docs/a.md", "text")
    before = (tmp_path / "root/docs/a.md").stat()

    workspace.write("docs/a.md", "text")

    after = (tmp_path / "root/docs/a.md").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_persons_file_is_left_alone(workspace: Workspace) -> None:
    """Only a file with the mark is replaced."""
    workspace.write("theirs.md", "by hand")
    workspace.write("ours.md", f"{MARK}: old")

    assert (False, True) == (workspace.write_new("theirs.md", "new"), workspace.write_new("ours.md", "new"))
    assert ("by hand", "new") == (workspace.read("theirs.md"), workspace.read("ours.md"))


def test_a_missing_file_reads_as_none(workspace: Workspace) -> None:
    """So does a folder; an empty file reads as empty text."""
    workspace.write("folder/empty", "")

    assert [None, None, ""] == [workspace.read(name) for name in ("missing", "folder", "folder/empty")]


def test_the_mode_of_a_file_is_kept(workspace: Workspace, tmp_path: Path) -> None:
    """An executable script stays executable."""
    workspace.write("run", "a")
    (tmp_path / "root/run").chmod(0o750)

    workspace.write("run", "b")

    assert 0o750 == (tmp_path / "root/run").stat().st_mode & 0o777


def test_only_the_sample_is_taken_for_the_sample(shop: Rehearsal, foreign: Rehearsal) -> None:
    """A table in its pyproject.toml marks it, also after a copy and under another name."""
    moved = shop.root.rename(shop.root.parent / "elsewhere")

    assert (True, False) == (is_sample(Workspace(str(moved))), is_sample(Workspace(str(foreign.root))))


def test_one_file_is_the_same_as_among_all() -> None:
    """Both functions return the same text."""
    files = project_files()

    assert files["shop/pricing.py"] == project_file("shop/pricing.py")
    assert files["shop/pricing.py"] != story_file("shop/pricing.py")
    assert [] == [name for name in files if Path(name).is_absolute() or name.endswith(".sample")]
