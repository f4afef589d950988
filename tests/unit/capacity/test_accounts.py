"""Which accounts must not be asked, who waits for them, and who tries first when the time has come."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.house import NOW, dispatch_of, track_of

from handoffd.capacity.accounts import Accounts
from handoffd.engine.events import Event, ExecutorExited, SpawnRefused
from handoffd.engine.limits import WORKS_AFTER
from handoffd.engine.run import End, Exit
from handoffd.engine.track import Limit, Phase, Track, TrackKey
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

A, B, C = (TrackKey(f"/srv/{name}") for name in "abc")
HOUR = timedelta(hours=1)
LATER = NOW + HOUR


def limited(until: datetime = LATER, account: str = "claude", **more: object) -> Track:
    """Return a track that met an account's limit."""
    limit = Limit(account=account, executor="claude", kind="limit", since=NOW, until=until, why="no more")
    return track_of().with_ledger(limited=(replace(limit, **more),))  # type: ignore[arg-type]


def runs(track: Track, account: str = "claude", phase: Phase = Phase.STARTING) -> Track:
    """Return the track while a dispatch of it uses an account."""
    dispatch = dispatch_of(phase=phase, account=account)
    return track.with_state(status=Status.RUNNING).with_ledger(dispatch=dispatch)


def ends(end: End | None = End.CLEAN, **more: Any) -> ExecutorExited:
    """Return the end of an executor that left nothing."""
    return ExecutorExited(dispatch="d1", exit=Exit(code=1, end=end, **more), reading=Absent())


class Lines:
    """Accounts, and the tracks that were woken, in order."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.woken: list[TrackKey] = []

    def asks(self, key: TrackKey, now: datetime, account: str = "claude") -> bool:
        """Ask for a track."""
        return self.accounts.ask(key, account, lambda: self.woken.append(key), now)

    def taken(self) -> list[TrackKey]:
        """Return who was woken since the last look."""
        found, self.woken = self.woken, []
        return found


@pytest.fixture
def lines() -> Lines:
    """Accounts of which claude is limited, as A knows."""
    made = Lines()
    made.accounts.learn(A, limited(), NOW)
    return made


def test_an_account_that_nobody_met_a_limit_of_is_free() -> None:
    """For as many as want it."""
    lines = Lines()
    assert all(lines.asks(key, NOW) for key in (A, B, C))
    assert () == lines.accounts.views(LATER)


def test_everybody_waits_for_a_limited_account_and_nobody_for_another(lines: Lines) -> None:
    """Whoever met the limit."""
    assert [False, False, True] == [lines.asks(A, NOW), lines.asks(B, NOW), lines.asks(C, NOW, "codex")]
    assert [True, True, False] == [lines.accounts.waits(key) for key in (A, B, C)]
    lines.accounts.look(LATER - timedelta(seconds=1))
    assert [] == lines.taken()


def test_when_the_time_has_come_one_tries_and_the_others_wait_for_it(lines: Lines) -> None:
    """It is the one that met the limit: it knows how often in a row that was."""
    lines.asks(B, NOW)
    lines.asks(A, NOW)
    lines.accounts.look(LATER)
    assert [A] == lines.taken()
    assert lines.asks(A, LATER)
    assert not lines.asks(B, LATER)
    lines.accounts.look(LATER)
    assert [] == lines.taken()
    wait = lines.accounts.wait_of(B, LATER)
    assert wait is not None
    assert "claude's usage limit: /srv/a tries whether it is over" == wait.words(LATER)


def test_who_tries_may_ask_as_often_as_it_likes(lines: Lines) -> None:
    """It may have to wait for a slot in between."""
    assert [True, True] == [lines.asks(A, LATER), lines.asks(A, LATER)]


def test_after_a_minute_of_work_everybody_is_let_in(lines: Lines) -> None:
    """Counted from when its process runs, not from when it was decided on."""
    lines.asks(A, LATER)
    lines.asks(B, LATER)
    lines.asks(C, LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.look(LATER + HOUR)
    assert [] == lines.taken()
    lines.accounts.learn(A, runs(limited(), phase=Phase.EXECUTING), LATER + HOUR)
    lines.accounts.look(LATER + HOUR + WORKS_AFTER)
    assert [B, C] == lines.taken()
    assert lines.asks(B, LATER + HOUR + WORKS_AFTER)


def test_a_clean_end_lets_everybody_in(lines: Lines) -> None:
    """Sooner than after a minute."""
    lines.asks(A, LATER)
    lines.asks(B, LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.learn(A, track_of(), LATER, ends())
    assert [B] == lines.taken()
    assert () == lines.accounts.views(LATER)


@pytest.mark.parametrize(
    "event",
    [
        ends(End.LOGGED_OUT, seconds=2),
        ends(End.BAD_CALL),
        ends(None, by="stop"),
        SpawnRefused(dispatch="d1", error="no room"),
    ],
)
def test_an_end_that_tells_nothing_of_the_account_lets_only_the_next_one_try(
    lines: Lines, event: Event
) -> None:
    """Its executor was not logged in, did not take its arguments, was ended by us or never began."""
    for key in (B, A, C):
        lines.asks(key, LATER)
    lines.accounts.learn(B, runs(track_of()), LATER)
    lines.accounts.learn(B, track_of(), LATER, event)
    lines.accounts.look(LATER)
    assert [A] == lines.taken()
    assert [True, False] == [lines.asks(A, LATER), lines.asks(C, LATER)]


def test_a_hand_off_that_is_checked_has_shown_that_the_account_works(lines: Lines) -> None:
    """Also while its checks last; and a run that ended in whatever way after a minute has."""
    for key in (A, B):
        lines.asks(key, LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.learn(A, runs(limited(), phase=Phase.CHECKING), LATER, ends(End.FAILED, seconds=61))
    assert [B] == lines.taken()


def test_a_limit_that_is_met_again_is_waited_for_again(lines: Lines) -> None:
    """By all of them."""
    lines.asks(A, LATER)
    lines.asks(B, LATER)
    lines.accounts.learn(A, runs(limited()), LATER)
    lines.accounts.learn(A, limited(LATER + HOUR), LATER)
    assert ([], False) == (lines.taken(), lines.asks(A, LATER))


def test_what_was_over_when_the_account_worked_says_nothing_any_more(lines: Lines) -> None:
    """B tried; that A's ledger still holds what A met limits nobody."""
    lines.asks(B, LATER)
    lines.accounts.learn(B, runs(track_of()), LATER)
    lines.accounts.learn(B, track_of(), LATER, ends())
    lines.accounts.learn(A, limited(), LATER)
    assert [True, True] == [lines.asks(A, LATER), lines.asks(C, LATER)]


