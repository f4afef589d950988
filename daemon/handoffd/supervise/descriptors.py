"""Whether this process may open enough files for one more executor.

At its limit a process can neither lock a project, nor read a hand-off, nor accept a connection, and
which of these fails first is chance. So an attempt begins only with some descriptors to spare, and a
reserve is kept open from the start: it is closed when the limit is reached, so that people are still
answered, and what runs is still looked after, while nothing new is started.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

HEADROOM = 32
"""How many more files must be possible before an attempt begins: it needs about ten for a moment."""

RESERVE = 32

_AT_LIMIT = frozenset({errno.EMFILE, errno.ENFILE})
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class Descriptors:
    """The descriptors of this process. Make it early: what has low numbers helps under any limit."""

    def __init__(self, reserve: int = 0) -> None:
        self._wanted = reserve
        self._reserve: list[int] = []
        self._fill()

    @property
    def held(self) -> int:
        """How many are kept in reserve at the moment."""
        return len(self._reserve)

    def short(self) -> bool:
        """Return whether an attempt has to wait; the reserve is given up then, and had again later."""
        if _possible(HEADROOM + self._wanted - self.held):
            self._fill()
            return False
        self.close()
        return True

    def close(self) -> None:
        """Give up the reserve."""
        while self._reserve:
            os.close(self._reserve.pop())

    def _fill(self) -> None:
        with suppress(OSError):
            while self.held < self._wanted:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def at_limit(error: BaseException | None) -> bool:
    """Return whether an error comes of the limit of open files, of this process or of the machine."""
    return _caused_by(error, _AT_LIMIT)


def passes_by_itself(error: BaseException | None) -> bool:
    """Return whether an error comes of that limit, or of a disk that is full or read-only."""
    return _caused_by(error, _AT_LIMIT | _DISK)


def _caused_by(error: BaseException | None, numbers: frozenset[int]) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True
        error = error.__cause__
    return False


def _possible(count: int) -> bool:
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in _AT_LIMIT:
            raise
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True
