"""The launcher program: its socket, its requests, and how it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.calling import calling
from tests.support.children import ending
from tests.support.eventually import eventually_sync
from tests.support.runs import (
    PYTHON,
    end_processes,
    hydra_is_grown,
    launchers,
    printed,
    processes,
    run_spec,
    script,
)

import handoffd
from handoffd.execute.base import Claim, ExitRecord
from handoffd.execute.runner import launcher, proc, records, tree

PROGRAM = (PYTHON, "-I", "-S", "-E", launcher.__file__)


@pytest.fixture
def path(root: Path) -> Path:
    """Where a launcher may listen; none is left there afterwards."""
    return root / "run" / "launcher.sock"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a launcher listens that tests share which do it no harm."""
    path = tmp_path_factory.mktemp("shared") / "run" / "launcher.sock"
    begin(path)
    yield path
    end_processes(path.parents[1])


def begin(path: Path) -> int:
    """Start a launcher in the background and return its pid."""
    subprocess.run([*PROGRAM, str(path)], check=True, timeout=60, capture_output=True)
    return int(ask(path, "hello").split()[2])


def connect(path: Path) -> socket.socket:
    """Return a connection to the launcher at `path`."""
    folder = os.open(path.parent, os.O_RDONLY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection


def ask(path: Path, request: str) -> str:
    """Return the answer to one request."""
    with connect(path) as connection:
        connection.send(request.encode())
        return connection.recv(4096).decode()


def start(path: Path, run_dir: Path | str, version: str = handoffd.__version__) -> str:
    """Return the answer to the request to start a run, after the word that it was accepted."""
    with connect(path) as connection:
        connection.send(f"run {version} {run_dir}".encode())
        answer = connection.recv(4096).decode()
        return connection.recv(4096).decode() if answer == "accepted" else answer


def waiting_shims(launcher_pid: int) -> list[int]:
    """Return the shims of a launcher that have no run yet."""
    return [pid for pid in tree.children(launcher_pid) if not tree.children(pid)]


def prepared(path: Path, run_id: str, *argv: str) -> Path:
    """Return a run directory with a specification in it."""
    root = path.parents[1]
    run_dir = root / "state" / run_id
    run_dir.mkdir(parents=True)
    records.write(str(run_dir), "spec.json", run_spec(root, run_id, *argv).to_json())
    return run_dir


def is_running(pid: int) -> bool:
    """Tell whether `pid` is more than a zombie."""
    return (seen := proc.stat(pid)) is not None and not seen.ended


def exit_record(run_dir: Path) -> ExitRecord:
    """Return how the run in `run_dir` ended, as soon as it has."""
    text = eventually_sync(lambda: records.read(str(run_dir), "exit.json"))
    return ExitRecord.from_json(text or "")


def test_launcher_identifies_itself(path: Path) -> None:
    """A client learns version and pid; the launcher has a session and no terminal."""
    pid = begin(path)

    assert f"handoffd {handoffd.__version__} {pid}" == ask(path, "hello")
    assert pid == os.getsid(pid)
    assert {"/dev/null"} == {os.readlink(f"/proc/{pid}/fd/{stream}") for stream in (0, 1, 2)}


def test_run_is_started_by_a_shim_and_answered_with_its_identity(shared: Path) -> None:
    """The answer is the pid and start time that the claim has."""
    run_dir = prepared(shared, "answered", "sh", "-c", "exit 3")

    answer = start(shared, run_dir)

    claim = Claim.from_text(records.claimed(str(run_dir), "claim") or "")
    assert f"{claim.pid} {claim.started}" == answer
    assert 3 == exit_record(run_dir).code


def test_second_request_for_a_run_starts_nothing(shared: Path) -> None:
    """The answer is that another shim has it."""
    run_dir = prepared(shared, "twice", "sh", "-c", f"echo x >> {shared.parents[1]}/started")
    start(shared, run_dir)

    assert "claimed" == start(shared, run_dir)
    exit_record(run_dir)
    assert "x\n" == (shared.parents[1] / "started").read_text()


@pytest.mark.parametrize("request_text", ["dance", f"run {handoffd.__version__} relative/path"])
def test_nonsense_is_answered_with_an_error(shared: Path, request_text: str) -> None:
    """A wrong request gets a reason, and the launcher lives on."""
    assert ask(shared, request_text).startswith("error ")
    assert ask(shared, "hello")


def test_request_of_another_version_is_refused(shared: Path) -> None:
    """A shim could misread what a client of another version wrote; nothing is started."""
    run_dir = prepared(shared, "refused", "true")

    assert f"refused {handoffd.__version__}" == start(shared, run_dir, version="0.0.9")
    assert ["spec.json"] == os.listdir(run_dir)


def test_a_shim_waits_for_its_run(path: Path) -> None:
    """It was forked before, so a start need not wait for that; another one then waits."""
    pid = begin(path)
    (waiting,) = eventually_sync(lambda: waiting_shims(pid))
    run_dir = prepared(path, "r1", "sleep", "600")

    assert str(waiting) == start(path, run_dir).split()[0]

    (following,) = eventually_sync(lambda: waiting_shims(pid))
    assert following != waiting


def test_a_killed_waiting_shim_costs_no_run(path: Path) -> None:
    """The launcher forks one for the request instead."""
    pid = begin(path)
    (waiting,) = eventually_sync(lambda: waiting_shims(pid))
    os.kill(waiting, signal.SIGKILL)
    eventually_sync(lambda: not is_running(waiting))

    start(path, run_dir := prepared(path, "r1", "sh", "-c", "exit 3"))

    assert 3 == exit_record(run_dir).code


def test_waiting_shim_leaves_with_its_launcher(path: Path) -> None:
    """A launcher that is killed leaves only shims with runs behind."""
    pid = begin(path)
    (waiting,) = eventually_sync(lambda: waiting_shims(pid))
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: not is_running(waiting))


