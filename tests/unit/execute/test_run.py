"""A run is found again by what is on disk, and only the right process is ever signalled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.support.eventually import eventually
from tests.support.runs import end_processes, launchers, processes, run_spec, script

from handoffd.execute.base import Claim, ExitRecord, StartRecord, Vitals
from handoffd.execute.process import Launcher
from handoffd.execute.run import Run, adopt, claimed, living
from handoffd.execute.runner import proc, records


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the launcher of these tests listens; they share one, because none depends on another's runs."""
    root = tmp_path_factory.mktemp("launcher")
    yield root / "run" / "launcher.sock"
    end_processes(root)


@pytest.fixture
def launcher(socket: Path, tmp_path: Path) -> Iterator[Launcher]:
    """A launcher client; its runs end with the launcher, at the latest, and what lost its shim now."""
    yield Launcher(socket)
    end_processes(tmp_path)


def claim_as(run_dir: Path, pid: int, started: int) -> None:
    """Leave a run directory as a shim with that identity would."""
    run_dir.mkdir()
    claim = Claim(pid=pid, started=started, boot_id=proc.boot_id())
    records.claim(str(run_dir), "claim", claim.to_text())


def test_directory_nobody_claimed_was_never_started(tmp_path: Path) -> None:
    """A specification alone is no run."""
    (tmp_path / "spec.json").write_text("{}")

    assert None is adopt(tmp_path)


def test_run_that_is_over_is_adopted_as_its_record(tmp_path: Path) -> None:
    """The exit record speaks, whoever has the shim's pid now."""
    claim_as(tmp_path / "r1", os.getpid(), proc.started(os.getpid()))
    record = ExitRecord(run_id="r1", code=4)
    records.write(str(tmp_path / "r1"), "exit.json", record.to_json())

    assert record == adopt(tmp_path / "r1")


@pytest.mark.parametrize(("shifted", "lives"), [(0, True), (1, False)])
def test_a_program_without_its_shim_is_alive(tmp_path: Path, shifted: int, lives: bool) -> None:
    """That is said of it, though nobody looks after it; of a stranger with its process id it is not."""
    claim_as(tmp_path / "r1", 1, 0)
    me = os.getpid()
    start = StartRecord(
        run_id="r1", shim_pid=1, shim_started=0, pid=me, pid_started=proc.started(me) + shifted,
        boot_id=proc.boot_id(), monotonic=0.0,
    )  # fmt: skip
    records.write(str(tmp_path / "r1"), "start.json", start.to_json())
    run = claimed(tmp_path / "r1")
    assert run is not None

    assert (lives, False) == (run.lives(), run.is_running())


def test_claim_without_a_start_is_lost(tmp_path: Path) -> None:
    """A shim that died so early may have started the program or not; nothing is said about that."""
    claim_as(tmp_path / "r1", os.getpid(), 1)

    assert ExitRecord(run_id="r1", by="lost") == adopt(tmp_path / "r1")


def test_records_that_a_power_cut_has_emptied_are_none(tmp_path: Path) -> None:
    """Their names may survive without their content; the run is then lost, and reading it is no error."""
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
        claim_as(tmp_path / "r1", stranger.pid, proc.started(stranger.pid) - 1)
        run = Run(tmp_path / "r1", Claim.from_text(records.claimed(str(tmp_path / "r1"), "claim") or ""))

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
    """When both nets are gone, whoever finds the run lost ends what is left of it."""
    marker = str(tmp_path / "marker")
    await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", *script("listener", marker)))
    run = adopt(tmp_path / "r1")
    assert isinstance(run, Run)
    await eventually(lambda: "ready\n" == (tmp_path / "runs/r1/output.log").read_text())
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
    """Cancelling a wait is no stop, and no descriptor is left behind."""
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
        start = StartRecord(
            run_id="r1",
            shim_pid=shim.pid,
            shim_started=1,
            pid=4711,
            pid_started=1,
            boot_id="b",
            monotonic=1.0,
        )
        records.write(str(tmp_path / "r1"), "start.json", start.to_json())

        await eventually(lambda: [start] == seen)
        assert (shim.pid, 4711) == (run.shim_pid, run.pid)
        shim.kill()


async def test_a_shim_that_is_gone_starts_nothing_any_more(tmp_path: Path) -> None:
    """Waiting for the start ends with whoever could have made it."""
    claim_as(tmp_path / "r1", os.getpid(), 1)
    run = Run(tmp_path / "r1", Claim.from_text(records.claimed(str(tmp_path / "r1"), "claim") or ""))

    with anyio.fail_after(60):
        assert None is await run.started()


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


async def test_what_lives_in_a_folder_of_runs_is_found(launcher: Launcher, tmp_path: Path) -> None:
    """With the folder it works in; what is over and what never began is not there, nor need the folder be."""
    assert [] == list(living(tmp_path / "runs"))
    run = await launcher.start(tmp_path / "runs/r2", run_spec(tmp_path, "r2", "sleep", "1000"))
    claim_as(tmp_path / "runs/r1", os.getpid(), proc.started(os.getpid()) + 1)
    (tmp_path / "runs/r3").mkdir()

    assert [("r2", str(tmp_path))] == [(one.run_dir.name, one.folder()) for one in living(tmp_path / "runs")]
    run.stop()
    await run.wait()
    assert [] == list(living(tmp_path / "runs"))
    assert None is Run(tmp_path / "runs/r1", Claim(pid=1, started=1, boot_id="b")).folder()
