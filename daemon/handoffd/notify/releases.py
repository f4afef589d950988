"""What is held back, and the digests that take its place when the time has come.

The box has what is held back, and folds it in one transaction: a crash before leaves it held, a
crash after leaves the digest waiting for its sink. So there is one digest, and never none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import anyio
import structlog

from handoffd.clock import Clock
from handoffd.errors import StoreError
from handoffd.notify.box import Box, Held
from handoffd.notify.digest import Cover, folded
from handoffd.notify.hours import Reason, is_stale, release_at
from handoffd.notify.notice import Notice
from handoffd.notify.reminders import LOOK_S
from handoffd.settings_notify import NotifySettings, SinkSettings

log = structlog.get_logger(__name__)

MOST_READ: Final = 200
"""Notices of a digest whose texts are read; it lists fewer."""

ASKING: Final = frozenset({"needs_human", "timeout", "blocked", "reminder", "escalation"})
"""The kinds of notices of a track that ask somebody to decide."""

Key = tuple[str, Reason]


class Releases:
    """Sinks and why they are not told yet. `released` hears of a sink that has a digest to get."""

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
        """Go on by other settings."""
        self._settings, self._sinks = settings, sinks
        self._due = {}
        self._news.set()

    def add(self, held: Iterable[Held]) -> None:
        """Take what is recorded as held back."""
        for one in held:
            self._since.setdefault((one.sink, one.reason), one.since)
            self._news.set()

    def upcoming(self) -> Mapping[Key, datetime]:
        """Return when each sink is told of what is held back for each reason."""
        now = self._clock.now()
        return {key: self._moment(key, now) for key in self._since if key[0] in self._sinks}

    async def run(self) -> None:
        """Release what is due, until cancelled."""
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
        """Release what is due; return after how many seconds to look again."""
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
        """Return a notice without what to type if what it tells of waits no more.

        Hours may have passed: the same command would decide on something else now.
        """
        if notice.kind not in ASKING or not notice.track:
            return notice
        if await self._box.outlook(notice.of or notice.id) is not None:
            return notice
        return replace(notice, text=f"{notice.text} (that is over by now)", action=None)
