"""Walking a process tree, and signals that reach it and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync

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


def test_everybody_below_is_found_parents_first(family: subprocess.Popen[bytes]) -> None:
    """Sessions do not matter, and who is listed comes after the parent it is listed under."""
    members = tree.descendants(family.pid)

    assert 4 == len(members)
    known = {family.pid}
    for member in members:
        assert member.parent in known
        known.add(member.pid)


def test_spared_processes_hide_those_below_them(family: subprocess.Popen[bytes]) -> None:
    """What the launcher spares is a shim with all that is the shim's own business."""
    parents = {m.parent for m in sleepers(family.pid)} - {family.pid}

    left = tree.descendants(family.pid, spare=parents)

    assert 2 == len(left)


def test_the_slow_way_finds_the_same(family: subprocess.Popen[bytes]) -> None:
    """Kernels without lists of children are served by reading all of /proc."""
    scanned = tree._children_by_scan()

    assert sorted(tree.children(family.pid)) == sorted(scanned[family.pid])


def test_sweep_reaches_all_and_tells_whom(family: subprocess.Popen[bytes]) -> None:
    """One sweep of KILL ends everybody below the root, and not the root."""
    expected = {m.pid for m in tree.descendants(family.pid)}

    result = tree.sweep(family.pid, signal.SIGKILL)

    assert tree.Sweep(expected, set()) == result
    eventually_sync(lambda: all((seen := proc.stat(pid)) is None or seen.ended for pid in expected))


def test_a_process_found_elsewhere_is_not_held(family: subprocess.Popen[bytes]) -> None:
    """A pid that has been used again since the walk, by somebody else's child, is left alone."""
    with ending(subprocess.Popen(["sleep", "600"])) as stranger:
        held = tree._hold(tree.Member(stranger.pid, family.pid), family.pid)
        stranger.kill()

    assert None is held


def test_exact_signal_needs_the_right_start_time() -> None:
    """A record of a process is not good for another one with the same pid."""
    with ending(subprocess.Popen(["sleep", "600"])) as child:
        started = proc.started(child.pid)
        tree.signal_exactly(child.pid, started - 1, signal.SIGKILL)
        tree.signal_exactly(child.pid, started, signal.SIGTERM)

        assert -signal.SIGTERM == child.wait(timeout=60)  # the other one would have been there first


def test_walk_of_nobody_is_empty() -> None:
    """A root that is gone has no descendants; that is not an error."""
    with ending(subprocess.Popen(["true"])) as child:
        child.wait()

    assert [] == tree.descendants(child.pid)
    assert tree.Sweep(set(), set()) == tree.sweep(child.pid, signal.SIGKILL)


def test_another_users_process_is_reported_as_refused() -> None:
    """What may not be signalled is told apart from what was reached."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a process of another user below one of nobody's")
    code = (
        "import os, signal, sys\n"
        "sys.path.append(sys.argv[1])\n"
        "from handoffd.execute.runner import tree\n"
        "read_end, write_end = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(write_end); os.read(read_end, 1); os._exit(0)\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "result = tree.sweep(os.getpid(), signal.SIGKILL)\n"
        "print(result.refused == {child}, result.reached == set())\n"
    )
    package = str(Path(tree.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, package], capture_output=True, check=False, timeout=60
    )

    assert b"True True\n" == done.stdout, done.stderr
