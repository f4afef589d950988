"""Which accounts must not be asked now, which tracks wait for one, and how a person lifts a limit.

Derived: the ledgers of the tracks that met a limit record it, so a restart forgets nothing. A track that
wants an account while it is limited queues for it. When
the time has come, one track tries; the others go on waiting until that has worked for a minute, or
has ended well, without meeting the limit again. When it ends otherwise, the next one tries.

A provider's refusal concerns only the track that met it: one project's wrong setting stops no other.

`Accounts` reads no clock and does not wait: `now` is given, and `look` is called every few seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import anyio
from msgspec import Struct

from handoffd.engine.events import Event, ExecutorExited, LimitLifted
from handoffd.engine.limits import LONGEST, WORKS_AFTER, account_of, let_in, named
from handoffd.engine.run import Moment
from handoffd.engine.track import Dispatch, Limit, LimitKind, Phase, Track, TrackKey
from handoffd.engine.wording import until_words
from handoffd.errors import HandoffdError, NotFound


class AccountView(Struct, frozen=True, kw_only=True):
    """An account that answered with a limit and is not known to have worked since."""

    account: str
    kind: LimitKind
    since: Moment
    until: Moment
    """When it is asked again; past, once the next attempt that wants it may."""
    why: str
    """What the agent said last."""
    executors: tuple[str, ...]
    """The executors that met the limit."""
    tried_by: str | None
    """The root of the project that tries whether it is over, while one does."""
    waiting: int
    """How many tracks wait for it."""


class Lifted(Struct, frozen=True, kw_only=True):
    """The result of lifting a limit: tracks no longer wait for it."""

    projects: tuple[str, ...]
    """The roots of the projects that had met the limit; each history records the lifting."""
    problems: tuple[str, ...] = ()
    """Why it could not be recorded in others, `/srv/shop: ...` each. A new daemon waits for them again."""


STALE_AFTER: Final = timedelta(hours=1)
"""A limit that ended this long before a daemon started says nothing about the account now."""

Wake = Callable[[], None]
Record = Callable[[TrackKey, LimitLifted], Awaitable[None]]
"""Writes into the history of a track that a person lifted a limit which it had met."""


class Quota(NamedTuple):
    """What is asked: an account, or, after a refusal, an account for the one track that it refused."""

    account: str
    refused: TrackKey | None = None


class Wait(NamedTuple):
    """Why an account cannot be asked now. `tried_by` is the track that tries whether the limit is over."""

    account: str
    kind: LimitKind
    until: datetime
    tried_by: TrackKey | None

    def words(self, now: datetime) -> str:
        """Return what a track waits for, by the clock of this machine."""
        limit = named(self.account, self.kind)
        if self.tried_by is not None:
            return f"{limit}: {self.tried_by.project} tries whether it is over"
        if self.until <= now:
            return f"{limit}: its turn to try"
        return f"{limit}, {until_words(self.until.astimezone(), now)}"


class _Trial(Struct):
    """The one dispatch that may try an account again."""

    key: TrackKey
    dispatched: bool = False
    began: datetime | None = None


class Accounts:
    """Every account that answered with a limit and is not known to have worked since."""

    def __init__(self) -> None:
        self._met: dict[Quota, dict[TrackKey, Limit]] = {}
        self._worked: dict[Quota, datetime] = {}
        """When an account was last known to work: limits that were over by then say nothing any more."""
        self._lifted: dict[tuple[Quota, TrackKey], Limit] = {}
        """The limits that a person lifted: they are ignored, also in a ledger that could not be updated."""
        self._let_in: dict[str, datetime] = {}
        """When the latest run began that an account let work, in whatever project."""
        self._trials: dict[Quota, _Trial] = {}
        self._lines: dict[Quota, dict[TrackKey, Wake]] = {}
        self._places: dict[TrackKey, Quota] = {}
        """The account that each waiting track queues for."""

    # --- what is known ---------------------------------------------------------------------------
    def learn(self, key: TrackKey, track: Track, now: datetime, event: Event | None = None) -> None:
        """Update from a track's state: at the start, and after each decision on one of its events."""
        mine = {_quota_of(key, limit): limit for limit in track.ledger.limited}
        for quota in [known for known, met in self._met.items() if key in met and known not in mine]:
            self._forget(quota, key)
        for quota, limit in mine.items():
            if self._says_something(quota, key, limit, now):
                self._met.setdefault(quota, {})[key] = limit
        for quota in [known for known, trial in self._trials.items() if trial.key == key]:
            self._follow_trial(quota, track, now, event)

    def _says_something(self, quota: Quota, key: TrackKey, limit: Limit, now: datetime) -> bool:
        """Return whether a limit in a ledger is news, or was believed before."""
        if self._worked.get(quota, now) > now:
            del self._worked[quota]  # the clock was wrong then
        worked = self._worked.get(quota)
        if worked is not None and limit.until <= worked:
            return False
        if self._lifted.get((quota, key)) == limit:
            return False
        return not _is_stale(limit, now) or key in self._met.get(quota, {})

    def _forget(self, quota: Quota, key: TrackKey) -> None:
        del self._met[quota][key]
        if not self._met[quota]:
            del self._met[quota]

    def _follow_trial(self, quota: Quota, track: Track, now: datetime, event: Event | None) -> None:
        trial, dispatch = self._trials[quota], track.ledger.dispatch
        asks = dispatch is not None and account_of(dispatch) == quota.account
        runs = asks and dispatch is not None and dispatch.phase is not Phase.CHECKING
        if runs:
            trial.dispatched = True
            if dispatch is not None and dispatch.phase is Phase.EXECUTING and trial.began is None:
                trial.began = now
        elif trial.dispatched:
            del self._trials[quota]
            if isinstance(event, ExecutorExited) and let_in(event) and not self._is_limited(quota, now):
                self._works(quota, now)

    def _is_limited(self, quota: Quota, now: datetime) -> bool:
        return any(_holds(limit, now) for limit in self._met.get(quota, {}).values())

    def _works(self, quota: Quota, now: datetime) -> None:
        """Admit all tracks that queue for the account."""
        self._met.pop(quota, None)
        self._trials.pop(quota, None)
        self._worked[quota] = now
        self._wake_all(quota)

    def heard(self, dispatch: Dispatch, event: ExecutorExited) -> None:
        """Take in how a run has ended."""
        if let_in(event):
            account = account_of(dispatch)
            self._let_in[account] = max(self._let_in.get(account, dispatch.decided_at), dispatch.decided_at)

    def worked_since(self, account: str) -> datetime | None:
        """Return when the latest run began that an account is known to have let work; None: none is known."""
        return self._let_in.get(account)

    def wait_for(self, account: str, key: TrackKey, now: datetime) -> Wait | None:
        """Return why a track must not ask an account now; None when it may."""
        return max(self._waits(account, key, now).values(), key=_end_of, default=None)

    def _waits(self, account: str, key: TrackKey, now: datetime) -> dict[Quota, Wait]:
        found = {quota: self._wait(quota, key, now) for quota in _asked(account, key)}
        return {quota: wait for quota, wait in found.items() if wait is not None}

    def _wait(self, quota: Quota, key: TrackKey, now: datetime) -> Wait | None:
        met = self._met.get(quota)
        if not met:
            return None
        latest, trial = _latest(met.values(), now), self._trials.get(quota)
        if _holds(latest, now):
            return Wait(quota.account, latest.kind, latest.until, None)
        if trial is not None and trial.key != key:
            return Wait(quota.account, latest.kind, min(latest.until, now), trial.key)
        return None

    # --- the lines -------------------------------------------------------------------------------
    def ask(self, key: TrackKey, account: str, wake: Wake, now: datetime) -> bool:
        """Return whether a track may use an account now; if not, it is queued and `wake` is called later.

        The first one after a limit is over tries alone; it gives that back by `leave`, or by its dispatch.
        """
        self.leave(key, but=account)
        waits = self._waits(account, key, now)
        longest = max(waits, key=lambda quota: _end_of(waits[quota]), default=None)
        if self._places.get(key) != longest:
            self._step_out(key)
        if longest is not None:
            self._lines.setdefault(longest, {})[key] = wake
            self._places[key] = longest
            return False
        for quota in _asked(account, key):
            if quota in self._met:
                self._trials.setdefault(quota, _Trial(key))
        return True

    def leave(self, key: TrackKey, but: str | None = None) -> None:
        """Take a track out of its queue; if it was chosen to try the account, another one tries.

        What it has with the account `but` stays.
        """
        place = self._places.get(key)
        if place is not None and place.account != but:
            self._step_out(key)
        for quota, trial in list(self._trials.items()):
            if trial.key == key and quota.account != but and not trial.dispatched:
                del self._trials[quota]
                self._wake_one(quota)

    def _step_out(self, key: TrackKey) -> None:
        quota = self._places.pop(key, None)
        if quota is not None:
            del self._lines[quota][key]
            if not self._lines[quota]:
                del self._lines[quota]

    def waits(self, key: TrackKey) -> bool:
        """Return whether a track is queued."""
        return key in self._places

    def wait_of(self, key: TrackKey, now: datetime) -> Wait | None:
        """Return what a queued track waits for."""
        quota = self._places.get(key)
        if quota is None:
            return None
        kinds = [limit.kind for limit in self._met.get(quota, {}).values()]
        kind = kinds[0] if kinds else "limit"
        return self._wait(quota, key, now) or Wait(quota.account, kind, now, None)

    def look(self, now: datetime) -> None:
        """Wake tracks whose account may be tried again."""
        for quota, trial in list(self._trials.items()):
            if trial.began is not None and trial.began > now:
                trial.began = now  # the clock was set back
            if trial.began is not None and now - trial.began >= WORKS_AFTER:
                self._works(quota, now)
        for quota in list(self._lines):
            if quota not in self._met:
                self._wake_all(quota)
            elif not self._is_limited(quota, now) and quota not in self._trials:
                self._wake_one(quota)

    def _wake_one(self, quota: Quota) -> None:
        """Let the first in line try: one that met the limit itself, as it knows how often that was.

        It leaves the queue, so that others need not wait for it if it does not try after all.
        """
        line = self._lines.get(quota)
        if line:
            met = self._met.get(quota, {})
            first = next((key for key in line if key in met), next(iter(line)))
            wake = line[first]
            self._step_out(first)
            wake()

    def _wake_all(self, quota: Quota) -> None:
        for key, wake in self._lines.pop(quota, {}).items():
            del self._places[key]
            wake()

    # --- for people ------------------------------------------------------------------------------
    def tracks(self, account: str) -> tuple[TrackKey, ...]:
        """Return the tracks that met an account's limit; none: it is not limited."""
        return tuple(key for quota in self._limits_of(account) for key in self._met[quota])

    def _limits_of(self, account: str) -> tuple[Quota, ...]:
        return tuple(quota for quota in self._met if quota.account == account)

    def lift(self, account: str, now: datetime) -> None:
        """Let all tracks use an account now, and let tracks that wait for other accounts choose again.

        The limit in the ledgers does not count any more, until a track meets it again.
        """
        for quota in self._limits_of(account):
            self._lifted.update({(quota, key): limit for key, limit in self._met[quota].items()})
            self._works(quota, now)
        for other in list(self._lines):
            self._wake_all(other)

    def views(self, now: datetime) -> tuple[AccountView, ...]:
        """Return every limited account, by name; not one long over that no track waits for.

        Refusals are kept apart: each track waits for its own.
        """
        found: dict[tuple[str, bool], list[Quota]] = {}
        for quota in self._met:
            if self._matters(quota, now):
                found.setdefault((quota.account, quota.refused is not None), []).append(quota)
        return tuple(self._view(found[which], now) for which in sorted(found))

    def _matters(self, quota: Quota, now: datetime) -> bool:
        wanted = quota in self._trials or quota in self._lines
        return wanted or not all(_is_stale(limit, now) for limit in self._met[quota].values())

    def _view(self, quotas: Sequence[Quota], now: datetime) -> AccountView:
        met = [limit for quota in quotas for limit in self._met[quota].values()]
        trials = [self._trials[quota].key.project for quota in quotas if quota in self._trials]
        latest = _latest(met, now)
        return AccountView(
            account=quotas[0].account,
            kind=latest.kind,
            since=min(limit.since for limit in met),
            until=latest.until if _holds(latest, now) else min(latest.until, now),
            why=latest.why,
            executors=tuple(sorted({limit.executor for limit in met})),
            tried_by=trials[0] if trials else None,
            waiting=sum(len(self._lines.get(quota, ())) for quota in quotas),
        )


