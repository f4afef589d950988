from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually, eventually_sync

from handoffd.errors import Locked, StoreError
from handoffd.store.lock import (
    acquire,
    acquire_within,
    daemon_lock_path,
    holder_of,
    project_lock_path,
)

_HOLD = """
import sys
from pathlib import Path
from handoffd.store.lock import acquire
with acquire(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield another process that holds the lock until its stdin is closed or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    with process:
        assert "held\n" == process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_is_had_once(tmp_path: Path) -> None:
    """Even in one process a second one is refused, and a released one is free."""
    path = daemon_lock_path(tmp_path)

    lock = acquire(path, "the state directory")
    with pytest.raises(Locked, match=f"the state directory is in use by process {os.getpid()}"):
        acquire(path, "the state directory")

    lock.release()
    acquire(path, "the state directory").release()


def test_the_holder_is_named(tmp_path: Path) -> None:
    """Who is in the way: pid, command line and since when."""
    path = tmp_path / "locks" / "x.lock"

    with held_elsewhere(path) as process:
        with pytest.raises(Locked) as caught:
            acquire(path, "the project /srv/shop")
        holder = holder_of(path)

    assert f"the project /srv/shop is in use by process {process.pid} (" in caught.value.message
    assert "import sys from pathlib import Path" in caught.value.message
    assert " UTC" in caught.value.message
    assert "handoffd status" == caught.value.hint
    assert holder is not None
    assert process.pid == holder.pid


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    """The lock is free at once, the file stays, and nobody is named for it."""
    path = tmp_path / "x.lock"
    with held_elsewhere(path) as process:
        inode = path.stat().st_ino
        process.kill()
        process.wait(timeout=60)

        assert holder_of(path) is None
        with acquire(path, "it"):
            assert inode == path.stat().st_ino


def test_a_reused_pid_is_not_taken_for_the_holder(tmp_path: Path) -> None:
    """The start time tells a process from a later one with its number."""
    path = tmp_path / "x.lock"
    path.write_text(f'{{"pid": {os.getpid()}, "started": 1}}')

    assert holder_of(path) is None


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "started": null}'])
def test_an_unreadable_note_names_nobody(tmp_path: Path, note: str) -> None:
    """What is in the file is for messages only; the lock works without."""
    path = tmp_path / "x.lock"
    path.write_text(note)

    assert holder_of(path) is None
    acquire(path, "it").release()


def test_two_ways_to_a_project_are_one_lock(tmp_path: Path) -> None:
    """Device and inode name a root; a symlink to it is no second project."""
    for name in ("shop", "blog"):
        (tmp_path / name).mkdir()
    (tmp_path / "alias").symlink_to("shop")

    shop, alias, blog = (
        project_lock_path(tmp_path / "state", tmp_path / n) for n in ("shop", "alias", "blog")
    )

    assert shop == alias
    assert shop != blog
    assert tmp_path / "state" / "locks" == shop.parent
    with pytest.raises(StoreError, match="is gone"):
        project_lock_path(tmp_path / "state", tmp_path / "gone")


def test_lock_files_are_private(tmp_path: Path) -> None:
    """Others cannot take our locks: that would stop the daemon."""
    path = tmp_path / "state" / "locks" / "x.lock"

    acquire(path, "it").release()

    assert (0o600, 0o700) == tuple(stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent))


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """What we start must not hold our locks after us."""
    path = tmp_path / "x.lock"
    lock = acquire(path, "it")
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        lock.release()
        try:
            acquire(path, "it").release()
        finally:
            child.kill()


async def test_waiting_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    """A short wait bridges a verb that is just finishing."""
    path = tmp_path / "x.lock"
    first, got = acquire(path, "it"), list[Path]()

    async def wait() -> None:
        with await acquire_within(path, "it", 60) as lock:
            got.append(lock.path)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        assert [] == got
        first.release()
        await eventually(lambda: got == [path])


async def test_waiting_has_a_limit(tmp_path: Path) -> None:
    """After it, the holder is named as without waiting."""
    with acquire(tmp_path / "x.lock", "it"), pytest.raises(Locked, match=f"process {os.getpid()}"):
        await acquire_within(tmp_path / "x.lock", "it", 0.03)


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """A symlink in its place is not followed."""
    (tmp_path / "x.lock").symlink_to("elsewhere")

    with pytest.raises(StoreError, match="cannot open the lock"):
        acquire(tmp_path / "x.lock", "it")

    assert ["x.lock"] == os.listdir(tmp_path)


def test_a_holder_that_ends_frees_the_lock(tmp_path: Path) -> None:
    """However a process ends, the kernel gives the lock back."""
    path = tmp_path / "x.lock"
    with held_elsewhere(path) as process:
        assert process.stdin
        process.stdin.close()
        eventually_sync(lambda: process.poll() == 0)

        acquire(path, "it").release()
