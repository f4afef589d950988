"""Held notices (quiet hours, digests, bursts), and the digests that replace them when they are due.

The box has the held notices, and replaces them in one transaction: after a crash before it they are still
held, after a crash behind it the digest is queued for its sink. So there is one digest, and never none.

A time of the day is the local time of its zone, also on days when summer time begins or ends; lengths are
true ones, between two instants.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, get_args
from zoneinfo import ZoneInfo

import anyio
import structlog
from msgspec import Struct
from msgspec.structs import replace

from handoffd.clock import Clock
from handoffd.engine.notice import ITEM, Held, Notice, Reason, and_more, cut
from handoffd.engine.wording import counted
from handoffd.errors import StoreError
from handoffd.notify.ports import Box
from handoffd.notify.reminders import LOOK_S
from handoffd.settings.notify import (
    DigestSettings,
    NotifySettings,
    QuietSettings,
    ReportSettings,
    SinkSettings,
)

log = structlog.get_logger(__name__)


MOST_READ: Final = 200
"""Notices of a digest whose texts are read; it lists fewer."""

ASKING: Final = frozenset({"needs_human", "timeout", "blocked", "reminder", "escalation"})
"""The kinds of notices of a track that ask the user to decide."""

Key = tuple[str, Reason]


class Releases:
    """When each sink gets its held-back notices. Calls `released` for a sink with a digest due."""

    def __init__(
        self,
        box: Box,
        clock: Clock,
        lived_s: Callable[[], float],
        released: Callable[[str], None],
        *,
        place: str,
        retry_s: float,
    ) -> None:
        self._box = box
        self._clock = clock
        self._lived_s = lived_s
        self._released = released
        self._place = place
        self._retry_s = retry_s
        self._settings = NotifySettings()
        self._sinks: Mapping[str, SinkSettings] = {}
        self._since: dict[Key, datetime] = {}
        self._due: dict[Key, datetime] = {}
        self._news = anyio.Event()

    def configure(self, settings: NotifySettings, sinks: Mapping[str, SinkSettings]) -> None:
        """Apply new settings."""
        self._settings, self._sinks = settings, sinks
        self._due = {}
        self._news.set()

    def add(self, held: Iterable[Held]) -> None:
        """Take over the recorded held notices, except for reasons that only a later release knows."""
        for one in held:
            if one.reason in get_args(Reason):
                self._since.setdefault((one.sink, one.reason), one.since)
                self._news.set()

    def upcoming(self) -> Mapping[Key, datetime]:
        """Return when each sink gets the notices held back for each reason."""
        now = self._clock.now()
        return {key: self._moment(key, now) for key in self._since if key[0] in self._sinks}

    async def run(self) -> None:
        """Release due notices until cancelled."""
        while True:
            self._news = anyio.Event()
            try:
                pause_s = await self._look()
            except StoreError as error:
                log.warning("digests wait for the journal", error=error.message)
                pause_s = self._retry_s
            with anyio.move_on_after(pause_s):
                await self._news.wait()

    async def _look(self) -> float:
        """Release due notices; return after how many seconds to check again."""
        now = self._clock.now()
        for key in [key for key in self._since if key[0] in self._sinks]:
            if self._moment(key, now) > now:
                continue
            # What was due may have come into quiet hours meanwhile: an earlier daemon held it back.
            again = release_at(key[1], self._sinks[key[0]], self._settings, self._since[key], now)
            if again > now:
                self._due[key] = again
                continue
            await self._release(key, now)
        moments = [self._moment(key, now) for key in self._since if key[0] in self._sinks]
        if not moments:
            return float("inf")  # nothing is held back, perhaps for days
        return min(max((min(moments) - now).total_seconds(), 0.0), LOOK_S)

    def _moment(self, key: Key, now: datetime) -> datetime:
        moment = self._due.get(key)
        if moment is None or is_stale(moment, now, self._settings):
            sink = self._sinks[key[0]]
            self._since[key] = min(self._since[key], now)
            moment = self._due[key] = release_at(key[1], sink, self._settings, self._since[key], now)
        return moment

    async def _release(self, key: Key, now: datetime) -> None:
        # What is held back from here on is added again, and may be in this digest or in the next one.
        since = self._since.pop(key)
        self._due.pop(key, None)
        try:
            await self._fold(*key, now)
        except StoreError:
            self._since[key] = since
            raise

    async def _fold(self, sink: str, reason: Reason, now: datetime) -> None:
        lot = await self._box.lot(sink, reason, MOST_READ)
        if lot is not None and lot.notices:
            # By chance, because the daemons of a team have the same hours, sinks and numbers.
            name = f"{reason}-{sink}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"
            notices = [await self._as_it_stands(notice) for notice in lot.notices]
            digest = folded(notices, lot.count, reason, Cover(id=name, place=self._place, at=now))
            await self._box.fold(sink, reason, lot.upto, digest, self._lived_s())
            log.info("notices told as one", sink=sink, reason=reason, count=lot.count)
            self._released(sink)

    async def _as_it_stands(self, notice: Notice) -> Notice:
        """Return a notice without its command if its track waits no more.

        Hours may have passed: the same command would decide on something else now.
        """
        if notice.kind not in ASKING or not notice.track:
            return notice
        if await self._box.outlook(notice.of or notice.id) is not None:
            return notice
        return replace(notice, text=f"{notice.text} (that is over by now)", action=None)


# --- when: functions of the settings and the time ----------------------------------------------------
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = timedelta(days=1)
_LONGEST_QUIET_DAYS = 8
_SLACK = timedelta(hours=2)
"""By so much a day may be longer than 24 h when clocks are changed, and some."""


def quiet_until(quiet: QuietSettings | None, now: datetime) -> datetime | None:
    """Return when the quiet hours end that are now; None when there are none now."""
    if quiet is None:
        return None
    until = _window_end(quiet, now)
    for _ in range(_LONGEST_QUIET_DAYS):  # one that begins when another ends goes on
        longer = None if until is None else _window_end(quiet, until)
        if longer is None:
            break
        until = longer
    return until


def _window_end(quiet: QuietSettings, now: datetime) -> datetime | None:
    zone = zone_of(quiet.timezone)
    start, end = time.fromisoformat(quiet.start), time.fromisoformat(quiet.end)
    today = now.astimezone(zone).date()
    for day in (today - _DAY, today):
        if quiet.days is not None and _DAYS[day.weekday()] not in quiet.days:
            continue
        last = day if end > start else day + _DAY
        if instant(day, start, zone) <= now < (over := instant(last, end, zone)):
            return over
    return None


def digest_at(digest: DigestSettings, since: datetime) -> datetime:
    """Return when the digest of notices collected since then is due."""
    if digest.every_h is not None:
        return since + timedelta(hours=digest.every_h)
    assert digest.at is not None  # checked with the settings
    zone, at = zone_of(digest.timezone), time.fromisoformat(digest.at)
    day = since.astimezone(zone).date()
    moments = (instant(day + _DAY * ahead, at, zone) for ahead in range(3))
    return next(moment for moment in moments if moment > since)


def release_at(
    reason: Reason, sink: SinkSettings, settings: NotifySettings, since: datetime, now: datetime
) -> datetime:
    """Return when a sink gets notices held back since then; `now` if they are due.

    A `since` that is later than `now` counts as now: the clock was put back. What no setting holds back
    any more is due.
    """
    since = min(since, now)
    moment = now
    if reason == "burst":
        moment = since + timedelta(seconds=settings.burst.within_s)
    elif reason == "digest" and settings.digest is not None and sink.digest:
        moment = digest_at(settings.digest, since)
    if sink.quiet and (until := quiet_until(settings.quiet, max(moment, now))) is not None:
        moment = until
    return max(moment, now)


def report_at(
    settings: ReportSettings, quiet: QuietSettings | None, now: datetime
) -> tuple[datetime, datetime] | None:
    """Return when the latest report was due, and the one before; None: none ever is.

    Without a time of its own it is due when the quiet hours end, or at `MORNING` where there are none.
    """
    if settings.at == "off":
        return None
    hours = quiet if settings.at is None else None
    at = time.fromisoformat(settings.at or (MORNING if hours is None else hours.end))
    zone = zone_of(settings.timezone or (None if hours is None else hours.timezone))
    today = now.astimezone(zone).date()
    moments = (instant(today - _DAY * ago, at, zone) for ago in range(3))
    latest, before, *_ = (moment for moment in moments if moment <= now)
    return latest, before


MORNING: Final = "07:00"


def is_stale(moment: datetime, now: datetime, settings: NotifySettings) -> bool:
    """Return whether a moment is further ahead than any can be: the clock was put back meanwhile."""
    every_h = settings.digest.every_h if settings.digest is not None else None
    longest = timedelta(hours=every_h or 0, days=_LONGEST_QUIET_DAYS) + _SLACK
    return moment - now > longest


def zone_of(name: str | None) -> tzinfo | None:
    """Return a zone by its name; None for the machine's."""
    return None if name is None else ZoneInfo(name)


