"""Limited accounts: which tracks wait for them, and which one tries first after the limit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.house import NOW, dispatch_of, track_of

from handoffd.capacity.accounts import Accounts, lift
from handoffd.engine.events import Event, ExecutorExited, LimitLifted, SpawnRefused
from handoffd.engine.limits import WORKS_AFTER
from handoffd.engine.run import End, Exit
from handoffd.engine.track import Limit, Phase, Track, TrackKey
from handoffd.errors import NotFound, StoreError
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

A, B, C = (TrackKey(f"/srv/{name}") for name in "abc")
HOUR = timedelta(hours=1)
LATER = NOW + HOUR


def limited(until: datetime = LATER, account: str = "claude", **more: object) -> Track:
    """Return a track that met an account's limit."""
    limit = Limit(account=account, executor="claude", kind="limit", since=NOW, until=until, why="no more")
    return track_of().with_ledger(limited=(replace(limit, **more),))


def runs(track: Track, account: str = "claude", phase: Phase = Phase.STARTING) -> Track:
    """Return the track while one of its dispatches uses an account."""
    dispatch = dispatch_of(phase=phase, account=account)
    return track.with_state(status=Status.RUNNING).with_ledger(dispatch=dispatch)


def ends(end: End | None = End.CLEAN, **more: Any) -> ExecutorExited:
    """Return the end of an executor that left nothing."""
    return ExecutorExited(dispatch="d1", exit=Exit(code=1, end=end, **more), reading=Absent())


class Lines:
    """Accounts, and the woken tracks, in order."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.woken: list[TrackKey] = []

    def asks(self, key: TrackKey, now: datetime, account: str = "claude") -> bool:
        """Ask for a track."""
        return self.accounts.ask(key, account, lambda: self.woken.append(key), now)

    def ask_all(self, keys: Iterable[TrackKey], now: datetime) -> list[bool]:
        """Ask for several tracks, one after the other."""
        return [self.asks(key, now) for key in keys]

    def taken(self) -> list[TrackKey]:
        """Return the tracks woken since the last call."""
        found, self.woken = self.woken, []
        return found

    def words(self, key: TrackKey, now: datetime) -> str | None:
        """Return what a track waits for."""
        wait = self.accounts.wait_of(key, now)
        return wait.words(now) if wait is not None else None


@pytest.fixture
def lines() -> Lines:
    """Accounts with a limit of claude, which A met."""
    made = Lines()
    made.accounts.learn(A, limited(), NOW)
    return made


def test_all_tracks_wait_for_a_limited_account(lines: Lines) -> None:
    """Whichever met the limit; other accounts are free."""
    assert [False, False, True] == [lines.asks(A, NOW), lines.asks(B, NOW), lines.asks(C, NOW, "codex")]
    assert [True, True, False] == [lines.accounts.waits(key) for key in (A, B, C)]
    lines.accounts.look(LATER - timedelta(seconds=1))
    assert [] == lines.taken()


def test_after_a_limit_one_track_tries(lines: Lines) -> None:
    """The one that met the limit, because it counts how often in a row; the others wait for it."""
    lines.ask_all((B, A), NOW)
    lines.accounts.look(LATER)
    assert [A] == lines.taken()
    # It may have to wait for a slot in between, and ask again.
    assert [True, True, False] == lines.ask_all((A, A, B), LATER)
    lines.accounts.look(LATER)
    assert [] == lines.taken()
    assert "claude's usage limit: /srv/a tries whether it is over" == lines.words(B, LATER)


def test_a_minute_of_work_ends_a_trial(lines: Lines) -> None:
    """Counted from the start of its process, not from the decision."""
    lines.ask_all((A, B, C), LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.look(LATER + HOUR)
    assert [] == lines.taken()
    lines.accounts.learn(A, runs(limited(), phase=Phase.EXECUTING), LATER + HOUR)
    lines.accounts.look(LATER + HOUR + WORKS_AFTER)
    assert [B, C] == lines.taken()
    assert lines.asks(B, LATER + HOUR + WORKS_AFTER)


@pytest.mark.parametrize(
    ("after", "event"),
    [
        pytest.param(track_of(), ends(), id="a clean end"),
        pytest.param(
            runs(limited(), phase=Phase.CHECKING),
            ends(End.FAILED, seconds=61),
            id="any end after a minute of work, with a hand-off under check",
        ),
    ],
)
def test_an_end_may_end_a_trial(lines: Lines, after: Track, event: Event) -> None:
    """Sooner than after a minute."""
    lines.ask_all((A, B), LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.learn(A, after, LATER, event)
    assert ([B], ()) == (lines.taken(), lines.accounts.views(LATER))


@pytest.mark.parametrize(
    "event",
    [
        ends(End.LOGGED_OUT, seconds=2),
        ends(End.BAD_CALL),
        ends(None, by="stop"),
        SpawnRefused(dispatch="d1", error="no room"),
    ],
)
def test_an_inconclusive_end_lets_the_next_track_try(lines: Lines, event: Event) -> None:
    """A login or argument error, a stop by the daemon, or no start at all."""
    lines.ask_all((B, A, C), LATER)
    lines.accounts.learn(B, runs(track_of()), LATER)
    lines.accounts.learn(B, track_of(), LATER, event)
    lines.accounts.look(LATER)
    assert [A] == lines.taken()
    assert [True, False] == [lines.asks(A, LATER), lines.asks(C, LATER)]


def test_a_limit_that_is_met_again_is_waited_for_again(lines: Lines) -> None:
    """By all tracks."""
    lines.ask_all((A, B), LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.learn(A, limited(LATER + HOUR), LATER)
    assert ([], False) == (lines.taken(), lines.asks(A, LATER))


def test_a_limit_from_before_a_success_does_not_count(lines: Lines) -> None:
    """B tried; A's ledger still holds the limit."""
    lines.asks(B, LATER)
    lines.accounts.learn(B, runs(track_of()), LATER)
    lines.accounts.learn(B, track_of(), LATER, ends())
    lines.accounts.learn(A, limited(), LATER)
    assert [True, True] == [lines.asks(A, LATER), lines.asks(C, LATER)]


