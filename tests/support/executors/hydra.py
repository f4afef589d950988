"""An agent that hides its descendants in every way a process of the same account has.

    hydra.py MARKER stay|leave|crash
    hydra.py MARKER orphans

Each head appends its pid to MARKER and then ignores INT, TERM and HUP. `stay`: the main process
does so, too; `leave`: it exits with code 7 once all heads are there; `crash`: it is killed then.
`orphans`: there are but two heads, orphaned in sessions of their own with the environment they were
given, and the main process exits. MARKER is part of every head's command line, so that a test can count them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

HEADS = 7


def announce(marker: str) -> None:
    """Append one line in one write, so that heads do not garble each other's."""
    fd = os.open(marker, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)


def head(marker: str) -> None:
    """Be deaf to everything but KILL."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    announce(marker)
    while True:
        signal.pause()


def spawning_head(marker: str) -> None:
    """Answer TERM with a new orphan in a session of its own."""

    def breed(*_: object) -> None:
        below(lambda: detached(lambda: head(marker)))

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, breed)
    announce(marker)
    while True:
        signal.pause()


def below(act: Callable[[], object]) -> None:
    """Do `act` in a child."""
    if os.fork() == 0:
        act()
        os._exit(0)


def detached(act: Callable[[], object]) -> None:
    """Do `act` in an orphan in its own session: a double fork."""
    os.setsid()
    below(act)


def own_session(act: Callable[[], object]) -> None:
    """Do `act` in a session of its own."""
    os.setsid()
    act()


def nameless(marker: str) -> None:
    """Become a head that has no environment left."""
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, marker, "head"], {})


def pair(marker: str) -> None:
    """Be a head that has one below it."""
    below(lambda: head(marker))
    head(marker)


def grow(marker: str) -> None:
    """Start every kind of head."""
    below(lambda: head(marker))
    below(lambda: own_session(lambda: head(marker)))
    below(lambda: detached(lambda: head(marker)))
    below(lambda: detached(lambda: nameless(marker)))
    below(lambda: own_session(lambda: pair(marker)))
    below(lambda: own_session(lambda: spawning_head(marker)))


def main() -> None:
    """Grow and stay, or grow and end."""
    marker, mode = sys.argv[1:]
    if mode == "head":
        head(marker)
    if mode == "orphans":
        for _ in range(2):
            below(lambda: detached(lambda: head(marker)))
        os._exit(0)
    grow(marker)
    while True:
        with open(marker, "rb") as file:
            if len(file.read().split()) >= HEADS:
                break
        time.sleep(0.002)
    if mode == "leave":
        os._exit(7)
    if mode == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    head(marker)


if __name__ == "__main__":
    open(sys.argv[1], "ab").close()
    main()
