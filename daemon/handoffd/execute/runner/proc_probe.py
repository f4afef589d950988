"""The launcher's answers about processes that the daemon itself may not inspect.

A user's systemd hardens the daemon's unit by a user namespace. Inside one the kernel hides the written bytes,
connections and environments of the account's other processes. The launcher's unit is not hardened: it reads
them for the daemon.

    written PID ...  -> `written PID:CALLS:STORED ...`, in bytes, without ended processes
    received PID ... -> `received SOCKET:BYTES:SEGMENTS ...`, for all their TCP connections
    marked PID ...   -> `marked PID ...`, the ones with a run's id in their environment

A machine's systemd gives the unit a /proc of its own, which hides the boot id of a container:

    boot             -> `boot ID`, as the launcher and its shims read it
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from handoffd.execute.runner import proc

MOST = 200
"""Processes in one request: the answer is one packet, too."""

MOST_SOCKETS = 1000
"""Connections in one answer."""

CHILD = "HANDOFFD_CHILD"
"""A variable of the daemon's own children, such as commands of notices: verbs are refused to these, too."""
_MARKS = (b"HANDOFFD_RUN=", CHILD.encode() + b"=")


def answer(verb: bytes, rest: bytes) -> bytes | None:
    """Return the answer to a request; None for an unknown verb."""
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


def _received(pids: list[int]) -> tuple[Received, ...]:
    try:
        return received(pids)
    except OSError:
        return ()


def is_marked(environment: bytes) -> bool:
    """Return whether an environment, as /proc/PID/environ has it, is of a run or of the daemon's child."""
    return any(entry.startswith(_MARKS) for entry in environment.split(b"\0"))


# --- what the TCP connections of processes have received, from the kernel -----------------------------
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_DUMP = 0x1 | 0x300
"""NLM_F_REQUEST | NLM_F_DUMP"""
_OVER = (2, 3)
"""NLMSG_ERROR, NLMSG_DONE"""
_INFO = 2
"""INET_DIAG_INFO: a tcp_info"""
_LISTENING = 10

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_NUMBER_AT = 68
_MESSAGE_BYTES = 72
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT = 128
_DATA_SEGMENTS_AT = 152
"""Offsets in tcp_info, fixed since Linux 4.6."""
_PACKET_BYTES = 64 * 1024
_LIMIT_S = 2.0
_PREFIX = "socket:["


# An agent that waits for an answer may print nothing, write nothing and hardly compute; only its connections
# show whether the answer is arriving. /proc/PID/fd has the numbers of a process's sockets, and the kernel
# reports to any user what each socket has received (sock_diag(7)). Pings differ from content by their size,
# so segments are counted as well as bytes.
class Received(NamedTuple):
    """What one connection has received so far. `number` is its socket's inode, as in /proc/PID/fd."""

    number: int
    data_bytes: int
    segments: int
    """Segments with data."""


def received(pids: Iterable[int]) -> tuple[Received, ...]:
    """Return what the TCP connections of `pids` have received, as far as this process may inspect them.

    Raises PermissionError if it may inspect none of them, and OSError if it may not ask the kernel. A kernel
    without an address family (IPv6, for example) reports no connections of it.
    """
    numbers = _numbers(pids)
    return tuple(one for one in _reported() if one.number in numbers) if numbers else ()


def _numbers(pids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    refused: PermissionError | None = None
    seen = False
    for pid in pids:
        try:
            found.update(_sockets(f"/proc/{pid}/fd"))
            seen = True
        except PermissionError as error:
            refused = error
        except OSError:
            continue  # it has ended
    if refused is not None and not seen:
        raise refused
    return found


def _sockets(folder: str) -> Iterator[int]:
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(_PREFIX):
            yield int(target[len(_PREFIX) : -1])


def _reported() -> Iterator[Received]:
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as kernel:
        kernel.settimeout(_LIMIT_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            states = 0xFFFFFFFF & ~(1 << _LISTENING)
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, states)
            kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
            yield from _answers(kernel)


def _answers(kernel: socket.socket) -> Iterator[Received]:
    while True:
        packet, at = kernel.recv(_PACKET_BYTES), 0
        while at < len(packet):
            length, kind, *_ = _HEADER.unpack_from(packet, at)
            if kind in _OVER:
                return
            found = _read(packet[at + _HEADER.size : at + length])
            if found is not None:
                yield found
            at += _aligned(length)


def _read(message: bytes) -> Received | None:
    at = _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        info = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(info) >= _DATA_SEGMENTS_AT + _NUMBER.size:
            return Received(
                _NUMBER.unpack_from(message, _NUMBER_AT)[0],
                _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0],
                _NUMBER.unpack_from(info, _DATA_SEGMENTS_AT)[0],
            )
        at += max(_aligned(length), _ATTRIBUTE.size)
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3
