"""/proc is read right, and a process that is gone is not an error."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.execute.runner import proc


def test_own_entry_agrees_with_another_reader() -> None:
    """Parent, start time and state come from the right fields."""
    seen = proc.stat(os.getpid())
    other = psutil.Process()

    assert seen is not None
    assert os.getppid() == seen.parent
    boot_time = psutil.boot_time()
    assert abs(other.create_time() - boot_time - seen.started / proc.TICKS_PER_SECOND) < 2
    assert not seen.ended


def test_command_name_may_have_parentheses() -> None:
    """A process may take any name; the fields after it are found all the same."""
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'x) R 1 (', 0, 0, 0); print(flush=True); input()"
    command, pipe = [sys.executable, "-I", "-S", "-c", code], subprocess.PIPE
    with ending(subprocess.Popen(command, stdin=pipe, stdout=pipe)) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = proc.stat(child.pid)
        child.kill()

    assert seen is not None
    assert os.getpid() == seen.parent


def test_identity_is_pid_and_start_time_and_boot() -> None:
    """A pid that was used again, or is from before a reboot, names another process."""
    me, started, boot = os.getpid(), proc.started(os.getpid()), proc.boot_id()

    assert proc.is_running(me, started, boot)
    assert not proc.is_running(me, started + 1, boot)
    assert not proc.is_running(me, started, "another boot")


def test_a_process_is_alive_until_it_has_ended() -> None:
    """0, which means a hidden process, and another account's count as alive."""
    assert all(proc.is_alive(pid) for pid in (os.getpid(), 0, 1))


def test_an_unreaped_process_is_not_running() -> None:
    """A zombie is an entry in a table, not a process."""
    with ending(subprocess.Popen(["true"])) as child:
        eventually_sync(lambda: (seen := proc.stat(child.pid)) is not None and seen.ended)
        assert not proc.is_running(child.pid, proc.started(child.pid), proc.boot_id())
        assert not proc.is_alive(child.pid)

    assert not proc.is_alive(child.pid)
    assert proc.stat(child.pid) is None
    assert 0 == proc.started(child.pid)
    assert proc.written(child.pid) is None
