"""A run is found again by its records, and only its own processes are ever signalled, from outside too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.support.children import ending
from tests.support.eventually import eventually, eventually_sync
from tests.support.runs import end_processes, launchers, processes, run_spec, script

from handoffd.execute.base import Claim, ExitRecord, StartRecord, Vitals
from handoffd.execute.environment import MARK
from handoffd.execute.output import output_bytes
from handoffd.execute.process import Launcher
from handoffd.execute.run import Run, adopt, claimed, end_member, end_remains, living
from handoffd.execute.runner import proc, records


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the launcher of these tests listens; they share one, because none depends on another's runs."""
    root = tmp_path_factory.mktemp("launcher")
    yield root / "run" / "launcher.sock"
    end_processes(root)


@pytest.fixture
def launcher(socket: Path, tmp_path: Path) -> Iterator[Launcher]:
    """A launcher client; its runs end with the test, or with the launcher at the latest."""
    yield Launcher(socket)
    end_processes(tmp_path)


def claim_as(run_dir: Path, pid: int, started: int) -> Run:
    """Leave a run directory as a shim with that identity would, and return its run."""
    run_dir.mkdir()
    claim = Claim(pid=pid, started=started, boot_id=proc.boot_id())
    records.claim(str(run_dir), "claim", claim.to_text())
    return Run(run_dir, claim)


def started_by(shim: int, pid: int, pid_started: int, boot_id: str) -> StartRecord:
    """Return the start record of a run."""
    return StartRecord(
        run_id="r1", shim_pid=shim, shim_started=1, pid=pid, pid_started=pid_started, boot_id=boot_id,
        monotonic=0.0,
    )  # fmt: skip


def test_unclaimed_directory_was_never_started(tmp_path: Path) -> None:
    """A specification alone is not a run."""
    (tmp_path / "spec.json").write_text("{}")

    assert None is adopt(tmp_path)


def test_run_that_is_over_is_adopted_as_its_record(tmp_path: Path) -> None:
    """The exit record counts, whichever process has the shim's pid now."""
    claim_as(tmp_path / "r1", os.getpid(), proc.started(os.getpid()))
    record = ExitRecord(run_id="r1", code=4)
    records.write(str(tmp_path / "r1"), "exit.json", record.to_json())

    assert record == adopt(tmp_path / "r1")


@pytest.mark.parametrize(("shifted", "lives"), [(0, True), (1, False)])
def test_a_program_without_its_shim_is_alive(tmp_path: Path, shifted: int, lives: bool) -> None:
    """Though no shim supervises it; a stranger with its process id is not."""
    claim_as(tmp_path / "r1", 1, 0)
    me = os.getpid()
    start = started_by(1, me, proc.started(me) + shifted, proc.boot_id())
    records.write(str(tmp_path / "r1"), "start.json", start.to_json())
    run = claimed(tmp_path / "r1")
    assert run is not None

    assert (lives, False) == (run.lives(), run.is_running())


def test_claim_without_a_start_is_lost(tmp_path: Path) -> None:
    """A shim that died so early may have started the program or not."""
    claim_as(tmp_path / "r1", os.getpid(), 1)

    assert ExitRecord(run_id="r1", by="lost") == adopt(tmp_path / "r1")


def test_records_that_a_power_cut_has_emptied_do_not_count(tmp_path: Path) -> None:
    """Their names may survive without their content; the run is then lost, which is not an error."""
    run_dir = tmp_path / "r1"
    run_dir.mkdir()
    claim = Claim(pid=os.getpid(), started=proc.started(os.getpid()), boot_id="an-earlier-boot")
    records.claim(str(run_dir), "claim", claim.to_text())
    for name in ("spec.json", "start.json", "exit.json"):
        (run_dir / name).write_text("\0" * 40)

    assert ExitRecord(run_id="r1", by="lost") == adopt(run_dir)
    (run_dir / "exit.json").write_text("")
    assert ExitRecord(run_id="r1", by="lost") == adopt(run_dir)


async def test_a_stranger_with_the_shims_pid_is_never_signalled(tmp_path: Path) -> None:
    """Same pid, other start time: stop does nothing, and waiting does not wait for the stranger."""
    async with await anyio.open_process(["sleep", "600"]) as stranger:
        run = claim_as(tmp_path / "r1", stranger.pid, proc.started(stranger.pid) - 1)

        run.stop()
        record = await run.wait()

        assert "lost" == record.by
        assert Vitals(output_bytes=0, cpu_s=0.0, written_bytes=0) == run.vitals()
        seen = proc.stat(stranger.pid)
        assert seen is not None
        assert not seen.ended
        stranger.kill()


