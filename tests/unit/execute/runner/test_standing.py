"""The process in front of the launcher says when it is ready, and ends when and as it should."""

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

from handoffd.execute.runner import daemonize

PACKAGE = str(Path(daemonize.__file__).parents[3])

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

# Tells each process that serves, and does what the next line from stdin says.
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
    """Start a process that stands in front of one that does as `words` say, until stdin is closed."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, PACKAGE, *words],
        env=more,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
def test_it_ends_as_what_is_behind_it_fares(words: tuple[str, ...], code: int) -> None:
    """Nobody closes stdin here: only what the launcher says, or its end, ends the process in front."""
    with ending(standing_program(*words)) as front:
        assert code == front.wait(timeout=60)
        assert front.stdin is not None
        front.stdin.close()


def test_it_stays_as_long_as_the_launcher_keeps_its_place() -> None:
    """A launcher that ends without a word about it counts as failed."""
    with ending(standing_program("stay")) as front:
        with pytest.raises(subprocess.TimeoutExpired):
            front.wait(timeout=0.05)
        assert front.stdin is not None
        front.stdin.close()

        assert 4 == front.wait(timeout=60)


@pytest.mark.parametrize("abstract", [False, True])
def test_service_manager_is_told_when_the_launcher_is_ready(tmp_path: Path, *, abstract: bool) -> None:
    """By the process that it started itself, which is the one it listens to."""
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
    """The launcher serves; the log says what was wrong."""
    with ending(standing_program("stay", "leave", NOTIFY_SOCKET=str(tmp_path / "nobody"))) as front:
        assert front.stderr is not None
        assert "No such file or directory" in front.stderr.readline()
        assert 0 == front.wait(timeout=60)


@contextmanager
def service(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Lend a process that stands in front of launchers that last, one after the other."""
    command = [sys.executable, "-I", "-S", "-c", SERVICE, PACKAGE, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env={}, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    with ending(process) as front:
        yield front
        front.kill()


def launcher_of(front: subprocess.Popen[str]) -> int:
    """Return the next launcher, which has this process in front of it."""
    assert front.stdout is not None
    before, launcher = map(int, front.stdout.readline().split())
    assert front.pid == before
    return launcher


@pytest.mark.parametrize("how", ["retire", "kill"])
def test_a_launcher_that_lasted_is_followed_by_another_one_without_the_manager(how: str) -> None:
    """Whether it gave up its place or died; to the manager the unit runs on."""
    with service("told") as front:
        assert front.stdin is not None
        first = launcher_of(front)
        front.stdin.write(how[0])
        front.stdin.flush()

        assert first != launcher_of(front)
        eventually_sync(lambda: not Path(f"/proc/{first}").exists())  # it was reaped, too
        assert front.poll() is None


def test_a_hangup_asks_for_another_launcher() -> None:
    """What reloading the unit sends: the one that is there gives up its place, however new it is."""
    with service("wait") as front:
        first = launcher_of(front)
        front.send_signal(signal.SIGHUP)

        assert first != launcher_of(front)


def test_hangups_in_a_row_are_one() -> None:
    """The second may come while the process in front begins anew, and hears nothing yet."""
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
