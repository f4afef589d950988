"""Walking a process tree, signals that reach it and no other process, and the family of a shim."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync
from tests.support.runs import printed

from handoffd.execute.runner import proc, tree

FAMILY = "sleep 600 & setsid sleep 600 & (sleep 600 & wait) & wait"


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with three sleeping descendants of one generation and one of two, in two sessions."""
    with ending(subprocess.Popen(["sh", "-c", FAMILY], start_new_session=True)) as shell:
        # All of them: one that is still to be started would outlive the sweep.
        eventually_sync(lambda: len(sleepers(shell.pid)) == 3)
        yield shell
        tree.sweep(shell.pid, signal.SIGKILL)
        shell.kill()


def sleepers(root: int) -> list[tree.Member]:
    """Return the descendants that have become `sleep`."""
    return [m for m in tree.descendants(root) if proc.read(f"/proc/{m.pid}/comm") == b"sleep\n"]


def test_all_descendants_are_found_parents_first(family: subprocess.Popen[bytes]) -> None:
    """Sessions do not matter, and each process comes after its parent."""
    members = tree.descendants(family.pid)

    assert 4 == len(members)
    known = {family.pid}
    for member in members:
        assert member.parent in known
        known.add(member.pid)


def test_spared_processes_hide_those_below_them(family: subprocess.Popen[bytes]) -> None:
    """The launcher spares a shim together with all of the shim's processes."""
    parents = {m.parent for m in sleepers(family.pid)} - {family.pid}

    left = tree.descendants(family.pid, spare=parents)

    assert 2 == len(left)


def test_the_slow_way_finds_the_same(family: subprocess.Popen[bytes]) -> None:
    """Kernels without lists of children are served by reading all of /proc."""
    scanned = tree._children_by_scan()

    assert sorted(tree.children(family.pid)) == sorted(scanned[family.pid])


def test_sweep_reaches_all_and_returns_them(family: subprocess.Popen[bytes]) -> None:
    """One sweep of KILL ends every process below the root, and not the root."""
    expected = {m.pid for m in tree.descendants(family.pid)}

    result = tree.sweep(family.pid, signal.SIGKILL)

    assert tree.Sweep(expected, set()) == result
    eventually_sync(lambda: all((seen := proc.stat(pid)) is None or seen.ended for pid in expected))


def test_a_process_found_elsewhere_is_not_held(family: subprocess.Popen[bytes]) -> None:
    """A pid that another process has got since the walk is left alone."""
    with ending(subprocess.Popen(["sleep", "600"])) as stranger:
        held = tree._hold(tree.Member(stranger.pid, family.pid), family.pid)
        stranger.kill()

    assert None is held


def test_exact_signal_needs_the_right_start_time() -> None:
    """A record of a process must not reach another one with the same pid."""
    with ending(subprocess.Popen(["sleep", "600"])) as child:
        started = proc.started(child.pid)
        tree.signal_exactly(child.pid, started - 1, signal.SIGKILL)
        tree.signal_exactly(child.pid, started, signal.SIGTERM)

        assert -signal.SIGTERM == child.wait(timeout=60)  # the other one would have been there first


def test_walk_below_a_process_that_is_gone_is_empty() -> None:
    """A root that is gone has no descendants; that is not an error."""
    with ending(subprocess.Popen(["true"])) as child:
        child.wait()

    assert [] == tree.descendants(child.pid)
    assert tree.Sweep(set(), set()) == tree.sweep(child.pid, signal.SIGKILL)


def test_another_users_process_is_reported_as_refused() -> None:
    """It is not counted as reached."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a process of another user")
    program = """
from handoffd.execute.runner import tree
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.close(write_end); os.read(read_end, 1); os._exit(0)
os.setresuid(65534, 65534, 65534)
result = tree.sweep(os.getpid(), signal.SIGKILL)
print(result.refused == {child}, result.reached == set())
"""
    assert "True True\n" == printed(program)


# --- the family of a shim -----------------------------------------------------------------------------
# In a process of its own, which becomes a subreaper and the parent of all others.
HEAD = """
import time
from handoffd.execute.runner import proc, tree

def sleepers():
    below = tree.descendants(os.getpid())
    return sum(proc.read(f"/proc/{member.pid}/comm") == b"sleep\\n" for member in below)

def child(*argv):
    return os.posix_spawn("/bin/sh", ["sh", "-c", *argv], os.environ)

def rest(limit):
    time.sleep(max(0, min(limit - time.monotonic(), 0.01)))
    family.reap()

def until(condition):
    while not condition():
        rest(time.monotonic() + 1)

tree.become_subreaper("test")
family = tree.Family()
"""


def words(body: str) -> list[str]:
    """Return the words that a program prints which has a family."""
    return printed(HEAD + body).split()


def test_the_main_process_gives_the_result() -> None:
    """Others may end before it; its exit code counts, also when it comes late."""
    body = """
other = child("exit 1")
family.head(child("sleep 0.05; exit 3"))
print(family.result, family.ended)
until(lambda: family.ended)
until(lambda: family.is_empty)
print(family.result, family.killed)
"""
    assert ["None", "None", "3", "0"] == words(body)


def test_a_signal_reaches_all_processes_and_is_the_result_of_a_death_by_it() -> None:
    """Minus the number of the signal, as processes are reported elsewhere."""
    body = """
family.head(child("exec sleep 600"))
child("setsid sleep 600 & wait")
until(lambda: sleepers() == 2)
family.signal("TERM")
until(lambda: family.is_empty)
print(family.result)
"""
    assert ["-15"] == words(body)


def test_the_end_leaves_no_process_and_counts_its_kills() -> None:
    """Also of processes that ignore TERM and have a session of their own."""
    body = """
family.head(child("(trap '' TERM; setsid sleep 600 & setsid sleep 600 &) & exit 4"))
until(lambda: family.ended and sleepers() == 2)
family.end(rest)
print(family.result, family.killed >= 2, family.is_empty, family.survived, tree.descendants(os.getpid()))
"""
    assert ["4", "True", "True", "0", "[]"] == words(body)


def test_an_empty_family_ends_at_once() -> None:
    """A run that could not be started has no processes."""
    body = "family.end(rest)\nprint(family.result, family.is_empty, family.killed)"
    assert ["None", "True", "0"] == words(body)