def test_run_directory_that_is_missing_ends_the_connection(shared: Path) -> None:
    """A shim that cannot even claim leaves its caller without an answer, at once."""
    assert "" == start(shared, shared.parent / "missing")
    assert ask(shared, "hello")


def test_a_silent_crowd_does_not_shut_others_out(shared: Path) -> None:
    """Connections that ask nothing are dropped, the oldest first."""
    crowd = [connect(shared) for _ in range(100)]

    assert ask(shared, "hello")

    for connection in crowd:
        connection.close()


def test_launcher_is_retired_by_term(path: Path) -> None:
    """A service manager that stops the launcher's unit does not have to kill it."""
    pid = begin(path)
    os.kill(pid, signal.SIGTERM)
    eventually_sync(lambda: not is_running(pid))


def test_the_processes_of_a_killed_shim_are_ended(path: Path) -> None:
    """The launcher is the second net: a hidden tree without its shim is gone soon, others live on."""
    begin(path)
    other = int(start(path, prepared(path, "other", "sleep", "600")).split()[0])
    marker = str(path.parent / "marker")
    run_dir = prepared(path, "r1", *script("hydra", marker, "stay"))
    shim_pid = int(start(path, run_dir).split()[0])
    eventually_sync(lambda: hydra_is_grown(marker))

    os.kill(shim_pid, signal.SIGKILL)

    eventually_sync(lambda: not processes(marker))
    assert is_running(other)
    assert not (run_dir / "exit.json").exists()


def test_a_path_longer_than_an_address_is_no_obstacle(path: Path) -> None:
    """Folders may be deep; the address of a socket has 107 bytes."""
    deep = path.parent / ("d" * 120) / "launcher.sock"

    begin(deep)

    assert ask(deep, "hello")


