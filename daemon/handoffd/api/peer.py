"""Who is at the other end of the socket: the same account, and not one of our own executors.

An agent runs as the same user and could call the verbs itself. So those that open a gate or force
something are refused to a process that descends from a shim or carries a run's id. That raises the
bar, it is no wall: a process that cleared its environment and was re-parented looks like anybody.
docs/operations.md says which level is in force.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from handoffd.execute.orphans import MOST_ANCESTORS, is_runner
from handoffd.execute.runner.witnessing import is_marked
from handoffd.execute.witness import ALONE, Witness

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, as the kernel vouches for it."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected to a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def inside_executor(pid: int, witness: Witness = ALONE) -> bool:
    """Return whether a process, or one it descends from, belongs to a run. Blocks briefly on /proc.

    One that is gone counts as inside: whoever asks for something waits for the answer, and a
    process that does not cannot be looked at. So does one whose environment nobody may see.
    """
    if pid > 0 and not _read(pid, "stat"):
        return True
    asker, hidden = pid, list[int]()
    for _ in range(MOST_ANCESTORS):
        if pid <= 1:
            told = witness.marked(hidden)
            return asker in hidden if told is None else told
        if _has_run_id(pid, hidden) or is_runner(_read(pid, "cmdline")):
            return True
        pid = _parent(pid)
    return True  # such a chain is made on purpose


def _has_run_id(pid: int, hidden: list[int]) -> bool:
    """Return whether a process was given a run's id; one that this process may not see becomes `hidden`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return is_marked(file.read())
    except PermissionError:
        if _owner(pid) == own_uid():
            hidden.append(pid)
    except OSError:
        return False
    return False


def _owner(pid: int) -> int | None:
    """Return whose process it is; root's, too, are those that changed their account or have a secret."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _read(pid: int, name: str) -> bytes:
    """Return a file of /proc; nothing for a process that is gone or is not ours to look at."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    status = _read(pid, "stat").rpartition(b")")[2].split()
    return int(status[1]) if len(status) > 1 else 0


def own_uid() -> int:
    """Return the account that may use the socket."""
    return os.geteuid()