def test_who_does_not_try_after_all_lets_the_next_one(lines: Lines) -> None:
    """It was paused, or wants another account by now."""
    lines.asks(B, NOW)
    lines.asks(A, LATER)
    lines.asks(A, LATER, "codex")
    assert [B] == lines.taken()
    assert lines.asks(B, LATER)
    lines.accounts.leave(B)
    assert lines.asks(C, LATER)


def test_who_is_woken_and_does_not_ask_keeps_nobody_waiting(lines: Lines) -> None:
    """It met the limit, and has come to its budget meanwhile; so the next look wakes the next one."""
    for key in (A, B, C):
        lines.asks(key, NOW)
    for _ in range(4):
        lines.accounts.look(LATER)
    assert [A, B, C] == lines.taken()
    assert [False] * 3 == [lines.accounts.waits(key) for key in (A, B, C)]


def test_who_is_in_line_always_waits_for_something(lines: Lines) -> None:
    """Also between the end of the limit and the look that wakes it."""
    lines.asks(A, NOW)
    wait = lines.accounts.wait_of(A, LATER)
    assert wait is not None
    assert "claude's usage limit: its turn to try" == wait.words(LATER)
    lines.accounts.learn(A, track_of(), LATER)
    assert lines.accounts.wait_of(A, LATER) is not None
    assert None is lines.accounts.wait_of(B, LATER)


def test_who_leaves_its_line_is_woken_no_more(lines: Lines) -> None:
    """Nor is it counted."""
    lines.asks(B, NOW)
    lines.accounts.leave(B)
    lines.accounts.look(LATER)
    assert ([], False) == (lines.taken(), lines.accounts.waits(B))


def test_asking_again_keeps_the_place_in_line(lines: Lines) -> None:
    """First come, first served."""
    other = Lines()
    other.accounts.learn(A, limited(), NOW)
    for key in (B, C, B):
        other.asks(key, NOW)
    other.accounts.look(LATER)
    assert [B] == other.taken()


def test_the_longest_of_several_limits_counts(lines: Lines) -> None:
    """Two tracks met it; only one was told for how long."""
    lines.accounts.learn(B, limited(LATER + HOUR), NOW)
    assert not lines.asks(C, LATER)
    wait = lines.accounts.wait_of(C, LATER)
    assert wait is not None
    assert LATER + HOUR == wait.until


def test_a_clock_that_was_far_ahead_hides_no_limit() -> None:
    """The account worked "next year"; what it answers after the clock was put right counts."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(year + HOUR), year)
    lines.accounts.lift("claude", year)
    lines.accounts.learn(A, track_of(), year)
    lines.accounts.learn(A, limited(), NOW)
    assert not lines.asks(B, NOW)


def test_a_limit_met_while_the_clock_was_far_ahead_is_tried_at_once() -> None:
    """Nobody waits for a year; one tries, as after any limit."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(year), year)
    assert [True, False] == [lines.asks(B, NOW), lines.asks(C, NOW)]
    assert [NOW] == [view.until for view in lines.accounts.views(NOW)]
    lines.accounts.learn(B, limited(LATER), NOW)
    wait = lines.accounts.wait_for("claude", C, NOW)
    assert wait is not None
    assert LATER == wait.until


