"""The control group of a run: nobody gets out of it, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.cgroups import delegated, groups_in, members
from tests.support.children import ending
from tests.support.eventually import eventually, eventually_sync
from tests.support.runs import (
    PYTHON,
    end_processes,
    hydra_is_grown,
    launchers,
    processes,
    run_spec,
    script,
    unit,
)

from handoffd.execute.process import Launcher
from handoffd.execute.run import Run
from handoffd.execute.runner import cgroup, launcher, proc

PROGRAM = Path(launcher.__file__)
INSIDE = f"""\
import os, sys
sys.path.append({str(PROGRAM.parents[3])!r})
from handoffd.execute.runner import cgroup, proc
group = cgroup.Group(sys.argv[1], os.getpid(), proc.started(os.getpid()))
assert group.enter()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
assert group.leave()
print("left", flush=True)
sys.stdin.read()
"""
"""Leaves three nameless processes in its group, leaves that itself, and stays."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A control group that is ours to divide."""
    with delegated() as place:
        yield place


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for one test, with no process left in it afterwards."""
    yield tmp_path
    end_processes(tmp_path)


def filled(place: Path) -> subprocess.Popen[str]:
    """Return the leader of a group that it is not in."""
    leader = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", INSIDE, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leader.stdout is not None
    assert "left" == leader.stdout.readline().strip()
    return leader


async def hidden(root: Path, socket: Path) -> Run:
    """Return a run whose eight processes hide in every way there is."""
    marker = str(root / "marker")
    spec = run_spec(root, "r1", *script("hydra", marker, "stay"), deadline_s=None)
    run = await Launcher(socket, managed=True).start(root / "r1", spec)
    await eventually(lambda: hydra_is_grown(marker))
    return run


def test_one_write_ends_everybody_in_a_group(place: Path) -> None:
    """Each in a session of its own, without an environment; then the group can be removed."""
    with ending(filled(place)) as leader:
        group = cgroup.Group(str(place), leader.pid, proc.started(leader.pid))
        inside = members(*groups_in(place))

        assert 3 == len(inside)
        assert inside == group.kill()

        eventually_sync(lambda: not members(*groups_in(place)))
        assert set() == group.kill()
        group.remove()
        assert [] == groups_in(place)
        leader.kill()


def test_groups_go_with_their_leaders(place: Path) -> None:
    """A living one's is left alone; a foreign name is nobody's; a pid alone is no identity."""
    (place / "somebody-else").mkdir()
    with ending(filled(place)) as dead, ending(filled(place)) as living:
        reused = place / f"handoffd-run-{living.pid}-1"
        reused.mkdir()
        dead.kill()
        dead.wait()

        def is_ended() -> bool:
            cgroup.end_orphans(str(place))
            return len(groups_in(place)) == 2

        eventually_sync(is_ended)
        assert 3 == len(members(*groups_in(place)))
        kept = f"handoffd-run-{living.pid}-{proc.started(living.pid)}"
        assert {"somebody-else", kept} == {folder.name for folder in groups_in(place)}
        living.kill()


def test_where_no_group_can_be_made_there_is_none(tmp_path: Path) -> None:
    """The tree has to do then: that costs the net, not the run."""
    group = cgroup.Group(str(tmp_path / "nowhere"), os.getpid(), 1)

    assert not group.enter()
    assert set() == group.kill()
    group.remove()
    cgroup.end_orphans(str(tmp_path / "nowhere"))


async def test_a_run_has_its_group_and_takes_it_along(root: Path, place: Path) -> None:
    """With the shim outside: it writes the exit record after everybody in it was ended."""
    socket = root / "run" / "launcher.sock"
    with unit(PROGRAM, socket, place):
        await eventually(lambda: launchers(socket))
        run = await hidden(root, socket)
        inside = members(*groups_in(place))
        assert set(processes(str(root / "marker"))) <= inside
        assert run.shim_pid not in inside

        run.stop()
        await run.wait()

        await eventually(lambda: not processes(str(root / "marker")))
        await eventually(lambda: 1 == len(groups_in(place)))  # of the shim that waits for the next run


@pytest.mark.parametrize("shim_first", [True, False])
async def test_nobody_outlives_launcher_and_shim(root: Path, place: Path, shim_first: bool) -> None:
    """Nobody descends from us then, or bears the run's name; the next launcher finds them all the same.

    Also when it is there already as the shim goes, which is no child of its.
    """
    socket = root / "run" / "launcher.sock"
    with unit(PROGRAM, socket, place):
        await eventually(lambda: launchers(socket))
        run = await hidden(root, socket)
        (first,) = launchers(socket)

        if shim_first:
            os.kill(first, signal.SIGSTOP)  # or it would end them, when the shim goes before it
            os.kill(run.shim_pid, signal.SIGKILL)
        os.kill(first, signal.SIGKILL)
        if not shim_first:
            await eventually(
                lambda: first not in (launchers(socket) or [first]) and 2 == len(groups_in(place))
            )
            os.kill(run.shim_pid, signal.SIGKILL)

        await eventually(lambda: not processes(str(root / "marker")))
        await eventually(lambda: 1 == len(groups_in(place)))


@pytest.fixture
async def alone(root: Path, place: Path) -> AsyncIterator[tuple[Run, Path]]:
    """Lend a run and its group, whose shim cannot count on the launcher: that one is frozen."""
    socket = root / "run" / "launcher.sock"
    with unit(PROGRAM, socket, place):
        await eventually(lambda: launchers(socket))
        run = await hidden(root, socket)
        (first,) = launchers(socket)
        os.kill(first, signal.SIGSTOP)
        yield run, place / f"handoffd-run-{run.shim_pid}-{proc.started(run.shim_pid)}"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that descends from no shim."""
    with ending(subprocess.Popen(["sleep", "600"])) as process:
        yield process
        process.kill()


async def test_a_shim_ends_who_came_into_its_group_from_elsewhere(
    alone: tuple[Run, Path], stranger: subprocess.Popen[bytes]
) -> None:
    """No walk over its descendants would find such a process."""
    run, group = alone
    (group / "cgroup.procs").write_text(str(stranger.pid))

    run.stop()
    await run.wait()

    await eventually(lambda: stranger.poll() is not None)


async def test_a_shim_removes_its_group(alone: tuple[Run, Path]) -> None:
    """The launcher would remove it some time, unless it is gone by then."""
    run, group = alone
    assert group.is_dir()

    run.stop()
    await run.wait()

    await eventually(lambda: not group.exists())
