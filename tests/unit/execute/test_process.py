"""Runs are started once, outlive the daemon that started them, and survive the loss of any one process."""

from __future__ import annotations

import os
import shutil
import signal
import socket as sockets
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.namespaces import reading_boot_id
from tests.support.runs import (
    PYTHON,
    descends,
    hydra_is_grown,
    launchers,
    processes,
    run_spec,
    script,
    unit,
)

import handoffd
from handoffd.errors import HandoffdError
from handoffd.execute.base import ExitRecord
from handoffd.execute.process import Launcher, Limits
from handoffd.execute.run import Run, adopt, claimed
from handoffd.execute.runner import launcher as launcher_program
from handoffd.execute.runner import proc, records


@pytest.fixture
def socket(root: Path) -> Path:
    """Where launchers listen; no process of the test is left afterwards."""
    return root / "run" / "launcher.sock"


def patient(socket: Path) -> Launcher:
    """Return a client that takes no launcher for hung because the machine is busy."""
    return Launcher(socket, limits=Limits(hello_s=60))


async def ended(run: Run) -> ExitRecord:
    """Return how `run` ended; fails if that takes long."""
    with anyio.fail_after(60):
        return await run.wait()


async def test_run_goes_through_a_launcher_that_is_started_for_it(tmp_path: Path, socket: Path) -> None:
    """The first start finds no launcher and makes one; the next uses the same."""
    launcher = patient(socket)

    first = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sh", "-c", "exit 3"))
    (pid,) = launchers(socket)
    second = await launcher.start(tmp_path / "r2", run_spec(tmp_path, "r2", "true"))

    assert (3, 0) == ((await ended(first)).code, (await ended(second)).code)
    assert [pid] == launchers(socket)
    assert os.getpid() != getattr(proc.stat(pid), "parent", None)


async def test_a_run_lives_whose_shim_reads_another_boot_id(tmp_path: Path, socket: Path) -> None:
    """In a container with a boot id of its own, a service with a /proc of its own reads the machine's."""
    boot = str(uuid4())
    (tmp_path / "boot_id").write_text(f"{boot}\n", encoding="ascii")
    program = (PYTHON, "-I", "-S", "-E", launcher_program.__file__, str(socket))
    argv = (*reading_boot_id(tmp_path / "boot_id"), *program)
    await anyio.run_process(argv)

    run = await patient(socket).start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))

    assert boot == getattr(run.start_record(), "boot_id", None)
    assert run.is_running()
    assert isinstance(adopt(tmp_path / "r1"), Run)
    me, started = os.getpid(), proc.started(os.getpid())
    assert not proc.is_running(me, started, boot)
    await patient(socket).learn_boot()
    assert proc.is_running(me, started, boot)
    run.stop()
    assert "stop" == (await ended(run)).by