async def lift(
    accounts: Accounts, account: str, by: str, now: datetime, record: Record, *, daemon: bool
) -> Lifted:
    """Lift a limit for a person, have `record` tell the tracks that had met it; return their projects.

    Raises NotFound when it is not limited, HandoffdError when it is only on record, because no `daemon`
    runs, and that can be changed nowhere.
    """
    keys = accounts.tracks(account)
    if not keys:
        known = ", ".join(view.account for view in accounts.views(now)) or "none"
        raise NotFound(f"{account[:80]!r} is not limited (limited: {known})", hint="handoffd limits")
    accounts.lift(account, now)
    failed: dict[str, HandoffdError] = {}
    event = LimitLifted(account=account, by=by)

    async def tell(key: TrackKey) -> None:
        try:
            await record(key, event)
        except HandoffdError as error:
            failed[key.project] = error

    async with anyio.create_task_group() as tasks:  # a track that does not answer delays no other
        for key in keys:
            tasks.start_soon(tell, key)
    recorded = tuple(sorted({key.project for key in keys} - failed.keys()))
    if failed and not recorded and not daemon:
        raise next(iter(failed.values()))
    problems = tuple(f"{root}: {error.message}" for root, error in sorted(failed.items()))
    return Lifted(projects=recorded, problems=problems)


def _end_of(wait: Wait) -> datetime:
    return wait.until


def _quota_of(key: TrackKey, limit: Limit) -> Quota:
    return Quota(limit.account, key if limit.kind == "refusal" else None)


def _asked(account: str, key: TrackKey) -> tuple[Quota, ...]:
    return Quota(account), Quota(account, key)


def _holds(limit: Limit, now: datetime) -> bool:
    """Return whether a limit is not over; one that lasts for too long was met by a clock that was wrong."""
    return now < limit.until <= now + LONGEST


def _is_stale(limit: Limit, now: datetime) -> bool:
    return now - limit.until > STALE_AFTER


def _latest(limits: Collection[Limit], now: datetime) -> Limit:
    """Return the limit that ends last; if all have ended, the one that ended last."""
    return max(limits, key=lambda limit: (_holds(limit, now), limit.until))