async def test_program_that_outlived_shim_and_launcher_is_killed_on_adoption(
    tmp_path: Path, launcher: Launcher, socket: Path
) -> None:
    """When both nets are gone, the daemon that finds the run lost ends the rest of it."""
    marker = str(tmp_path / "marker")
    await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", *script("listener", marker)))
    run = adopt(tmp_path / "r1")
    assert isinstance(run, Run)
    # The shim notes the position after it has written the text.
    await eventually(lambda: len("ready\n") == output_bytes(tmp_path / "r1"))
    os.kill(launchers(socket)[0], signal.SIGKILL)
    os.kill(run.shim_pid, signal.SIGKILL)
    await eventually(lambda: not run.is_running())
    assert 1 == len(processes(marker))

    record = adopt(tmp_path / "r1")

    assert isinstance(record, ExitRecord)
    assert ("lost", "ready\n", 6, 1) == (record.by, record.tail, record.output_bytes, record.killed)
    await eventually(lambda: not processes(marker))


async def test_any_number_may_wait(tmp_path: Path, launcher: Launcher) -> None:
    """Runs hold nothing: two that adopt the same one both learn how it ended."""
    run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))
    adopted = adopt(tmp_path / "r1")
    assert isinstance(adopted, Run)
    seen: list[ExitRecord] = []

    async def wait(one: Run) -> None:
        seen.append(await one.wait())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for one in (run, run, adopted):
                group.start_soon(wait, one)
            await anyio.lowlevel.checkpoint()
            adopted.stop()
            run.stop()

    assert 3 == len(seen)
    assert {"stop"} == {record.by for record in seen}
    assert seen[0] == adopt(tmp_path / "r1")
    run.stop()


async def test_giving_up_waiting_leaves_the_run_alone(tmp_path: Path, launcher: Launcher) -> None:
    """Cancelling a wait does not stop the run, and no descriptor is left behind."""
    run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))
    before = os.listdir("/proc/self/fd")

    with anyio.move_on_after(0.05) as scope:
        await run.wait()

    assert scope.cancelled_caught
    assert len(before) == len(os.listdir("/proc/self/fd"))
    assert run.is_running()


async def test_start_record_names_the_program(tmp_path: Path, launcher: Launcher) -> None:
    """Pid and start time of the program itself are known as soon as the run is."""
    run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))

    start = run.start_record()

    assert isinstance(start, StartRecord)
    assert ("r1", run.shim_pid, proc.boot_id()) == (start.run_id, start.shim_pid, start.boot_id)
    assert proc.is_running(start.pid, start.pid_started, start.boot_id)
    assert (start.pid, start) == (run.pid, await run.started())


async def test_until_the_start_record_is_there_a_run_is_known_by_its_shim(tmp_path: Path) -> None:
    """A run that is adopted while its shim is just starting the program; the start is waited for."""
    async with await anyio.open_process(["sleep", "600"]) as shim, anyio.create_task_group() as tasks:
        claim_as(tmp_path / "r1", shim.pid, proc.started(shim.pid))
        run = adopt(tmp_path / "r1")
        assert isinstance(run, Run)
        assert (shim.pid, shim.pid) == (run.shim_pid, run.pid)
        seen: list[StartRecord | None] = []

        async def wait() -> None:
            seen.append(await run.started())

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert [] == seen
        start = started_by(shim.pid, 4711, 1, "b")
        records.write(str(tmp_path / "r1"), "start.json", start.to_json())

        await eventually(lambda: [start] == seen)
        assert (shim.pid, 4711) == (run.shim_pid, run.pid)
        shim.kill()


async def test_a_shim_that_is_gone_starts_nothing_any_more(tmp_path: Path) -> None:
    """Waiting for the start ends with the shim that could have made it."""
    with anyio.fail_after(60):
        assert None is await claim_as(tmp_path / "r1", os.getpid(), 1).started()