def instant(day: date, at: time, zone: tzinfo | None) -> datetime:
    """Return when a clock shows `at` on a day, the first time if it does twice."""
    naive = datetime.combine(day, at)
    there = naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    return there.astimezone(UTC)


# --- one notice instead of many: by project, each with its command -----------------------------------
MOST_LISTED = 40
"""Notices that a digest lists; of more, it says how many. A sink with less room for words shows fewer."""
_MOST_NAMED = 3
_MOST_LINE = 220

_WHY: dict[Reason, str] = {
    "quiet": "they came about during the quiet hours (notify.quiet)",
    "digest": "they are collected by your settings (notify.digest)",
    "burst": "more came at once than are sent one by one (notify.burst)",
}


class Cover(Struct, frozen=True, kw_only=True):
    """What is written on a digest: its id, the folder that it names as its project, and when it was made."""

    id: str
    place: str
    at: datetime


def folded(notices: Sequence[Notice], count: int, reason: Reason, cover: Cover) -> Notice:
    """Return the digest of `count` notices, of which these are the first.

    A single one stays what it is. Of several about one and the same matter (a gate, and reminders of it) the
    last is listed.
    """
    assert notices
    if count == 1:
        return replace(notices[0], id=cover.id)
    matters = _last_of_each_matter(notices)
    listed = matters[:MOST_LISTED]
    more = len(matters) - len(listed) + count - len(notices)
    return Notice(
        id=cover.id, at=cover.at, project=cover.place, name="handoffd", story=None, step="", kind="digest",
        text=f"{counted(count, 'notice')}: {_projects(notices, count)}", why=_WHY[reason],
        action="handoffd status", count=count, lines=_lines(listed, more), more=more,
    )  # fmt: skip


