"""One house taken through its stories while its daemon is killed again and again."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.checker import digest
from tests.chaos.house import Death, House, Life, Zygote
from tests.chaos.killer import Killer
from tests.chaos.kills import POINT_LIMIT_S, Plan, Toll
from tests.chaos.people import Person
from tests.chaos.processes import end_all

_PAUSE_S = 0.01
_STUCK_S = 90.0
"""A house in which nothing is recorded for so long, undisturbed, will not come to its end."""
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Round:
    """One life: what was planned, how it ended, and which events were recorded in it."""

    number: int
    plan: Plan
    death: Death
    first: int
    last: int

    def __str__(self) -> str:
        events = f"events {self.first + 1} to {self.last}"
        return f"round {self.number} ({events}): {self.plan}, ended {self.death.status}"


class Campaign:
    """As many lives of one house's daemon as kills are wanted, and one more to bring all to its end."""

    def __init__(
        self, house: House, zygote: Zygote, chance: Random, tell: Callable[[Toll], None] = lambda _: None
    ) -> None:
        self.house = house
        self.rounds: list[Round] = []
        self.toll = Toll()
        self.faults: list[str] = []
        """What went wrong that the journal does not tell: crashes, daemons that did not end."""
        self._zygote = zygote
        self._chance = chance
        self._tell = tell
        self._note = house.base / "killed-at-point"
        self._person = Person(house, chance)
        self.killer = Killer(house, self.toll, chance)

    def run(self, deaths: Iterable[Plan], enough: Callable[[Toll], bool]) -> None:
        """Kill until that is enough, then let every story end and the daemon with it."""
        try:
            for plan in deaths:
                self._live(plan)
                self._tell(self.toll)
                if enough(self.toll):
                    break
            self._drain()
        finally:
            self._person.close()
            self.faults += self._person.trouble

    def abandon(self) -> None:
        """End everything of the house, whatever state it is in."""
        end_all(self.house.base, self.house.runs)

    # --- one life --------------------------------------------------------------------------------
    def _live(self, plan: Plan) -> None:
        first = self.house.newest()
        self._note.unlink(missing_ok=True)
        order = self.house.order(point=plan.point, nth=plan.nth, note=str(self._note))
        life = self._zygote.bear(order)
        timers = [] if plan.waits else self._set(plan, life)
        began = time.monotonic()
        try:
            while not life.over:
                self._look_after()
                late = time.monotonic() - began > POINT_LIMIT_S
                if not timers and (late or self.house.newest() > first):
                    timers = self._set(plan, life)
        finally:
            for timer in timers:
                timer.cancel()
        self._count(plan, life, first)

    def _set(self, plan: Plan, life: Life) -> list[threading.Timer]:
        """Have the kills happen whatever the person is waiting for at that moment."""
        deeds: list[tuple[float | None, Callable[[], object]]] = [
            (plan.after_s, lambda: life.signal(signal.SIGKILL)),
            (plan.launcher_after_s, self.killer.launcher),
            (plan.shim_after_s, self.killer.some_shim),
        ]
        timers = [threading.Timer(after_s, deed) for after_s, deed in deeds if after_s is not None]
        for timer in timers:
            timer.start()
        return timers

    def _look_after(self) -> None:
        self._person.attend()
        self.killer.attend()
        time.sleep(_PAUSE_S)

    def _count(self, plan: Plan, life: Life, first: int) -> None:
        death = life.wait(_STOP_S)
        last = self.house.newest()
        self.rounds.append(Round(len(self.rounds) + 1, plan, death, first, last))
        self.toll.daemons += 1
        if death.status != -signal.SIGKILL:
            self.faults.append(f"the daemon ended by itself: {self.rounds[-1]}")
            return
        if plan.point is not None and self._note.exists():
            self.toll.points[plan.point] += 1
        else:
            self.toll.random += 1
            self.toll.missed += plan.point is not None
        self.toll.idle += last == first
        self.toll.live += self._anything_in_flight()
        self._check_projections()

    def _anything_in_flight(self) -> bool:
        with suppress(sqlite3.Error), closing(self.house.reader()) as db:
            (count,) = db.execute("SELECT count(*) FROM dispatches WHERE result IS NULL").fetchone()
            return bool(count)
        return False

    def _check_projections(self) -> None:
        """Look at every STATE.json as the crash has left it: whole, and a text that was committed."""
        with suppress(sqlite3.Error), closing(self.house.reader()) as db:
            for project in self.house.projects:
                told = _fault_of(db, project.root)
                if told and not (
                    project.stories and project.stories[-1].tampers and told.endswith("not ours")
                ):
                    self.faults.append(f"{told}, after {self.rounds[-1]}")

    # --- the end ---------------------------------------------------------------------------------
    def _drain(self) -> None:
        """Let all stories end, undisturbed, and ask the last daemon to end as a person would."""
        self._person.wants_more = False
        first, newest, grown = self.house.newest(), -1, time.monotonic()
        life = self._zygote.bear(self.house.order())
        while not life.over and not (self._person.all_over() and self.house.answers()):
            self._look_after()
            if self.house.newest() != newest:
                newest, grown = self.house.newest(), time.monotonic()
            if time.monotonic() - grown > _STUCK_S:
                self.faults.append(f"nothing happens any more: {self._person.why_not_over()}")
                break
        life.signal(signal.SIGTERM)
        try:
            death = life.wait(_STOP_S)
        except TimeoutError as error:
            self.faults.append(str(error))
            life.signal(signal.SIGKILL)
            death = life.wait(_STOP_S)
        self.rounds.append(Round(len(self.rounds) + 1, Plan(0), death, first, self.house.newest()))
        self.toll.daemons += 1
        self.toll.terminated += 1
        if death.status != 0:
            self.faults.append(f"asked to end, the daemon ended with {death.status}")


def _fault_of(db: sqlite3.Connection, root: Path) -> str | None:
    """Return what is wrong with a STATE.json at any instant, if anything is."""
    try:
        text = (root / ".ai/STATE.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        json.loads(text)
    except ValueError as error:
        return f"{root}/.ai/STATE.json does not parse ({error}): {text[:80]!r}"
    known = db.execute(
        "SELECT 1 FROM projections WHERE project = ? AND digest = ?", (str(root), digest(text))
    )
    return None if known.fetchone() else f"{root}/.ai/STATE.json holds a text that is not ours"
