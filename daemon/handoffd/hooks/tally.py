"""What hooks keep of a project: how often they sent an agent back, the result of a hand-off, and a lock.

A hook that always sent an agent back would keep its session alive for ever, so hooks count. A project has a
few small files below the daemon's state directory, where no agent looks. Losing them does no harm: a hook
then sends an agent back one time more.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from handoffd.hooks.project import Standing

MOST_IN_A_ROW = 2
_MOST_SESSIONS = 20
_MOST_REASONS = 50
_MAX_BYTES = 64 * 1024
_MAX_WORD = 200

SEND_BACK, KNOWN, ENOUGH = "send back", "known", "enough"
"""The verdicts of `Tally`: do it; the reason was given before; it was done often enough."""


class Tally:
    """The counts of the project at `root`, in a file of `folder`."""

    def __init__(self, folder: str, root: str) -> None:
        self._folder = folder
        self._root = root

    def verdict(self, session: str, step: str, reason: str) -> str:
        """Return whether an agent may be sent back, and count it.

        Each `reason` is given once, to any session. `step` names the work of a story: for it a session is
        sent back at most MOST_IN_A_ROW times in a row, over all its attempts. Raises OSError.
        """
        session, step = _short(session), _short(step)
        with _Opened(self._folder, self._root) as kept:
            if not kept.is_news(reason):
                return KNOWN
            before = kept.sessions.pop(session, None)
            count = before[1] if before is not None and before[0] == step else 0
            kept.sessions[session] = (step, min(count + 1, MOST_IN_A_ROW))
            return ENOUGH if count >= MOST_IN_A_ROW else SEND_BACK

    def is_news(self, reason: str) -> bool:
        """Return whether `reason` is given for the first time, and record it. Raises OSError."""
        with _Opened(self._folder, self._root) as kept:
            return kept.is_news(reason)

    def clear(self, session: str) -> None:
        """Forget how often a session was sent back, after it handed over something good. Raises OSError."""
        if not os.path.exists(tally_path(self._folder, self._root)):
            return
        with _Opened(self._folder, self._root) as kept:
            kept.sessions.pop(_short(session), None)


class _Opened:
    """A project's file, opened under an exclusive lock."""

    def __init__(self, folder: str, root: str) -> None:
        self._path = tally_path(folder, root)
        self._handle = -1
        self.sessions: dict[str, tuple[str, int]] = {}
        self.reasons: list[str] = []

    def is_news(self, reason: str) -> bool:
        """Return whether `reason` was not kept yet, and keep it."""
        reason = _short(reason)
        if reason in self.reasons:
            return False
        self.reasons = [*self.reasons, reason][-_MOST_REASONS:]
        return True

    def __enter__(self) -> _Opened:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        # No limit: a holder keeps it for a few reads and writes; if the holder dies, the kernel drops it.
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self._take(os.pread(self._handle, _MAX_BYTES, 0))
        return self

    def _take(self, text: bytes) -> None:
        try:
            data = json.loads(text)
            sessions = {
                str(name): (str(step), int(count)) for name, (step, count) in data["sessions"].items()
            }
            reasons = [str(reason) for reason in data["reasons"]]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return  # new, or torn by a full disk
        self.sessions, self.reasons = sessions, reasons

    def __exit__(self, *_: object) -> None:
        try:
            latest = dict(list(self.sessions.items())[-_MOST_SESSIONS:])
            text = json.dumps({"sessions": latest, "reasons": self.reasons}).encode()
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text, 0)
        finally:
            os.close(self._handle)


def _short(text: str) -> str:
    """Return text as it is kept: its digest if it is long, or would grow as JSON."""
    if len(text) <= _MAX_WORD and text.isascii() and text.isprintable():
        return text
    from hashlib import sha256  # noqa: PLC0415  (hardly ever needed, and slow to import)

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tally_path(folder: str, root: str, ending: str = "json") -> str:
    """Return where a project's counts are: named by device and inode, so that two paths to it are one."""
    status = os.stat(root)
    return os.path.join(folder, f"{status.st_dev:x}-{status.st_ino:x}.{ending}")


# --- the result of a hand-off ------------------------------------------------------------------------
_MAX_RESULT_BYTES = 256 * 1024


def remember(folder: str, standing: Standing, result: dict[str, object]) -> None:
    """Keep the result of applying the hand-off that `standing` found. Raises OSError."""
    path = tally_path(folder, standing.root, "last")
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8", opener=_private) as file:
        json.dump({"of": _identity(standing), "result": result}, file)
    os.replace(f"{path}.{os.getpid()}", path)


def remembered(folder: str, standing: Standing) -> dict[str, object] | None:
    """Return the kept result of applying this very hand-off; None if there is none."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(tally_path(folder, standing.root, "last"), encoding="utf-8") as file:
            data = json.loads(file.read(_MAX_RESULT_BYTES))
        if data["of"] == _identity(standing) and isinstance(data["result"], dict):
            return dict(data["result"])
    return None


def _identity(standing: Standing) -> list[object]:
    return [
        standing.written_ns,
        standing.status,
        standing.state.get("dispatched_at"),
        standing.state.get("step"),
    ]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


# --- one hook at a time ------------------------------------------------------------------------------
@contextmanager
def turn(folder: str, root: str) -> Iterator[None]:
    """Wait until no other hook works on the project at `root`. Raises OSError.

    There is no limit: each holder has one, and the kernel drops the lock when its holder ends.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = tally_path(folder, root, "lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