async def test_the_daemons_environment_stays_with_the_daemon(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the launcher nor its runs hold a secret of ours where other processes could read it."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    run = await patient(socket).start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))
    start = run.start_record()
    assert start is not None

    for pid in (*launchers(socket), run.shim_pid, start.pid):
        environment = proc.read(f"/proc/{pid}/environ")
        assert environment is not None
        assert b"s3cret" not in environment


async def test_a_run_is_started_at_most_once(tmp_path: Path, socket: Path) -> None:
    """Five clients at once, without a launcher to begin with: one start, one identity for all."""
    runs: list[Run] = []
    spec = run_spec(tmp_path, "r1", "sh", "-c", f"echo started >> {tmp_path}/log; exec sleep 600")

    async def start() -> None:
        runs.append(await patient(socket).start(tmp_path / "r1", spec))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(start)

    assert 5 == len(runs)
    assert 1 == len({run.shim_pid for run in runs})
    await eventually(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text())
    runs[0].stop()
    assert "stop" == (await ended(runs[0])).by
    assert "started\n" == (tmp_path / "log").read_text()


async def test_start_of_a_run_that_was_started_starts_nothing(tmp_path: Path, socket: Path) -> None:
    """Its folder has the end of the first start; no launcher is begun for it, and no record touched."""
    spec = run_spec(tmp_path, "r1", "sh", "-c", f"echo started >> {tmp_path}/log; exit 3")
    await ended(await patient(socket).start(tmp_path / "r1", spec))
    before = (tmp_path / "r1/spec.json").stat().st_ino
    unused = tmp_path / "run/unused.sock"

    again = await patient(unused).start(tmp_path / "r1", spec)

    assert 3 == (await ended(again)).code
    assert "started\n" == (tmp_path / "log").read_text()
    assert before == (tmp_path / "r1/spec.json").stat().st_ino
    assert not unused.exists()
    assert [] == launchers(unused)


async def test_run_outlives_the_process_that_started_it(tmp_path: Path, socket: Path) -> None:
    """A daemon that is killed leaves its agents running; the next one knows their exit codes."""
    daemon = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from handoffd.execute.base import RunSpec\n"
        "from handoffd.execute.process import Launcher\n"
        "spec = RunSpec.from_json(sys.stdin.read())\n"
        "asyncio.run(Launcher(Path(sys.argv[1])).start(Path(sys.argv[2]), spec))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    spec = run_spec(tmp_path, "r1", "sh", "-c", "while ! test -e go; do sleep 0.02; done; exit 5")
    command = [sys.executable, "-c", daemon, str(socket), str(tmp_path / "r1")]
    done = await anyio.run_process(command, input=spec.to_json().encode(), check=False)
    assert -signal.SIGKILL == done.returncode

    run = adopt(tmp_path / "r1")
    assert isinstance(run, Run)
    (tmp_path / "go").touch()

    assert (5, "itself") == ((record := await ended(run)).code, record.by)


async def test_runs_outlive_the_launcher_and_the_next_one_takes_over(tmp_path: Path, socket: Path) -> None:
    """A killed launcher harms no run, and the next start makes a new launcher."""
    launcher = patient(socket)
    shell = ("sh", "-c", "while ! test -e go; do sleep 0.02; done; exit 5")
    first = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", *shell))
    (killed,) = launchers(socket)
    os.kill(killed, signal.SIGKILL)
    await eventually(lambda: killed not in launchers(socket))

    second = await launcher.start(tmp_path / "r2", run_spec(tmp_path, "r2", "true"))

    assert 0 == (await ended(second)).code
    assert first.is_running()
    (tmp_path / "go").touch()
    assert 5 == (await ended(first)).code
    await eventually(lambda: 1 == len(launchers(socket)))


async def nothing(_run: Run, _socket: Path) -> None:
    """Let the run end as it will."""


async def stop(run: Run, _socket: Path) -> None:
    """Ask for the end, more than once."""
    run.stop()
    run.stop()


async def kill_shim(run: Run, _socket: Path) -> None:
    """Kill the process that supervises the run."""
    os.kill(run.shim_pid, signal.SIGKILL)


async def kill_launcher(run: Run, socket: Path) -> None:
    """Kill the second net, before the end is asked for."""
    (killed,) = launchers(socket)
    os.kill(killed, signal.SIGKILL)
    await eventually(lambda: killed not in launchers(socket))
    run.stop()


@pytest.mark.parametrize(
    ("mode", "deadline_s", "end", "by"),
    [
        ("leave", None, nothing, "itself"),
        ("crash", None, nothing, "itself"),
        ("stay", 1, nothing, "deadline"),
        ("stay", None, stop, "stop"),
        ("stay", None, kill_shim, "lost"),
        ("stay", None, kill_launcher, "stop"),
    ],
    ids=["exit", "crash", "timeout", "stop", "shim killed", "launcher killed"],
)
async def test_after_any_end_no_process_of_the_run_is_alive(
    tmp_path: Path,
    socket: Path,
    mode: str,
    deadline_s: float | None,
    end: Callable[[Run, Path], Awaitable[None]],
    by: str,
) -> None:
    """Nor one that hid in a session, behind double forks, without an environment, holding the pipe."""
    marker = str(tmp_path / "marker")
    spec = run_spec(tmp_path, "r1", *script("hydra", marker, mode), deadline_s=deadline_s)
    run = await Launcher(socket).start(tmp_path / "r1", spec)
    if end is not nothing:
        await eventually(lambda: hydra_is_grown(marker))

    await end(run, socket)

    assert by == (await ended(run)).by
    if by != "lost":  # else the launcher ends the tree, a moment later
        assert [] == processes(marker)
    await eventually(lambda: not processes(marker))


def copied(root: Path, version: str) -> Path:
    """Return a copy of the package, as far as launchers need it, with this version."""
    package = Path(handoffd.__file__).parent
    copy = root / "other" / "handoffd"
    shutil.copytree(package / "execute", copy / "execute", ignore=shutil.ignore_patterns("__pycache__"))
    set_version(copy, version)
    return copy


def set_version(package: Path, version: str) -> None:
    """Set the version of a copy of the package."""
    text = (Path(handoffd.__file__).read_text()).replace(handoffd.__version__, version)
    # Beside and renamed, with another size or not: a compiled file of before must not be taken for it.
    shutil.rmtree(package / "__pycache__", ignore_errors=True)
    (package / "__init__.py").write_text(text)


def program(package: Path) -> Path:
    """Return the launcher program of a copy of the package."""
    return package / "execute" / "runner" / "launcher.py"


async def test_launcher_of_another_version_hands_over(tmp_path: Path, socket: Path) -> None:
    """The old one keeps its run to the end and leaves; new runs go to a launcher of this version."""
    old_program = program(copied(tmp_path, "0.0.9"))
    await anyio.run_process([PYTHON, "-I", "-S", "-E", str(old_program), str(socket)])
    (old,) = launchers(socket)
    elder = await start_through_old(tmp_path, socket, "sleep", "600")

    young = await patient(socket).start(tmp_path / "r2", run_spec(tmp_path, "r2", "true"))

    assert 0 == (await ended(young)).code
    assert {old} < set(launchers(socket))
    assert elder.is_running()
    elder.stop()
    assert "stop" == (await ended(elder)).by
    await eventually(lambda: old not in launchers(socket))
    await eventually(lambda: 1 == len(launchers(socket)))


async def start_through_old(root: Path, socket: Path, *argv: str) -> Run:
    """Start a run as a client of the other version does."""
    run_dir = root / "r1"
    run_dir.mkdir()
    spec = run_spec(root, "r1", *argv, deadline_s=None)
    records.write(str(run_dir), "spec.json", spec.to_json())
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as client:
        client.settimeout(60)
        client.connect(str(socket))
        client.send(f"run 0.0.9 {run_dir}".encode())
        assert b"accepted" == client.recv(100)
        assert b"" != client.recv(100)
    run = adopt(run_dir)
    assert isinstance(run, Run)
    return run


async def test_retired_launcher_leaves_when_its_run_has_ended(tmp_path: Path, socket: Path) -> None:
    """Retiring stops no run, and does no harm without a launcher."""
    launcher = patient(socket)
    await launcher.retire()
    run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))

    await launcher.retire()

    assert run.is_running()
    run.stop()
    await ended(run)
    await eventually(lambda: not launchers(socket))


