"""Which handoffd a project belongs to: the mark on its folder, and when it counts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from handoffd.files.ownership import Mark, belongs, former_owner, leave, own, owner_of

ATTRIBUTE = "user.handoffd"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a project's folder, beside the state directories of two daemons."""
    for name in ("shop", "first", "second"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "shop")


def test_a_project_belongs_to_the_daemon_that_owns_it(tmp_path: Path, root: str) -> None:
    """Whether it runs or not; it is not another daemon to itself."""
    assert owner_of(root, tmp_path / "first") is None
    own(root, tmp_path / "first")

    assert owner_of(root, tmp_path / "first") is None
    assert former_owner(root, tmp_path / "first") is None
    assert str(tmp_path / "first") == owner_of(root, tmp_path / "second")


def test_a_daemon_that_takes_it_learns_its_former_owner(tmp_path: Path, root: str) -> None:
    """Which has lost it."""
    own(root, tmp_path / "first")
    assert str(tmp_path / "first") == former_owner(root, tmp_path / "second")
    own(root, tmp_path / "second")

    assert str(tmp_path / "second") == owner_of(root, tmp_path / "first")


def test_it_is_free_when_the_owner_has_left_it(tmp_path: Path, root: str) -> None:
    """The former owner is still known; only the owner can leave it."""
    own(root, tmp_path / "first")
    leave([root], tmp_path / "second")
    assert owner_of(root, tmp_path / "second") is not None

    leave([root, str(tmp_path / "gone")], tmp_path / "first")

    assert owner_of(root, tmp_path / "second") is None
    assert str(tmp_path / "first") == former_owner(root, tmp_path / "second")
    assert former_owner(root, tmp_path / "first") is None


def test_it_is_free_when_the_owner_is_gone_with_its_state(tmp_path: Path, root: str) -> None:
    """It was uninstalled."""
    own(root, tmp_path / "first")
    (tmp_path / "first").rmdir()

    assert owner_of(root, tmp_path / "second") is None


def test_a_copy_is_free_and_what_was_moved_is_not(tmp_path: Path, root: str) -> None:
    """A copy carries the mark, but is another folder."""
    own(root, tmp_path / "first")
    shutil.copytree(root, tmp_path / "copy")
    assert os.getxattr(root, ATTRIBUTE) == os.getxattr(tmp_path / "copy", ATTRIBUTE)
    Path(root).rename(tmp_path / "moved")

    assert owner_of(str(tmp_path / "copy"), tmp_path / "second") is None
    assert str(tmp_path / "first") == former_owner(str(tmp_path / "copy"), tmp_path / "second")
    assert str(tmp_path / "first") == owner_of(str(tmp_path / "moved"), tmp_path / "second")


def test_the_owner_knows_itself_by_another_path(tmp_path: Path, root: str) -> None:
    """By a link, and after a move; another state directory is not the owner."""
    (tmp_path / "link").symlink_to("first")
    own(root, tmp_path / "link")
    assert (None, None) == (owner_of(root, tmp_path / "first"), former_owner(root, tmp_path / "first"))

    own(root, tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "moved")

    assert (None, None) == (owner_of(root, tmp_path / "moved"), former_owner(root, tmp_path / "moved"))
    assert str(tmp_path / "first") == former_owner(root, tmp_path / "second")


def test_a_state_directory_that_cannot_be_read_still_counts(tmp_path: Path, root: str) -> None:
    """As another account's: its daemon has the project until it leaves it."""
    own(root, tmp_path / "first")
    (tmp_path / "first").rmdir()
    (tmp_path / "first").symlink_to("first")  # a loop, which stat cannot follow

    assert str(tmp_path / "first") == owner_of(root, tmp_path / "second")


@pytest.mark.parametrize(
    "forged",
    [
        b"", b"\0", b"owns", b"owns\x001\0/x", b"owns\0\x001\0/x", b"owns\x001\x001\0x",
        b"owns\x00-1\x001\0/x", b"owns\x001\x001\0/x\0", b"has\x001\x001\0/x", b"\xff\0\xfe",
        b"owns\x001\0\xb2\0/x", b"owns\x001\0" + b"9" * 2000 + b"\0/x", b"/" * 3000,
    ],
)  # fmt: skip
def test_a_malformed_mark_means_nothing(tmp_path: Path, root: str, forged: bytes) -> None:
    """An agent may have written it; the owner writes over it."""
    os.setxattr(root, ATTRIBUTE, forged)
    assert (None, None) == (owner_of(root, tmp_path / "first"), former_owner(root, tmp_path / "first"))

    own(root, tmp_path / "first")

    inode, state_inode = os.stat(root).st_ino, os.stat(tmp_path / "first").st_ino
    mark = Mark(state_dir=str(tmp_path / "first"), state_inode=state_inode, inode=inode)
    assert mark.to_bytes() == os.getxattr(root, ATTRIBUTE)


@pytest.mark.parametrize("name", [b"/\xff\xfe", b"/\x1b[31m", b"/" + b"x" * 3000, b"/\n\r"])
def test_a_forged_name_may_be_any_bytes(tmp_path: Path, root: str, name: bytes) -> None:
    """Its text is harmless on a terminal."""
    os.setxattr(root, ATTRIBUTE, b"owns\0%d\x001\0%s" % (os.stat(root).st_ino, name))

    owner = owner_of(root, tmp_path / "second")

    assert owner is None or belongs(root, owner).message.isprintable()
    assert belongs(root, os.fsdecode(name)).message.isprintable()


def test_where_no_attribute_can_be_written_nothing_fails() -> None:
    """As below /proc, or on a disk that can only be read."""
    own("/proc/self/task", Path("/var"))

    assert owner_of("/proc/self/task", Path("/srv")) is None


def test_the_refusal_names_both_commands() -> None:
    """The one to take it here, and the one to give it up there."""
    error = belongs("/srv/shop", "/var/lib/handoffd")

    state_dir = "the handoffd whose state directory is /var/lib/handoffd"
    assert f"the project /srv/shop belongs to {state_dir}" == error.message
    assert (
        "handoffd add /srv/shop --take  # has it here; or say there: handoffd remove /srv/shop" == error.hint
    )
