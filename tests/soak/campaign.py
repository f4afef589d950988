"""One soak: stories begin, gates open, the daemon is restarted, and all of it is sampled."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random

from tests.chaos.checker import Violation, check
from tests.chaos.evidence import gather
from tests.chaos.house import House
from tests.chaos.judging import replayed, until_gone
from tests.chaos.people import Person
from tests.chaos.processes import end_all
from tests.soak.samples import Cost, Sample, cost
from tests.soak.workspace import Service

_PAUSE_S = 0.1
_REST_S = 600.0
"""How long it may take, after the last story was begun, until nothing is recorded any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Times in seconds from the start: stories begin until `begin_s`; restarts happen at `restarts_s`."""

    whole_s: float
    begin_s: float
    restarts_s: tuple[float, ...]
    sample_s: float = 5.0
    attend_s: float = 1.0
    """How long people may look away, and how long a look of theirs may take."""
    rest_s: float = 20.0
    """How long the daemon is left alone before the first and after the last story, to see it at rest."""


def plan(minutes: float, restarts: int, rest_s: float = 20.0) -> Plan:
    """Return a plan of one long life, 70 % of the time, and then `restarts` short ones.

    Stories begin until the last restart, so that each finds people and agents at work.
    """
    whole_s = minutes * 60
    first_s, last_s = whole_s * 0.7, whole_s * 0.95
    between_s = (last_s - first_s) / max(restarts - 1, 1)
    times = tuple(round(first_s + number * between_s, 1) for number in range(restarts))
    return Plan(whole_s=whole_s, begin_s=last_s, restarts_s=times, rest_s=rest_s)


class Soak:
    """Runs a plan over a workspace. `tell` is given a line now and then."""

    def __init__(self, house: House, chance: Random, plan_: Plan, tell: Callable[[str], None]) -> None:
        self.house = house
        self.service = Service(house)
        self.samples: list[Sample] = []
        self.at_rest: list[Cost] = []
        """The daemon before the first and after the last story."""
        self._plan = plan_
        self._tell = tell
        self._person = Person(house, chance, plan_.attend_s, plan_.attend_s)
        self._began = time.monotonic()
        self._sampled_s = 0.0

    @property
    def _at_s(self) -> float:
        return time.monotonic() - self._began

    def run(self) -> None:
        """Go through the plan, then wait until every story has ended, and end the daemon."""
        try:
            self._person.wants_more = False
            self.service.start()
            self._rest()
            self._person.wants_more = True
            left = list(self._plan.restarts_s)
            while not self._over(left):
                self._step(left)
            self._rest()
            self.service.stop()
        finally:
            self._person.close()

    def _over(self, left: list[float]) -> bool:
        if self._at_s > self._plan.whole_s + _REST_S:
            self.service.faults.append(f"it does not come to its end: {self._person.why_not_over()[:2000]}")
            return True
        return self._at_s > self._plan.whole_s and not left and self._person.all_over()

    def _step(self, left: list[float]) -> None:
        self._person.wants_more = self._at_s < self._plan.begin_s
        if self.service.dead():
            self.service.faults.append(
                f"life {self.service.lives} ended by itself after {self.service.age_s:.0f} s"
            )
            self.service.start()
        elif left and self._at_s >= left[0]:
            left.pop(0)
            self._sample()
            self.service.stop()
            self.service.start()
        self._person.attend()
        if self._at_s - self._sampled_s >= self._plan.sample_s:
            self._sample()
        time.sleep(_PAUSE_S)

    def _rest(self) -> None:
        """Leave the daemon alone until it rests, and see what it costs then."""
        until_s = self._at_s + self._plan.rest_s
        while self._at_s < until_s:
            time.sleep(_PAUSE_S)
        if (found := cost(self.service.pid)) is not None:
            self.at_rest.append(found)

    def _sample(self) -> None:
        self._sampled_s = self._at_s
        found = cost(self.service.pid)
        if found is None:
            return
        stories = sum(len(project.stories) for project in self.house.projects)
        sample = Sample(
            at_s=round(self._at_s, 1), life=self.service.lives, age_s=round(self.service.age_s, 1),
            rss_mb=found.rss_mb, descriptors=found.descriptors, threads=found.threads, cpu_s=found.cpu_s,
            running=self._running(), stories=stories,
        )  # fmt: skip
        self.samples.append(sample)
        self._tell(
            f"{sample.at_s / 60:5.1f} min  life {sample.life}  {sample.rss_mb:6.1f} MiB"
            f"  {sample.descriptors} descriptors  {sample.running} running  {stories:,} stories begun"
        )

    def _running(self) -> int:
        with suppress(sqlite3.Error), closing(self.house.reader()) as db:
            (count,) = db.execute("SELECT count(*) FROM dispatches WHERE result IS NULL").fetchone()
            return int(count)
        return 0

    def judged(self) -> list[Violation]:
        """Return every promise that was broken, with the notices that were sent more than once."""
        left = until_gone(self.house)
        evidence = gather(self.house.base, self.house.projects, frozenset(), left)
        self.dispatches, self.events = len(evidence.dispatches), len(evidence.events)
        self.faulty = sum(one.result != "pass" for one in evidence.dispatches)
        self.notices = len(evidence.told)
        names = [str(notice.get("id")) for notice in evidence.told]
        twice = (
            sorted({name for name in names if names.count(name) > 1}) if len(names) > len(set(names)) else []
        )
        again = [Violation("notice sent twice", name) for name in twice]
        return [*check(evidence), *replayed(self.house), *again]

    def abandon(self) -> None:
        """End everything of the house, whatever state it is in."""
        end_all(self.house.base, self.house.runs)
