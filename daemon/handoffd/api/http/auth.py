"""Guards the TCP port of the API: checks of host, origin and content type, and the token.

Any page in a browser on this machine can send requests to loopback. So the Host header must name loopback (a
page cannot forge it, whatever its own name resolves to), requests with an Origin header are refused, a body
must be declared as JSON (which a page may send only after a CORS preflight), and no answer has CORS headers.

The token is one line in a file of mode 0600 below the state directory. A process that can read the file can
do what the token's owner can. So the token separates people from strangers, but not a person from an agent of
the same account. `api/service.py` therefore refuses verbs for people over TCP; `control.tcp.gates` allows
them.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Final

import structlog
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from handoffd.api.http.endpoint import error_response, status_of
from handoffd.errors import HandoffdError, Refused, StoreError

# --- the checks of a request -------------------------------------------------------------------------
log = structlog.get_logger(__name__)

CALLER: Final = "handoffd.caller"
"""Key of an ASGI scope: the caller, as `From`."""

BURST: Final = 100
"""Wrong tokens answered at once; after that `PER_S` a second. The right token never waits."""
PER_S: Final = 10.0

_HOW: Final = 'curl -H "Authorization: Bearer $(handoffd token)" ...'


class From(Struct, frozen=True):
    """The source of a request. `pid` None: over TCP, from an unknown process.

    `vouched`: a client with the token counts as a person.
    """

    pid: int | None
    vouched: bool = False


class Bucket:
    """A token bucket: `BURST` at once, `PER_S` a second after that."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._left = float(BURST)
        self._at = now_s()

    def take(self) -> bool:
        """Take one; return False when none is left."""
        now = self._now_s()
        self._left = min(float(BURST), self._left + (now - self._at) * PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Gate:
    """Admits requests that name this machine, come from no web page, and have the token."""

    def __init__(self, app: ASGIApp, token: Token, *, gates: bool, bucket: Bucket | None = None) -> None:
        self._app = app
        self._token = token
        self._from = From(None, vouched=gates)
        self._wrong = bucket or Bucket()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on. The scope's `server` is the accepting address."""
        try:
            self._check(scope)
        except HandoffdError as error:
            extra = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status_of(error))
            await error_response(error, extra)(scope, receive, send)
            return
        await self._app({**scope, CALLER: self._from}, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if _all(headers, b"host") not in _hosts(scope["server"][1]):
            message = "the request is for another host: name this one as 127.0.0.1, [::1] or localhost"
            raise Refused(message, code="FORBIDDEN", hint="handoffd config show")
        if _all(headers, b"origin"):
            raise Refused("pages in browsers are not answered", code="FORBIDDEN", hint="handoffd status")
        self._check_token(_all(headers, b"authorization"))
        has_body = _all(headers, b"content-length") not in ([], [b"0"]) or _all(headers, b"transfer-encoding")
        if has_body and not _is_json(_all(headers, b"content-type")):
            message = "a body must be JSON, declared by Content-Type: application/json"
            raise Refused(message, code="UNSUPPORTED_MEDIA_TYPE", hint="curl --json '{\"project\": ...}' ...")

    def _check_token(self, given: list[bytes]) -> None:
        if not given:
            raise Refused("a token is needed", code="UNAUTHORIZED", hint=_HOW)
        scheme, _, text = given[0].partition(b" ")
        if len(given) == 1 and scheme.lower() == b"bearer" and self._token.opens(text.strip()):
            return
        if not self._wrong.take():
            raise Refused("too many wrong tokens", code="TOO_MANY_REQUESTS", hint=_HOW)
        log.warning("wrong token")
        raise Refused("this is not the token", code="UNAUTHORIZED", hint=_HOW)


def _all(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _hosts(port: int) -> list[list[bytes]]:
    return [[f"{name}:{port}".encode()] for name in ("127.0.0.1", "[::1]", "localhost")]


def _is_json(given: list[bytes]) -> bool:
    return len(given) == 1 and given[0].partition(b";")[0].strip().lower() == b"application/json"


# --- the token ---------------------------------------------------------------------------------------
_FORM = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_BYTES = 200


def ensured(path: Path) -> str:
    """Return the token at `path`; create it if it is missing.

    Raises Refused (UNSAFE_TOKEN) when another account could read the file or it holds no token, StoreError
    when the disk fails.
    """
    with suppress(FileNotFoundError):
        return read(path)
    made = _written(path)
    try:
        with suppress(FileExistsError):  # another process was first: use its token
            os.link(made, path)
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error.strerror}") from error
    finally:
        made.unlink(missing_ok=True)
    return read(path)


def rotated(path: Path) -> str:
    """Replace the token, which makes the old one invalid; return the new one."""
    made = _written(path)
    try:
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise StoreError(f"cannot replace {path}: {error.strerror}") from error
    return read(path)


def read(path: Path) -> str:
    """Return the token at `path`. Raises FileNotFoundError, Refused and StoreError as `ensured`."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise _unsafe(path, f"it cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise _unsafe(path, "it is not a file that only this account can read")
        text = os.read(found, _MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise _unsafe(path, f"it cannot be read ({error.strerror})") from error
    finally:
        os.close(found)
    if not _FORM.fullmatch(text):
        raise _unsafe(path, "it does not hold a handoffd token")
    return text


def _unsafe(path: Path, why: str) -> Refused:
    hint = f"rm -f {quote(str(path))}; handoffd token"
    return Refused(f"{path} is not used: {why}", code="UNSAFE_TOKEN", hint=hint)


def _written(path: Path) -> Path:
    """Return a new file beside `path` with a new token in it; its mode is 0600 from the start."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            made.unlink()
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return made


class Token:
    """The current token of a file, or the `given` one. A rotated token counts from the next request on.

    Blocks briefly.
    """

    def __init__(self, path: Path, given: str | None = None) -> None:
        self._path = path
        self._given = None if given is None else given.encode()
        self._seen: tuple[int, int, int] | None = None
        self._text: bytes | None = None

    def opens(self, given: bytes) -> bool:
        """Return whether `given` is the token; False while the file cannot be used."""
        if self._given is not None:
            return secrets.compare_digest(given, self._given)
        self._refresh()
        return self._text is not None and secrets.compare_digest(given, self._text)

    def _refresh(self) -> None:
        try:
            status = os.stat(self._path, follow_symlinks=False)
            seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            if seen != self._seen:
                self._text, self._seen = read(self._path).encode(), seen
        except (OSError, Refused, StoreError):
            self._text = self._seen = None
