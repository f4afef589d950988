"""The launcher: a small process beside the daemon that has a shim ready for each run.

    python -I -S -E -X utf8 launcher.py SOCKET [--foreground] [--delegated] [--limits]
    python -I -S -E -X utf8 launcher.py --stopped

It has loaded the shim's code already, so a start costs a fork, which it does in advance. It outlives the
daemon, and it is the second subreaper: processes of a killed shim become its children, and it ends them.
One packet on the socket is one request:

    hello             -> `handoffd VERSION PID`
    run VERSION PATH  -> `accepted` at once, then `SHIM_PID SHIM_START_TIME` when the program runs,
                         or `claimed` if another shim has the run; or, instead of both, `refused
                         VERSION` from a launcher of another version, or `error TEXT`; then the
                         connection ends
    retire            -> `retiring`; gives up its place
    written, boot ... -> facts about processes that the daemon may not read: see proc_probe.py

A launcher that gives up its place (on request, or because a new launcher has taken over the socket) stops
listening, lets a service manager start the next one, and exits when its last shim has ended. Until then it is
the only process that can end what a killed shim of its own leaves behind: orphans move only to an ancestor.
If a launcher is killed and then one of its shims, the daemon that finds the run lost ends the descendants of
that run's main process. A process that had orphaned itself on purpose is ended by the next launcher through
the run's control group, if that part of the hierarchy is `--delegated` to us; otherwise the daemon finds it
by its environment, unless it cleared that. With `--limits` these groups have limits and counters, too:
cgroup.py also explains why a unit with this flag must run the second of these commands when it has stopped.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

if __name__ == "__main__":
    # Appended, never put in front: nothing installed beside this package may shadow the library.
    sys.path.append(os.path.realpath(__file__ + "/../../../.."))

import handoffd

# The socket's code stays in a module of its own: Python compiles this program at each start, and every shim
# shares the memory that this leaves behind.
from handoffd.execute.runner import cgroup, daemonize, listener, proc, proc_probe, shim, tree

_LOOK_MS = 1000
_CONNECTIONS = 64
_PACKET_BYTES = 8192
_TRIES = 2
_VERSION = handoffd.__version__.encode()
_FLAGS = frozenset({"--foreground", "--delegated", "--limits"})


class _Source(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Launcher:
    """Answers requests and reaps shims, in one thread with one poll."""

    def __init__(
        self, path: str, front: daemonize.Front, place: str | None = None, *, limits: bool = False
    ) -> None:
        """Listen at `path`; make control groups in `place`, with `limits` if that is set.

        Raises listener.Unusable.
        """
        self._listener: listener.Listener | None = listener.Listener(path)
        self._front = front
        self._place = place
        self._wants_limits = limits
        self._next_look = 0.0
        self._sources: dict[int, tuple[_Source, Callable[[], None]]] = {}
        self._connections: dict[int, socket.socket] = {}
        self._shims: set[int] = set()
        self._spare: shim.Waiting | None = None
        self._rounds = 0
        self._strays = False
        self._retiring = False
        self._signals = daemonize.Signals()
        self._poll = select.poll()
        self._poll.register(self._signals.wake, select.POLLIN)
        self._attend(self._listener, self._accept)

    def serve(self) -> None:
        """Serve until retired or replaced, and until the last shim has ended."""
        tree.become_subreaper("handoffd-launch")
        proc.boot_id()  # known to every shim from now on
        self._front.ready()
        if self._front.stays:
            self._attend(self._front, self._retire)
        self._end_groups()
        self._have_a_spare()
        while self._shims or self._strays or self._listener is not None:
            for fd, _ in self._poll.poll(tree.pause_s(self._rounds) * 1000 if self._strays else _LOOK_MS):
                self._handle(fd)
            if self._listener is not None and self._has_to_go(self._listener):
                self._give_up_place(self._listener)
            self._reap()

    def _retire(self) -> None:
        self._retiring = True

    def _has_to_go(self, place: listener.Listener) -> bool:
        return self._retiring or self._signals.stop_asked or not place.is_ours()

    def _give_up_place(self, place: listener.Listener) -> None:
        self._listener = None
        self._close(place)
        if self._front.stays:
            idle = {self._spare.pid} if self._spare is not None else set()
            self._front.leave(agents=self._strays or bool(self._shims - idle))
            self._close(self._front)
        if self._spare is not None:
            self._spare.channel.close()  # the waiting shim then exits
            self._spare = None

    # --- requests -------------------------------------------------------------------------------------
    def _attend(self, source: _Source, handler: Callable[[], None]) -> None:
        self._poll.register(source.fileno(), select.POLLIN)
        self._sources[source.fileno()] = source, handler

    def _close(self, source: _Source) -> None:
        fd = source.fileno()
        self._poll.unregister(fd)
        self._connections.pop(fd, None)
        del self._sources[fd]
        source.close()

    def _handle(self, fd: int) -> None:
        if fd == self._signals.wake:
            self._signals.settle()
        elif fd in self._sources:  # another handler of this round may have closed it
            self._sources[fd][1]()

    def _accept(self) -> None:
        connection = self._listener.accept() if self._listener is not None else None
        if connection is None:
            return
        if len(self._connections) >= _CONNECTIONS:
            self._close(next(iter(self._connections.values())))
        self._connections[connection.fileno()] = connection
        self._attend(connection, partial(self._answer, connection))

    def _answer(self, connection: socket.socket) -> None:
        try:
            verb, _, rest = connection.recv(_PACKET_BYTES).partition(b" ")
        except OSError:
            verb, rest = b"", b""
        match verb:
            case b"hello":
                shim.send(connection, b"handoffd %s %d" % (_VERSION, os.getpid()))
            case b"retire":
                self._retiring = True
                shim.send(connection, b"retiring")
            case b"run":
                version, _, run_dir = rest.partition(b" ")
                if refusal := self._run(connection, version, run_dir):
                    shim.send(connection, refusal)
                self._close(connection)
            case b"":
                self._close(connection)
            case _:
                answer = proc_probe.answer(verb, rest)
                shim.send(connection, b"error unknown request" if answer is None else answer)

    # --- shims ----------------------------------------------------------------------------------------
    def _run(self, connection: socket.socket, version: bytes, run_dir: bytes) -> bytes:
        """Give the run to a shim; return the answer to the caller if that fails, else nothing."""
        if version != _VERSION:
            return b"refused " + _VERSION
        if not os.path.isabs(run_dir):
            return b"error the run directory must be an absolute path"
        # Before the shim gets the run, because it answers on the same connection.
        shim.send(connection, b"accepted")
        for _ in range(_TRIES):
            try:
                ready, self._spare = self._spare or self._fork_shim(), None
            except OSError as error:
                return f"error no process for the shim: {error.strerror}".encode()
            self._attend(ready.channel, partial(self._answered, ready))
            if ready.give(run_dir, connection):
                return b""
            self._close(ready.channel)  # it was killed while it waited
        return b"error the shim ended at once"

    def _fork_shim(self) -> shim.Waiting:
        forked = shim.fork_waiting(self._signals, self._let_go, self._place)
        self._shims.add(forked.pid)
        return forked

    def _let_go(self) -> None:
        """In a new shim: close the descriptors that only the launcher uses."""
        for source, _ in self._sources.values():
            source.close()

    def _answered(self, ready: shim.Waiting) -> None:
        """Fork the next shim, now that this no longer delays a start."""
        self._close(ready.channel)
        self._have_a_spare()

    def _have_a_spare(self) -> None:
        if self._spare is None and self._listener is not None:
            try:
                self._spare = self._fork_shim()
            except OSError:
                return  # the next request tries again, and gets the error

    def _reap(self) -> None:
        """Reap ended shims, and end the processes that a killed shim has left behind."""
        any_ended = self._reap_children()
        self._end_groups()
        if not any_ended and not self._strays:
            return
        # A descendant that is not below a shim is a stray: its shim was killed and could not end it.
        strays = {member.pid for member in tree.descendants(os.getpid(), spare=self._shims)}
        if strays:
            strays -= tree.sweep(os.getpid(), signal.SIGKILL, spare=self._shims).refused
        self._strays = bool(strays)
        self._rounds = self._rounds + 1 if strays else 0

    def _end_groups(self) -> None:
        """End the groups of dead shims. Shims of an earlier launcher are not our children, so this polls."""
        if self._place is not None and time.monotonic() >= self._next_look:
            cgroup.end_orphans(self._place)
            if self._wants_limits and self._listener is not None:  # else this would block the next one
                self._wants_limits = not cgroup.switch_on(self._place)
            self._next_look = time.monotonic() + _LOOK_MS / 1000

    def _reap_children(self) -> bool:
        """Reap ended children; return whether there were any."""
        any_ended = False
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return any_ended
            if pid == 0:
                return any_ended
            self._shims.discard(pid)
            any_ended = True


def main(argv: list[str]) -> int:
    """Run the launcher as a service (`--foreground`) or leave it running in the background.

    With `--delegated` it may divide its control group, as systemd's `Delegate=` allows, and with `--limits`
    switch on controllers there; `--stopped` switches them off.
    """
    if argv[1:] == ["--stopped"]:
        place = cgroup.of("self")  # may be a child of our group, owned by root: `own` would reject it
        if place is not None and cgroup.is_ours(place):
            cgroup.switch_off(place)
        return 0
    arguments = [word for word in argv[1:] if word not in _FLAGS]
    if len(arguments) != 1 or not os.path.isabs(arguments[0]):
        sys.stderr.write(f"usage: launcher.py /ABSOLUTE/PATH/OF/SOCKET [{'] ['.join(sorted(_FLAGS))}]\n")
        return 2
    place = cgroup.own() if "--delegated" in argv else None

    def serve(front: daemonize.Front) -> int:
        try:
            launcher = Launcher(arguments[0], front, place, limits="--limits" in argv)
        except listener.Unusable as error:
            sys.stderr.write(f"handoffd launcher: {error}\n")
            return 1
        os.chdir("/")
        if not front.stays:
            daemonize.leave_standard_streams()
        launcher.serve()
        return 0

    return daemonize.stand(serve, stay="--foreground" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
