"""Sends each notice to the sinks it is for, and lets none of them hold up anything else.

Other code only hands a notice in. It is recorded first, for each sink apart, and then each sink's own worker
sends it: at least once, under an id that stays the same. So a webhook that hangs delays neither the command
nor the daemon, and a crash loses nothing.

A notice that a sink must not get yet (quiet hours, digests, bursts) is recorded as held back; `digests`
folds these into one when it is due. `reminders` repeats notices that still wait for the user.
"""

from __future__ import annotations

import math
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice

import anyio
import structlog
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.notice import Held, Lane, Matter, Notice, Opening, Parcel, Reason, sign_of
from handoffd.errors import StoreError
from handoffd.notify.digests import Releases, quiet_until
from handoffd.notify.ports import Box, Sink
from handoffd.notify.reminders import Due, Reminders, reminders_of
from handoffd.notify.retry_policy import Pauses
from handoffd.notify.sink_workers import GivenUp, Lines, Terms
from handoffd.notify.sinks import sink_of, try_sinks
from handoffd.settings.notify import GROUP, BurstSettings, NotifySettings, RouteSettings, SinkSettings

log = structlog.get_logger(__name__)


_BATCH = 200
"""How many notices are recorded at once."""

WAITING = frozenset({"needs_human", "timeout", "blocked"})
"""The kinds of notices that wait for the user, if they come from a decision or a check."""


