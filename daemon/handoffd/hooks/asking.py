"""One question to the daemon, over its socket, without a library for HTTP.

`http.client` takes longer to import than a hook may take; `socket` is no more than names for what `_socket`
does, and takes an eighth of the interpreter's own start. The answer is read until the daemon closes the
connection, as it was asked to.
"""

from __future__ import annotations

import _socket
import json

from handoffd.control import lifesign

MAX_BYTES = 4 * 1024 * 1024
_PIECE = 64 * 1024
_ABSENT = (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)


class BadAnswerError(Exception):
    """The daemon was asked and gave no answer that can be understood; whether it acted is unknown."""


class NoAnswerError(BadAnswerError):
    """A daemon runs, and does not answer; what to type is in `hint`."""

    def __init__(self, silent: lifesign.Silent) -> None:
        super().__init__(f"{silent.message}; next: {silent.hint}")
        self.pid, self.message, self.hint = silent.pid, silent.message, silent.hint


def ask(path: str, verb: str, body: dict[str, object], limit_s: float) -> dict[str, object] | None:
    """Return the daemon's answer to a verb; None when no daemon listens at `path`.

    Raises BadAnswerError; NoAnswerError when nothing came for `limit_s` seconds, or the daemon does not work.
    """
    answer = _exchanged(path, _request(verb, body), limit_s, MAX_BYTES)
    return None if answer is None else _decoded(answer)


def read(path: str, target: str, limit_s: float, max_bytes: int) -> dict[str, object] | None:
    """Return the daemon's answer to a read of `target`; None when no daemon listens, or it refuses.

    Raises BadAnswerError like `ask`, and for more than `max_bytes`.
    """
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = _exchanged(path, request.encode(), limit_s, max_bytes)
    return None if answer is None or answer.split(b" ", 2)[1:2] != [b"200"] else _decoded(answer)


def _exchanged(path: str, request: bytes, limit_s: float, max_bytes: int) -> bytes | None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        try:
            lifesign.connect(connection, path, min(limit_s, lifesign.HEALTH_S))
        except _ABSENT:
            return None
        lifesign.send(connection, request)
        return _received(connection, path, limit_s, max_bytes)
    except lifesign.Silent as silent:
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
        lifesign.wait(connection, path, limit_s)
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
        raise BadAnswerError("what answers on the socket is no handoffd")
    return data
