"""What the launcher says of processes at which the daemon itself may not look.

A user's systemd hardens the daemon's unit by a user namespace, and from inside one the kernel shows
neither what a process of the account has written, nor its connections, nor its environment. The launcher's
unit is not hardened: it reads them for the daemon.

    written PID ...  -> `written PID:CALLS:STORED ...`, bytes, of those that are there
    received PID ... -> `received SOCKET:BYTES:SEGMENTS ...`, of all their TCP connections together
    marked PID ...   -> `marked PID ...`, those that were given a run's id

A machine's systemd gives the unit a /proc of its own, in which the boot id of a container is not to be seen:

    boot             -> `boot ID`, as the launcher and its shims read it
"""

from __future__ import annotations

from handoffd.execute.runner import proc, sockets

MOST = 200
"""Processes in one request: the answer is one packet, too."""

MOST_SOCKETS = 1000
"""Connections in one answer."""

RUN_VARIABLE = b"HANDOFFD_RUN="


def answer(verb: bytes, rest: bytes) -> bytes | None:
    """Return the answer to a request, None when it is none of these."""
    pids = [int(word) for word in rest.split()[:MOST] if word.isdigit()]
    if verb == b"written":
        figures = ((pid, proc.written(pid)) for pid in pids)
        words = [b"%d:%d:%d" % (pid, one.calls, one.stored) for pid, one in figures if one is not None]
    elif verb == b"received":
        words = [b"%d:%d:%d" % one for one in _received(pids)[:MOST_SOCKETS]]
    elif verb == b"marked":
        words = [b"%d" % pid for pid in pids if is_marked(proc.read(f"/proc/{pid}/environ") or b"")]
    elif verb == b"boot":
        words = [proc.boot_id().encode()]
    else:
        return None
    return b" ".join([verb, *words])


def _received(pids: list[int]) -> tuple[sockets.Received, ...]:
    try:
        return sockets.received(pids)
    except OSError:
        return ()


def is_marked(environment: bytes) -> bool:
    """Tell whether an environment, as /proc has it, holds a run's id."""
    return any(entry.startswith(RUN_VARIABLE) for entry in environment.split(b"\0"))
