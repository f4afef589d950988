"""How launcher and shim are processes of their own: without a terminal, for a service manager, with signals.

The launcher itself is always the second process. It is the parent of the shims and the second
subreaper above them, so it has to stay until the last one has ended; a service manager, however,
starts no new main process before the old one is gone. So the manager's main process is the small
one in front, and each learns of the other through one pair of sockets, whatever happens to either.

When the launcher gives up its place (retired, replaced) or is gone, the one in front begins anew as the
program that is installed now, with a launcher of its own, and SIGHUP asks for that. To the manager nothing
has happened; were it to start the unit anew, it would warn of every agent as a process left over from
before. That is left to it where a launcher did not last: it counts such starts, and gives up some time.

When the process in front is gone (stopped, killed), the launcher gives up its place.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

LASTED_S = 10.0
"""A launcher that was ready for so long is followed by another one without the service manager."""
_LEAVE_S = 5.0
"""How long a launcher without agents may take to be gone, when the unit is stopped."""
_SIGN, _STAYS = b"!", b"+"


class Front:
    """The launcher's line to the process in front of it. Readable when that one is gone."""

    def __init__(self, line: socket.socket, *, stays: bool) -> None:
        self._line = line
        self.stays = stays

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._line.fileno()

    def ready(self) -> None:
        """Say that requests are answered from now on."""
        _send(self._line, _SIGN)
        if not self.stays:
            self._line.close()

    def leave(self, *, agents: bool) -> None:
        """Say that the place is free for another launcher; this one leaves, or stays for its `agents`."""
        _send(self._line, _STAYS if agents else _SIGN)

    def close(self) -> None:
        """Let go of the line; without a word before it, the launcher counts as failed."""
        self._line.close()


def _send(line: socket.socket, sign: bytes) -> None:
    try:
        line.send(sign)
    except OSError:
        return  # nobody is in front any more, and so nobody waits for it


def stand(serve: Callable[[Front], int], *, stay: bool, lasted_s: float = LASTED_S) -> int:
    """Have `serve` run in a process of its own session; return the exit code of the one in front.

    With `stay` the process in front stays as long as the launcher keeps its place; when that was at least
    `lasted_s` seconds it begins anew then. Without, it stays until the launcher is ready. `serve` returns
    an exit code, too.
    """
    front, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    children = _Children()
    if stay:
        signal.signal(signal.SIGHUP, lambda *_: children.replace(front))
        signal.signal(signal.SIGTERM, lambda *_: children.leave(front))
    children.launcher = os.fork()
    if children.launcher == 0:
        front.close()
        _serve(serve, Front(line, stays=stay))
    line.close()
    # Nothing to tidy up here: whatever ends this process is an answer to the launcher.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not front.recv(1):
        return children.exit_code()
    if not stay:
        return 0
    tell_service_manager("READY=1\nSTATUS=Ready to start runs")
    ready = time.monotonic()
    code = 0 if front.recv(1) else children.exit_code()
    if children.to_be_replaced or time.monotonic() - ready >= lasted_s:
        _begin_anew(code)
    return code


def _begin_anew(code: int) -> NoReturn:
    """Be the program that is installed now; `code` is how the launcher of until now has ended."""
    if code:
        sys.stderr.write("handoffd launcher: it was ended; another one is started\n")
        sys.stderr.flush()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new program listens: it is the latest one
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


class _Children:
    """Reaps launchers: an earlier one, which stays for its agents, ends at any time."""

    def __init__(self) -> None:
        self.launcher = 0
        self.to_be_replaced = False
        self._ended: dict[int, int] = {}
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        self._reap()

    def replace(self, front: socket.socket) -> None:
        """Have the latest launcher give up its place for another one, however short it has been there."""
        self.to_be_replaced = True
        _hang_up(front)

    def leave(self, front: socket.socket) -> NoReturn:
        """End the process in front, with the launcher if no agent keeps that one.

        A launcher that is about to leave would be warned of as one that is left over.
        """
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, _LEAVE_S)
        _hang_up(front)
        if front.recv(1) != _STAYS:
            self.exit_code()
        os._exit(0)

    def exit_code(self) -> int:
        """Return how the latest launcher ended, with 1 for a signal; waits for that."""
        with suppress(ChildProcessError):  # it has been reaped already
            self._ended[self.launcher] = os.waitpid(self.launcher, 0)[1]
        status = self._ended[self.launcher]
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended[pid] = status


def _hang_up(front: socket.socket) -> None:
    """Have the launcher give up its place, if it has not done so by itself."""
    with suppress(OSError):
        front.shutdown(socket.SHUT_WR)


def _serve(serve: Callable[[Front], int], front: Front) -> None:
    """Be the launcher; never returns."""
    code = 1
    try:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        code = serve(front)
        sys.stderr.flush()
    finally:
        os._exit(code)


def leave_standard_streams() -> None:
    """Put /dev/null in place of stdin, stdout and stderr: a reader of ours must not wait for us."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def tell_service_manager(text: str) -> None:
    """Send `text` to the service manager that started us, if it asked to be told."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        try:
            notify.sendto(text.encode(), address)
        except OSError as error:
            sys.stderr.write(f"handoffd launcher: {address}: {error.strerror}\n")


# --- signals ------------------------------------------------------------------------------------------
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK


class Signals:
    """The signals of this process. A child that is forked takes the settings over with `renew`.

    TERM asks it to stop, and is only noted: it may come at any instant. What a terminal or a reader that has
    gone would end a process with is ignored. A signal that comes makes `wake` readable, so one poll waits for
    everything.
    """

    def __init__(self) -> None:
        self.stop_asked = False
        self.wake = -1
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        # A handler that does nothing, because an ignored SIGCHLD would reap children unseen.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.renew()

    def renew(self) -> None:
        """Be woken through a pipe of our own, and forget what the parent was asked."""
        self.wake, waker = os.pipe2(_FLAGS)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.stop_asked = False

    def settle(self) -> None:
        """Make `wake` unreadable until the next signal."""
        os.read(self.wake, 512)

    def _ask_to_stop(self, *_: object) -> None:
        self.stop_asked = True