def _last_of_each_matter(notices: Sequence[Notice]) -> list[Notice]:
    last = {notice.of or notice.id: notice for notice in notices}
    return [notice for notice in notices if last[notice.of or notice.id] is notice]


def _projects(notices: Sequence[Notice], count: int) -> str:
    """Return the first few projects, with how many notices are about them where that is known."""
    names = [notice.name for notice in notices]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    shown = [f"{name} ({number})" for name, number in counts.items()][:_MOST_NAMED]
    rest = len(counts) > len(shown) or count > len(notices)
    return cut(", ".join(shown), _MOST_LINE) + (" and others" if rest else "")


def _lines(shown: Sequence[Notice], more: int) -> tuple[str, ...]:
    lines: list[str] = []
    for root, name in dict.fromkeys((notice.project, notice.name) for notice in shown):
        lines.append(f"{cut(name, 60)}:")
        lines += [_line(notice) for notice in shown if (notice.project, notice.name) == (root, name)]
    return (*lines, and_more(more)) if more else tuple(lines)


def _line(notice: Notice) -> str:
    about = " ".join(part for part in (notice.story, notice.step) if part)
    told = cut(f"{about}: {notice.text}" if about else notice.text, _MOST_LINE)
    return f"{ITEM}{told} > {notice.action}" if notice.action else f"{ITEM}{told}"
