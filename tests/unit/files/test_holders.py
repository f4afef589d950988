"""Who holds a lock: what /proc tells, also of a lock that was inherited, and what cannot be had."""

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
def test_who_has_a_folder_locked_is_found(tmp_path: Path, then: str) -> None:
    """The process that took the lock, or one that was left with it when that had ended."""
    with holding(tmp_path, then) as pid:
        found = holder_of_folder(os.stat(tmp_path))

    assert found is not None
    assert (pid, None, None) == (found.pid, found.account, found.state_dir)
    assert "import fcntl, os, sys, time" in (found.command or "")


def test_under_another_device_the_descriptor_decides(tmp_path: Path) -> None:
    """Where the kernel lists locks under a device of its own, as of Btrfs, the inode alone proves nothing."""
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        here = os.stat(tmp_path)
        elsewhere = os.stat_result((*here[:2], here.st_dev + 1, *here[3:]))

        assert holder_of_folder(elsewhere) is None
        assert os.getpid() == getattr(holder_of_folder(here), "pid", None)
    finally:
        os.close(handle)


def test_a_folder_that_is_free_has_no_holder(tmp_path: Path) -> None:
    """An open descriptor is not a lock."""
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        assert holder_of_folder(os.stat(tmp_path)) is None
    finally:
        os.close(handle)


def test_a_holder_is_told_as_far_as_it_is_known() -> None:
    """What this account may not see is left out."""
    since = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)
    whole = Holder(pid=7, since=since, command="vi", account="mei", state_dir=Path("/srv/state"))

    assert "process 7" == str(Holder(pid=7))
    assert (
        "process 7 of mei (vi) since 2026-01-31 22:15:00 UTC, whose state directory is /srv/state"
        == str(whole)
    )  # fmt: skip


def test_a_process_began_at_one_time() -> None:
    """None when there is no such process."""
    assert started_at(os.getpid()) == started_at(os.getpid()) is not None
    assert started_at(2**22 + 1) is None
