"""Contents that are kept in a repository, of files that git would leave out or change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.repositories import git, said

from handoffd.errors import StoreError
from handoffd.git.worktree import Blobs


@pytest.fixture
def here(tmp_path: Path, root: Path) -> Blobs:
    """The kept contents of a repository."""
    return Blobs(str(root), tmp_path / "state", dict(os.environ))


def test_contents_come_back_byte_for_byte(root: Path, here: Blobs) -> None:
    """Also of ignored files, and where git would store other line ends."""
    (root / ".gitignore").write_text("conftest.py\n")
    (root / ".gitattributes").write_text("* text eol=crlf\n")
    files = {"conftest.py": b"x\r\ny\n", "test_a.py": b"", "test b.py": b"\0\n\nblob 3\n"}
    for name, content in files.items():
        (root / name).write_bytes(content)
    head = said(root, "status", "--short")

    blobs = here.keep(tuple(files), str(root))
    for name in files:
        (root / name).unlink()

    assert files == here.contents(blobs)
    assert head != said(root, "status", "--short")
    assert "" == said(root, "for-each-ref", "refs/handoffd")


def test_what_git_has_no_more_is_left_out(root: Path, here: Blobs) -> None:
    """And a name that cannot be handed to it is not kept."""
    (root / "test_a.py").write_text("1")
    (root / "two\nlines").write_text("2")
    blobs = here.keep(("test_a.py", "two\nlines"), str(root))
    assert ["test_a.py"] == list(blobs)
    assert {} == here.contents({"test_a.py": "0" * 40})


def test_an_object_may_be_named_without_being_kept(root: Path, here: Blobs) -> None:
    """Its content comes back if git has it anyway."""
    (root / ".npmrc").write_text("save-exact=true")
    (root / ".env").write_text("TOKEN=1")
    assert 0 == git(root, "add", ".npmrc")
    blobs = here.named((".npmrc", ".env"), str(root))
    assert {".npmrc": b"save-exact=true"} == here.contents(blobs)


def test_files_of_a_folder_below_the_top_are_its_own(tmp_path: Path, root: Path) -> None:
    """And so are others of the same repository."""
    (root / "shop").mkdir()
    (root / "shop/test_a.py").write_text("1")
    blobs = Blobs(str(root / "shop"), tmp_path / "state", dict(os.environ))
    (root / "test_b.py").write_text("2")
    assert {"test_b.py": b"2"} == blobs.contents(blobs.keep(("test_b.py",), str(root)))
    assert {"test_a.py": b"1"} == blobs.contents(blobs.keep(("test_a.py",), str(root / "shop")))


def test_without_a_repository_nothing_is_kept(tmp_path: Path) -> None:
    """That is an error with its reason."""
    folder = tmp_path / "plain"
    folder.mkdir()
    with pytest.raises(StoreError, match="repository"):
        Blobs(str(folder), tmp_path / "state", dict(os.environ)).keep((), str(folder))
    assert 0 == git(tmp_path, "--version")
