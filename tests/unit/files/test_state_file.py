from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoffd import failpoints
from handoffd.errors import InvalidFile, StoreError
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import append_project_file, read_project_file, write_project_file
from handoffd.files.state_file import LARGEST_STATE, Seen, read_state, write_state


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a..b", ".hidden", "x" * 65, "US 1", "US-1\n"])
def test_a_track_name_that_is_no_file_name_is_refused(name: str) -> None:
    """Names come from story ids, which come from anywhere."""
    with pytest.raises(StoreError, match="track's name"):
        read_state(Path("/srv/shop"), name)


@pytest.mark.parametrize(
    ("track", "name"), [("main", ".ai/STATE.json"), ("US-005", ".ai/states/US-005.json")]
)
def test_a_track_has_a_file_of_its_own(tmp_path: Path, track: str, name: str) -> None:
    """A missing file, or a missing folder, is None; the digest of a write is that of what is read back."""
    assert read_state(tmp_path, track) is None
    (tmp_path / ".ai").mkdir()
    assert read_state(tmp_path, track) is None

    digest = write_state(tmp_path, track, '{"專案": 1}\n')

    assert digest == digest_of('{"專案": 1}\n')
    assert Seen(text='{"專案": 1}\n', digest=digest) == read_state(tmp_path, track)
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("there", "over", "written"),
    [
        ("old", ["old"], True),
        ("new", ["old"], False),
        ("new", [], False),
        (None, [], True),
        ("any", None, True),
    ],
)
def test_only_what_is_known_is_written_over(
    tmp_path: Path, there: str | None, over: list[str] | None, written: bool
) -> None:
    """What is there is compared before it is replaced; nothing is left beside it."""
    (tmp_path / ".ai").mkdir()
    file = tmp_path / ".ai/STATE.json"
    if there is not None:
        file.write_text(there)

    digest = write_state(tmp_path, "main", "ours", None if over is None else [digest_of(one) for one in over])

    assert (digest_of("ours") if written else None) == digest
    assert ("ours" if written else there) == file.read_text()
    assert ["STATE.json"] == os.listdir(tmp_path / ".ai")


AtLastMoment = Callable[[Callable[[], object]], None]


@pytest.fixture
def at_last_moment() -> Iterator[AtLastMoment]:
    """Return a function that has an action run just before the rename."""

    def do(action: Callable[[], object]) -> None:
        def act(point: failpoints.Point, _: str) -> None:
            if point == "before_rename":
                action()

        failpoints.arm(act)

    yield do
    failpoints.arm(None)


@pytest.mark.parametrize("before", ["old", None])
def test_an_edit_at_the_last_moment_stays(
    tmp_path: Path, before: str | None, at_last_moment: AtLastMoment
) -> None:
    """Another program replaces the file between our look at it and our rename."""
    (tmp_path / ".ai").mkdir()
    file, new = tmp_path / ".ai/STATE.json", tmp_path / ".ai/new"
    if before is not None:
        file.write_text(before)
    new.write_text("theirs")
    at_last_moment(lambda: new.replace(file))

    assert write_state(tmp_path, "main", "ours", [digest_of("old")]) is None

    assert "theirs" == file.read_text()
    assert ["STATE.json"] == os.listdir(tmp_path / ".ai")


@pytest.mark.parametrize("what", ["symlink", "folder", "pipe", "gone"])
def test_a_file_swapped_at_the_last_moment_is_not_followed(
    tmp_path: Path, what: str, at_last_moment: AtLastMoment
) -> None:
    """What is not a file stays; a file that was removed is written anew."""
    (tmp_path / ".ai").mkdir()
    file, outside = tmp_path / ".ai/STATE.json", tmp_path / "outside"
    file.write_text("old")
    outside.write_text("old")

    def swap() -> None:
        file.unlink()
        if what == "symlink":
            file.symlink_to(outside)
        elif what == "folder":
            file.mkdir()
        elif what == "pipe":
            os.mkfifo(file)

    at_last_moment(swap)
    digest = write_state(tmp_path, "main", "ours", [digest_of("old")])

    assert (digest is not None) == (what == "gone") == (file.is_file() and not file.is_symlink())
    assert "old" == outside.read_text()
    assert ["STATE.json"] == os.listdir(tmp_path / ".ai")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_not_a_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe cannot block the daemon, and nothing is written over, with or without a known text."""
    (tmp_path / ".ai").mkdir()
    make(tmp_path / ".ai/STATE.json")

    with pytest.raises(StoreError, match="not a regular file"):
        read_state(tmp_path)
    with pytest.raises(StoreError):
        write_state(tmp_path, "main", "ours")
    with pytest.raises(StoreError):
        write_state(tmp_path, "main", "ours", [])


def test_a_state_in_another_encoding_is_invalid_and_located(tmp_path: Path) -> None:
    """After an edit: the problem names file and line."""
    write_project_file(tmp_path, ".ai/STATE.json", '{\n"project": "café"}'.encode("latin-1"))

    with pytest.raises(InvalidFile, match=r"STATE\.json:2: not UTF-8 at byte 17"):
        read_state(tmp_path)


def test_a_state_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    """One byte too many is too many."""
    write_state(tmp_path, "main", "x" * LARGEST_STATE)
    assert read_state(tmp_path) is not None

    write_state(tmp_path, "main", "x" * (LARGEST_STATE + 1))
    with pytest.raises(StoreError, match="larger than 1,048,576 bytes") as caught:
        read_state(tmp_path)
    assert "UNSAFE_FILE" == caught.value.code


def test_a_symlinked_folder_is_not_written_through(tmp_path: Path) -> None:
    """A project cannot make us write outside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".ai").symlink_to(tmp_path / "outside")

    for write in (write_project_file, append_project_file):
        with pytest.raises(StoreError, match="symbolic link"):
            write(tmp_path / "root", ".ai/history.md", "text")

    assert [] == os.listdir(tmp_path / "outside")


def test_a_project_that_is_gone_is_not_recreated(tmp_path: Path) -> None:
    """An unmounted root stays absent instead of getting a new .ai."""
    with pytest.raises(StoreError, match="is gone"):
        write_state(tmp_path / "gone", "main", "{}")

    assert [] == os.listdir(tmp_path)


def test_the_same_bytes_written_again_are_noticed(tmp_path: Path) -> None:
    """By inode and time."""
    path = tmp_path / ".ai" / "HANDOFF.md"
    write_project_file(tmp_path, ".ai/HANDOFF.md", "pass")
    first = read_project_file(tmp_path, ".ai/HANDOFF.md", 100)
    assert first is not None
    status = path.stat()
    assert (status.st_ino, status.st_mtime_ns) == (first.inode, first.mtime_ns)

    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns + 1))
    second = read_project_file(tmp_path, ".ai/HANDOFF.md", 100)

    assert second is not None
    assert (b"pass", b"pass") == (first.content, second.content)
    assert first != second


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    """What others wrote stays, whatever its encoding; a missing log begins."""
    append_project_file(tmp_path, ".ai/history.md", "# History\n")
    (tmp_path / ".ai" / "history.md").write_bytes(b"caf\xe9\n")
    append_project_file(tmp_path, ".ai/history.md", "### Reopen 重開\n")

    assert b"caf\xe9\n" + "### Reopen 重開\n".encode() == (tmp_path / ".ai" / "history.md").read_bytes()