async def test_launcher_that_hangs_is_replaced(tmp_path: Path, socket: Path) -> None:
    """It is not waited for again, and does no harm when it wakes."""
    await ended(await patient(socket).start(tmp_path / "r1", run_spec(tmp_path, "r1", "true")))
    (hung,) = launchers(socket)
    os.kill(hung, signal.SIGSTOP)

    hasty = Launcher(socket, limits=Limits(hello_s=0.1))
    run = await hasty.start(tmp_path / "r2", run_spec(tmp_path, "r2", "true"))

    assert 0 == (await ended(run)).code
    os.kill(hung, signal.SIGCONT)
    await eventually(lambda: hung not in launchers(socket))


async def test_without_a_launcher_a_shim_is_started_directly(tmp_path: Path, socket: Path) -> None:
    """A socket that cannot be made costs milliseconds, not runs."""
    (socket / "in the way").mkdir(parents=True)

    run = await patient(socket).start(tmp_path / "r1", run_spec(tmp_path, "r1", "sh", "-c", "exit 3"))

    assert 3 == (await ended(run)).code
    assert [] == launchers(socket)


async def test_when_no_launcher_and_no_shim_can_start_the_error_has_a_hint(
    tmp_path: Path, socket: Path
) -> None:
    """It has the reason and the next command; the run counts as never started."""
    launcher = Launcher(socket, python=str(tmp_path / "no-python"))

    with pytest.raises(HandoffdError, match="No such file or directory") as caught:
        await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "true"))

    assert ("handoffd config show", "CANNOT_LAUNCH") == (caught.value.hint, caught.value.code)
    assert None is adopt(tmp_path / "r1")


