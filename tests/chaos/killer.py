"""Who is killed beside the daemon: launchers at any time, shims where a story can bear it."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from random import Random

from tests.chaos.house import House
from tests.chaos.kills import Toll
from tests.chaos.people import doomed
from tests.chaos.processes import ended_by_somebody, launchers, shim_of

_LOOK_S = 0.1
_HANGS_S = 0.4
"""How long a doomed shim goes on at most: daemons come and go meanwhile."""
_MOST_PER_STEP = 2


class Killer:
    """Kills launchers and shims of one house, and remembers whose."""

    def __init__(self, house: House, toll: Toll, chance: Random) -> None:
        self._house = house
        self._toll = toll
        self._chance = chance
        self._looked = 0.0
        self._due: dict[str, float] = {}
        self._repeated = Counter[tuple[str, str, str]]()
        self.hit: set[str] = set()
        """The dispatches whose shim was killed; they may have ended otherwise in the same instant."""

    def attend(self) -> None:
        """Kill the shims of the executors that hang according to their script."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            for dispatch in doomed(self._house):
                self._due.setdefault(dispatch, now + self._chance.uniform(0, _HANGS_S))
        for dispatch, due in tuple(self._due.items()):
            if due <= now and dispatch not in self.hit:
                self._kill_shim(dispatch)

    def launcher(self) -> None:
        """Kill all current launchers."""
        for process in launchers(self._house.base, self._house.runs):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
                self._toll.launchers += 1

    def some_shim(self) -> None:
        """Kill a shim whose story passes whatever is repeated, at whatever it is doing."""
        wild = {str(project.root) for project in self._house.projects if project.wild}
        flying = [row for row in self._in_flight() if row[1] in wild]
        self._chance.shuffle(flying)
        for dispatch, root, story, step in flying:
            if self._repeated[root, story, step] < _MOST_PER_STEP and self._kill_shim(dispatch):
                self._repeated[root, story, step] += 1
                return

    def _kill_shim(self, dispatch: str) -> bool:
        pid = shim_of(self._house.runs / dispatch)
        if pid is None or not ended_by_somebody(self._house.runs / dispatch, pid):
            return False
        self.hit.add(dispatch)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._toll.shims += 1
            return True
        return False

    def _in_flight(self) -> list[tuple[str, str, str, str]]:
        with suppress(sqlite3.Error), closing(self._house.reader()) as db:
            return db.execute(
                "SELECT id, project, story, step FROM dispatches WHERE result IS NULL"
            ).fetchall()
        return []
