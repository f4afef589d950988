from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.files.rooted import (
    open_file,
    open_parent,
    parts_of,
    read_project_file,
    remove_project_folder,
    visiting,
    write_project_file,
)


def read(root: Path, relative: str) -> bytes | None:
    """Return what `open_file` gives to read."""
    with open_file(root, relative) as handle:
        return None if handle is None else os.read(handle, 1000)


@pytest.mark.parametrize("relative", ["", ".", "/etc/passwd", "..", ".ai/../../x", "a\0b"])
def test_a_path_that_leaves_the_root_is_refused(tmp_path: Path, relative: str) -> None:
    """Absolute paths, climbing and empty names are not opened."""
    with pytest.raises(StoreError, match="leaves the project") as caught:
        parts_of(tmp_path, relative)

    assert "UNSAFE_FILE" == caught.value.code


def test_a_file_is_reached_folder_by_folder(tmp_path: Path) -> None:
    """Plain files open, and the root may be a link; a missing file or folder is None."""
    (tmp_path / "real/.ai/states").mkdir(parents=True)
    (tmp_path / "real/.ai/states/US-1.json").write_text("{}")
    (tmp_path / "link").symlink_to("real")

    for root in (tmp_path / "real", tmp_path / "link"):
        assert b"{}" == read(root, ".ai/states/US-1.json")
        assert b"{}" == read(root, "./.ai//states/US-1.json")
        assert read(root, ".ai/states/US-2.json") is None
        assert read(root, ".ai/runs/d1/prompt.md") is None


@pytest.mark.parametrize("relative", ["folder/secret", "file", "deep/folder/secret"])
def test_a_symlink_anywhere_on_the_way_is_refused(tmp_path: Path, relative: str) -> None:
    """Whether it is the file or a folder above it, and wherever it leads."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    for folder in (outside, root / "deep"):
        folder.mkdir(parents=True)
    (outside / "secret").write_text("key")
    (root / "folder").symlink_to(outside)
    (root / "deep" / "folder").symlink_to("../../outside")
    (root / "file").symlink_to(outside / "secret")

    with pytest.raises(StoreError, match="symbolic link") as caught:
        read(root, relative)

    assert "UNSAFE_FILE" == caught.value.code


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """Nor does a pipe without a writer, or a file in the place of a folder, make us wait."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):  # its path may not be long
        server.bind("socket")

    for name in ("pipe", "folder", "socket"):
        with pytest.raises(StoreError, match="not a regular file"):
            read(tmp_path, name)
        with pytest.raises(StoreError, match="not a regular file"), open_file(tmp_path, name, append=True):
            pytest.fail("opened")
    with pytest.raises(StoreError, match=r"refusing .*/file: it is a symbolic link, or not a folder"):
        read(tmp_path, "file/STATE.json")


def test_a_root_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    """An unmounted project must not look like one without a STATE.json."""
    with pytest.raises(StoreError, match="is gone") as caught:
        read(tmp_path / "unmounted", ".ai/STATE.json")

    assert "PROJECT_GONE" == caught.value.code


def test_folders_are_created_only_when_asked(tmp_path: Path) -> None:
    """Reading leaves no trace."""
    with open_parent(tmp_path, ".ai/states/US-1.json") as folder:
        assert folder is None
    assert [] == os.listdir(tmp_path)

    with open_parent(tmp_path, ".ai/states/US-1.json", create=True) as folder:
        assert folder is not None
    assert (tmp_path / ".ai" / "states").is_dir()


def test_no_descriptor_is_leaked(tmp_path: Path) -> None:
    """Neither success nor any refusal keeps a file open."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai" / "file").touch()
    (tmp_path / ".ai" / "link").symlink_to("file")
    os.mkfifo(tmp_path / ".ai" / "pipe")
    before = len(os.listdir("/proc/self/fd"))

    for name in ("file", "link", "pipe", "missing", "link/file", "missing/file"):
        try:
            read(tmp_path, f".ai/{name}")
        except StoreError:
            continue

    assert before == len(os.listdir("/proc/self/fd"))


def test_a_visit_reaches_the_same_files(tmp_path: Path) -> None:
    """What it holds open is made when missing, is that of its own root, and follows no link."""
    other = tmp_path / "other"
    (other / ".ai").mkdir(parents=True)
    (other / ".ai/STATE.json").write_text("other")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.ai").symlink_to(other / ".ai")

    with visiting(tmp_path), visiting(other):
        assert read_project_file(tmp_path, ".ai/STATE.json", 10) is None
        write_project_file(tmp_path, ".ai/runs/1/prompt.md", "own")
        write_project_file(tmp_path, ".ai/STATE.json", "own")
        assert b"own" == read(tmp_path, ".ai/runs/1/prompt.md")
        assert b"own" == read(tmp_path, ".ai/STATE.json")
        assert b"other" == read(other, ".ai/STATE.json")
    with visiting(tmp_path / "linked"), pytest.raises(StoreError, match="symbolic link"):
        read_project_file(tmp_path / "linked", ".ai/STATE.json", 10)


def test_a_visit_sees_every_change_but_of_the_folders_it_holds(tmp_path: Path) -> None:
    """And the next one opens them anew: a folder that was replaced is not written to for long."""
    (tmp_path / ".ai").mkdir()
    with visiting(tmp_path):
        write_project_file(tmp_path, ".ai/STATE.json", "before")
        (tmp_path / ".ai/STATE.json").write_text("edited")
        assert b"edited" == read(tmp_path, ".ai/STATE.json")
        (tmp_path / ".ai").rename(tmp_path / "gone")
        (tmp_path / ".ai").mkdir()
        assert b"edited" == read(tmp_path, ".ai/STATE.json")
    with visiting(tmp_path):
        assert read(tmp_path, ".ai/STATE.json") is None


def test_a_visit_leaks_no_descriptor(tmp_path: Path) -> None:
    """Nor after an error on the way."""
    (tmp_path / ".ai/runs").mkdir(parents=True)
    (tmp_path / ".ai/link").symlink_to("runs")
    before = os.listdir("/proc/self/fd")
    for relative in ("README", ".ai/STATE.json", ".ai/runs/1/x", ".ai/link/x"):
        with contextlib.suppress(StoreError), visiting(tmp_path):
            read(tmp_path, relative)

    assert before == os.listdir("/proc/self/fd")


def test_a_folder_is_removed_with_all_in_it_and_a_link_alone(tmp_path: Path) -> None:
    """What a link leads to stays; where there is nothing, nothing happens."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").touch()
    root = tmp_path / "shop"
    (root / ".ai/out/deep").mkdir(parents=True)
    (root / ".ai/out/deep/file").touch()
    (root / ".ai/out/link").symlink_to(tmp_path / "elsewhere")
    (root / ".ai/board").symlink_to(tmp_path / "elsewhere")

    for name in (".ai/out", ".ai/board", ".ai/none", "none/below"):
        remove_project_folder(root, name)

    assert [] == [*(root / ".ai").iterdir()]
    assert (tmp_path / "elsewhere/kept").exists()


def test_a_folder_below_a_link_is_not_removed(tmp_path: Path) -> None:
    """It may be anywhere."""
    (tmp_path / "elsewhere/out").mkdir(parents=True)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/.ai").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError):
        remove_project_folder(tmp_path / "shop", ".ai/out")

    assert (tmp_path / "elsewhere/out").exists()
