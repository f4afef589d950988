"""One play on one state directory: daemons that live and are killed until its flow has ended."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import sink
from tests.chaos.flows.plays import AGENT, COMMAND, TEST_SETTINGS, TESTS, Json, Play
from tests.chaos.house import Life, Zygote
from tests.chaos.processes import end_all, launchers
from tests.support.repositories import git

_ALLOWED = ("HOME", "LANG", "LC_ALL", "PATH", "SHELL", "TMPDIR", "USER")
_STUCK_S = 60.0
"""A flow in whose journal nothing is recorded for so long will not come to its end."""
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Death:
    """How a daemon dies: at the `nth` time it reaches `point`, or after `after_s` seconds, what is first."""

    point: str | None
    nth: int = 1
    after_s: float = 5.0
    launcher: bool = False
    """Whether the launchers are killed, too."""


@dataclass(slots=True)
class Toll:
    """Which kills there were."""

    points: Counter[str] = field(default_factory=Counter)
    at_random: int = 0
    launchers: int = 0

    @property
    def all(self) -> int:
        """How many daemons were killed."""
        return self.points.total() + self.at_random

    def add(self, other: Toll) -> None:
        """Count what another one has counted, too."""
        self.points += other.points
        self.at_random += other.at_random
        self.launchers += other.launchers


class Stage:
    """A state directory and a repository in which one flow is played."""

    def __init__(self, base: Path, play: Play, zygote: Zygote) -> None:
        self.base, self.play = base, play
        self.state_dir = base / "state"
        self.runs = self.state_dir / "runs"
        self.journal = self.state_dir / "journal.db"
        self.root = base / "shop"
        self.config = base / "handoffd.yaml"
        self.over = base / "over"
        self.toll = Toll()
        self.faults: list[str] = []
        self.reached: Counter[str] = Counter()
        """How often each point was reached by the daemons that no point has killed."""
        self._note = base / "killed-at-point"
        self._zygote = zygote
        self._install()

    def _install(self) -> None:
        for folder in ("run", "acts"):
            (self.base / folder).mkdir(mode=0o700, parents=True)
        for name, text in (("agent.sh", AGENT), ("command.sh", COMMAND), ("tests.sh", TESTS)):
            (self.base / name).write_text(text.replace("@", str(self.base)))
        self.root.mkdir()
        self.play.install(self.base, self.root)
        (self.root / "PROJECT_CONTEXT.md").write_text("A shop.\n")
        (self.root / ".gitignore").write_text(".ai/\nmine\n")
        (self.root / ".ai/handoffd.yaml").write_text(TEST_SETTINGS.replace("@", str(self.base)))
        words = (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "Begin"))
        for line in words if self.play.repository else ():
            assert 0 == git(self.root, *line)
        script = self.play.script(self.root, self.over)
        (self.base / "person.json").write_text(json.dumps(script))
        self.config.write_text(json.dumps(self._settings()))

    def _settings(self) -> Json:
        return {
            "state_dir": str(self.state_dir),
            "runtime_dir": str(self.base / "run"),
            "sandbox": {"level": "off"},  # agents log outside of their project what they do
            "projects": [str(self.root)],
            "executor": "agent",
            "executors": {
                "agent": {"extends": "command", "argv": ["/bin/sh", str(self.base / "agent.sh")],
                          "ladder": [{"signal": "TERM", "grace_s": 0.2}, {"signal": "KILL", "grace_s": 1}]},
            },
            "schedule": {"poll_s": 0.2},
            "execute": {
                "slots": 6, "handoff_grace_s": 0.2, "settle_s": 0.01, "min_free_mb": 0,
                "env_allow": [*_ALLOWED],
            },
            "scheduling": {"min_free_memory_mb": 0},
            "notify": sink.install(self.base, rough=False),
        }  # fmt: skip

    # --- lives ------------------------------------------------------------------------------------
    def bear(self, death: Death | None) -> Life:
        """Begin a daemon with the person of the play."""
        self._note.unlink(missing_ok=True)
        environ = {name: os.environ[name] for name in _ALLOWED if name in os.environ}
        order = {
            "config": str(self.config), "log": str(self.base / "daemon.log"), "environ": environ,
            "attended_by": "tests.chaos.flows.person", "script": str(self.base / "person.json"),
            "note": str(self._note), "every_file": True,
        }  # fmt: skip
        if death is not None and death.point is not None:
            order |= {"point": death.point, "nth": death.nth}
        else:
            order |= {"count": str(self.base / "reached.log")}
        return self._zygote.bear(order)

    def run(self, deaths: Iterable[Death], most: int = 1_000) -> None:
        """Let daemons live and die until the flow has ended; the last one is asked to end."""
        for death in deaths:
            if self.over.exists() or self.toll.all >= most:
                break
            self._live(death)
        self._drain()

    def _live(self, death: Death) -> None:
        life, began = self.bear(death), time.monotonic()
        while not life.over and not self.over.exists() and time.monotonic() - began < death.after_s:
            time.sleep(0.01)
        if death.launcher:
            for process in launchers(self.base, self.runs):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    self.toll.launchers += 1
        if not life.over:
            life.signal(signal.SIGKILL)
        ended = life.wait(_STOP_S)
        if ended.status != -signal.SIGKILL:
            self.faults.append(f"the daemon ended by itself with {ended.status}: {death}")
        elif self._note.exists() and death.point is not None:
            self.toll.points[death.point] += 1
        else:
            self.toll.at_random += 1

    def _drain(self) -> None:
        """Let the flow end, undisturbed, and ask the last daemon to end as a person would."""
        life, newest, grown = self.bear(None), -1, time.monotonic()
        self.over.unlink(missing_ok=True)  # the last daemon has to find it over, too
        while not life.over and not self.over.exists():
            time.sleep(0.02)
            if self.newest() != newest:
                newest, grown = self.newest(), time.monotonic()
            if time.monotonic() - grown > _STUCK_S:
                self.faults.append(f"nothing happens any more: {self.pending()}")
                break
        time.sleep(0.3)  # notices are delivered
        life.signal(signal.SIGTERM)
        ended = life.wait(_STOP_S)
        if ended.status != 0:
            self.faults.append(f"asked to end, the daemon ended with {ended.status}")
        log = self.base / "reached.log"
        self.reached = Counter(log.read_text().split()) if log.exists() else Counter()

    def abandon(self) -> None:
        """End everything that is left of it."""
        end_all(self.base, self.runs)

    # --- what is seen from outside ------------------------------------------------------------------
    def newest(self) -> int:
        """Return the number of the latest event."""
        rows = self.rows("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
        return int(rows[0][0]) if rows else 0

    def pending(self) -> Sequence[tuple[Any, ...]]:
        """Return orders that are not done, and flows that have not ended."""
        orders = self.rows("SELECT id, track, effect FROM effects WHERE outcome IS NULL")
        return [*orders, *self.rows("SELECT flow, awaits FROM flows WHERE ended IS NULL")]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return rows of the journal, read past handoffd; none while there is no journal."""
        with suppress(sqlite3.Error):
            address = f"file:{self.journal}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
                return db.execute(query, values).fetchall()
        return []
