"""All processes of a run: the program itself and whatever descends from it.

Relies on this process being a child subreaper (see `tree`): whoever is orphaned below it becomes
its child, so nobody is left when it has no child left. Where the run has a control group, that is
killed as well: also whom another user owns.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from handoffd.execute.runner import cgroup, tree

_REFUSED_LIMIT_S = 5.0


class Family:
    """The descendants of this process. Every method is called from the one thread there is."""

    def __init__(self, group: cgroup.Group | None = None) -> None:
        self._me = os.getpid()
        self._group = group
        self._main: int | None = None
        self._status: int | None = None
        self._hit: set[int] = set()
        self.ended: float | None = None
        """When the main process was found to have ended, by the monotonic clock."""
        self.nobody = False
        """Whether the last look found no child at all."""
        self.survived = 0
        """How many could not be ended because they belong to another user."""

    def head(self, pid: int) -> None:
        """Make the child `pid` the main process, whose end is the end of the run."""
        self._main = pid

    @property
    def result(self) -> int | None:
        """The exit code of the main process, or minus the signal that ended it."""
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)

    @property
    def killed(self) -> int:
        """How many were ended after the main process."""
        return len(self._hit - {self._main})

    def reap(self) -> None:
        """Look who has ended."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._main:
                    self.ended = time.monotonic()
                    self._status = status
        except ChildProcessError:
            self.nobody = True

    def signal(self, name: str) -> None:
        """Send the signal called `name` once to everybody."""
        tree.sweep(self._me, signal.Signals[f"SIG{name}"])

    def end(self, rest: Callable[[float], None]) -> None:
        """Return when nobody is left, or only such as belong to another user.

        `rest` is called between two rounds with the time at which it must have returned; it reaps.
        """
        refused_since: float | None = None
        rounds = 0
        self.reap()
        while not self.nobody:
            self._hit |= self._group.kill() if self._group is not None else set()
            result = tree.sweep(self._me, signal.SIGKILL)
            self._hit |= result.reached
            rest(time.monotonic() + tree.pause_s(rounds))
            rounds += 1
            if result.reached or not result.refused:
                refused_since = None
                continue
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > _REFUSED_LIMIT_S:
                self.survived = len(result.refused)
                return
