"""What goes wrong around the daemon: kills, full disks, mounts that hang, folders that move.

In every case the status stays true, nothing runs twice, no result is lost, and no track runs for ever.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.agents import lines, released, shim_of, shop
from tests.support.daemon import Daemon, removed, running
from tests.support.disks import small_disk
from tests.support.eventually import eventually_sync
from tests.support.runs import launchers

from handoffd.files.locks import acquire, daemon_lock_path

TESTS = """\
echo tested >> tests.log
until test -e {base}/tested; do sleep 0.05; done
if test -e .added; then echo 1..2; echo not ok 2 - new; else echo 1..1; fi
echo ok 1 - old
"""

CHECKED = """\
steps:
  bdd: {next_on_pass: scaffold, timeout_min: 5}
  scaffold:
    next_on_pass: review
    post_check: 'echo checked >> checks.log; until test -e ../checked; do sleep 0.05; done'
  review: {next_on_pass: update-memory}
"""


def has_ended(process: psutil.Process) -> bool:
    """Tell whether a process is gone, or waits for nothing but to be reaped."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_twice(daemon: Daemon, project: Path, phase: str, log: str, count: int) -> None:
    """Kill the daemon when a phase is reached and its program has left `count` lines, and again."""
    daemon.wait_for(project, lambda track: track["phase"] == phase)
    eventually_sync(lambda: len(lines(project, log)) == count)
    for _ in range(2):
        daemon.kill()
        daemon.start()


def test_a_daemon_that_is_killed_in_any_phase_repeats_nothing(tmp_path: Path) -> None:
    """Twice in each: while the baseline, an executor, the tests and the post_check run."""
    project = shop(tmp_path, CHECKED)
    (tmp_path / "tests.sh").write_text(TESTS.format(base=tmp_path))
    command = f"test: {{command: [/bin/sh, {tmp_path}/tests.sh], report: tap}}\n"
    (project / ".ai/handoffd.yaml").write_text(command)
    release, tested, checked = (tmp_path / name for name in ("release", "tested", "checked"))
    with running(tmp_path, released(tmp_path)) as daemon:
        release.touch()
        daemon.begin(project)
        kill_twice(daemon, project, "baseline", "tests.log", 1)
        release.unlink()
        tested.touch()
        kill_twice(daemon, project, "executing", "starts.log", 2)
        tested.unlink()
        release.touch()
        kill_twice(daemon, project, "checking", "tests.log", 2)
        tested.touch()
        kill_twice(daemon, project, "checking", "checks.log", 1)
        checked.touch()

        daemon.wait_at(project, "review", "needs_human")
        assert ["bdd 1", "scaffold 1"] == lines(project, "starts.log")
        assert (2, 1) == (len(lines(project, "tests.log")), len(lines(project, "checks.log")))
        assert [("bdd", 1, "pass"), ("scaffold", 1, "pass")] == daemon.results(project)


def test_a_daemon_that_is_killed_while_it_ends_an_executor_goes_on_with_that(tmp_path: Path) -> None:
    """The next one asks again; the abort is not forgotten."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        shim = shim_of(daemon.started(project)["pid"])
        shim.suspend()
        daemon.verb("abort", project)
        daemon.wait_for(project, lambda track: track["phase"] in {"stopping", None})
        daemon.kill()

        daemon.start()

        daemon.wait_at(project, "bdd", "needs_human")
        eventually_sync(lambda: has_ended(shim))


def test_an_executor_whose_launcher_and_shim_are_killed_is_repeated_at_no_cost(tmp_path: Path) -> None:
    """What was left of it is ended first."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        program = psutil.Process(daemon.started(project)["pid"])
        eventually_sync(lambda: ["bdd 1"] == lines(project, "starts.log"))  # else it may die before that
        shim = shim_of(program.pid)
        for process in (*launchers(daemon.runtime_dir / "launcher.sock"), shim.pid):
            os.kill(process, signal.SIGKILL)

        eventually_sync(lambda: ["bdd 1", "bdd 1"] == lines(project, "starts.log"))
        eventually_sync(lambda: has_ended(program))
        (tmp_path / "release").touch()
        daemon.wait_at(project, "review", "needs_human")


