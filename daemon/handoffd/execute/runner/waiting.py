"""A shim that was forked and made ready ahead of its run.

Most of what a start would cost is the fork and the memory that is copied when a fresh child first
runs. So the launcher keeps one shim waiting, and a start costs it a message: the run directory and
the caller's connection, on which the shim itself answers. The shim lets go of the channel when it
has answered; then there is time to make the next one ready.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from handoffd.execute.runner import shim, signals, standing

_PACKET_BYTES = 8192


class Waiting:
    """The launcher's side of a shim that waits for its run."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel

    def give(self, run_dir: bytes, connection: socket.socket) -> bool:
        """Give the shim its run, and the connection to answer on; False when the shim is gone."""
        try:
            socket.send_fds(self.channel, [run_dir], [connection.fileno()])
        except OSError:
            return False
        return True


def fork_waiting(notes: signals.Signals, let_go: Callable[[], None], place: str | None) -> Waiting:
    """Return a new shim, which lets go of what it inherited by `let_go`. Raises OSError.

    `place` is where it may make a control group.
    """
    channel, its_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        channel.close()
        its_channel.close()
        raise
    if pid == 0:
        channel.close()
        _wait(its_channel, notes, let_go, place)
    its_channel.close()
    channel.setblocking(False)
    return Waiting(pid, channel)


def _wait(
    channel: socket.socket, notes: signals.Signals, let_go: Callable[[], None], place: str | None
) -> None:
    """Be a shim that waits, and then one that looks after a run; never returns."""
    try:
        os.setsid()
        let_go()
        notes.renew()
        standing.leave_standard_streams()
        ready = shim.Shim(notes, place)
        run_dir, descriptors, *_ = socket.recv_fds(channel, _PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if descriptors:  # without, the launcher has gone
            ready.run(os.fsdecode(run_dir), _reply_once(socket.socket(fileno=descriptors[0]), channel))
        else:
            ready.give_up()
    finally:
        os._exit(0)


def _reply_once(connection: socket.socket, channel: socket.socket) -> shim.Reply:
    def reply(text: bytes) -> None:
        if connection.fileno() >= 0:
            send(connection, text)
            connection.close()
            channel.close()

    return reply


def send(connection: socket.socket, text: bytes) -> None:
    """Answer a caller, who may have gone; what it asked for is done all the same."""
    try:
        connection.send(text)
    except OSError:
        return
