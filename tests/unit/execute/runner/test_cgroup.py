"""The control group of a run: no process gets out of it, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.cgroups import delegated, groups_in, members, with_controllers
from tests.support.children import ending
from tests.support.eventually import eventually, eventually_sync
from tests.support.runs import (
    PYTHON,
    hydra_is_grown,
    launchers,
    printed,
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


def filled(place: Path) -> subprocess.Popen[str]:
    """Return the leader of a group that it is not in."""
    leader = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", INSIDE, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
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


def test_one_write_ends_all_processes_of_a_group(place: Path) -> None:
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
    """A living one's stays, and so does a group of another name; a pid alone is not an identity."""
    (place / "another-name").mkdir()
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
        assert {"another-name", kept} == {folder.name for folder in groups_in(place)}
        living.kill()


def test_where_no_group_can_be_made_there_is_none(tmp_path: Path) -> None:
    """The process tree is the only net then, but the run goes on."""
    group = cgroup.Group(str(tmp_path / "nowhere"), os.getpid(), 1)

    assert not group.enter()
    assert set() == group.kill()
    group.remove()
    cgroup.end_orphans(str(tmp_path / "nowhere"))


async def test_a_run_has_its_group_and_takes_it_along(root: Path, place: Path) -> None:
    """With the shim outside: it writes the exit record after it has ended every process of the group."""
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
async def test_no_process_outlives_launcher_and_shim(root: Path, place: Path, shim_first: bool) -> None:
    """They do not descend from us then, nor name the run; but the next launcher finds them.

    Also when it has started before the shim ends, which is not its child.
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
    """Lend a run and its group, whose shim gets no help from the launcher: that one is frozen."""
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


async def test_a_shim_ends_its_whole_group_and_removes_it(
    alone: tuple[Run, Path], stranger: subprocess.Popen[bytes]
) -> None:
    """Also a process that came in from elsewhere, which no walk over its descendants would find."""
    run, group = alone
    (group / "cgroup.procs").write_text(str(stranger.pid))

    run.stop()
    await run.wait()

    await eventually(lambda: stranger.poll() is not None)
    await eventually(lambda: not group.exists())


# --- controllers ----------------------------------------------------------------------------------
# Those that limit memory and tasks may not be in the hierarchy here: `make test-systemd-vm` has them.
FILES = (
    "memory.max", "memory.peak", "memory.events", "memory.events.local",
    "pids.max", "pids.peak", "pids.events",
)  # fmt: skip


@pytest.fixture
def group(tmp_path: Path) -> tuple[cgroup.Group, Path]:
    """A group, as far as files can be one, that has its controllers."""
    folder = tmp_path / "handoffd-run-7-9"
    folder.mkdir()
    counted(folder, dict.fromkeys(FILES, "max"))
    return cgroup.Group(str(tmp_path), 7, 9), folder


def counted(folder: Path, files: dict[str, str]) -> None:
    """Write files as the kernel does."""
    for name, text in files.items():
        (folder / name).write_text(text)


def test_a_group_is_given_its_limits(group: tuple[cgroup.Group, Path]) -> None:
    """In bytes, and in processes and threads."""
    ours, folder = group

    ours.limit(4 << 30, 512)

    assert str(4 << 30) == (folder / "memory.max").read_text()
    assert (4 << 30, 512) == (ours.taken.memory_max, ours.taken.tasks_max)


def test_a_run_took_what_the_kernel_counted(group: tuple[cgroup.Group, Path]) -> None:
    """A run for which the whole machine had too little memory has not met its own limit."""
    ours, folder = group
    counted(folder, {"memory.peak": "1000\n", "pids.peak": "12\n", "pids.events": "max 3\n"})
    counted(folder, {"memory.events": "low 0\noom 2\noom_kill 1\n", "memory.events.local": "oom 0\n"})

    taken = ours.taken
    assert (1000, 12, 3) == (taken.memory_peak, taken.tasks_peak, taken.tasks_refused)
    assert (1, False, None) == (taken.memory_kills, taken.memory_met, taken.memory_max)

    counted(folder, {"memory.events.local": "oom 1\n"})
    assert ours.taken.memory_met


def test_without_controllers_nothing_is_known(tmp_path: Path) -> None:
    """None of these files exist, and limits cannot be set."""
    (tmp_path / "handoffd-run-7-9").mkdir()
    group = cgroup.Group(str(tmp_path), 7, 9)

    group.limit(1 << 30, 64)

    assert cgroup.Taken() == group.taken
    assert cgroup.Taken() == cgroup.Group(str(tmp_path), 8, 9).taken


def test_limits_and_counts_outlast_controllers_that_are_off_for_a_while(
    group: tuple[cgroup.Group, Path], tmp_path: Path
) -> None:
    """The next launcher sets the limits again, for agents that an earlier one has started."""
    ours, folder = group
    ours.limit(4 << 30, 512)
    counted(folder, {"memory.peak": "1000", "pids.peak": "12", "pids.events": "max 1"})
    counted(folder, {"memory.events": "oom_kill 1", "memory.events.local": "oom 1"})
    counted(tmp_path, dict.fromkeys(("cgroup.controllers", "cgroup.subtree_control"), "memory pids"))

    cgroup.switch_off(f"{tmp_path}/.control")
    counted(tmp_path, {"cgroup.subtree_control": "", "cgroup.procs": ""})
    counted(
        folder, {"memory.max": "max", "memory.peak": "500", "memory.events": "", "memory.events.local": ""}
    )
    counted(folder, {"pids.max": "max", "pids.peak": "20", "pids.events": "max 1"})
    (tmp_path / cgroup.LAUNCHERS).mkdir()
    assert cgroup.switch_on(str(tmp_path))

    assert (str(4 << 30), "512") == ((folder / "memory.max").read_text(), (folder / "pids.max").read_text())
    taken = ours.taken
    assert (1000, 20, 2) == (taken.memory_peak, taken.tasks_peak, taken.tasks_refused)
    assert (1, True) == (taken.memory_kills, taken.memory_met)


def test_the_notes_on_a_group_may_be_nonsense(group: tuple[cgroup.Group, Path]) -> None:
    """The agent may write to its own group."""
    ours, folder = group
    for nonsense in (b"", b"[1]", b'{"memory_max": []}', b"\xff"):
        os.setxattr(folder, "user.handoffd", nonsense)
        assert ours.taken.memory_peak is None


def test_controllers_are_on_for_groups_and_off_for_a_start() -> None:
    """The kernel lets no process into a group whose groups have controllers, so the launcher has its own."""
    with with_controllers() as (place, controllers), ending(filled(place)) as leader:
        leader_group = place / f"handoffd-run-{leader.pid}-{proc.started(leader.pid)}"
        (place / "cgroup.procs").write_text(str(leader.pid))

        assert cgroup.switch_on(str(place), controllers)

        assert set(controllers) == set((leader_group / "cgroup.controllers").read_text().split())
        assert {leader.pid} == members(place / cgroup.LAUNCHERS)
        with pytest.raises(OSError, match="busy"):
            (place / "cgroup.procs").write_text(str(leader.pid))
        assert cgroup.switch_on(str(place), controllers)

        cgroup.switch_off(str(place), controllers)

        (place / "cgroup.procs").write_text(str(leader.pid))
        assert 3 == len(members(leader_group))
        leader.kill()


def test_a_launcher_that_follows_from_the_same_process_divides_the_same_group(place: Path) -> None:
    """That process is in the launchers' own group by then."""
    (place / cgroup.LAUNCHERS).mkdir()
    program = """
with open(sys.argv[1] + "/cgroup.procs", "w") as file: file.write("0")
from handoffd.execute.runner import cgroup
print(cgroup.own())
"""
    for folder in (place, place / cgroup.LAUNCHERS):
        assert str(place) == printed(program, str(folder)).strip()


def test_without_controllers_nothing_is_moved(place: Path) -> None:
    """Also the launcher, in the group that the service manager has put it into."""
    assert cgroup.switch_on(str(place), ["no-such-controller"])
    cgroup.switch_off(str(place), ["no-such-controller"])
    assert [] == groups_in(place)