def test_a_track_that_gives_up_its_trial_passes_it_on(lines: Lines) -> None:
    """It was paused, or wants another account."""
    lines.asks(B, NOW)
    lines.asks(A, LATER)
    lines.asks(A, LATER, "codex")
    assert [B] == lines.taken()
    assert lines.asks(B, LATER)
    lines.accounts.leave(B)
    assert lines.asks(C, LATER)


def test_a_woken_track_that_does_not_ask_blocks_no_other(lines: Lines) -> None:
    """It may have reached its budget meanwhile, so the next look wakes the next one."""
    lines.ask_all((A, B, C), NOW)
    for _ in range(4):
        lines.accounts.look(LATER)
    assert [A, B, C] == lines.taken()
    assert [False] * 3 == [lines.accounts.waits(key) for key in (A, B, C)]


def test_a_queued_track_always_has_a_reason(lines: Lines) -> None:
    """Also between the end of the limit and the look that wakes it."""
    lines.asks(A, NOW)
    assert "claude's usage limit: its turn to try" == lines.words(A, LATER)
    lines.accounts.learn(A, track_of(), LATER)
    assert lines.words(A, LATER) is not None
    assert None is lines.words(B, LATER)


def test_tracks_are_woken_in_the_order_of_their_first_asking(lines: Lines) -> None:
    """But none that has left the queue."""
    lines.ask_all((B, A, C, B), NOW)
    lines.accounts.leave(A)
    for woken in ([B], [C], []):
        lines.accounts.look(LATER)
        assert (woken, False) == (lines.taken(), lines.accounts.waits(A))


