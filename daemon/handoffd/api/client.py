"""Asks the daemon on the same machine, with the standard library alone.

Every `handoffd` command asks through this first, so it imports only fast modules. An error that the daemon
answers is raised here as the same exception, with the rest of the answer in `details`.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from handoffd.api import unix_socket
from handoffd.errors import HandoffdError, Json, Locked, NoAnswer, NoDaemon, NotFound, Refused, StoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


ANSWER_S = 60.0
"""How long to wait for an answer: a verb may queue behind a read of a slow disk."""

_PIECE_BYTES = 64 * 1024
_ERRORS: Mapping[int, type[HandoffdError]] = {
    400: Refused, 403: Refused, 404: NotFound, 409: Refused, 413: Refused, 503: StoreError,
}  # fmt: skip
_OF_EVERY_ERROR = frozenset({"type", "code", "message", "hint"})
_ABSENT = (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)


def question_path(question: str) -> str:
    """Return the path at which the daemon answers a question of `questions.py`."""
    return f"/v1/{question.replace('_', '-')}"


class Client:
    """Speaks to the daemon that listens at `path`. Holds no connection between calls.

    `answer_s` limits each wait for further bytes; a daemon that does not work ends the wait sooner. `holder`
    finds the daemon's process where the socket does not name it.
    """

    def __init__(
        self, path: Path, answer_s: float = ANSWER_S, holder: Callable[[], int | None] = lambda: None
    ) -> None:
        self._path = path
        self._answer_s = answer_s
        self._holder = holder

    def get(self, path: str, **query: object) -> Json:
        """Return the answer to a read. Query values that are None are left out.

        Raises NoDaemon when none runs, NoAnswer when one runs and is silent, and the error that the daemon
        answers.
        """
        return self._answer("GET", _with_query(path, query), None)

    def post(self, path: str, body: Json) -> Json:
        """Return the answer to a verb; a refusal of the engine is an answer, too (`type` is `error`)."""
        return self._answer("POST", path, body)

    @contextmanager
    def stream(
        self, path: str, headers: Mapping[str, str] | None = None, /, **query: object
    ) -> Iterator[Stream]:
        """Yield an answer that comes in pieces, and close its connection afterwards."""
        with closing(self._connect(None)) as connection:
            response = _response(connection, "GET", _with_query(path, query), None, headers)
            if response.status != http.client.OK:
                raise _error(response.status, _decoded(response.read()))
            yield Stream(response)

    def lines(self, path: str, **query: object) -> Iterator[Json]:
        """Yield the objects of an answer with one object per line, as they come."""
        with self.stream(path, **query) as stream:
            yield from map(_decoded, stream.lines())

    def daemon_pid(self) -> int:
        """Return the process id of the daemon, from the kernel. Raises NoDaemon."""
        with closing(self._connect(self._answer_s)) as connection:
            return unix_socket.listener_of(connection.sock)

    def _answer(self, method: str, path: str, body: Json | None) -> Json:
        with closing(self._connect(self._answer_s)) as connection:
            response = _response(connection, method, path, body)
            try:
                answer = _decoded(response.read())
            except (OSError, http.client.HTTPException) as error:
                raise _broken(error) from error
        refused_by_engine = "caller_instruction" in answer
        if response.status != http.client.OK and not refused_by_engine:
            raise _error(response.status, answer)
        return answer

    def _connect(self, limit_s: float | None) -> _UnixConnection:
        connection = _UnixConnection(self._path, limit_s, self._answer_s)
        try:
            connection.connect()
        except unix_socket.Silent:
            silent = unix_socket.Silent(self._holder() or 0)
            raise NoAnswer(silent.message, hint=silent.hint) from None
        except _ABSENT as error:
            raise NoDaemon(f"no daemon answers at {self._path}", hint="handoffd run") from error
        except PermissionError as error:
            message = f"{self._path} belongs to another account"
            owner = f'sudo -u "$(stat -c %U {quote(str(self._path.parent))})" handoffd status'
            raise Refused(message, code="FORBIDDEN", hint=owner) from error
        except OSError as error:
            raise NoDaemon(f"{self._path}: {error.strerror or error}", hint="handoffd run") from error
        return connection


class Stream:
    """An answer that is still coming. Ends when the daemon ends it; NoDaemon when the daemon dies."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def header(self, name: str) -> str | None:
        """Return a header of the answer."""
        return self._response.getheader(name)

    def pieces(self) -> Iterator[bytes]:
        """Yield bytes as they come."""
        while True:
            try:
                data = self._response.read1(_PIECE_BYTES)
            except unix_socket.Silent as silent:
                raise _broken(silent) from silent
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise NoDaemon("the daemon went away", hint="handoffd run") from error
            if not data:
                return
            yield data

    def lines(self) -> Iterator[bytes]:
        """Yield whole lines as they come."""
        # Not the response's own readline: it takes a broken stream for a finished one.
        begun = b""
        for piece in self.pieces():
            *whole, begun = (begun + piece).split(b"\n")
            yield from whole


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection to a path. `limit_s` None: a stream may be silent for ever."""

    def __init__(self, path: Path, limit_s: float | None, connect_s: float) -> None:
        super().__init__("localhost")
        self._path = path
        self._limit_s = limit_s
        self._connect_s = connect_s

    def connect(self) -> None:
        """Connect to the path instead of to a host."""
        connected = _PatientSocket(os.fspath(self._path), self._limit_s)
        try:
            unix_socket.connect(connected, connected.path, min(self._connect_s, unix_socket.HEALTH_S))
        except BaseException:
            connected.close()
            raise
        self.sock = connected


class _PatientSocket(socket.socket):
    """A socket whose reads wait for as long as the daemon at `path` works."""

    def __init__(self, path: str, limit_s: float | None) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self.path = path
        self._limit_s = limit_s

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Wait, then read; `http.client` reads everything through this method."""
        unix_socket.wait(self, self.path, self._limit_s)
        return super().recv_into(buffer, nbytes, flags)


def _response(
    connection: _UnixConnection,
    method: str,
    path: str,
    body: Json | None,
    headers: Mapping[str, str] | None = None,
) -> http.client.HTTPResponse:
    raw = None if body is None else json.dumps(body).encode()
    kind = {} if raw is None else {"Content-Type": "application/json"}
    try:
        with suppress(*unix_socket.CUT):  # the daemon may have refused before it read the request
            connection.request(method, path, raw, {**kind, **(headers or {})})
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise _broken(error) from error


def _with_query(path: str, query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _decoded(raw: bytes) -> Json:
    try:
        data = json.loads(raw)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        message = "the process that answers on the socket is not handoffd"
        raise HandoffdError(message, code="BAD_ANSWER", hint="handoffd config show")
    return data


def _error(status: int, answer: Json) -> HandoffdError:
    kind = _ERRORS.get(status, HandoffdError)
    code = str(answer.get("code") or kind.default_code)
    if code == Locked.default_code:
        kind = Locked
    error = kind(str(answer.get("message")), hint=answer.get("hint"), code=code)
    error.details = {key: value for key, value in answer.items() if key not in _OF_EVERY_ERROR}
    return error


def _broken(error: Exception) -> NoAnswer:
    """Return the error for a daemon that gave no answer; whether it acted is unknown."""
    if isinstance(error, BlockingIOError):
        error = unix_socket.Silent(0)  # the daemon did not read the request
    if isinstance(error, unix_socket.Silent):
        return NoAnswer(error.message, hint=error.hint)
    return NoAnswer(f"the daemon went away before it answered ({error})", hint="handoffd status")
