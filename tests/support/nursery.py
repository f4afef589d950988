"""Where daemons of tests come from: a process that has imported handoffd, and forks it.

Importing takes most of a daemon's start, and acceptance tests start hundreds. A forked daemon runs the
command `handoffd run` in a session, an environment and a log of its own; it has real signals, real ends and
real children. What it does not show is how a fresh interpreter begins: tests of that start it by `exec`.

`python -m tests.support.nursery` reads a line of JSON for each daemon on stdin. On stdout it says `ready`
once, `pid N` for each daemon, and `gone N STATUS` when one has ended (STATUS is Popen's return code).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from tests.chaos.zygote import end_with_the_parent, preload
from tests.support import dying

_START_LIMIT_S = 60


class Forked:
    """A daemon of the nursery, with the part of Popen's interface that tests use."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """Return the exit code, -N for signal N; None while it runs."""
        self._nursery.listen(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code. Raises TimeoutExpired after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while self.poll() is None:
            left_s = limit - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(["handoffd", "run"], timeout)
            self._nursery.listen(left_s)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The forking process, seen from the tests."""

    lent: Nursery | None = None
    """The one that this test session has."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self._rest = b""
        self._born: list[Forked] = []
        self._running: dict[int, Forked] = {}
        self._ready = False
        self._until(lambda: self._ready)

    def bear(self, arguments: list[str], environment: Mapping[str, str], log: str) -> Forked:
        """Return a daemon that runs `handoffd ARGUMENTS` and appends what it prints to `log`."""
        order = {"arguments": arguments, "environ": dict(environment), "log": log, "cwd": os.getcwd()}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._until(lambda: bool(self._born))
        return self._born.pop()  # it may have ended, and left the table of running ones

    def close(self) -> None:
        """End the nursery, and with it what it has forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_START_LIMIT_S)
        self._process.stdout.close()

    def listen(self, limit_s: float) -> None:
        """Take what the process says; wait at most `limit_s` for it."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            return
        said = os.read(self._process.stdout.fileno(), 65536)
        if not said:
            raise RuntimeError("the nursery has ended")
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            self._take(line.decode().split())

    def _take(self, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self._ready = True
            case ["pid", pid]:
                daemon = self._running[int(pid)] = Forked(self, int(pid))
                self._born.append(daemon)
            case ["gone", pid, status]:
                self._running.pop(int(pid)).returncode = int(status)

    def _until(self, happened: Callable[[], bool]) -> None:
        limit = time.monotonic() + _START_LIMIT_S
        while not happened():
            assert time.monotonic() < limit, "the nursery does not answer"
            self.listen(1)


# --- the process --------------------------------------------------------------------------------------
def become_daemon(order: Mapping[str, object], parts: tuple[int, ...]) -> NoReturn:
    """Be the daemon that `order` describes, in this fresh fork; `parts` are descriptors of the parent."""
    from handoffd.cli.main import main as command

    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end_with_the_parent()
        os.setsid()
        os.chdir(str(order["cwd"]))
        log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, stream)
        os.closerange(3, max(64, *parts) + 1)
        os.environ.clear()
        os.environ.update(order["environ"])  # type: ignore[call-overload]
        dying.arm()
        command(list(order["arguments"]))  # type: ignore[call-overload]
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        print("gone", pid, os.waitstatus_to_exitcode(status), flush=True)


def main() -> None:
    """Fork a daemon for every line on stdin, and say when one has ended; end when stdin does."""
    end_with_the_parent()
    preload()
    gc.collect()
    gc.freeze()  # what is loaded by now is shared with every daemon
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    print("ready", flush=True)
    rest = b""
    while True:
        heard, _, _ = select.select([0, woken], [], [])
        if woken in heard:
            os.read(woken, 4096)
            _reap()
        if 0 in heard:
            said = os.read(0, 65536)
            if not said:
                return
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    become_daemon(json.loads(line), (woken, waker))
                print("pid", pid, flush=True)


if __name__ == "__main__":
    main()
