"""One POST to a web address that is a secret.

Standard library only, in a worker thread. The address is a secret (most services put the key into its
path or query): only scheme and host are ever told, and no library error whose text may quote the
rest. Redirects are not followed: they would turn the POST into a GET, or lead elsewhere.
"""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import anyio.to_thread

from handoffd.notify.sink import Undelivered

_LATER_S = 5.0


def place_of(address: str) -> str:
    """Return as much of an address as may be told."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}"


async def post(address: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> int:
    """Post JSON and return the status of the answer, which is not read.

    User and password of the address become a header. Raises Undelivered, with the place and the reason.
    """
    url, place = urlsplit(address), place_of(address)
    # In a thread as well: a first https connection reads the certificates of the system.
    connection = await anyio.to_thread.run_sync(_connection, url, timeout_s)
    with anyio.move_on_after(timeout_s) as limit:
        try:
            # Abandoned at the limit, because a name look-up cannot be interrupted; all else can be:
            # the socket is shut, so that the thread does not stay with a server that dribbles.
            given = {**_headers(url), **headers}
            status = await anyio.to_thread.run_sync(
                _post, connection, url, body, given, abandon_on_cancel=True
            )
        finally:
            _shut(connection)
    if limit.cancelled_caught:
        raise Undelivered(f"{place} did not answer within {timeout_s:g} s")
    return status


def judge(address: str, status: int, never: frozenset[int]) -> None:
    """Raise Undelivered unless it is one of the 200s; those in `never` are about this very notice."""
    place = place_of(address)
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise Undelivered(f"{place} redirects ({status}), which is not followed")
    raise Undelivered(f"{place} answered {status}", worth_retrying=status not in never)


def _connection(url: SplitResult, timeout_s: float) -> HTTPConnection:
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    assert url.hostname is not None  # checked with the settings
    # Later than the limit of the whole, by which it is ended: two that end at once tell different stories.
    return kind(url.hostname, url.port, timeout=timeout_s + _LATER_S)


def _post(connection: HTTPConnection, url: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    place = place_of(url.geturl())
    try:
        connection.request("POST", target, body, dict(headers))
        return connection.getresponse().status
    except ssl.SSLError as error:
        raise Undelivered(f"{place}: TLS failed ({error.reason})") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Undelivered(f"{place} cannot be reached ({why})") from None
    except (HTTPException, ValueError) as error:
        raise Undelivered(f"{place}: no proper answer ({type(error).__name__})") from None
    finally:
        connection.close()


def _headers(url: SplitResult) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "handoffd",
        "Connection": "close",
    }
    if url.username is not None:
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode("ascii")
    return headers


def _shut(connection: HTTPConnection) -> None:
    opened = connection.sock
    if opened is None:
        return
    try:
        opened.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed in the meantime