class Notifier:
    """Accepts notices at any time; records and delivers them while `run` runs.

    `place` is what notices about several projects name as their project, `group_of` says to which group of
    projects a root belongs.
    """

    def __init__(
        self,
        settings: NotifySettings,
        clock: Clock,
        box: Box,
        *,
        environ: Mapping[str, str] = os.environ,
        sinks: Sequence[Sink] | None = None,
        terms: Terms | None = None,
        place: str = "/",
        group_of: GroupOf = lambda _: None,
    ) -> None:
        self._clock = clock
        self._box = box
        self._environ = environ
        self._place = place
        self._group_of = group_of
        self._given = None if sinks is None else {sink.name: sink for sink in sinks}
        self._given_terms = terms
        self._intake = Intake()
        self._filled = anyio.Event()
        self._recorded = anyio.Event()
        self._recorded.set()
        self._ahead_s = -clock.monotonic()
        self._bursts = Bursts()
        self._lines = Lines(box, clock, self._lived_s)
        retry_s = self._terms(settings).box_retry_s
        self._releases = Releases(box, clock, self._lived_s, self._lines.hint, place=place, retry_s=retry_s)
        self._reminders = Reminders(box, clock, settings.remind, self._remind, retry_s)
        self._settings = settings
        self._gone = False
        """Whether notices for a sink that was removed from the settings are still to be dropped."""
        self._apply()

    # --- settings --------------------------------------------------------------------------------
    def configure(self, settings: NotifySettings, group_of: GroupOf | None = None) -> None:
        """Apply new settings, and new groups if given; unchanged sinks continue."""
        names = self._lines.names
        self._settings, self._group_of = settings, group_of or self._group_of
        self._apply()
        if not set(names) <= set(self._lines.names):
            self._gone = True
            self._filled.set()

    def _apply(self) -> None:
        self._lines.configure(self._wanted(), self._made, self._terms(self._settings))
        self._releases.configure(self._settings, self._lines.sinks)
        self._reminders.configure(self._settings.remind, mute=not self._lines.names)

    def _wanted(self) -> Mapping[str, SinkSettings]:
        if self._given is None:
            return self._settings.in_use()
        return dict.fromkeys(self._given, SinkSettings(command=("given",), burst=False))

    def _made(self, name: str, settings: SinkSettings) -> Sink:
        return sink_of(name, settings, self._environ) if self._given is None else self._given[name]

    def _terms(self, settings: NotifySettings) -> Terms:
        return self._given_terms or terms_of(settings)

    # --- what comes in ---------------------------------------------------------------------------
    def send(
        self, notice: Notice, order: int | None = None, *, waits: bool = False, topic: str | None = None
    ) -> None:
        """Take a notice in; never blocks, never raises.

        `order` is the number of the order it comes from: recording the notice completes the order; after a
        crash before that the order is given again. `waits`: it waits for the user until `settle`; for one
        of an order this follows from its kind, and its track settles it. `topic`: what is settled then, where
        that is not the notice's track.
        """
        waits = waits or (order is not None and notice.kind in WAITING)
        lane = (notice.project, notice.track if topic is None else topic)
        self._send(notice, order, Opening(lane=lane) if waits else None)

    def stand(self, notice: Notice, topic: str) -> None:
        """Take in a lasting matter of a project, until `settle(project, topic)`; never blocks or raises.

        `topic` begins with LASTING. It is sent once, however many lives of the daemon find it, and repeated
        if its kind waits for the user. Two notices are the same matter if `sign_of` their ids is equal.
        """
        reached_min = 0.0 if notice.kind in WAITING else math.inf
        self._send(notice, None, Opening(lane=(notice.project, topic), reached_min=reached_min))

    def _send(self, notice: Notice, order: int | None, opens: Opening | None) -> None:
        sinks = self._sinks_for(notice)
        if order is not None or sinks or opens is not None:
            held = self._held(notice, sinks)
            self._take(Parcel(notice=notice, sinks=sinks, order=order, held=held, opens=opens))

    def settle(self, project: str, track: str = "") -> None:
        """Take note that nothing waits for a person there any more; never blocks, never raises."""
        lane = (project, track)

        def waits() -> bool:
            known = self._lines.opened.is_set()  # until then an earlier life may have left matters
            return not known or self._reminders.waiting_at(lane) is not None

        if self._intake.put_over(lane, waits):
            self._fill()

    def _sinks_for(self, notice: Notice) -> tuple[str, ...]:
        return sinks_for(notice, self._settings, self._lines.names, self._group_of)

    def _take(self, parcel: Parcel) -> None:
        self._intake.put(parcel)
        self._fill()

    def _fill(self) -> None:
        if self._recorded.is_set():  # otherwise a task may wait for this very event
            self._recorded = anyio.Event()
        self._filled.set()

    def _held(self, notice: Notice, sinks: Sequence[str]) -> dict[str, Reason]:
        """Return the reason for each sink that must not get a notice yet."""
        now = self._clock.now()
        found = {name: self._why_held(notice, name, now) for name in sinks}
        return {name: reason for name, reason in found.items() if reason is not None}

    def _why_held(self, notice: Notice, name: str, now: datetime) -> Reason | None:
        settings, sink = self._settings, self._lines.sinks[name]
        digest, quiet = settings.digest, settings.quiet
        if sink.digest and digest is not None and notice.kind in digest.kinds:
            return "digest"
        urgent = quiet is not None and notice.kind in quiet.urgent
        if sink.quiet and not urgent and quiet_until(quiet, now) is not None:
            return "quiet"
        now_s = self._clock.monotonic()
        if sink.folds and not self._bursts.admit(name, notice.kind, now_s, settings.burst):
            return "burst"
        return None

    def _remind(self, notice: Notice, matter: Matter, found: Due) -> None:
        """Send a reminder. The last of its notices records how far the ladder is climbed."""
        reminder, escalation = reminders_of(notice, matter, found, self._clock.now())
        told = self._sinks_for(reminder) if found.remind else ()
        first = tuple(name for name in told if name not in found.escalate_to)
        then = tuple(name for name in found.escalate_to if name in self._lines.names)
        climbed = (matter.notice, found.reached_min)
        if first and then:
            self._take(Parcel(notice=reminder, sinks=first, held=self._held(reminder, first)))
        last, sinks = (escalation, then) if then else (reminder, first)
        self._take(Parcel(notice=last, sinks=sinks, held=self._held(last, sinks), climbed=climbed))

    # --- what is known ---------------------------------------------------------------------------
    def next_tries(self) -> dict[str, float]:
        """Return in how many seconds each sink that rests is tried again."""
        now_s = self._clock.monotonic()
        return {
            line.sink.name: max(0.0, line.next_s - now_s) for line in self._lines if line.next_s is not None
        }

    def releases(self) -> dict[tuple[str, str], datetime]:
        """Return when each sink gets held-back notices, by sink and reason."""
        return {(sink, reason): moment for (sink, reason), moment in self._releases.upcoming().items()}

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return when each waiting notice is repeated, by its id."""
        return {matter.notice: again for matter, again in self._reminders.upcoming()}

    def stands_since(self, project: str, topic: str, sign: str) -> datetime | None:
        """Return since when a matter lasts, if a notice about it was sent; None otherwise."""
        told = self._reminders.waiting_at((project, topic))
        return None if told is None or sign_of(told) != sign else self._reminders.since(told)

    async def try_sinks(self, only: str | None) -> tuple[tuple[str, str, str | None, float], ...]:
        """Tell a sample by one sink, or by all: name, form, why it failed, and seconds of each."""
        trials = await try_sinks(self._settings, self._environ, self._clock, only=only, place=self._place)
        return tuple((one.sink, one.form, one.why, one.seconds) for one in trials)

    # --- life ------------------------------------------------------------------------------------
    async def run(self, given_up: Callable[[GivenUp], None] = lambda _: None) -> None:
        """Record and deliver until cancelled; calls `given_up` for each notice that cannot be delivered."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._lines.run, given_up, name="notify")
            await self._open()
            self._lines.opened.set()
            group.start_soon(self._releases.run, name="notify in digests")
            group.start_soon(self._reminders.run, name="notify again")
            await self._record()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all is recorded and nothing is due; return whether that was reached within the limit.

        `run` must be running meanwhile. What rests after a failure is not waited for.
        """
        with anyio.move_on_after(timeout_s) as limit:
            await self._recorded.wait()
            for line in self._lines:
                await line.idle.wait()
        return not limit.cancelled_caught

    async def finish(self, timeout_s: float) -> bool:
        """Begin no new delivery, wait for the ones under way; return whether they ended within the limit.

        One that is cut short may have told people, and is sent again by the next daemon.
        """
        with anyio.move_on_after(timeout_s) as limit:
            await self._lines.finish()
        return not limit.cancelled_caught

    def _lived_s(self) -> float:
        """Return how long daemons have lived on this journal, as far as it knows."""
        return self._ahead_s + self._clock.monotonic()

    async def _open(self) -> None:
        """Take over what an earlier life left."""
        while True:
            try:
                lived_s = await self._drop_others()
                held, matters = await self._box.held(), await self._box.matters()
            except StoreError as error:
                log.warning("notices cannot be looked up, trying again", error=error.message)
                self._tell_from_memory()
                await anyio.sleep(self._terms(self._settings).box_retry_s)
                continue
            self._ahead_s = lived_s - self._clock.monotonic()
            self._releases.add(held)
            self._reminders.add(matters, inherited=True)
            return

    async def _drop_others(self) -> float:
        """Drop notices for sinks that no longer exist; return the clock of the journal."""
        opened = await self._box.open(self._lines.names)
        for sink, count in opened.dropped.items():
            log.warning("notices dropped, their sink is not in the settings", sink=sink, count=count)
        return opened.lived_s

    async def _record(self) -> None:
        """Record what is handed in, in its order, until cancelled."""
        while True:
            while self._intake or self._gone:
                try:
                    await self._record_some()
                except StoreError as error:
                    count = len(self._intake)
                    log.warning("notices not recorded, trying again", count=count, error=error.message)
                    self._tell_from_memory()
                    await anyio.sleep(self._terms(self._settings).box_retry_s)
            self._recorded.set()
            self._filled = anyio.Event()
            await self._filled.wait()  # without a limit: there may be nothing to tell for days

    async def _record_some(self) -> None:
        if self._gone:
            self._gone = False  # first: another one may be taken out meanwhile
            try:
                await self._drop_others()
            except StoreError:
                self._gone = True
                raise
        lanes = self._intake.overs()
        if lanes:
            await self._reminders.settle(filter(None, map(self._reminders.waiting_at, lanes)))
            self._intake.take(len(lanes))
            return
        batch = self._intake.parcels(_BATCH)
        news = self._news_in(batch)
        if news:
            self._reminders.add(await self._box.keep(news, self._lived_s()))
            self._releases.add(_held_in(news))
            self._lines.hint()
        self._intake.take(len(batch))

    def _news_in(self, batch: Sequence[Parcel]) -> list[Parcel]:
        """Leave out lasting matters that were sent before; notices of orders are always kept."""
        news: list[Parcel] = []
        latest: dict[Lane, str | None] = {}
        for parcel in batch:
            if parcel.opens is not None:
                lane = parcel.opens.lane
                told = latest.get(lane, self._reminders.waiting_at(lane))
                if parcel.order is None and told and sign_of(told) == sign_of(parcel.notice.id):
                    self._reminders.confirm(lane)
                    continue
                latest[lane] = parcel.notice.id
            news.append(parcel)
        return news

    def _tell_from_memory(self) -> None:
        """Send unrecorded notices at once if no order repeats them; others come again after a restart."""
        for parcel in self._intake.take_those_of_no_order():
            for unkept in filter(None, map(self._lines.unkept, parcel.sinks)):
                unkept.put(parcel.notice)


def terms_of(settings: NotifySettings) -> Terms:
    """Return how sinks are tried according to the settings."""
    longest_s = max(settings.backoff_s, settings.backoff_max_s)
    pauses = Pauses(first_s=settings.backoff_s, longest_s=longest_s)
    return Terms(pauses=pauses, give_up_s=settings.give_up_h * 3600, jitter=random.random)


def _held_in(parcels: Sequence[Parcel]) -> list[Held]:
    return [
        Held(sink=sink, reason=reason, count=1, since=parcel.notice.at)
        for parcel in parcels
        for sink, reason in parcel.held.items()
    ]


# --- what was handed in and is not recorded yet, in its order ----------------------------------------
class Over(Struct, frozen=True):
    """Nothing waits for a person any more in a lane."""

    lane: Lane


class Intake:
    """A queue of notices and settled lanes. Settling a lane several times adds one entry."""

    def __init__(self) -> None:
        self._queue: deque[Parcel | Over] = deque()
        self._latest: dict[Lane, bool] = {}
        """For each lane whether something waits in it, by what was put in last."""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, parcel: Parcel) -> None:
        """Take a notice in."""
        self._queue.append(parcel)
        if parcel.opens is not None:
            self._latest[parcel.opens.lane] = True

    def put_over(self, lane: Lane, waits: Callable[[], bool]) -> bool:
        """Take in that a lane is over; return whether that may be news.

        `waits` tells whether something waits in it by what was taken out before.
        """
        latest = self._latest.get(lane)
        if latest is False or (latest is None and not waits()):
            return False
        self._queue.append(Over(lane))
        self._latest[lane] = False
        return True

    def parcels(self, most: int) -> list[Parcel]:
        """Return the first notices; none when a lane that is over comes before."""
        found = []
        for one in islice(self._queue, most):
            if not isinstance(one, Parcel):
                break
            found.append(one)
        return found

    def overs(self) -> list[Lane]:
        """Return the first lanes that are over; none when a notice comes before."""
        found = []
        for one in self._queue:
            if not isinstance(one, Over):
                break
            found.append(one.lane)
        return found

    def take(self, count: int) -> None:
        """Take the first out: they are recorded."""
        for _ in range(count):
            self._queue.popleft()
        if not self._queue:
            self._latest.clear()

    def take_those_of_no_order(self) -> list[Parcel]:
        """Take out the notices that do not come from an order, so that no order repeats them."""
        taken = [one for one in self._queue if isinstance(one, Parcel) and one.order is None]
        self._queue = deque(one for one in self._queue if isinstance(one, Over) or one.order is not None)
        return taken


# --- bursts ------------------------------------------------------------------------------------------
class Bursts:
    """How many notices of one kind a sink was given lately; what goes beyond that is folded into one.

    Counts by sink and kind. Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._lately: dict[tuple[str, str], deque[float]] = {}

    def admit(self, sink: str, kind: str, now_s: float, settings: BurstSettings) -> bool:
        """Return whether one more notice may be sent singly; count it if so."""
        lately = self._lately.setdefault((sink, kind), deque())
        while lately and now_s - lately[0] >= settings.within_s:
            lately.popleft()
        if len(lately) >= settings.most:
            return False
        lately.append(now_s)
        return True