def test_deleted_records_stop_nothing(tmp_path: Path) -> None:
    """The hand-off is there; a missing folder of ours crashes nothing."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        records = daemon.state_dir / "runs" / daemon.started(project)["dispatch"]
        eventually_sync(lambda: removed(records))
        (tmp_path / "release").touch()

        daemon.wait_at(project, "review", "needs_human")
        assert "crashed" not in daemon.log()


def test_an_executor_that_ends_while_its_project_is_away_loses_nothing(tmp_path: Path) -> None:
    """Status calls the project missing, and the hand-off counts when it is back."""
    project, away = shop(tmp_path), tmp_path / "away"
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.started(project)
        project.rename(away)
        (tmp_path / "release").touch()
        eventually_sync(lambda: any(daemon.state_dir.glob("runs/*/exit.json")))
        daemon.verb("pause", project)
        assert ("missing", "running") == (daemon.condition(project), daemon.track(project)["status"])

        away.rename(project)
        daemon.verb("resume", project)

        daemon.wait_at(project, "review", "needs_human")
        assert [("bdd", 1, "pass")] == daemon.results(project)


@pytest.mark.parametrize("name", [".ai/STATE.json", ".ai/HANDOFF.md"])
def test_a_pipe_in_place_of_a_file_blocks_nothing(tmp_path: Path, name: str) -> None:
    """Once the obstacle is gone, the story goes on."""
    project = shop(tmp_path)
    with running(tmp_path, released(tmp_path)) as daemon:
        daemon.started(project)
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").rename(project / name)  # at once: the file may be written at any time
        (tmp_path / "release").touch()
        daemon.wait_for(project, lambda track: track["phase"] != "executing")

        if (project / name).is_fifo():
            (project / name).unlink()

        daemon.wait_at(project, "review", "needs_human")
        assert "crashed" not in daemon.log()


def test_a_full_disk_loses_no_result(tmp_path: Path) -> None:
    """Verbs are refused, the status says why nothing moves, and it goes on when there is room."""
    project = shop(tmp_path)
    (tmp_path / "state").mkdir()
    unhurried = released(tmp_path, schedule={"poll_s": 3})  # a small write may still have room
    with small_disk(tmp_path / "state", 4), running(tmp_path, unhurried) as daemon:
        daemon.started(project)
        filling = tmp_path / "state/filling"
        subprocess.run(["dd", "if=/dev/zero", f"of={filling}", "bs=4k"], check=False, capture_output=True)
        (tmp_path / "release").touch()

        eventually_sync(lambda: daemon.condition(project) == "io_error")
        assert "error" == daemon.verb("note", project, text="Still there?")["type"]
        eventually_sync(lambda: daemon.told_kinds(daemon.state_dir) == ["warning"])
        filling.unlink()

        daemon.wait_at(project, "review", "needs_human")
        assert ["bdd 1"] == lines(project, "starts.log")


def test_a_mount_that_hangs_harms_only_its_own_projects(tmp_path: Path) -> None:
    """More projects on it than there are threads; the others work, and the daemon begins and ends."""
    mount = tmp_path / "mount"
    lost = [mount / f"p{number}" for number in range(50)]
    for root in lost:
        (root / ".ai").mkdir(parents=True)
    project = shop(tmp_path)
    (tmp_path / "release").touch()
    with running(tmp_path, released(tmp_path, projects=[str(root) for root in lost])) as daemon:
        daemon.terminate()
        with hanging_mount(mount):
            daemon.start()

            daemon.begin(project)
            daemon.wait_at(project, "review", "needs_human")
            eventually_sync(lambda: daemon.condition(lost[-1]) == "io_error")

            os.kill(daemon.pid, signal.SIGHUP)  # what is read again does not answer
            os.kill(daemon.pid, signal.SIGTERM)
            eventually_sync(lambda: "stopped" in daemon.log().splitlines()[-1])
            daemon.kill()  # Python waits for the threads that hang in there


def test_more_projects_than_files_a_process_may_usually_open(tmp_path: Path) -> None:
    """Each one's lock is an open file, and the usual limit is a soft one."""
    roots = [tmp_path / f"p{number}" for number in range(300)]
    for root in roots:
        (root / ".ai").mkdir(parents=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running(tmp_path, released(tmp_path, projects=[str(root) for root in roots])) as daemon:
            eventually_sync(
                lambda: {"not_initialized"} == {p["condition"] for p in daemon.get("/v1/status")["projects"]}
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_starting_daemon_waits_for_a_verb_that_is_given_without_one(tmp_path: Path) -> None:
    """It would end for a moment's sake otherwise."""
    daemon = Daemon(tmp_path)
    verb = acquire(daemon_lock_path(daemon.state_dir), "the state directory")
    end_of_verb = threading.Timer(0.5, verb.release)
    end_of_verb.start()
    try:
        daemon.start()
    finally:
        end_of_verb.join()
        daemon.close()


@contextmanager
def hanging_mount(place: Path) -> Iterator[None]:
    """Mount a file system without a server, where this account may."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        unserved = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("there is no /dev/fuse here")
    options = f"fd={unserved},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"test", os.fsencode(place), b"fuse.test", 0, options.encode()) != 0:
        os.close(unserved)
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        os.close(unserved)  # waiting calls get an error
        libc.umount2(os.fsencode(place), 2)
