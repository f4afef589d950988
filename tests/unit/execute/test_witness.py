"""Processes as seen through the launcher, which a daemon in a user namespace needs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.children import ending
from tests.support.namespaces import in_user_namespace
from tests.unit.execute.runner.test_proc_probe import connected, send

from handoffd.execute.runner import proc, proc_probe
from handoffd.execute.witness import ALONE, Witness

LOOK = """
import json, sys
from pathlib import Path
from handoffd.execute.witness import ALONE, Witness, inside_executor
for pid, socket in json.loads(sys.argv[1]):
    witness = Witness(Path(socket)) if socket else ALONE
    print(json.dumps([witness.written([pid]), inside_executor(pid, witness)]))
"""

CONNECTIONS = """
import json, sys
from pathlib import Path
from handoffd.execute.witness import Witness
for socket in sys.argv[2:]:
    print(json.dumps(Witness(Path(socket)).received([int(sys.argv[1])])))
"""


@contextmanager
def launcher(path: Path, *, older: bool = False) -> Iterator[None]:
    """Answer callers as a launcher does; an `older` one does not know these requests."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_answer_all, args=(listener, older), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _answer_all(listener: socket.socket, older: bool) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller:
            while packet := caller.recv(65536):
                verb, _, rest = packet.partition(b" ")
                said = None if older else proc_probe.answer(verb, rest)
                caller.send(b"error unknown request" if said is None else said)


@contextmanager
def process(**env: str) -> Iterator[int]:
    """Lend the pid of a process of this account that has written 5 bytes and waits."""
    code = "import sys; print('here', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-I", "-S", "-c", code]
    with ending(subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.communicate()


def seen_from_inside(*asked: tuple[int, Path | None]) -> list[tuple[dict[str, list[int]], bool]]:
    """Return, for each process and launcher, what a daemon in a user namespace sees there.

    That is what the process has written, and whether it counts as an agent.
    """
    pairs = json.dumps([(pid, str(socket or "")) for pid, socket in asked])
    found = map(json.loads, in_user_namespace(LOOK, pairs).splitlines())
    return [(written, inside) for written, inside in found]


def test_a_process_that_we_may_see_needs_no_launcher() -> None:
    """As on most machines."""
    with process() as pid:
        assert proc.shown_written(pid) == ALONE.written([pid])[pid]
        assert 5 <= ALONE.written([pid])[pid].calls


def test_a_process_that_has_ended_is_left_out(tmp_path: Path) -> None:
    """Its figures are gone with it."""
    with process() as pid:
        pass

    assert {} == Witness(tmp_path / "none").written([pid])


def test_from_inside_a_user_namespace_the_launcher_sees(tmp_path: Path) -> None:
    """What a process has written, and whether it belongs to a run."""
    path = tmp_path / "l"
    with launcher(path), process(HANDOFFD_RUN="d1") as agent, process() as person:
        expected = [
            ({str(pid): [*proc.shown_written(pid)]}, inside)
            for pid, inside in ((agent, True), (person, False))
        ]

        assert expected == seen_from_inside((agent, path), (person, path))


def test_connections_are_seen_from_inside_a_user_namespace(tmp_path: Path) -> None:
    """Through the launcher; without one that knows the request, none are."""
    new, old = tmp_path / "l", tmp_path / "old"
    with connected() as (pid, ours), launcher(new), launcher(old, older=True):
        send(ours, b"x" * 100)
        printed = in_user_namespace(CONNECTIONS, str(pid), str(new), str(old))
        seen, unseen = map(json.loads, printed.splitlines())

        assert [list(one) for one in ALONE.received([pid])] == seen
        assert [100] == [data_bytes for _, data_bytes, _ in seen]
    assert [] == unseen


def test_without_a_launcher_that_can_answer_a_caller_counts_as_an_agent(tmp_path: Path) -> None:
    """A process that cannot be seen may be one, and must not open a gate."""
    with process() as person, launcher(tmp_path / "old", older=True):
        sockets = (tmp_path / "old", tmp_path / "none", None)

        assert [({}, True)] * 3 == seen_from_inside(*((person, socket) for socket in sockets))


def test_the_kernel_names_the_listener(tmp_path: Path) -> None:
    """The launcher itself need not answer for that."""
    assert None is ALONE.listener()
    assert None is Witness(tmp_path / "l").listener()
    with launcher(tmp_path / "l", older=True):
        assert os.getpid() == Witness(tmp_path / "l").listener()


def test_any_number_of_processes_can_be_asked_for(tmp_path: Path) -> None:
    """In as many requests as it takes."""
    with launcher(tmp_path / "l"):
        assert Witness(tmp_path / "l").marked([os.getppid()] * (2 * proc_probe.MOST + 1)) is False


def test_the_launcher_answers_its_boot_id(tmp_path: Path) -> None:
    """One of an older version does not know the request."""
    with launcher(tmp_path / "l"):
        assert proc.boot_id() == Witness(tmp_path / "l").boot_id()
    with launcher(tmp_path / "old", older=True):
        assert Witness(tmp_path / "old").boot_id() is None


def test_without_a_launcher_there_is_no_answer(tmp_path: Path) -> None:
    """None is not False."""
    assert Witness(tmp_path / "none").boot_id() is None
    assert Witness(tmp_path / "none").marked([os.getpid()]) is None
    assert ALONE.marked([os.getpid()]) is None
    assert ALONE.marked([]) is False