async def test_vitals_show_output_work_and_writing_of_the_whole_tree(
    tmp_path: Path, launcher: Launcher
) -> None:
    """Silent work of a grandchild is a sign of life, too."""
    work = "import os\nwhile True: os.write(3, b'x' * 1000)"
    shell = f'echo hello; setsid python3 -c "{work}" 3>/dev/null & wait'
    run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sh", "-c", shell))

    def alive() -> bool:
        now = run.vitals()
        return now.output_bytes == 6 and now.cpu_s > 0.05 and now.written_bytes > 100_000

    await eventually(alive)
    run.stop()
    await run.wait()

    left = run.vitals()
    assert Vitals(output_bytes=6, cpu_s=0.0, written_bytes=0, heard_ns=left.heard_ns) == left


async def test_living_runs_of_a_folder_are_found(launcher: Launcher, tmp_path: Path) -> None:
    """With the root of their project; not those that ended or never began, and the folder may be missing."""
    assert [] == list(living(tmp_path / "runs"))
    run = await launcher.start(
        tmp_path / "runs/r2", run_spec(tmp_path, "r2", "sleep", "1000", cwd="/", project=str(tmp_path))
    )
    claim_as(tmp_path / "runs/r1", os.getpid(), proc.started(os.getpid()) + 1)
    (tmp_path / "runs/r3").mkdir()

    assert [("r2", str(tmp_path))] == [(one.run_dir.name, one.folder()) for one in living(tmp_path / "runs")]
    run.stop()
    await run.wait()
    assert [] == list(living(tmp_path / "runs"))
    assert None is Run(tmp_path / "runs/r1", Claim(pid=1, started=1, boot_id="b")).folder()


# --- from outside, when shim and launcher are gone ----------------------------------------------------
def orphaned(marker: Path, run_id: str) -> None:
    """Leave two deaf orphans behind, with a run's id in their environment."""
    subprocess.run(script("hydra", str(marker), "orphans"), env={MARK: run_id}, check=True, timeout=60)
    eventually_sync(lambda: len(marker.read_bytes().split()) == 2)


def test_orphans_are_known_by_the_run_they_were_started_for(root: Path) -> None:
    """Orphans of another run, also of one whose id begins alike, go on."""
    orphaned(root / "mine", "r1")
    orphaned(root / "others", "r11")

    killed = end_remains(None, "r1")

    assert 2 == killed
    eventually_sync(lambda: not processes(str(root / "mine")))
    assert 2 == len(processes(str(root / "others")))
    assert 0 == end_remains(None, "r1")


def test_without_an_id_no_process_is_ended(root: Path) -> None:
    """An empty one would fit every process."""
    orphaned(root / "mine", "")

    assert (0, 0) == (end_remains(None, None), end_remains(None, ""))
    assert 2 == len(processes(str(root / "mine")))


def test_a_pid_that_was_used_again_is_not_signalled() -> None:
    """The start record names a process by its start time, too."""
    with ending(subprocess.Popen(["sleep", "600"])) as stranger:
        start = started_by(1, stranger.pid, proc.started(stranger.pid) - 1, proc.boot_id())

        hit = end_remains(start, "r1")
        stranger.terminate()

    assert (0, -signal.SIGTERM) == (hit, stranger.returncode)  # of anything else it would have died before


async def test_orphans_outlive_neither_net(root: Path) -> None:
    """Launcher and shim are killed; the daemon that finds the run lost also ends orphans outside the tree."""
    socket, marker = root / "run" / "launcher.sock", root / "marker"
    hydra = script("hydra", str(marker), "orphans")
    spec = run_spec(root, "r1", *hydra, env={MARK: "r1"}, drain_s=600, deadline_s=None)
    run = await Launcher(socket).start(root / "r1", spec)
    await eventually(lambda: marker.exists() and len(marker.read_bytes().split()) == 2)
    os.kill(launchers(socket)[0], signal.SIGKILL)
    os.kill(run.shim_pid, signal.SIGKILL)
    await eventually(lambda: not run.is_running())
    await eventually(lambda: len(processes(str(marker))) == 2)  # the one that started them goes, too

    record = adopt(root / "r1")

    assert isinstance(record, ExitRecord)
    assert ("lost", 2) == (record.by, record.killed)
    await eventually(lambda: not processes(str(marker)))


def test_only_a_process_of_one_of_our_runs_is_ended_for_locking(root: Path) -> None:
    """Another daemon's run, a stranger and this process itself go on."""
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
def test_a_descendant_of_our_launcher_is_ours_whatever_its_environment(
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
