"""When shim and launcher are both gone, what is left of a run is found from outside, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually, eventually_sync
from tests.support.runs import end_processes, launchers, processes, run_spec, script

from handoffd.execute.base import ExitRecord, StartRecord
from handoffd.execute.environment import MARK
from handoffd.execute.process import Launcher
from handoffd.execute.run import adopt, end_member, end_remains
from handoffd.execute.runner import proc


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for one test, with no process left in it afterwards."""
    yield tmp_path
    end_processes(tmp_path)


def orphaned(marker: Path, run_id: str) -> None:
    """Leave two deaf processes behind that descend from nobody, with a run's id in their environment."""
    subprocess.run(script("hydra", str(marker), "orphans"), env={MARK: run_id}, check=True, timeout=60)
    eventually_sync(lambda: len(marker.read_bytes().split()) == 2)


def test_orphans_are_known_by_the_run_they_were_started_for(root: Path) -> None:
    """Those of another run, also of one whose id begins alike, go on."""
    orphaned(root / "mine", "r1")
    orphaned(root / "others", "r11")

    killed = end_remains(None, "r1")

    assert 2 == killed
    eventually_sync(lambda: not processes(str(root / "mine")))
    assert 2 == len(processes(str(root / "others")))
    assert 0 == end_remains(None, "r1")


def test_without_an_id_nobody_is_looked_for(root: Path) -> None:
    """An empty one would be everybody's."""
    orphaned(root / "mine", "")

    assert (0, 0) == (end_remains(None, None), end_remains(None, ""))
    assert 2 == len(processes(str(root / "mine")))


def test_a_pid_that_was_used_again_is_not_signalled() -> None:
    """The start record names a process by its start time, too."""
    with ending(subprocess.Popen(["sleep", "600"])) as stranger:
        start = StartRecord(
            run_id="r1", shim_pid=1, shim_started=1, pid=stranger.pid,
            pid_started=proc.started(stranger.pid) - 1, boot_id=proc.boot_id(), monotonic=0.0,
        )  # fmt: skip

        hit = end_remains(start, "r1")
        stranger.terminate()

    assert (0, -signal.SIGTERM) == (hit, stranger.returncode)  # of anything else it would have died before


async def test_orphans_outlive_neither_net(root: Path) -> None:
    """Launcher and shim are killed; whoever finds the run lost ends what had left the tree as well."""
    socket, marker = root / "run" / "launcher.sock", root / "marker"
    hydra = script("hydra", str(marker), "orphans")
    spec = run_spec(root, "r1", *hydra, env={MARK: "r1"}, drain_s=600, deadline_s=None)
    run = await Launcher(socket).start(root / "r1", spec)
    await eventually(lambda: marker.exists() and len(marker.read_bytes().split()) == 2)
    os.kill(launchers(socket)[0], signal.SIGKILL)
    os.kill(run.shim_pid, signal.SIGKILL)
    await eventually(lambda: not run.is_running())
    assert 2 == len(processes(str(marker)))

    record = adopt(root / "r1")

    assert isinstance(record, ExitRecord)
    assert ("lost", 2) == (record.by, record.killed)
    await eventually(lambda: not processes(str(marker)))


def test_only_a_process_of_one_of_our_runs_is_ended_for_locking(root: Path) -> None:
    """One of another daemon's run, a stranger and this process itself go on."""
    (root / "runs/r1").mkdir(parents=True)
    socket = root / "launcher.sock"
    for run_id, ours in (("r1", True), ("r2", False), ("../runs", False), ("", False)):
        with ending(subprocess.Popen(["sleep", "600"], env={MARK: run_id})) as process:
            try:
                # A program that has just been executed has no environment yet.
                eventually_sync(Path(f"/proc/{process.pid}/environ").read_bytes)
                assert ours == end_member(process.pid, root / "runs", socket), run_id
                assert (process.poll() is None) != ours
            finally:
                process.kill()
    assert not end_member(os.getpid(), root / "runs", socket)
    assert not end_member(2**22 + 1, root / "runs", socket)


@pytest.mark.parametrize(("place", "ours"), [("run/launcher.sock", True), ("other/launcher.sock", False)])
def test_what_descends_from_our_launcher_is_ours_whatever_its_environment(
    root: Path, place: str, ours: bool
) -> None:
    """The launcher is known by its program and its socket."""
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    argv = [sys.executable, "-I", "-c", code, "/opt/handoffd/execute/runner/launcher.py", str(root / place)]
    with ending(subprocess.Popen(argv, env={}, stdout=subprocess.PIPE, text=True)) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        try:
            assert ours == end_member(child, root / "runs", root / "run/launcher.sock")
        finally:
            if not ours:
                os.kill(child, signal.SIGKILL)
