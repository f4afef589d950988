"""How the launcher stands: left behind in the background, or behind a process for a service manager.

The launcher itself is always the second process. It is the parent of the shims and the second
subreaper above them, so it has to stay until the last one has ended; a service manager, however,
starts no new main process before the old one is gone. So the manager's main process is the small
one in front, which leaves the moment the launcher gives up its place (retired, replaced) or is
gone; and the launcher gives up its place the moment the one in front is gone (stopped, restarted,
killed). Each learns of the other through one pair of sockets, whatever happens to either.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable

_SIGN = b"!"


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
        _send(self._line)
        if not self.stays:
            self._line.close()

    def leave(self) -> None:
        """Say that the place is free: the process in front ends, and a service manager starts anew."""
        _send(self._line)

    def close(self) -> None:
        """Let go of the line; without a word before it, the launcher counts as failed."""
        self._line.close()


def _send(line: socket.socket) -> None:
    try:
        line.send(_SIGN)
    except OSError:
        return  # nobody is in front any more, and so nobody waits for it


def stand(serve: Callable[[Front], int], *, stay: bool) -> int:
    """Have `serve` run in a process of its own session; return the exit code of the one in front.

    With `stay` the process in front stays as long as the launcher keeps its place; without, until
    the launcher is ready. `serve` returns an exit code, too.
    """
    front, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        front.close()
        _serve(serve, Front(line, stays=stay))
    line.close()
    # Nothing to tidy up here: whatever ends this process is an answer to the launcher.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not front.recv(1):
        return _exit_code(pid)
    if not stay:
        return 0
    tell_service_manager("READY=1\nSTATUS=Ready to start runs")
    return 0 if front.recv(1) else _exit_code(pid)


def _serve(serve: Callable[[Front], int], front: Front) -> None:
    """Be the launcher; never returns."""
    code = 1
    try:
        os.setsid()
        code = serve(front)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(pid: int) -> int:
    """Return how the launcher ended, with 1 for a signal."""
    _, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


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