@pytest.mark.parametrize(
    ("where", "code", "text"), [(None, 2, "usage: launcher.py"), ("run/l.sock", 1, "writable by it alone")]
)
def test_a_place_where_it_may_not_listen_is_explained(
    path: Path, where: str | None, code: int, text: str
) -> None:
    """A relative path, or a folder in which others could put their own socket."""
    path.parent.mkdir()
    path.parent.chmod(0o777)
    argument = "relative" if where is None else str(path)

    done = subprocess.run([*PROGRAM, argument], check=False, timeout=60, capture_output=True, text=True)

    assert code == done.returncode
    assert text in done.stderr
    assert [] == launchers(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can turn into another account")
def test_another_account_is_not_served(path: Path) -> None:
    """Even with a way to the socket, a caller of another account gets nothing."""
    begin(path)
    path.chmod(0o777)
    path.parent.chmod(0o777)
    program = """
import socket
os.chdir(sys.argv[1])
os.setresuid(65534, 65534, 65534)
caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
caller.settimeout(60)
caller.connect(sys.argv[2])
try:
    caller.send(b"hello")
    print("answer", caller.recv(100))
except ConnectionError:
    print("refused")
"""
    assert printed(program, str(path.parent), path.name) in ("refused\n", "answer b''\n")


@pytest.fixture
def service(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher as a service manager starts it: this is the process in front."""
    with ending(subprocess.Popen([*PROGRAM, str(path), "--foreground"], env={})) as front:
        eventually_sync(lambda: answers(path))
        yield front
        end_processes(path.parents[1])


def answers(path: Path) -> bool:
    """Tell whether a launcher listens."""
    try:
        return ask(path, "hello").startswith("handoffd ")
    except OSError:
        return False


def in_front(path: Path) -> int:
    """Return the process in front of the launcher that listens."""
    seen = proc.stat(int(ask(path, "hello").split()[2]))
    assert seen is not None
    return seen.parent


def test_in_the_foreground_the_main_process_is_the_launchers_parent(
    path: Path, service: subprocess.Popen[bytes]
) -> None:
    """The service manager's own child stays, and the launcher is its child."""
    assert service.pid == in_front(path)
    assert None is service.poll()


def test_retired_service_makes_room_at_once_and_its_runs_keep_their_launcher(
    path: Path, service: subprocess.Popen[bytes]
) -> None:
    """The main process exits with 0, so a new one can start, while the old launcher supervises its run."""
    old = int(ask(path, "hello").split()[2])
    marker = str(path.parent / "marker")
    run_dir = prepared(path, "r1", *script("hydra", marker, "stay"))
    shim_pid = int(start(path, run_dir).split()[0])
    eventually_sync(lambda: hydra_is_grown(marker))

    ask(path, "retire")

    assert 0 == service.wait(timeout=60)
    assert not answers(path)
    assert is_running(shim_pid)
    os.kill(shim_pid, signal.SIGKILL)
    eventually_sync(lambda: not processes(marker))
    eventually_sync(lambda: not is_running(old))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_service_that_is_stopped_ends_no_run(
    path: Path, service: subprocess.Popen[bytes], number: signal.Signals, code: int
) -> None:
    """The manager ends only the main process; the launcher notices and takes no more runs."""
    old = int(ask(path, "hello").split()[2])
    shim_pid = int(start(path, run_dir := prepared(path, "r1", "sleep", "600")).split()[0])

    service.send_signal(number)

    assert code == service.wait(timeout=60)
    eventually_sync(lambda: not answers(path))
    assert is_running(shim_pid)
    assert is_running(old)
    os.kill(shim_pid, signal.SIGTERM)
    assert "stop" == exit_record(run_dir).by
    eventually_sync(lambda: not is_running(old))


def test_service_that_is_stopped_leaves_no_launcher_without_runs(
    path: Path, service: subprocess.Popen[bytes]
) -> None:
    """The manager would warn about a left-over process, although it is about to leave."""
    launcher = int(ask(path, "hello").split()[2])
    below = {member.pid for member in tree.descendants(launcher)}

    service.send_signal(signal.SIGTERM)

    assert 0 == service.wait(timeout=60)
    assert not any(map(is_running, (launcher, *below)))


def test_service_that_was_replaced_makes_room(path: Path, service: subprocess.Popen[bytes]) -> None:
    """Its socket is another launcher's now; the manager may start it again, which takes the socket back."""
    begin(path)

    assert 0 == service.wait(timeout=60)


def test_service_fails_when_its_launcher_is_killed(path: Path, service: subprocess.Popen[bytes]) -> None:
    """The service manager starts another one, and logs the failure."""
    os.kill(int(ask(path, "hello").split()[2]), signal.SIGKILL)

    assert 1 == service.wait(timeout=60)


def test_a_launcher_that_starts_never_refuses_a_client(path: Path) -> None:
    """Neither after one that was killed, nor when it takes a living one's place."""
    path.parent.mkdir(mode=0o700)
    dead: set[int] = set()
    for _ in range(2):
        with calling(path, socket.SOCK_SEQPACKET) as caller:
            for _ in range(2):
                subprocess.run([*PROGRAM, str(path)], check=True, timeout=60, capture_output=True)
        assert caller.refused <= dead
        os.kill(begin(path), signal.SIGKILL)
        dead = {path.stat().st_ino}
