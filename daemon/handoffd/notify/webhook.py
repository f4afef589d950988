"""A URL that receives each notice by POST.

Standard library only, in a worker thread. The URL is a secret (most services put the key into its
path or query): only scheme and host are ever logged, and no library error whose text may quote the
rest. Redirects are not followed: they would turn the POST into a GET, or lead elsewhere.
"""

from __future__ import annotations

import base64
import socket
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import anyio.to_thread

from handoffd.notify.notice import Notice
from handoffd.notify.sink import Undelivered
from handoffd.settings import WebhookSettings

ID_HEADER = "Idempotency-Key"
_NEVER = frozenset({400, 413, 415, 422})
"""Answers about this very notice. All others may be mended: a server, an address, a key."""


class WebhookSink:
    """Posts the notice as JSON; any answer of the 200s is a delivery."""

    name = "webhook"

    def __init__(self, settings: WebhookSettings) -> None:
        self._url = urlsplit(settings.url.get_secret_value())
        self._timeout_s = settings.timeout_s
        self._place = f"{self._url.scheme}://{self._url.hostname}"

    async def deliver(self, notice: Notice) -> None:
        """Post `notice`; raises Undelivered with the place and the reason."""
        # In a thread as well: a first https connection reads the certificates of the system.
        connection = await anyio.to_thread.run_sync(self._connection)
        with anyio.move_on_after(self._timeout_s) as limit:
            try:
                # Abandoned at the limit, because a name look-up cannot be interrupted; all else can be:
                # the socket is shut, so that the thread does not stay with a server that dribbles.
                status = await anyio.to_thread.run_sync(
                    self._post, connection, notice, abandon_on_cancel=True
                )
            finally:
                _shut(connection)
        if limit.cancelled_caught:
            raise Undelivered(f"{self._place} did not answer within {self._timeout_s:g} s")
        self._judge(status)

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        assert self._url.hostname is not None  # checked with the settings
        return kind(self._url.hostname, self._url.port, timeout=self._timeout_s)

    def _post(self, connection: HTTPConnection, notice: Notice) -> int:
        """Return the status of the answer; the answer itself is not read."""
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        body = notice.as_json().encode("utf-8", "replace")
        try:
            connection.request("POST", target, body, {**_headers(self._url), ID_HEADER: notice.id})
            return connection.getresponse().status
        except ssl.SSLError as error:
            raise Undelivered(f"{self._place}: TLS failed ({error.reason})") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Undelivered(f"{self._place} cannot be reached ({why})") from None
        except (HTTPException, ValueError) as error:
            raise Undelivered(f"{self._place}: no proper answer ({type(error).__name__})") from None
        finally:
            connection.close()

    def _judge(self, status: int) -> None:
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise Undelivered(f"{self._place} redirects ({status}), which is not followed")
        raise Undelivered(f"{self._place} answered {status}", worth_retrying=status not in _NEVER)


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
