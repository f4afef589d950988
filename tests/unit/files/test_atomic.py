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
    replace_text(path, content, durable=durable)

    assert (content.encode() if isinstance(content, str) else content) == path.read_bytes()
    assert ["STATE.json"] == os.listdir(tmp_path)


def test_a_reader_of_the_old_file_is_not_disturbed(tmp_path: Path) -> None:
    """The file is never truncated in place."""
    path = tmp_path / "STATE.json"
    replace_text(path, "old")

    with path.open() as reader:
        replace_text(path, "new")
        assert "old" == reader.read()


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_the_mode_is_kept(tmp_path: Path, mode: int) -> None:
    """Who could read a file before, and nobody else, can read it afterwards."""
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


def test_a_symlink_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """Nobody can make us write somewhere else."""
    victim, path = tmp_path / "victim", tmp_path / "STATE.json"
    victim.write_text("precious")
    path.symlink_to(victim)

    with pytest.raises(StoreError, match="symbolic link") as caught:
        replace_text(path, "new")

    assert "UNSAFE_FILE" == caught.value.code
    assert ("precious", True) == (victim.read_text(), path.is_symlink())
    assert {"STATE.json", "victim"} == set(os.listdir(tmp_path))


def test_a_symlink_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """Not by way of the folder either."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ai").symlink_to("elsewhere")

    with pytest.raises(StoreError, match="its folder is a symbolic link"):
        replace_text(tmp_path / ".ai" / "STATE.json", "new")

    assert [] == os.listdir(tmp_path / "elsewhere")


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A folder or a pipe in the way is reported, and stays."""
    (tmp_path / "STATE.json").mkdir()
    os.mkfifo(tmp_path / "pipe")

    for name in ("STATE.json", "pipe"):
        with pytest.raises(StoreError, match="no regular file"):
            replace_text(tmp_path / name, "new")

    assert ["STATE.json", "pipe"] == sorted(os.listdir(tmp_path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the file, what was done, and why not."""
    with pytest.raises(StoreError, match=r"cannot write: .*/gone/STATE\.json: No such file"):
        replace_text(tmp_path / "gone" / "STATE.json", "new")


_FULL_DISK = """
import resource, sys
from pathlib import Path
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of, replace_text

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
    """Temporary files of crashed writes go; whatever else has a name like that stays."""
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


def test_text_and_its_bytes_have_one_digest() -> None:
    """What was projected as text is recognised in the bytes of the file."""
    assert digest_of("狀態\n") == digest_of("狀態\n".encode())


def test_a_changed_byte_changes_the_digest() -> None:
    """Texts are told apart."""
    assert digest_of(b"a") != digest_of(b"b")
