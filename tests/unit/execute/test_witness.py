"""Looking at processes through the launcher, as a daemon must that is in a user namespace."""

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

import pytest
from tests.support.children import ending
from tests.support.namespaces import in_user_namespace
from tests.unit.execute.runner.test_proc_probe import connected, send

from handoffd.execute.runner import proc, proc_probe
from handoffd.execute.witness import ALONE, Witness

LOOK = """
import json, sys
from pathlib import Path
from handoffd.api.service import inside_executor
from handoffd.execute.witness import ALONE, Witness
pid = int(sys.argv[1])
witness = Witness(Path(sys.argv[2])) if sys.argv[2] else ALONE
print(json.dumps([witness.written([pid]), inside_executor(pid, witness)]))
"""

CONNECTIONS = """
import json, sys
from pathlib import Path
from handoffd.execute.witness import Witness
print(json.dumps(Witness(Path(sys.argv[2])).received([int(sys.argv[1])])))
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


def seen_from_inside(pid: int, socket_path: str) -> tuple[dict[str, list[int]], bool]:
    """Return what one in a user namespace learns of `pid`: what it has written, whether it is an agent."""
    written, inside = json.loads(in_user_namespace(LOOK, str(pid), socket_path))
    return written, inside


def test_who_can_be_looked_at_is_asked_of_nobody() -> None:
    """No launcher is needed on most machines."""
    with process() as pid:
        assert proc.shown_written(pid) == ALONE.written([pid])[pid]
        assert 5 <= ALONE.written([pid])[pid].calls


def test_who_has_ended_is_left_out(tmp_path: Path) -> None:
    """It takes its figures along."""
    with process() as pid:
        pass

    assert {} == Witness(tmp_path / "nobody").written([pid])


def test_from_inside_a_user_namespace_the_launcher_sees(tmp_path: Path) -> None:
    """What was written, and whether whoever asks belongs to a run."""
    with launcher(tmp_path / "l"), process(HANDOFFD_RUN="d1") as agent, process() as person:
        seen = [seen_from_inside(pid, str(tmp_path / "l")) for pid in (agent, person)]

        assert [({str(agent): [*proc.shown_written(agent)]}, True)] == seen[:1]
        assert [({str(person): [*proc.shown_written(person)]}, False)] == seen[1:]


def test_connections_are_seen_from_inside_a_user_namespace(tmp_path: Path) -> None:
    """By the launcher; without one that can tell, nothing is."""
    with connected() as (pid, ours):
        send(ours, b"x" * 100)
        with launcher(tmp_path / "l"):
            told = json.loads(in_user_namespace(CONNECTIONS, str(pid), str(tmp_path / "l")))
        with launcher(tmp_path / "old", older=True):
            untold = json.loads(in_user_namespace(CONNECTIONS, str(pid), str(tmp_path / "old")))

        assert [list(one) for one in ALONE.received([pid])] == told
        assert [100] == [data_bytes for _, data_bytes, _ in told]
    assert [] == untold


@pytest.mark.parametrize("older", [True, False])
def test_without_a_launcher_that_can_tell_nobody_opens_a_gate(tmp_path: Path, older: bool) -> None:
    """Whoever cannot be looked at may be an agent."""
    with process() as person:
        if older:
            with launcher(tmp_path / "l", older=True):
                assert ({}, True) == seen_from_inside(person, str(tmp_path / "l"))
        else:
            assert ({}, True) == seen_from_inside(person, str(tmp_path / "nobody"))
            assert ({}, True) == seen_from_inside(person, "")


def test_who_listens_is_asked_of_the_kernel(tmp_path: Path) -> None:
    """It need not answer for that."""
    assert None is ALONE.listener()
    assert None is Witness(tmp_path / "l").listener()
    with launcher(tmp_path / "l", older=True):
        assert os.getpid() == Witness(tmp_path / "l").listener()


def test_any_number_of_processes_can_be_asked_for(tmp_path: Path) -> None:
    """In as many requests as it takes."""
    with launcher(tmp_path / "l"):
        assert Witness(tmp_path / "l").marked([os.getppid()] * (2 * proc_probe.MOST + 1)) is False


def test_the_launcher_tells_its_boot_id(tmp_path: Path) -> None:
    """One of an older version does not know the question."""
    with launcher(tmp_path / "l"):
        assert proc.boot_id() == Witness(tmp_path / "l").boot_id()
    with launcher(tmp_path / "old", older=True):
        assert Witness(tmp_path / "old").boot_id() is None


def test_nobody_answers(tmp_path: Path) -> None:
    """That is no answer, and not the answer no."""
    assert Witness(tmp_path / "nobody").boot_id() is None
    assert Witness(tmp_path / "nobody").marked([os.getpid()]) is None
    assert ALONE.marked([os.getpid()]) is None
    assert ALONE.marked([]) is False
