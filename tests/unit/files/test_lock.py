from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.children import ending
from tests.support.eventually import eventually, eventually_sync

from handoffd.errors import Locked, StoreError
from handoffd.files.locks import (
    acquire,
    acquire_project,
    acquire_within,
    daemon_lock_path,
    holder_of,
    project_lock_path,
)

_HOLD = """
import sys
from pathlib import Path
from handoffd.files.locks import acquire
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
    with ending(process):
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
    with ending(subprocess.Popen(["sleep", "600"], close_fds=False)) as child:
        lock.release()
        try:
            acquire(path, "it").release()
        finally:
            child.kill()


def held_folder(root: Path, state: Path, then: str = "sys.stdin.read()") -> subprocess.Popen[str]:
    """Return another process that has a project locked from another state directory."""
    return subprocess.Popen(
        [sys.executable, "-c", _HOLD_FOLDER.format(then=then), str(root), str(state)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


_HOLD_FOLDER = """
import os, subprocess, sys
from pathlib import Path
from handoffd.files.locks import acquire, acquire_project, daemon_lock_path, project_lock_path
root, state = map(Path, sys.argv[1:])
daemon = acquire(daemon_lock_path(state), "it")
lock = acquire_project(project_lock_path(state, root), root)
print("held", flush=True)
{then}
"""


def first_line(process: subprocess.Popen[str]) -> str:
    """Return what a process prints first."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project's folder."""
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def test_a_project_has_one_writer_whatever_its_state_directory(tmp_path: Path, root: Path) -> None:
    """Who has it is told, with the state directory; as soon as that process is killed, it is free."""
    mine = project_lock_path(tmp_path / "mine", root)
    with ending(held_folder(root, tmp_path / "theirs")) as process:
        try:
            assert "held" == first_line(process)
            with pytest.raises(Locked) as caught:
                acquire_project(mine, root)
        finally:
            process.kill()

    assert f"the project {root} is in use by process {process.pid} (" in caught.value.message
    assert f"whose state directory is {tmp_path / 'theirs'}" in caught.value.message
    assert {"pid": process.pid, "state_dir": str(tmp_path / "theirs")} == caught.value.details
    assert f"handoffd remove {root}" == (caught.value.hint or "").partition("  #")[0]
    acquire_project(mine, root).release()
    assert not (tmp_path / "mine").exists()  # it needs no file
    assert [] == os.listdir(root)


def test_a_project_lock_is_not_inherited_by_a_child_that_survives(tmp_path: Path, root: Path) -> None:
    """The holder is killed while what it started goes on, with every descriptor it was given."""
    then = "print(subprocess.Popen(['sleep', '600'], close_fds=False).pid, flush=True); sys.stdin.read()"
    with ending(held_folder(root, tmp_path / "theirs", then)) as process:
        assert "held" == first_line(process)
        child = int(first_line(process))
        process.kill()
    try:
        os.kill(child, 0)
        acquire_project(project_lock_path(tmp_path / "mine", root), root).release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_that_is_dropped_is_free(tmp_path: Path, root: Path) -> None:
    """A thread had it after its caller had gone, and nobody is left to release it."""
    path = project_lock_path(tmp_path, root)
    lock = acquire_project(path, root)
    with pytest.raises(Locked, match=f"process {os.getpid()}"):
        acquire_project(path, root)

    del lock

    acquire_project(path, root).release()


def test_another_folder_than_the_one_that_was_looked_at_is_not_locked(tmp_path: Path, root: Path) -> None:
    """It may have been put there a moment ago; the next look finds out what it is."""
    path = project_lock_path(tmp_path, root)
    root.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="is gone"):
        acquire_project(path, root)

    root.mkdir()
    with pytest.raises(StoreError, match="another folder was put at"):
        acquire_project(path, root)

    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot lock the project"):
        acquire_project(path, tmp_path / "file")


def test_where_the_folder_cannot_be_locked_a_file_has_to_do() -> None:
    """A folder that this account may not list, for one; that is logged once, and the holder is named."""
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o777)
        shop = Path(base, "shop")
        shop.mkdir(mode=0o311)
        done = subprocess.run(
            [sys.executable, "-c", _BY_FILE, base], capture_output=True, text=True, timeout=60, check=False
        )

    assert ("True\n", 0) == (done.stdout.splitlines(keepends=True)[-1], done.returncode), done.stderr
    assert 1 == done.stdout.count("project locked for this state directory only")


_BY_FILE = """
import os, sys
from pathlib import Path
from handoffd.errors import Locked
from handoffd.files.locks import acquire_project, project_lock_path
if os.geteuid() == 0:
    os.seteuid(65534)
state, root = Path(sys.argv[1], "state"), Path(sys.argv[1], "shop")
path = project_lock_path(state, root)
acquire_project(path, root).release()
with acquire_project(path, root):
    try:
        acquire_project(path, root)
    except Locked as locked:
        print(path.exists() and f"process {os.getpid()}" in locked.message)
"""


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
