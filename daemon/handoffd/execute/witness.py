"""Asks the launcher about processes that the daemon itself may not inspect.

Only a daemon in a user namespace of its own needs it (the hardened user unit, see systemd/handoffd.service),
and, for the boot id, one with a /proc of its own (the hardened system unit). Processes that the daemon may
inspect are read directly. Every method blocks for a moment: call it in a thread.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from handoffd.errors import Refused
from handoffd.execute.runner import proc, proc_probe

_LIMIT_S = 2.0
_PACKET_BYTES = 64 * 1024
_CREDENTIALS = struct.Struct("3i")


class Witness:
    """Queries the launcher at a socket; without a path it reads only what this process may read."""

    def __init__(self, path: Path | None, limit_s: float = _LIMIT_S) -> None:
        self._path = path
        self._limit_s = limit_s

    def written(self, pids: Sequence[int]) -> Mapping[int, proc.Written]:
        """Return what processes have written; ended and unreadable processes are left out."""
        seen: dict[int, proc.Written] = {}
        hidden: list[int] = []
        for pid in pids:
            try:
                seen[pid] = proc.shown_written(pid)
            except PermissionError:
                hidden.append(pid)
            except OSError:
                continue  # it has ended
        for word in self._words(b"written", hidden) or ():
            pid_text, calls, stored = word.split(b":")
            seen[int(pid_text)] = proc.Written(calls=int(calls), stored=int(stored))
        return seen

    def received(self, pids: Sequence[int]) -> tuple[proc_probe.Received, ...]:
        """Return what the TCP connections of processes have received; empty if that is unknown."""
        try:
            return proc_probe.received(pids)
        except OSError:
            words = self._words(b"received", pids) or ()
        return tuple(proc_probe.Received(*map(int, word.split(b":"))) for word in words)

    def marked(self, pids: Sequence[int]) -> bool | None:
        """Return whether one of `pids` has a run's id in its environment; None if no launcher answers."""
        words = self._words(b"marked", pids)
        return None if words is None else bool(words)

    def boot_id(self) -> str | None:
        """Return the boot id as the launcher reads it; None if no launcher answers."""
        words = self._answers(b"boot", [()])
        return words[0].decode("ascii", "replace") if words else None

    def listener(self) -> int | None:
        """Return the process that listens there, according to the kernel; None if no one of ours does."""
        if self._path is None:
            return None
        try:
            with _connected(self._path, self._limit_s) as connection:
                return _peer(connection)[0]
        except OSError:
            return None

    def _words(self, verb: bytes, pids: Sequence[int]) -> list[bytes] | None:
        """Return the words of all answers; None if one of them is missing."""
        most = proc_probe.MOST
        return self._answers(verb, [pids[begin : begin + most] for begin in range(0, len(pids), most)])

    def _answers(self, verb: bytes, groups: Sequence[Sequence[int]]) -> list[bytes] | None:
        if not groups:
            return []
        if self._path is None:
            return None
        found: list[bytes] = []
        try:
            with _connected(self._path, self._limit_s) as connection:
                for group in groups:
                    connection.send(b" ".join([verb, *(b"%d" % pid for pid in group)]))
                    answered, *words = connection.recv(_PACKET_BYTES).split() or [b""]
                    if answered != verb:  # a launcher of an older version
                        return None
                    found += words
        except OSError:
            return None
        return found


ALONE = Witness(None)
"""Reads only what this process may read."""


def _connected(path: Path, limit_s: float) -> socket.socket:
    """Return a connection to a launcher of this account; raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(limit_s)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the descriptor, because a socket's address has room for 107 bytes only.
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        _require_own(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_own(connection: socket.socket) -> None:
    if _peer(connection)[1] != os.geteuid():
        raise PermissionError("another account listens there")


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the account at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, account, _ = _CREDENTIALS.unpack(raw)
    return pid, account


# --- which processes belong to a run ------------------------------------------------------------------
# That raises the bar but is not a wall: a process that cleared its environment and was re-parented looks like
# any other. docs/security.md says what holds agents.
MOST_ANCESTORS = 64
_RUNNERS = (b"/execute/runner/launcher.py", b"/execute/runner/shim.py")


def inside_executor(pid: int, witness: Witness = ALONE, daemon: int = 0) -> bool:
    """Return whether a process, or one it descends from, belongs to a run, or is a child of the `daemon`.

    So is what a command of ours has started: the probe of an executor, or a sink of notices.

    A process that has ended counts as inside: an honest caller waits for its answer, and an ended one leaves
    nothing to examine. So does a process whose environment not even the witness may read.
    """
    if pid > 0 and proc.stat(pid) is None:
        return True
    above, hidden = lineage(pid), list[int]()
    too_long = len(above) == MOST_ANCESTORS  # only a deliberate construction has so long a chain
    if too_long or daemon in above[1:]:
        return True
    commands = [proc.read(f"/proc/{one}/cmdline") or b"" for one in above]
    if any(map(is_runner, commands)) or any(map(_is_ours, commands[1:])):
        return True
    if any(_has_run_id(one, hidden) for one in above):
        return True
    told = witness.marked(hidden)
    return pid in hidden if told is None else told


def kept_out(rule: str, hint: str) -> Refused:
    """Return the refusal for such a process."""
    message = f"{rule}: the request came from a program that handoffd has started"
    return Refused(message, code="INSIDE_EXECUTOR", hint=hint)


def lineage(pid: int) -> tuple[int, ...]:
    """Return a process and what it descends from, nearest first, without process 1. Blocks on /proc."""
    found: list[int] = []
    while pid > 1 and len(found) < MOST_ANCESTORS and (seen := proc.stat(pid)) is not None:
        found.append(pid)
        pid = seen.parent
    return tuple(found)


def is_runner(command: bytes) -> bool:
    """Return whether a command line is that of a launcher or shim: Python, its options, then our program."""
    return _program(command).endswith(_RUNNERS)


def _program(command: bytes) -> bytes:
    return next((word for word in command.split(b"\0")[1:] if word.startswith(b"/")), b"")


def _is_ours(command: bytes) -> bool:
    """Return whether a command line is one of ours: an agent may have named the program that it probes."""
    return _program(command).endswith(b"/bin/handoffd") or b"\0-m\0handoffd\0" in command


def _has_run_id(pid: int, hidden: list[int]) -> bool:
    """Return whether a process has a run's id; append it to `hidden` if its environment is unreadable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return proc_probe.is_marked(file.read())
    except PermissionError:
        if _owner(pid) == os.geteuid():
            hidden.append(pid)
    except OSError:
        return False
    return False


def _owner(pid: int) -> int | None:
    """Return the owner of a process; root also owns processes that changed account or are not dumpable."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
