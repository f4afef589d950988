from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.children import ending
from tests.support.eventually import eventually

from handoffd.errors import Locked, StoreError
from handoffd.files.locks import (
    FileLock,
    acquire,
    acquire_project,
    acquire_within,
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
def held_elsewhere(*arguments: Path, program: str = _HOLD) -> Iterator[subprocess.Popen[str]]:
    """Yield another process that holds the lock until its stdin is closed or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    with ending(process):
        assert "held\n" == process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project's folder."""
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


@pytest.fixture(params=["a file", "a project's folder"])
def take(request: pytest.FixtureRequest, tmp_path: Path, root: Path) -> Callable[[], FileLock]:
    """Return how a lock of either kind is acquired."""
    path = project_lock_path(tmp_path, root)
    by_folder = request.param == "a project's folder"
    return lambda: acquire_project(path, root) if by_folder else acquire(path, f"the project {root}")


def test_a_lock_is_held_once(take: Callable[[], FileLock], root: Path) -> None:
    """Even one process cannot take it twice; it is free after its release, or when it is dropped."""
    for give_back in (FileLock.release, lambda _: None):
        lock = take()
        with pytest.raises(Locked, match=f"the project {root} is in use by process {os.getpid()}"):
            take()

        give_back(lock)
        del lock

        take().release()


def test_a_child_does_not_inherit_the_lock(take: Callable[[], FileLock]) -> None:
    """A process that we start does not keep our lock after us."""
    lock = take()
    with ending(subprocess.Popen(["sleep", "600"], close_fds=False)) as child:
        lock.release()
        try:
            take().release()
        finally:
            child.kill()


def test_the_holder_is_named(tmp_path: Path) -> None:
    """By pid, command line and since when."""
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


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_holder_that_has_ended_leaves_nothing_behind(tmp_path: Path, is_killed: bool) -> None:
    """The lock is free at once, the file stays, and no holder is named."""
    path = tmp_path / "x.lock"
    with held_elsewhere(path) as process:
        inode = path.stat().st_ino
        if is_killed:
            process.kill()
        else:
            process.communicate()
        process.wait(timeout=60)

        assert holder_of(path) is None
        with acquire(path, "it"):
            assert inode == path.stat().st_ino


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "started": null}', '{"pid": OURS, "started": 1}']
)
def test_a_useless_note_names_no_holder(tmp_path: Path, note: str) -> None:
    """Nor one of an earlier process with our pid. The note serves messages only; the lock works without."""
    path = tmp_path / "x.lock"
    path.write_text(note.replace("OURS", str(os.getpid())))

    assert holder_of(path) is None
    acquire(path, "it").release()


def test_two_ways_to_a_project_are_one_lock(tmp_path: Path) -> None:
    """Device and inode name a root; a symlink to it is the same project."""
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
    """Other accounts cannot take our locks and so stop the daemon."""
    path = tmp_path / "state" / "locks" / "x.lock"

    acquire(path, "it").release()

    assert (0o600, 0o700) == tuple(stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent))


_HOLD_FOLDER = """
import sys
from pathlib import Path
from handoffd.files.locks import acquire, acquire_project, daemon_lock_path, project_lock_path
root, state = map(Path, sys.argv[1:])
daemon = acquire(daemon_lock_path(state), "it")
lock = acquire_project(project_lock_path(state, root), root)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_project_has_one_writer_whatever_its_state_directory(tmp_path: Path, root: Path) -> None:
    """The refusal names the process and its state directory; after a kill the project is free."""
    theirs, mine = tmp_path / "theirs", project_lock_path(tmp_path / "mine", root)
    with held_elsewhere(root, theirs, program=_HOLD_FOLDER) as process, pytest.raises(Locked) as caught:
        acquire_project(mine, root)

    assert f"the project {root} is in use by process {process.pid} (" in caught.value.message
    assert f"whose state directory is {theirs}" in caught.value.message
    assert {"pid": process.pid, "state_dir": str(theirs)} == caught.value.details
    assert f"handoffd remove {root}" == (caught.value.hint or "").partition("  #")[0]
    acquire_project(mine, root).release()
    assert not (tmp_path / "mine").exists()  # it needs no file
    assert [] == os.listdir(root)


def test_a_folder_that_was_replaced_is_not_locked(tmp_path: Path, root: Path) -> None:
    """Nor one that is gone, nor a file in its place."""
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


def test_where_the_folder_cannot_be_locked_a_file_is() -> None:
    """As where this account may not list it; that is logged once, and the holder is named."""
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
