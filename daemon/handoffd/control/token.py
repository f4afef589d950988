"""The token that opens the TCP port: one line in a file of mode 0600 below the state directory.

Whoever can read the file can do what the token's owner can. So it tells people from strangers, and never
a person from an agent of the same account.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from shlex import quote

from handoffd.errors import Refused, StoreError

_FORM = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_BYTES = 200


def ensured(path: Path) -> str:
    """Return the token at `path`, made now if there is none.

    Raises Refused (UNSAFE_TOKEN) when others could read it or it is none of ours, StoreError when the disk
    fails.
    """
    with suppress(FileNotFoundError):
        return read(path)
    made = _written(path)
    try:
        with suppress(FileExistsError):  # another process was first: its token is the token
            os.link(made, path)
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error.strerror}") from error
    finally:
        made.unlink(missing_ok=True)
    return read(path)


def rotated(path: Path) -> str:
    """Put a new token in the place of the old one, which opens nothing from now on; return the new one."""
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
            raise _unsafe(path, "it is no file that only this account can read")
        text = os.read(found, _MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise _unsafe(path, f"it cannot be read ({error.strerror})") from error
    finally:
        os.close(found)
    if not _FORM.fullmatch(text):
        raise _unsafe(path, "what it holds is no token of handoffd")
    return text


def _unsafe(path: Path, why: str) -> Refused:
    hint = f"rm -f {quote(str(path))}; handoffd token"
    return Refused(f"{path} is not used: {why}", code="UNSAFE_TOKEN", hint=hint)


def _written(path: Path) -> Path:
    """Return a new file beside `path` with a new token in it, never readable by anybody else."""
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
    """The token of a file as it is now, or the one that is `given`: a new one is known with the next request.

    Blocks briefly.
    """

    def __init__(self, path: Path, given: str | None = None) -> None:
        self._path = path
        self._given = None if given is None else given.encode()
        self._seen: tuple[int, int, int] | None = None
        self._text: bytes | None = None

    def opens(self, given: bytes) -> bool:
        """Return whether `given` is the token; never, while the file cannot be used."""
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
