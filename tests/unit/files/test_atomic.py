from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of, replace_text, sweep_temporaries


def mode_of(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("content", ["狀態\n", b"\x00\xff", ""])
def test_a_file_is_created_and_replaced_whole(tmp_path: Path, content: str | bytes, durable: bool) -> None:
    """Readers get exactly the new content, and nothing else is left in the folder."""
    path = tmp_path / "STATE.json"
    replace_text(path, "an older and much longer text", durable=durable)

    with path.open() as reader:
        replace_text(path, content, durable=durable)
        assert "an older and much longer text" == reader.read()  # the file is not truncated in place

    assert (content.encode() if isinstance(content, str) else content) == path.read_bytes()
    assert ["STATE.json"] == os.listdir(tmp_path)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_the_mode_is_kept(tmp_path: Path, mode: int) -> None:
    """The same accounts as before can read the file."""
    path = tmp_path / "STATE.json"
    path.write_text("old")
    path.chmod(mode)

    replace_text(path, "new")

    assert ("new", mode) == (path.read_text(), mode_of(path))


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    """A person's umask decides, as for files they create themselves."""
    before = os.umask(0o027)
    try:
        replace_text(tmp_path / "STATE.json", "new")
    finally:
        os.umask(before)

    assert 0o640 == mode_of(tmp_path / "STATE.json")


@pytest.mark.parametrize("kind", ["symbolic link", "folder", "pipe"])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str) -> None:
    """Anything else is refused and stays, and a link does not make us write somewhere else."""
    victim, path = tmp_path / "victim", tmp_path / "STATE.json"
    victim.write_text("precious")
    makers = {"symbolic link": lambda: path.symlink_to(victim), "folder": path.mkdir}
    makers.get(kind, lambda: os.mkfifo(path))()
    inode = path.lstat().st_ino

    with pytest.raises(
        StoreError, match="symbolic link" if kind == "symbolic link" else "not a regular file"
    ):
        replace_text(path, "new")

    assert ("precious", inode) == (victim.read_text(), path.lstat().st_ino)
    assert {"STATE.json", "victim"} == set(os.listdir(tmp_path))


def test_a_symlink_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """The link's target gets no file."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ai").symlink_to("elsewhere")

    with pytest.raises(StoreError, match="its folder is a symbolic link"):
        replace_text(tmp_path / ".ai" / "STATE.json", "new")

    assert [] == os.listdir(tmp_path / "elsewhere")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the file, what was done, and why not."""
    with pytest.raises(StoreError, match=r"cannot write: .*/gone/STATE\.json: No such file"):
        replace_text(tmp_path / "gone" / "STATE.json", "new")


_FULL_DISK = """
import resource, sys
from pathlib import Path
from handoffd.errors import StoreError
from handoffd.files.atomic import replace_text

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    replace_text(Path(sys.argv[1]), "x" * 100_000)
except StoreError as error:
    print(error.message)
"""


def test_a_disk_that_takes_only_half_leaves_the_old_file(tmp_path: Path) -> None:
    """A write that fails in the middle leaves no trace."""
    path = tmp_path / "STATE.json"
    path.write_text("old")

    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, path], capture_output=True, text=True, timeout=60, check=True
    )

    assert f"cannot write: {path}: File too large" == done.stdout.strip()
    assert ("old", ["STATE.json"]) == (path.read_text(), os.listdir(tmp_path))


def test_only_our_own_leftovers_are_swept(tmp_path: Path) -> None:
    """Temporary files of crashed writes go; files with similar names, folders and links stay."""
    ours = [".STATE.json.0123456789abcdef.tmp", ".結果.txt.00000000000000ff.tmp"]
    others = ["STATE.json", ".STATE.json.swp", ".STATE.json.0123456789ABCDEF.tmp", ".x.0123.tmp", "y.tmp"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    (tmp_path / ".dir.0123456789abcdef.tmp").mkdir()
    (tmp_path / ".link.0123456789abcdef.tmp").symlink_to("STATE.json")

    removed = sweep_temporaries(tmp_path)

    assert sorted(ours) == sorted(removed)
    kept = {*others, ".dir.0123456789abcdef.tmp", ".link.0123456789abcdef.tmp"}
    assert kept == set(os.listdir(tmp_path))


def test_a_folder_that_is_missing_or_a_symlink_is_not_swept(tmp_path: Path) -> None:
    """The sweep never leaves the project."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".a.0123456789abcdef.tmp").touch()
    (tmp_path / ".ai").symlink_to("elsewhere")

    assert () == sweep_temporaries(tmp_path / ".ai")
    assert () == sweep_temporaries(tmp_path / "gone")
    assert [".a.0123456789abcdef.tmp"] == os.listdir(tmp_path / "elsewhere")


def test_a_digest_is_that_of_the_bytes() -> None:
    """What was projected as text is recognised in the bytes of the file, and another byte is noticed."""
    assert digest_of("狀態\n") == digest_of("狀態\n".encode()) != digest_of("狀態 ".encode())
