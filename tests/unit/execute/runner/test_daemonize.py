"""The process in front of the launcher, and how a shim takes signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync
from tests.support.runs import PACKAGE, printed

# In a process of its own, since it forks.
PROGRAM = """
import os, sys
sys.path.append(sys.argv[1])
from handoffd.execute.runner import daemonize

def serve(front):
    if "fail" in sys.argv:
        print("what is wrong", file=sys.stderr)
        return 3
    front.ready()
    if "crash" in sys.argv:
        os.abort()
    if "leave" in sys.argv:
        front.leave(agents=False)
    os.read(0, 1)
    return 4

sys.exit(daemonize.stand(serve, stay="stay" in sys.argv))
"""

# Prints each process that serves, and then does what the next line from stdin says.
SERVICE = """
import os, sys
sys.path.append(sys.argv[1])
from handoffd.execute.runner import daemonize

def serve(front):
    print(os.getppid(), os.getpid(), flush=True)
    front.ready()
    if sys.argv[2] == "wait":
        os.read(front.fileno(), 1)
    elif os.read(0, 1) == b"k":
        os.abort()
    front.leave(agents=False)
    return 0

sys.exit(daemonize.stand(serve, stay=True, lasted_s=600 if sys.argv[2] == "wait" else 0))
"""


def standing_program(*words: str, **more: str) -> subprocess.Popen[str]:
    """Start a process in front of one that does what `words` say, until stdin is closed."""
    command, pipe = [sys.executable, "-I", "-S", "-c", PROGRAM, PACKAGE, *words], subprocess.PIPE
    return subprocess.Popen(command, env=more, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),  # ready and left in the background
        (("stay", "leave"), 0),
        (("stay", "crash"), 1),
        (("stay", "fail"), 3),
        (("fail",), 3),
    ],
)
def test_it_ends_with_the_launchers_result(words: tuple[str, ...], code: int) -> None:
    """Stdin stays open: only a message of the launcher, or its end, ends the process in front."""
    with ending(standing_program(*words)) as front:
        assert code == front.wait(timeout=60)
        assert front.stdin is not None
        front.stdin.close()


def test_it_stays_as_long_as_the_launcher_keeps_its_place() -> None:
    """A launcher that ends without a message counts as failed."""
    with ending(standing_program("stay")) as front:
        with pytest.raises(subprocess.TimeoutExpired):
            front.wait(timeout=0.05)
        assert front.stdin is not None
        front.stdin.close()

        assert 4 == front.wait(timeout=60)


@pytest.mark.parametrize("abstract", [False, True])
def test_service_manager_learns_that_the_launcher_is_ready(tmp_path: Path, *, abstract: bool) -> None:
    """From the process that it started itself, the only one it listens to."""
    address = f"@handoffd-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.bind("\0" + address[1:] if abstract else address)
        with ending(standing_program("stay", NOTIFY_SOCKET=address)) as front:
            said, ancillary, _, _ = manager.recvmsg(1000, socket.CMSG_SPACE(12))
            assert front.stdin is not None
            front.stdin.close()

    assert b"READY=1" in said.splitlines()
    assert front.pid == int.from_bytes(ancillary[0][2][:4], sys.byteorder)


def test_service_manager_that_is_gone_is_no_obstacle(tmp_path: Path) -> None:
    """The launcher serves; the log has the error."""
    with ending(standing_program("stay", "leave", NOTIFY_SOCKET=str(tmp_path / "gone"))) as front:
        assert front.stderr is not None
        assert "No such file or directory" in front.stderr.readline()
        assert 0 == front.wait(timeout=60)


@contextmanager
def service(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Lend a process in front of launchers that last, one after the other."""
    command = [sys.executable, "-I", "-S", "-c", SERVICE, PACKAGE, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env={}, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    with ending(process) as front:
        yield front
        front.kill()


def launcher_of(front: subprocess.Popen[str]) -> int:
    """Return the next launcher, whose parent is this process."""
    assert front.stdout is not None
    before, launcher = map(int, front.stdout.readline().split())
    assert front.pid == before
    return launcher


@pytest.mark.parametrize("how", ["retire", "kill"])
def test_a_launcher_that_lasted_is_followed_by_another_one_without_the_manager(how: str) -> None:
    """Whether it gave up its place or died; to the manager the unit runs on."""
    with service("line") as front:
        assert front.stdin is not None
        first = launcher_of(front)
        front.stdin.write(how[0])
        front.stdin.flush()

        assert first != launcher_of(front)
        eventually_sync(lambda: not Path(f"/proc/{first}").exists())  # it was reaped, too
        assert front.poll() is None


def test_a_hangup_asks_for_another_launcher() -> None:
    """Reloading the unit sends it: the current launcher gives up its place, however new it is."""
    with service("wait") as front:
        first = launcher_of(front)
        front.send_signal(signal.SIGHUP)

        assert first != launcher_of(front)


def test_hangups_in_a_row_are_one() -> None:
    """The second may come while the process in front begins anew, before it takes signals."""
    with service("wait") as front:
        first = launcher_of(front)
        for _ in range(50):
            front.send_signal(signal.SIGHUP)

        assert first != launcher_of(front)
        assert front.poll() is None


def test_the_next_launcher_is_of_the_program_that_is_installed_by_then(tmp_path: Path) -> None:
    """An upgrade has put another one into its place."""
    program = tmp_path / "launcher.py"
    program.write_text(SERVICE, encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(program), PACKAGE, "wait"]
    with ending(subprocess.Popen(command, env={}, stdout=subprocess.PIPE, text=True)) as front:
        launcher_of(front)
        program.write_text("print('the new one')", encoding="utf-8")
        front.send_signal(signal.SIGHUP)

        assert front.stdout is not None
        assert "the new one\n" == front.stdout.readline()


# --- a shim's signals ---------------------------------------------------------------------------------
# In a process of its own: how a process takes signals is one setting for all of it.
SIGNALS = """
import select
from handoffd.execute.runner import daemonize

notes = daemonize.Signals()

def ready():
    return bool(select.select([notes.wake], [], [], 0)[0])

os.kill(os.getpid(), int(sys.argv[1]))
print(notes.stop_asked, ready(), flush=True)
if ready():
    notes.settle()
if os.fork() == 0:
    notes.renew()
    print(notes.stop_asked, ready(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print(notes.stop_asked, ready(), flush=True)
    os._exit(0)
select.select([notes.wake], [], [], 30)
os.wait()
print(notes.stop_asked, ready(), flush=True)
"""


IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)


@pytest.mark.parametrize(
    ("number", "asked", "woken"),
    [
        (signal.SIGTERM, True, True),
        *((number, False, False) for number in IGNORED),
    ],
)
def test_term_asks_and_others_do_nothing(number: int, *, asked: bool, woken: bool) -> None:
    """The parent's request is not its child's, nor the other way round; a child's end wakes."""
    expected = [(asked, woken), (False, False), (True, True), (asked, True)]
    assert [f"{first} {second}" for first, second in expected] == printed(SIGNALS, str(number)).splitlines()
