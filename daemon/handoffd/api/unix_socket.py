"""The daemon's socket with the least start-up cost: connect, test whether the daemon works, ask once.

A stopped (SIGSTOP) or hanging daemon still accepts connections, because the kernel accepts them. So a client
that receives nothing for a while reads the state of the process and asks for its health on another
connection. While the daemon answers that, the client keeps waiting; otherwise it reports what it found.

Hooks and `status` use this before anything else is imported, so it imports only fast modules: importing
`http.client` takes longer than a hook may take, and `socket` only names what `_socket` does, for an eighth
of the interpreter's own start. `client` is the complete client.
"""

from __future__ import annotations

import _socket
import json
import os
import select
import struct
import time

# --- a connection, and whether its listener works ----------------------------------------------------
SILENCE_S = 5.0
"""After so long without a byte the client checks whether the daemon works."""
HEALTH_S = 10.0
"""How long the daemon may take to answer that check: an overloaded machine is not a hung daemon."""

CUT = (BrokenPipeError, ConnectionResetError)
"""Raised by a send after the other side has ended the connection."""
_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_CREDENTIALS = struct.Struct("3i")
_TIMEVAL = struct.Struct("ll")


class Silent(TimeoutError):
    """A daemon accepts connections and does not answer. `pid` 0: its process is unknown."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stopped = _state(pid) in {"T", "t"}
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The error in words."""
        who = f"a daemon runs (process {self.pid})" if self.pid else "a daemon runs"
        return f"{who} and does not answer" + (": it is stopped (SIGSTOP)" if self.stopped else "")

    @property
    def hint(self) -> str:
        """The next command."""
        return f"kill -CONT {self.pid}" if self.stopped else "handoffd doctor"


def connect(connection: _socket.socket, path: str, limit_s: float) -> None:
    """Connect to the listener at `path`, and wait for room in its queue. `connection` blocks.

    Raises Silent when the queue stays full for `limit_s`, ConnectionRefusedError when no process listens,
    other OSErrors when there is no socket.
    """
    # Not `settimeout`: with it, connecting fails at once when the queue of a Unix socket is full.
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _timeval(limit_s))
    try:
        connection.connect(path)
    except BlockingIOError as error:
        raise Silent(0) from error
    pid = listener_of(connection)
    if pid and _state(pid) in {"", "Z", "X"}:
        # A child that a killed daemon was just starting still holds the listening descriptor for a moment.
        raise ConnectionRefusedError(f"process {pid}, which listened at {path}, has ended")


def listener_of(connection: _socket.socket) -> int:
    """Return the process that listens at the other end, from the kernel; 0 if the kernel does not say."""
    raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
    return max(0, int(_CREDENTIALS.unpack(raw)[0]))


def send(connection: _socket.socket, data: bytes) -> None:
    """Send all of `data`; stop silently if the daemon has ended the connection: its answer says why.

    Raises Silent when the daemon does not read in time, and other OSErrors.
    """
    try:
        connection.sendall(data)
    except BlockingIOError as error:
        raise Silent(listener_of(connection)) from error
    except CUT:
        return


def wait(connection: _socket.socket, path: str, limit_s: float | None, silence_s: float = SILENCE_S) -> None:
    """Return when `connection` has something to read. `path` is where it goes.

    Raises Silent after `limit_s` seconds without a byte (None: no limit), or after `silence_s` seconds if the
    daemon does not work.
    """
    give_up_at = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = silence_s if give_up_at is None else min(silence_s, give_up_at - time.monotonic())
        if left_s > 0 and _readable(connection, left_s):
            return
        pid = listener_of(connection)
        over = give_up_at is not None and time.monotonic() >= give_up_at
        if over or _state(pid) in {"T", "t"} or not works(path):
            raise Silent(pid)


def works(path: str, limit_s: float = HEALTH_S) -> bool:
    """Return whether the listener at `path` answers anything within the limit, or has ended by now."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connect(connection, path, limit_s)
        send(connection, _HEALTH)
        return _readable(connection, limit_s)
    except Silent:
        return False
    except OSError:
        return True  # it has ended or was replaced: the waiting connection ends by itself
    finally:
        connection.close()


def _readable(connection: _socket.socket, within_s: float) -> bool:
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(within_s * 1000))


def _state(pid: int) -> str:
    """Return the letter of a process's state; empty when it has ended, `?` when /proc does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()[0].decode()
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else "?"
    except ProcessLookupError:
        return ""
    except (OSError, IndexError):
        return "?"


def _timeval(seconds: float) -> bytes:
    whole, rest = divmod(max(seconds, 0.000_001), 1)  # a zero timeval would mean no limit
    return _TIMEVAL.pack(int(whole), int(rest * 1_000_000))


# --- one question ------------------------------------------------------------------------------------
MAX_BYTES = 4 * 1024 * 1024
_PIECE = 64 * 1024
_ABSENT = (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)


class BadAnswerError(Exception):
    """The daemon's answer cannot be understood; whether it acted is unknown."""


class NoAnswerError(BadAnswerError):
    """A daemon runs and does not answer; `hint` is the next command."""

    def __init__(self, silent: Silent) -> None:
        super().__init__(f"{silent.message}; next: {silent.hint}")
        self.pid, self.message, self.hint = silent.pid, silent.message, silent.hint


def ask(path: str, verb: str, body: dict[str, object], limit_s: float) -> dict[str, object] | None:
    """Return the daemon's answer to a verb; None when no daemon listens at `path`.

    Raises BadAnswerError, and NoAnswerError after `limit_s` silent seconds or when the daemon does not work.
    """
    answer = _exchanged(path, _request(verb, body), limit_s, MAX_BYTES)
    return None if answer is None else _decoded(answer)


def read(path: str, target: str, limit_s: float, max_bytes: int) -> dict[str, object] | None:
    """Return the daemon's answer to a read of `target`; None when no daemon listens, or it refuses.

    Raises BadAnswerError like `ask`, and for an answer of more than `max_bytes`.
    """
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = _exchanged(path, request.encode(), limit_s, max_bytes)
    return None if answer is None or answer.split(b" ", 2)[1:2] != [b"200"] else _decoded(answer)


def _exchanged(path: str, request: bytes, limit_s: float, max_bytes: int) -> bytes | None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        try:
            connect(connection, path, min(limit_s, HEALTH_S))
        except _ABSENT:
            return None
        send(connection, request)
        return _received(connection, path, limit_s, max_bytes)
    except Silent as silent:
        raise NoAnswerError(silent) from silent
    except OSError as error:
        raise BadAnswerError(f"{path}: the daemon gave no answer: {error}") from error
    finally:
        connection.close()


def _request(verb: str, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/verbs/{verb} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _received(connection: _socket.socket, path: str, limit_s: float, max_bytes: int) -> bytes:
    answer = bytearray()
    while True:
        wait(connection, path, limit_s)
        piece = connection.recv(_PIECE)
        if not piece:
            return bytes(answer)
        answer += piece
        if len(answer) > max_bytes:
            raise BadAnswerError("the daemon's answer has no end")


def _decoded(answer: bytes) -> dict[str, object]:
    _, _, content = answer.partition(b"\r\n\r\n")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise BadAnswerError("the process that answers on the socket is not handoffd")
    return data