# --- under a service manager ----------------------------------------------------------------------
async def test_under_a_manager_the_units_launcher_is_waited_for(tmp_path: Path, socket: Path) -> None:
    """The daemon may be first; it starts no launcher that would end with it."""
    launcher = Launcher(socket, managed=True, limits=Limits(unit_s=60))
    async with anyio.create_task_group() as group:
        spec = run_spec(tmp_path, "r1", "sleep", "600")
        group.start_soon(launcher.start, tmp_path / "r1", spec)
        await eventually((tmp_path / "r1" / "spec.json").exists)
        with unit(program(Path(handoffd.__file__).parent), socket) as manager:
            run = await eventually(lambda: claimed(tmp_path / "r1"))

            assert run is not None
            assert descends(run.shim_pid, manager)
            assert 1 == len(launchers(socket))


async def test_upgrade_leaves_runs_to_the_old_launcher_and_gets_a_new_one_from_the_unit(
    tmp_path: Path, socket: Path
) -> None:
    """The unit's main process leaves at once; the old launcher still ends the processes of its shim."""
    package = copied(tmp_path, "0.0.9")
    marker = str(tmp_path / "marker")
    with unit(program(package), socket) as manager:
        await eventually(lambda: launchers(socket))
        (old,) = launchers(socket)
        elder = await start_through_old(tmp_path, socket, *script("hydra", marker, "stay"))
        await eventually(lambda: hydra_is_grown(marker))
        set_version(package, handoffd.__version__)

        with capture_logs() as logs:
            launcher = Launcher(socket, managed=True, limits=Limits(unit_s=60))
            young = await launcher.start(tmp_path / "r2", run_spec(tmp_path, "r2", "sleep", "600"))

        assert [] == [entry for entry in logs if entry["log_level"] == "warning"]
        assert descends(young.shim_pid, manager)
        assert not descends(young.shim_pid, old)
        assert elder.is_running()
        assert descends(elder.shim_pid, old)
        os.kill(elder.shim_pid, signal.SIGKILL)
        assert "lost" == (await ended(elder)).by
        await eventually(lambda: not processes(marker))
        await eventually(lambda: old not in launchers(socket))
        assert young.is_running()


async def test_unit_with_another_version_is_not_waited_for(tmp_path: Path, socket: Path) -> None:
    """It would start the same one again; the run is started, and the log names the command to look with."""
    with unit(program(copied(tmp_path, "0.0.9")), socket) as manager:
        await eventually(lambda: launchers(socket))
        with capture_logs() as logs, anyio.fail_after(60):
            launcher = Launcher(socket, managed=True, limits=Limits(unit_s=60))
            run = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sh", "-c", "exit 3"))

        assert not descends(run.shim_pid, manager)
        assert 3 == (await ended(run)).code
        (hint,) = [entry["hint"] for entry in logs if "hint" in entry]
        assert hint.startswith("systemctl ")
        assert "status handoffd-launcher" in hint.replace("'", "")


async def test_unit_without_a_launcher_is_waited_for_once(tmp_path: Path, socket: Path) -> None:
    """Later starts lose no time with it, until a launcher has answered again."""
    (socket / "in the way").mkdir(parents=True)
    launcher = Launcher(socket, managed=True, limits=Limits(unit_s=0.1))

    with capture_logs() as logs:
        for number in range(2):
            run_id = f"r{number}"
            run = await launcher.start(tmp_path / run_id, run_spec(tmp_path, run_id, "sh", "-c", "exit 3"))
            assert 3 == (await ended(run)).code

    assert 1 == len([entry for entry in logs if "hint" in entry])


def listening(socket: Path) -> int:
    """Return the pid of the launcher that answers at `socket` now; 0 when none does."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as client, suppress(OSError):
        client.settimeout(60)
        client.connect(str(socket))
        client.send(b"hello")
        answer = client.recv(100).split()
        return int(answer[2]) if len(answer) == 3 else 0
    return 0


async def test_launcher_started_here_gives_way_to_the_units(tmp_path: Path, socket: Path) -> None:
    """The daemon's own launcher is used no longer than necessary."""
    launcher = Launcher(socket, managed=True, limits=Limits(unit_s=0.05))
    makeshift = await launcher.start(tmp_path / "r1", run_spec(tmp_path, "r1", "sleep", "600"))

    with unit(program(Path(handoffd.__file__).parent), socket) as manager:
        await eventually(lambda: descends(listening(socket), manager))
        run = await launcher.start(tmp_path / "r2", run_spec(tmp_path, "r2", "sleep", "600"))

        assert descends(run.shim_pid, manager)
        assert makeshift.is_running()
