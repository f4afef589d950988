"""The socket: who gets in, and its end; and whether the caller belongs to an executor."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.children import ending
from tests.support.controlled import Controlled, controlled
from tests.support.eventually import eventually_sync
from tests.support.refusals import refused
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

from handoffd.api.client import Client
from handoffd.api.http.server import ControlServer, Peer, peer_of
from handoffd.api.service import Service
from handoffd.clock import SystemClock
from handoffd.errors import HandoffdError, Locked, NoDaemon
from handoffd.execute.witness import inside_executor


def test_the_socket_is_for_its_account_only(tmp_path: Path) -> None:
    """With mode 0600, in a folder that is closed to others if it was made for it."""
    path = tmp_path / "run" / "c.sock"

    def modes() -> tuple[int, int, bool]:
        found = path.stat().st_mode
        return stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(found), stat.S_ISSOCK(found)

    assert (0o700, 0o600, True) == _serve_once(_service(tmp_path), path, modes)


def test_other_accounts_get_403(supervision: MemorySupervision) -> None:
    """Before the server reads their request."""
    with controlled(supervision, uids=frozenset({os.geteuid() + 1})) as control:
        for path in ("/v1/health", "/v1/nothing-like-this"):
            with refused("FORBIDDEN"):
                control.client.get(path)


def test_open_streams_end_when_the_server_does(supervision: MemorySupervision) -> None:
    """A follower sees the end of its stream, not an error, and the socket is gone."""
    seen: list[int] = []
    ended = threading.Event()

    def read(client: Client) -> None:
        for event in client.lines("/v1/events", follow=1, after=0):
            seen.append(event["seq"])  # noqa: PERF401  (the test waits for the first)
        ended.set()

    with controlled(supervision) as control:
        reader = threading.Thread(target=read, args=(control.client,))
        reader.start()
        control.commit(record())
        eventually_sync(lambda: seen)
    reader.join(60)

    assert ([1], True) == (seen, ended.is_set())
    assert not control.socket.exists()
    with pytest.raises(NoDaemon):
        control.client.get("/v1/health")


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """A killed daemon leaves it."""
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    _serve_once(_service(tmp_path), path)


def test_a_socket_that_outlives_its_daemon_is_replaced(tmp_path: Path) -> None:
    """A killed daemon's child holds it, until it comes to its own program."""
    path = tmp_path / "c.sock"
    child = "import sys; sys.stdin.read()"
    daemon = (
        "import socket, subprocess, sys\n"
        "listening = socket.socket(socket.AF_UNIX)\n"
        f"listening.bind({str(path)!r})\n"
        "listening.listen()\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], pass_fds=[listening.fileno()])\n"
    )
    with ending(subprocess.Popen([sys.executable, "-c", daemon], stdin=subprocess.PIPE)) as process:
        process.wait()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
        _serve_once(_service(tmp_path), path)


def test_a_socket_that_has_taken_the_place_stays(tmp_path: Path) -> None:
    """A daemon that ends removes its own socket, not its successor's."""
    path = tmp_path / "c.sock"

    def replace() -> None:
        path.unlink()
        path.touch()

    _serve_once(_service(tmp_path), path, replace)

    assert path.exists()


def test_a_half_made_socket_of_a_dead_daemon_is_removed(tmp_path: Path) -> None:
    """By its pid; the socket that a living daemon is about to name stays."""
    with ending(subprocess.Popen(["true"])) as process:
        process.wait()
    for pid in (process.pid, os.getppid()):
        (tmp_path / f".c.sock.{pid}").touch()

    _serve_once(_service(tmp_path), tmp_path / "c.sock")

    assert [f".c.sock.{os.getppid()}"] == [path.name for path in tmp_path.glob(".c.sock*")]


def _serve_once(service: Service, path: Path, meanwhile: Callable[[], object] = lambda: None) -> object:
    """Return the result of `meanwhile`, which is called while a server runs."""

    async def serve() -> object:
        server = ControlServer(service, path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run)
            await server.started.wait()
            found = meanwhile()
            tasks.cancel_scope.cancel()
        return found

    return anyio.run(serve)


def test_a_socket_that_answers_is_not_taken(tmp_path: Path) -> None:
    """The other one keeps it."""
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        with pytest.raises(Locked):
            anyio.run(ControlServer(_service(tmp_path), path).run)

        assert path.exists()


def test_a_path_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    """The kernel's own message would not mention the length."""
    with pytest.raises(HandoffdError) as caught:
        anyio.run(ControlServer(_service(tmp_path), tmp_path / ("x" * 100)).run)

    assert "too long" in caught.value.message


def test_signals_stay_the_daemons(control: Controlled) -> None:
    """Serving installs no handler of its own."""
    control.client.get("/v1/health")

    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_a_reader_that_leaves_frees_its_stream(control: Controlled) -> None:
    """A follower that is gone is not kept until the next event."""
    before = threading.active_count()
    with control.client.stream("/v1/events", follow=1):
        pass

    assert 1 == control.client.get("/v1/health")["api"]
    assert eventually_sync(lambda: threading.active_count() <= before + 1)


def _service(folder: Path) -> Service:
    class _NoJournal:
        newest = 0

    return Service(MemorySupervision(), _NoJournal(), SystemClock(), runs_dir=folder)  # type: ignore[arg-type]


# --- the process at the other end --------------------------------------------------------------------
_WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_WAIT!r}], env={{}})"


@contextmanager
def _process(code: str, *arguments: str, env: Mapping[str, str]) -> Iterator[int]:
    """Lend the pid of a process that waits, parentless in what it inherits of this test's environment."""
    argv = [sys.executable, "-I", "-c", code, *arguments]
    with ending(
        subprocess.Popen(argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.stdin.close()


def _child_of(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def test_the_kernel_says_who_connected() -> None:
    """Neither side can claim to be another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert Peer(pid=os.getpid(), uid=os.geteuid()) == peer_of(ours)


def test_a_process_with_a_run_id_is_inside() -> None:
    """By its own environment, or by its parent's if it cleared its own."""
    with _process(_WAIT, env={"HANDOFFD_RUN": "d1"}) as pid:
        assert inside_executor(pid)
    with _process(_CHILD, env={"HANDOFFD_RUN": "d1"}) as parent:
        assert inside_executor(_child_of(parent))


def test_a_child_of_the_daemon_is_inside() -> None:
    """By its mark, or because the daemon is above it; the daemon itself is not."""
    with _process(_WAIT, env={"HANDOFFD_CHILD": "1"}) as pid:
        assert inside_executor(pid)
    with _process(_WAIT, env={}) as pid:
        assert inside_executor(pid, daemon=os.getpid())
        assert not inside_executor(pid)
    assert not inside_executor(os.getpid(), daemon=os.getpid())


def test_what_a_command_of_ours_has_started_is_inside() -> None:
    """`handoffd executors` asks programs for their versions, and an agent may have named such a program."""
    with _process(_CHILD, "/usr/local/bin/handoffd", env={}) as parent:
        assert not inside_executor(parent)
        assert inside_executor(_child_of(parent))


def test_a_descendant_of_a_shim_is_inside() -> None:
    """The shim is known by its program, whatever its environment."""
    with _process(_WAIT, "/opt/handoffd/execute/runner/shim.py", env={}) as pid:
        assert inside_executor(pid)


def test_a_process_that_is_gone_is_inside() -> None:
    """A process that cannot be examined opens no gate; the first of the machine is outside."""
    assert not inside_executor(1)
    with ending(subprocess.Popen([sys.executable, "-c", ""])) as process:
        process.wait()

    assert inside_executor(process.pid)