# --- routes: the first that fits decides, as in the rules of a firewall ------------------------------
GroupOf = Callable[[str], str | None]
"""Returns the group of the project at a root."""


def sinks_for(
    notice: Notice, settings: NotifySettings, sinks: Iterable[str], group_of: GroupOf
) -> tuple[str, ...]:
    """Return the sinks of a notice; without a matching route, all sinks."""
    if notice.kind not in settings.events:
        return ()
    return _routed(notice, settings.routes, sinks, group_of)


def _routed(
    notice: Notice, routes: Sequence[RouteSettings], sinks: Iterable[str], group_of: GroupOf
) -> tuple[str, ...]:
    route = next((route for route in routes if _fits(route, notice, group_of)), None)
    return tuple(sinks) if route is None else tuple(name for name in sinks if name in route.to)


def _fits(route: RouteSettings, notice: Notice, group_of: GroupOf) -> bool:
    if route.kinds is not None and notice.kind not in route.kinds:
        return False
    if route.projects is None:
        return True
    return any(_means(pattern, notice, group_of) for pattern in route.projects)


def _means(pattern: str, notice: Notice, group_of: GroupOf) -> bool:
    if pattern.startswith(GROUP):
        return group_of(notice.project) == pattern.removeprefix(GROUP)
    return any(fnmatchcase(name, pattern) for name in (notice.name, notice.project))
