"""Reminds people of matters that wait for them.

The box stores the matters; this module keeps only when each is due, in a heap, so the cost depends only on
their number. Whether a matter still waits is asked when it is due, and not before: a gate may be
decided with a daemon or without one, and need not be reported here.

When a reminder is due follows from how long a matter has waited and which reminders were sent. How far that
ladder was climbed is recorded in minutes, not as a rung's number: so no reminder is repeated when the
settings change meanwhile, and rungs passed while the daemon could not check (the machine slept, the clock
was put forward) become one reminder.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import count

import anyio
import structlog
from msgspec import Struct
from msgspec.structs import replace

from handoffd.clock import Clock
from handoffd.engine.notice import Matter, Notice
from handoffd.engine.wording import counted
from handoffd.errors import StoreError
from handoffd.notify.ports import LASTING, Box
from handoffd.settings.notify import RemindSettings

log = structlog.get_logger(__name__)


# --- when --------------------------------------------------------------------------------------------
class Due(Struct, frozen=True, kw_only=True):
    """A reminder that is due. Sending it completes all rungs up to `reached_min`."""

    reached_min: float
    remind: bool
    escalate_to: tuple[str, ...] = ()
    """Further sinks that get the reminder."""


def due(since: datetime, now: datetime, reached_min: float, ladder: RemindSettings) -> Due | None:
    """Return the reminder due for a matter that has waited since then; None if none is due."""

    def is_new(rung_min: float) -> bool:
        return reached_min < rung_min and since + timedelta(minutes=rung_min) <= now

    rungs = [rung for rung in ladder.after_min if is_new(rung)]
    escalations = [rung for rung in ladder.escalate if is_new(rung.after_min)]
    if not rungs and not escalations:
        return None
    return Due(
        reached_min=max((*rungs, *(rung.after_min for rung in escalations))),
        remind=bool(rungs),
        escalate_to=tuple(dict.fromkeys(name for rung in escalations for name in rung.to)),
    )


def next_at(since: datetime, reached_min: float, ladder: RemindSettings) -> datetime | None:
    """Return when the next rung is reached; None after the last one."""
    rungs = (*ladder.after_min, *(rung.after_min for rung in ladder.escalate))
    later = [rung for rung in rungs if rung > reached_min]
    return since + timedelta(minutes=min(later)) if later else None


# --- waiting matters -----------------------------------------------------------------------------------
LOOK_S = 60.0
"""Interval for checking the wall clock while a matter waits: it may be put, and machines sleep."""

_MOST_OVER = 64
"""Most entries of settled matters that may stay in the heap."""

_MUTE = timedelta(hours=1)
"""Interval for checking whether a matter still waits while there is no sink."""

_STEP = timedelta(seconds=5)
"""Clocks are put right by less than this all the time."""

Remind = Callable[[Notice, Matter, Due], None]


class Reminders:
    """The waiting matters, and when each is repeated. `remind` gets a due reminder; it never blocks."""

    def __init__(
        self, box: Box, clock: Clock, ladder: RemindSettings, remind: Remind, retry_s: float
    ) -> None:
        self._box = box
        self._clock = clock
        self._ladder = ladder
        self._mute = False
        self._remind = remind
        self._retry_s = retry_s
        self._matters: dict[str, Matter] = {}
        self._by_lane: dict[tuple[str, str], str] = {}
        self._heap: list[tuple[datetime, int, str]] = []
        self._armed: dict[str, datetime] = {}
        """When each matter is checked next; older heap entries of it are ignored."""
        self._unseen: set[str] = set()
        """Matters of an earlier life, not confirmed in this one: only a check shows whether they last."""
        self._order = count()
        self._seen = clock.now()
        self._news = anyio.Event()

    def configure(self, ladder: RemindSettings, *, mute: bool = False) -> None:
        """Go on by another ladder.

        `mute`: there is no sink, so no rung is climbed; a sink added later gets the reminder then.
        """
        self._ladder, self._mute, self._heap, self._armed = ladder, mute, [], {}
        for matter in self._matters.values():
            self._arm(matter)

    def add(self, matters: Iterable[Matter], *, inherited: bool = False) -> None:
        """Take matters that are recorded; each takes the place of what its track waited for before.

        `inherited`: from an earlier life. A lasting matter of a project is not repeated until `confirm`.
        """
        now = self._clock.now()
        for matter in matters:
            self._forget(self._by_lane.get(matter.lane))
            # Of the future: the clock was put back, and people wait by the one that they see.
            self._matters[matter.notice] = kept = replace(matter, since=min(matter.since, now))
            self._by_lane[matter.lane] = matter.notice
            if inherited and matter.lane[1].startswith(LASTING):
                self._unseen.add(matter.notice)
            self._arm(kept)

    def confirm(self, lane: tuple[str, str]) -> None:
        """Take note that what an earlier life found in a lane is so in this one, too."""
        matter = self._matters.get(self._by_lane.get(lane, ""))
        if matter is not None and matter.notice in self._unseen:
            self._unseen.remove(matter.notice)
            self._arm(matter)

    def upcoming(self) -> tuple[tuple[Matter, datetime | None], ...]:
        """Return all waiting matters, the oldest first, with the time of the next reminder."""
        matters = sorted(self._matters.values(), key=lambda matter: matter.since)
        if self._mute:
            return tuple((one, None) for one in matters)
        return tuple((one, next_at(one.since, one.reached_min, self._ladder)) for one in matters)

    def waiting_at(self, lane: tuple[str, str]) -> str | None:
        """Return the id of the notice of what a track waits for."""
        return self._by_lane.get(lane)

    def since(self, notice: str) -> datetime:
        """Return since when a matter waits."""
        return self._matters[notice].since

    async def settle(self, notices: Iterable[str]) -> None:
        """Forget matters. Raises StoreError; then they are checked again."""
        over = tuple(notices)
        if not over:
            return
        try:
            await self._box.settle(over)
        except StoreError:
            for matter in filter(None, map(self._matters.get, over)):
                self._arm(matter)
            raise
        for notice in over:
            self._forget(notice)

    async def run(self) -> None:
        """Tell people again, until cancelled."""
        while True:
            self._news = anyio.Event()
            try:
                await self.settle(await self._look())
            except StoreError as error:
                log.warning("reminders wait for the journal", error=error.message)
                await anyio.sleep(self._retry_s)
                continue
            with anyio.move_on_after(self._pause_s()):
                await self._news.wait()

    def _pause_s(self) -> float:
        if not self._heap:
            return float("inf")  # nothing waits, perhaps for days
        ahead_s = (self._heap[0][0] - self._clock.now()).total_seconds()
        return min(max(ahead_s, 0.0), LOOK_S)

    async def _look(self) -> list[str]:
        """Send due reminders; return the notices of matters that turned out to be settled."""
        over: list[str] = []
        now = self._clock.now()
        self._follow(now)
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._armed.get(entry[2]) != entry[0]:
                continue
            del self._armed[entry[2]]
            matter = self._matters.get(entry[2])
            try:
                if matter is not None and not await self._tell(matter, now):
                    over.append(matter.notice)
            except StoreError:
                for notice in (*over, entry[2]):  # they were neither forgotten nor sent
                    if still := self._matters.get(notice):
                        self._arm(still)
                raise
        return over

    def _follow(self, now: datetime) -> None:
        """Reschedule if the clock was put back: scheduled times may be years ahead."""
        if now + _STEP < self._seen:
            matters = [replace(one, since=min(one.since, now)) for one in self._matters.values()]
            self._matters = {one.notice: one for one in matters}
            self.configure(self._ladder, mute=self._mute)
        self._seen = now

    async def _tell(self, matter: Matter, now: datetime) -> bool:
        """Send a reminder if a rung of a matter is reached; return whether it still waits."""
        found = due(matter.since, now, matter.reached_min, self._ladder)
        if found is None:
            return True
        notice = await self._box.outlook(matter.notice)
        if self._matters.get(matter.notice) is not matter:
            return True  # settled meanwhile, or in the heap anew
        if notice is None:
            return False
        if self._mute:
            self._arm_at(matter, now + _MUTE)
            return True
        self._remind(notice, matter, found)
        self._matters[matter.notice] = climbed = replace(matter, reached_min=found.reached_min)
        self._arm(climbed)
        return True

    def _arm(self, matter: Matter) -> None:
        if matter.notice in self._unseen:
            return
        upcoming = next_at(matter.since, matter.reached_min, self._ladder)
        if upcoming is not None and self._armed.get(matter.notice) != upcoming:
            self._arm_at(matter, upcoming)

    def _arm_at(self, matter: Matter, moment: datetime) -> None:
        self._armed[matter.notice] = moment
        heapq.heappush(self._heap, (moment, next(self._order), matter.notice))
        self._news.set()

    def _forget(self, notice: str | None) -> None:
        matter = None if notice is None else self._matters.pop(notice, None)
        if matter is None:
            return
        self._armed.pop(matter.notice, None)
        self._unseen.discard(matter.notice)
        if self._by_lane.get(matter.lane) == notice:
            del self._by_lane[matter.lane]
        if len(self._heap) > 2 * len(self._matters) + _MOST_OVER:  # else each would stay until it were due
            self._heap = [entry for entry in self._heap if entry[2] in self._matters]
            heapq.heapify(self._heap)


def reminders_of(notice: Notice, matter: Matter, found: Due, now: datetime) -> tuple[Notice, Notice]:
    """Return the reminder and the escalation of a matter. The same rung has the same ids."""
    words = f"{notice.text} (it has waited for {span(now - matter.since)})"
    reminder = replace(
        notice,
        id=f"reminder-{found.reached_min:g}-{notice.id}",
        at=now,
        kind="reminder",
        text=words,
        of=notice.id,
    )
    return reminder, replace(reminder, id=f"escalation-{found.reached_min:g}-{notice.id}", kind="escalation")


def span(length: timedelta) -> str:
    """Return a length in words: 45 min, 2 h, 3 days."""
    minutes = int(length.total_seconds() // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else counted(hours // 24, "day")
