"""The lives of one daemon of a house: killed as planned, and at last left alone until all has ended."""

from __future__ import annotations

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos.house import Death, House, Life, Zygote
from tests.chaos.kills import POINT_LIMIT_S, Plan, Toll
from tests.chaos.processes import end_all

_PAUSE_S = 0.01
_STUCK_S = 120.0
"""A house in which nothing is recorded for so long, undisturbed, will not come to its end."""
_STOP_S = 60.0

Deed = tuple[float | None, Callable[[], object]]
"""After how many seconds something is killed, if it is, and what kills it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One life: what was planned, how it ended, and which events were recorded in it."""

    number: int
    plan: Plan
    death: Death
    first: int
    last: int

    @property
    def killed(self) -> bool:
        """Whether it ended as planned."""
        return self.death.status == -signal.SIGKILL

    def __str__(self) -> str:
        events = f"events {self.first + 1} to {self.last}"
        return f"round {self.number} ({events}): {self.plan}, ended {self.death.status}"


class Lives(ABC):
    """As many lives of a daemon as kills are wanted, and one more to bring all to its end."""

    def __init__(self, house: House, zygote: Zygote) -> None:
        self.house = house
        self.rounds: list[Round] = []
        self.toll = Toll()
        self.faults: list[str] = []
        """What went wrong that the journal does not tell: crashes, daemons that did not end."""
        self._zygote = zygote
        self._note = house.base / "killed-at-point"

    @abstractmethod
    def attend(self) -> None:
        """Do what people do while a daemon lives; called over and over."""

    @abstractmethod
    def is_over(self) -> bool:
        """Return whether all has come to its end."""

    def why_not_over(self) -> str:
        """Return what has not, in words."""
        return "stories are left"

    def more_deeds(self, plan: Plan) -> Iterator[Deed]:
        """Yield what is killed beside the daemon."""
        yield from ()

    def slay(self, plan: Plan, life: Life) -> None:
        """Kill a daemon, at this instant."""
        life.signal(signal.SIGKILL)

    def abandon(self) -> None:
        """End everything of the house, whatever state it is in."""
        end_all(self.house.base, self.house.runs)

    def live(self, plan: Plan) -> Round:
        """Have a daemon live until it is killed; its kills wait for an event, where they are to."""
        first = self.house.newest()
        self._note.unlink(missing_ok=True)
        order = self.house.order(point=plan.point, nth=plan.nth, note=str(self._note))
        life = self._zygote.bear(order)
        timers = [] if plan.waits else self._set(plan, life)
        began = time.monotonic()
        try:
            while not life.over:
                self.attend()
                time.sleep(_PAUSE_S)
                late = time.monotonic() - began > POINT_LIMIT_S
                if not timers and (late or self.house.newest() > first):
                    timers = self._set(plan, life)
        finally:
            for timer in timers:
                timer.cancel()
        return self._counted(plan, life.wait(_STOP_S), first)

    def _set(self, plan: Plan, life: Life) -> list[threading.Timer]:
        """Have the kills happen whatever a person is waiting for at that moment."""
        deeds = [(plan.after_s, lambda: self.slay(plan, life)), *self.more_deeds(plan)]
        timers = [threading.Timer(after_s, deed) for after_s, deed in deeds if after_s is not None]
        for timer in timers:
            timer.start()
        return timers

    def _counted(self, plan: Plan, death: Death, first: int) -> Round:
        ended = self._noted(plan, death, first)
        if not ended.killed:
            self.faults.append(f"the daemon ended by itself: {ended}")
        elif plan.point is not None and self._note.exists():
            self.toll.points[plan.point] += 1
        else:
            self.toll.random += 1
            self.toll.missed += plan.point is not None
        return ended

    def _noted(self, plan: Plan, death: Death, first: int) -> Round:
        self.toll.daemons += 1
        self.rounds.append(Round(len(self.rounds) + 1, plan, death, first, self.house.newest()))
        return self.rounds[-1]

    def drain(self) -> None:
        """Let all stories end, undisturbed, and ask the last daemon to end as a person would."""
        first, newest, grown = self.house.newest(), -1, time.monotonic()
        life = self._zygote.bear(self.house.order())
        while not life.over and not (self.is_over() and self.house.answers()):
            self.attend()
            time.sleep(_PAUSE_S)
            if self.house.newest() != newest:
                newest, grown = self.house.newest(), time.monotonic()
            if time.monotonic() - grown > _STUCK_S:
                self.faults.append(f"nothing happens any more: {self.why_not_over()}")
                break
        life.signal(signal.SIGTERM)
        try:
            death = life.wait(_STOP_S)
        except TimeoutError as error:
            self.faults.append(str(error))
            life.signal(signal.SIGKILL)
            death = life.wait(_STOP_S)
        self._noted(Plan(0), death, first)
        self.toll.terminated += 1
        if death.status != 0:
            self.faults.append(f"asked to end, the daemon ended with {death.status}")