def test_a_trial_that_began_before_the_clock_was_put_back_is_a_minute_long() -> None:
    """Not a year."""
    lines = Lines()
    year = NOW + timedelta(days=365)
    lines.accounts.learn(A, limited(NOW), NOW)
    lines.asks(A, NOW)
    lines.accounts.learn(A, runs(limited(NOW), phase=Phase.EXECUTING), year)
    lines.asks(B, NOW)
    lines.accounts.look(NOW)
    lines.accounts.look(NOW + WORKS_AFTER)
    assert [B] == lines.taken()


def test_what_a_dead_track_met_long_ago_is_not_taken_up_by_a_new_daemon() -> None:
    """Its ledger keeps it for ever."""
    lines = Lines()
    lines.accounts.learn(A, limited(), LATER + HOUR + timedelta(seconds=1))
    assert [True, True] == [lines.asks(key, LATER + 2 * HOUR) for key in (B, C)]
    assert () == lines.accounts.views(LATER + 2 * HOUR)


def test_nobody_is_shown_a_limit_that_is_long_over_and_that_nobody_waits_for(lines: Lines) -> None:
    """But one that is tried is, however long that has to wait for a slot; and the others wait for it."""
    assert 1 == len(lines.accounts.views(LATER + HOUR))
    much_later = LATER + 2 * HOUR
    assert () == lines.accounts.views(much_later)
    lines.asks(A, much_later)
    lines.accounts.learn(A, limited(), much_later)
    assert not lines.asks(B, much_later)
    assert 1 == len(lines.accounts.views(much_later))


def test_a_person_lets_everybody_in(lines: Lines) -> None:
    """Also those that wait for another account, as they may want this one rather."""
    lines.accounts.learn(B, limited(account="codex"), NOW)
    lines.asks(B, NOW, "codex")
    lines.asks(C, NOW)
    lines.accounts.lift("claude", NOW)
    assert [C, B] == lines.taken()
    assert [True, False] == [lines.asks(A, NOW), lines.asks(B, NOW, "codex")]


def test_a_limit_that_was_lifted_is_believed_no_more_until_it_is_met_again(lines: Lines) -> None:
    """Also while the ledger of a track that met it still says so, as its project cannot be written."""
    lines.accounts.lift("claude", NOW)
    lines.accounts.learn(A, limited(), NOW)
    assert lines.asks(B, NOW)
    lines.accounts.learn(A, limited(LATER + HOUR, answers=2), NOW)
    assert not lines.asks(B, NOW)


def test_people_see_what_is_limited(lines: Lines) -> None:
    """With who met it, for how long, who tries and how many wait."""
    lines.asks(B, NOW)
    [view] = lines.accounts.views(NOW)
    assert ("claude", "limit", NOW, LATER, "no more", ("claude",), None, 1) == (
        view.account, view.kind, view.since, view.until, view.why, view.executors, view.tried_by, view.waiting
    )  # fmt: skip
    lines.asks(C, LATER)
    assert "/srv/c" == lines.accounts.views(LATER)[0].tried_by
    assert ((A,), ()) == (lines.accounts.tracks("claude"), lines.accounts.tracks("codex"))


def test_a_refusal_holds_back_only_the_track_that_met_it() -> None:
    """One project's wrong setting stops no other; when the time has come, the track tries again."""
    lines = Lines()
    lines.accounts.learn(A, limited(kind="refusal"), NOW)
    assert [False, True, True] == [lines.asks(A, NOW), lines.asks(B, NOW), lines.asks(C, NOW)]
    wait = lines.accounts.wait_of(A, NOW)
    assert wait is not None
    assert "claude's refusing provider, until" in wait.words(NOW)
    lines.accounts.look(LATER)
    assert [A] == lines.taken()
    assert lines.asks(A, LATER)


def test_refusals_are_listed_beside_the_limit_of_their_account_and_lifted_with_it(lines: Lines) -> None:
    """One row for all that are refused, as each kind is counted."""
    for key in (B, C):
        lines.accounts.learn(key, limited(LATER + HOUR, kind="refusal"), NOW)
        lines.asks(key, NOW)
    assert [("limit", 0), ("refusal", 2)] == [(one.kind, one.waiting) for one in lines.accounts.views(NOW)]
    assert {A, B, C} == set(lines.accounts.tracks("claude"))
    lines.accounts.lift("claude", NOW)
    assert ({B, C}, ()) == (set(lines.taken()), lines.accounts.views(NOW))
    assert all(lines.asks(key, NOW) for key in (A, B, C))


def test_who_is_refused_waits_for_the_limit_of_the_account_as_well(lines: Lines) -> None:
    """Whichever is over last."""
    lines.accounts.learn(B, limited(NOW + HOUR / 2, kind="refusal"), NOW)
    assert not lines.asks(B, NOW)
    lines.accounts.look(NOW + HOUR / 2)
    assert [] == lines.taken()
    assert not lines.asks(B, NOW + HOUR / 2)
