"""One hook of a project at a time, where no daemon puts them in order; and hooks nobody waits for."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from handoffd.hooks.tally import tally_path

YIELDS_BY = 10
"""How much nicer work is that nobody waits for: the hook itself is still on its way out."""


@contextmanager
def turn(folder: str, root: str) -> Iterator[None]:
    """Wait until no other hook works on the project at `root`. Raises OSError.

    There is no limit: whoever holds it has one, and the kernel drops it with its holder.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = tally_path(folder, root, "lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def later(work: Callable[[], object]) -> None:
    """Have `work` done by a process of its own, and return at once. Raises OSError.

    It belongs to no session and holds none of our streams: Claude Code waits for their end.
    """
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _let_go()
            os.nice(YIELDS_BY)
            work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _let_go() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir("/")
