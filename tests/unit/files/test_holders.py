"""Finding the holder of a lock in /proc."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.children import ending

from handoffd.files.locks import Holder, holder_of_folder, started_at

_HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
{then}
print(os.getpid(), flush=True)
sys.stdin.read()
"""
_BY_A_CHILD = """
parent = os.getpid()
if os.fork(): os._exit(0)
while os.getppid() == parent: time.sleep(0.001)
"""


@contextmanager
def holding(folder: Path, then: str = "") -> Iterator[int]:
    """Yield the pid of a process that has a folder locked."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD.format(then=then), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with ending(process):
        assert process.stdout
        yield int(process.stdout.readline())
        assert process.stdin
        process.stdin.close()


@pytest.mark.parametrize("then", ["", _BY_A_CHILD], ids=["itself", "a child that inherited it"])
def test_the_holder_of_a_folder_is_found(tmp_path: Path, then: str) -> None:
    """The process that took the lock, or the one that has it after that ended."""
    with holding(tmp_path, then) as pid:
        found = holder_of_folder(os.stat(tmp_path))

    assert found is not None
    assert (pid, None, None) == (found.pid, found.account, found.state_dir)
    assert "import fcntl, os, sys, time" in (found.command or "")


def test_a_locked_descriptor_decides(tmp_path: Path) -> None:
    """An open one is not a lock; an inode on another device, as Btrfs has in /proc/locks, proves nothing."""
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        here = os.stat(tmp_path)
        elsewhere = os.stat_result((*here[:2], here.st_dev + 1, *here[3:]))
        assert holder_of_folder(here) is None
        fcntl.flock(handle, fcntl.LOCK_EX)

        assert holder_of_folder(elsewhere) is None
        assert os.getpid() == getattr(holder_of_folder(here), "pid", None)
    finally:
        os.close(handle)


def test_the_text_leaves_out_what_is_unknown() -> None:
    """This account may not see all of a process."""
    since = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)
    whole = Holder(pid=7, since=since, command="vi", account="mei", state_dir=Path("/srv/state"))

    assert "process 7" == str(Holder(pid=7))
    assert (
        "process 7 of mei (vi) since 2026-01-31 22:15:00 UTC, whose state directory is /srv/state"
        == str(whole)
    )  # fmt: skip


def test_a_process_has_one_start_time() -> None:
    """A process that does not exist has none."""
    assert started_at(os.getpid()) == started_at(os.getpid()) is not None
    assert started_at(2**22 + 1) is None