def test_the_longest_of_several_limits_counts(lines: Lines) -> None:
    """Two tracks met it, and only one got a time."""
    lines.accounts.learn(B, limited(LATER + HOUR), NOW)
    assert not lines.asks(C, LATER)
    assert [LATER + HOUR] == [view.until for view in lines.accounts.views(LATER)]


def test_a_clock_that_was_far_ahead_hides_no_limit() -> None:
    """A success "next year" does not outweigh an answer after the clock was corrected."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(year + HOUR), year)
    lines.accounts.lift("claude", year)
    lines.accounts.learn(A, track_of(), year)
    lines.accounts.learn(A, limited(), NOW)
    assert not lines.asks(B, NOW)


def test_a_limit_met_while_the_clock_was_far_ahead_is_tried_at_once() -> None:
    """One track tries, as after any limit, instead of waiting for a year."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(year), year)
    assert [True, False] == [lines.asks(B, NOW), lines.asks(C, NOW)]
    assert [NOW] == [view.until for view in lines.accounts.views(NOW)]
    lines.accounts.learn(B, limited(LATER), NOW)
    assert [LATER] == [view.until for view in lines.accounts.views(NOW)]


def test_setting_the_clock_back_does_not_prolong_a_trial() -> None:
    """It lasts a minute."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(NOW), NOW)
    lines.asks(A, NOW)
    lines.accounts.learn(A, runs(limited(NOW), phase=Phase.EXECUTING), year)
    lines.asks(B, NOW)
    lines.accounts.look(NOW)
    lines.accounts.look(NOW + WORKS_AFTER)
    assert [B] == lines.taken()


def test_a_new_daemon_ignores_old_limits() -> None:
    """The ledger of a finished track keeps them."""
    lines = Lines()
    lines.accounts.learn(A, limited(), LATER + HOUR + timedelta(seconds=1))
    assert [True, True] == [lines.asks(key, LATER + 2 * HOUR) for key in (B, C)]
    assert () == lines.accounts.views(LATER + 2 * HOUR)


def test_an_old_limit_without_a_queue_is_not_shown(lines: Lines) -> None:
    """One on trial is, however long the trial waits for a slot."""
    assert 1 == len(lines.accounts.views(LATER + HOUR))
    much_later = LATER + 2 * HOUR
    assert () == lines.accounts.views(much_later)
    lines.asks(A, much_later)
    lines.accounts.learn(A, limited(), much_later)
    assert not lines.asks(B, much_later)
    assert 1 == len(lines.accounts.views(much_later))


def test_a_lift_wakes_all_tracks(lines: Lines) -> None:
    """Also those that wait for another account, as they may prefer this one."""
    lines.accounts.learn(B, limited(account="codex"), NOW)
    lines.asks(B, NOW, "codex")
    lines.asks(C, NOW)
    lines.accounts.lift("claude", NOW)
    assert [C, B] == lines.taken()
    assert [True, False] == [lines.asks(A, NOW), lines.asks(B, NOW, "codex")]


def test_a_lifted_limit_counts_only_if_it_is_met_again(lines: Lines) -> None:
    """Even while the ledger of an unwritable project still has it."""
    lines.accounts.lift("claude", NOW)
    lines.accounts.learn(A, limited(), NOW)
    assert lines.asks(B, NOW)
    lines.accounts.learn(A, limited(LATER + HOUR, answers=2), NOW)
    assert not lines.asks(B, NOW)


def test_a_limit_has_a_view(lines: Lines) -> None:
    """When it was met, until when, the trying track and the queue."""
    lines.asks(B, NOW)
    [view] = lines.accounts.views(NOW)
    assert ("claude", "limit", NOW, LATER, "no more", ("claude",), None, 1) == (
        view.account, view.kind, view.since, view.until, view.why, view.executors, view.tried_by, view.waiting
    )  # fmt: skip
    lines.asks(C, LATER)
    assert "/srv/c" == lines.accounts.views(LATER)[0].tried_by
    assert ((A,), ()) == (lines.accounts.tracks("claude"), lines.accounts.tracks("codex"))


def test_a_refusal_holds_back_only_the_track_that_met_it() -> None:
    """A wrong setting of one project stops no other; after the time the track tries again."""
    lines = Lines()
    lines.accounts.learn(A, limited(kind="refusal"), NOW)
    assert [False, True, True] == lines.ask_all((A, B, C), NOW)
    assert "claude's refusing provider, until" in (lines.words(A, NOW) or "")
    lines.accounts.look(LATER)
    assert ([A], True) == (lines.taken(), lines.asks(A, LATER))


def test_refusals_are_listed_beside_the_limit_of_their_account_and_lifted_with_it(lines: Lines) -> None:
    """One row for all refused tracks."""
    for key in (B, C):
        lines.accounts.learn(key, limited(LATER + HOUR, kind="refusal"), NOW)
        lines.asks(key, NOW)
    assert [("limit", 0), ("refusal", 2)] == [(one.kind, one.waiting) for one in lines.accounts.views(NOW)]
    assert {A, B, C} == set(lines.accounts.tracks("claude"))
    lines.accounts.lift("claude", NOW)
    assert ({B, C}, ()) == (set(lines.taken()), lines.accounts.views(NOW))
    assert all(lines.asks(key, NOW) for key in (A, B, C))


def test_a_refused_track_also_waits_for_the_limit_of_its_account(lines: Lines) -> None:
    """Until both are over."""
    lines.accounts.learn(B, limited(NOW + HOUR / 2, kind="refusal"), NOW)
    assert not lines.asks(B, NOW)
    lines.accounts.look(NOW + HOUR / 2)
    assert [] == lines.taken()
    assert not lines.asks(B, NOW + HOUR / 2)


# --- a limit that a person lifts ------------------------------------------------------------------


class Recorded:
    """Records the lifted tracks; `deaf` ones raise an error."""

    def __init__(self, *deaf: TrackKey) -> None:
        self.told: list[TrackKey] = []
        self._deaf = deaf

    async def __call__(self, key: TrackKey, event: LimitLifted) -> None:
        """Record the lift."""
        assert ("purse", "mei") == (event.account, event.by)
        if key in self._deaf:
            raise StoreError(f"{key.project} cannot be written")
        self.told.append(key)


@pytest.fixture
def two_limited() -> Accounts:
    """Accounts where two tracks met the limit of `purse`."""
    accounts = Accounts()
    for key in (A, B):
        accounts.learn(key, limited(account="purse"), NOW)
    return accounts


@pytest.mark.parametrize(
    ("deaf", "projects", "problems"),
    [
        ((), ("/srv/a", "/srv/b"), ()),
        ((B,), ("/srv/a",), ("/srv/b: /srv/b cannot be written",)),
        ((A, B), (), ("/srv/a: /srv/a cannot be written", "/srv/b: /srv/b cannot be written")),
    ],
    ids=["all", "some", "none"],
)
async def test_a_lift_is_recorded_in_each_track_that_met_the_limit(
    two_limited: Accounts, deaf: tuple[TrackKey, ...], projects: tuple[str, ...], problems: tuple[str, ...]
) -> None:
    """In a daemon it counts even if some cannot record it, which is reported."""
    lifted = await lift(two_limited, "purse", "mei", NOW, Recorded(*deaf), daemon=True)

    assert (projects, problems) == (lifted.projects, lifted.problems)
    assert () == two_limited.views(NOW)


async def test_a_lift_fails_without_a_limit_or_a_record(two_limited: Accounts) -> None:
    """The error lists the limited accounts; without a daemon nothing else would remember the lift."""
    with pytest.raises(NotFound, match="limited: purse"):
        await lift(two_limited, "wallet", "mei", NOW, Recorded(), daemon=True)
    with pytest.raises(StoreError):
        await lift(two_limited, "purse", "mei", NOW, Recorded(A, B), daemon=False)
