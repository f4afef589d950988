"""Detaches launcher and shim: without a terminal, under a service manager, with their own signals.

The launcher itself is always the second process. As the parent of the shims and the second subreaper above
them it must stay until the last one has ended, but a service manager starts no new main process before the
old one has exited. So the manager's main process is a small one in front, and a pair of sockets shows each of
the two when the other is gone.

When the launcher gives up its place (retired, replaced) or is gone, the front process executes the program
that is installed now, which starts a new launcher. SIGHUP asks for the same. The manager notices nothing; if
it restarted the unit itself, it would warn about every agent as a leftover process. Only a launcher that did
not last is left to the manager, which counts such starts and gives up eventually.

When the process in front is gone (stopped, killed), the launcher gives up its place.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

LASTED_S = 10.0
"""After a launcher that was ready for this long, the front process starts another one by itself."""
_LEAVE_S = 5.0
"""How long a launcher without agents may take to exit when the unit is stopped."""
_SIGN, _STAYS = b"!", b"+"


class Front:
    """The launcher's connection to the process in front of it. Readable when that process is gone."""

    def __init__(self, line: socket.socket, *, stays: bool) -> None:
        self._line = line
        self.stays = stays

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._line.fileno()

    def ready(self) -> None:
        """Report that the launcher answers requests from now on."""
        _send(self._line, _SIGN)
        if not self.stays:
            self._line.close()

    def leave(self, *, agents: bool) -> None:
        """Report that the place is free for another launcher; this one exits, or stays for its `agents`."""
        _send(self._line, _STAYS if agents else _SIGN)

    def close(self) -> None:
        """Close the connection; without `ready` or `leave` before it, the launcher counts as failed."""
        self._line.close()


def _send(line: socket.socket, sign: bytes) -> None:
    try:
        line.send(sign)
    except OSError:
        return  # the process in front is gone


def stand(serve: Callable[[Front], int], *, stay: bool, lasted_s: float = LASTED_S) -> int:
    """Run `serve` in a process with its own session; return the exit code for the process in front.

    With `stay` the front process stays as long as the launcher keeps its place; if that was at least
    `lasted_s` seconds, it then starts again. Without `stay` it stays until the launcher is ready. `serve`
    returns an exit code, too.
    """
    front, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    children = _Children()
    if stay:
        signal.signal(signal.SIGHUP, lambda *_: children.replace(front))
        signal.signal(signal.SIGTERM, lambda *_: children.leave(front))
    with _held_back():
        children.launcher = os.fork()
    if children.launcher == 0:
        front.close()
        _serve(serve, Front(line, stays=stay))
    line.close()
    # No clean-up: the launcher notices the end of this process, however it ends.
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


@contextmanager
def _held_back() -> Iterator[None]:
    """Have requests to leave wait: until fork has returned, it is not known which process to wait for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_anew(code: int) -> NoReturn:
    """Execute the program that is installed now; `code` is the exit code of the previous launcher."""
    if code:
        sys.stderr.write("handoffd launcher: it was ended; another one is started\n")
        sys.stderr.flush()
    signal.signal(
        signal.SIGHUP, signal.SIG_IGN
    )  # until the new program handles it: that is the latest one already
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


class _Children:
    """Reaps launchers: an earlier one, which stays for its agents, may end at any time."""

    def __init__(self) -> None:
        self.launcher = 0
        self.to_be_replaced = False
        self._ended: dict[int, int] = {}
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        self._reap()

    def replace(self, front: socket.socket) -> None:
        """Ask the latest launcher to give up its place for another one, however new it is."""
        self.to_be_replaced = True
        _hang_up(front)

    def leave(self, front: socket.socket) -> NoReturn:
        """Exit the process in front, and before it the launcher, unless agents keep that.

        The service manager would warn about a launcher that exits a moment later as a leftover process.
        """
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, _LEAVE_S)
        _hang_up(front)
        if front.recv(1) != _STAYS:
            self.exit_code()
        os._exit(0)

    def exit_code(self) -> int:
        """Wait for the latest launcher, and return its exit code, or 1 for a signal."""
        with suppress(ChildProcessError):  # the signal handler has reaped it already
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
    """Ask the launcher to give up its place, if it has not done so by itself."""
    with suppress(OSError):
        front.shutdown(socket.SHUT_WR)


def _serve(serve: Callable[[Front], int], front: Front) -> None:
    """Run as the launcher; never returns."""
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
    """Replace stdin, stdout and stderr by /dev/null, so that a caller that reads them sees their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def tell_service_manager(text: str) -> None:
    """Send `text` to the service manager that started us, if it has set NOTIFY_SOCKET."""
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
    """The signals of this process. A forked child takes over the settings with `renew`.

    TERM only sets `stop_asked`, because it may come at any instant. Signals from a terminal or a closed pipe
    are ignored. Each other signal makes `wake` readable, so that one poll waits for everything.
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
        """Wake up through a new pipe, and forget a stop request to the parent."""
        self.wake, waker = os.pipe2(_FLAGS)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.stop_asked = False

    def settle(self) -> None:
        """Make `wake` unreadable until the next signal."""
        os.read(self.wake, 512)

    def _ask_to_stop(self, *_: object) -> None:
        self.stop_asked = True
