"""A usage limit is a schedule: what it costs (nothing), how long it lasts, and its notices."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.playbook import T0, Playbook, dispatched, found, handoff, track_at

from handoffd.engine.events import Aborted, DeadlinePassed, LimitLifted, Retried, Started
from handoffd.engine.limits import LONGEST
from handoffd.engine.run import End
from handoffd.engine.track import Limit, Standby, Track
from handoffd.protocol.state import Status

WORDS = "Claude usage limit reached"


def on_account(account: str | None = "claude", step: str = "bdd", **fields: Any) -> Track:
    """Return a track that runs on an account."""
    track = dispatched(step, **fields)
    assert track.ledger.dispatch is not None
    return track.with_ledger(dispatch=replace(track.ledger.dispatch, executor="claude", account=account))


def limited(play: Playbook, end: End = End.LIMIT, *, retry_at: datetime | None = None) -> Playbook:
    """Have the executor end with a limit, at once."""
    return play.exits(code=1, tail=WORDS, end=end, retry_at=retry_at, after_min=0)


def again(play: Playbook, end: End = End.LIMIT, *, retry_at: datetime | None = None) -> Limit:
    """Have the track try again when it is due, and meet the limit again."""
    play.now = play.ledger.limited[0].until
    return limited(play.turn(executor="claude", account="claude"), end, retry_at=retry_at).ledger.limited[0]


@pytest.mark.parametrize(("late", "since"), [(timedelta(minutes=20), T0), (timedelta(hours=7), None)])
def test_a_limit_lasts_since_it_was_met(late: timedelta, since: datetime | None) -> None:
    """Not since a daemon learned about it; a whole night without a daemon is unknown."""
    play = Playbook(track_at("bdd")).turn(executor="claude", account="claude").runs()
    play.now += late
    play.exits(code=1, end=End.LIMIT, at=T0, line="", after_min=0)
    limit = play.ledger.limited[0]
    assert (since or play.now, T0) == (limit.since, play.state.completed_at)
    assert limit.until > play.now


def waits(play: Playbook) -> timedelta:
    """Return how long the track waits."""
    return play.ledger.limited[0].until - play.now


# --- what it costs --------------------------------------------------------------------------------
@pytest.mark.parametrize("end", [End.LIMIT, End.OVERLOAD])
def test_a_limit_costs_no_attempt_and_no_repetition(end: End) -> None:
    """The error of the last failure stays for the next prompt."""
    play = limited(Playbook(on_account(attempt=2, last_error="two tests fail")), end)
    play.expect(status=Status.PENDING, attempt=2, last_error="two tests fail")
    assert (None, 0, {}) == (play.ledger.dispatch, play.ledger.free_repeats, play.ledger.facts.attempts)
    play.turn(executor="claude", account="claude").expect(status=Status.RUNNING, attempt=2)


def test_a_limit_never_asks_for_a_person() -> None:
    """However often it is met."""
    play = limited(Playbook(on_account()))
    for _ in range(50):
        again(play)
    play.expect(status=Status.PENDING, attempt=1)
    assert 51 == play.ledger.limited[0].answers


def test_waiting_is_not_counted_as_the_attempts_time() -> None:
    """The dispatch is over: what comes after hours of waiting has all of timeout_min before it."""
    play = limited(Playbook(on_account()), retry_at=T0 + timedelta(hours=5))
    play.given(DeadlinePassed(dispatch="d1", elapsed_min=300), after_min=300).expect(status=Status.PENDING)
    play.turn(executor="claude", account="claude").expect(status=Status.RUNNING, dispatched_at=play.now)


def test_a_hand_off_counts_whatever_the_account_said_last() -> None:
    """The work is done; the account is known to be limited all the same, by the time that it named."""
    play, until = Playbook(on_account("claude", "contract")), T0 + timedelta(hours=2)
    play.exits(found(handoff(Status.PASS)), end=End.LIMIT, retry_at=until, tail=WORDS)
    play.expect(status=Status.PASS)
    [limit] = play.ledger.limited
    assert ("claude", until, 1, WORDS) == (limit.account, limit.until, limit.answers, limit.why)
    again = limited(Playbook(on_account(step="contract"))).turn(executor="claude", account="claude")
    again.exits(found(handoff(Status.PASS)), end=End.LIMIT)
    assert [2] == [limit.answers for limit in again.ledger.limited], "the pauses do not begin anew"


def test_an_abort_goes_before_a_limit() -> None:
    """An aborted story waits for no account."""
    play = limited(Playbook(on_account()).given(Aborted(by="mei")))
    play.expect(status=Status.NEEDS_HUMAN)
    assert play.ledger.closed


# --- how long -------------------------------------------------------------------------------------
def test_what_the_agent_says_is_when_it_is_tried_again() -> None:
    """The journal keeps who, since when, and the agent's words."""
    until = T0 + timedelta(hours=2)
    play = limited(Playbook(on_account("work")), retry_at=until)
    expected = Limit(
        account="work", executor="claude", kind="limit", since=T0, until=until, why=WORDS, told=True
    )
    assert (expected,) == play.ledger.limited


@pytest.mark.parametrize(
    ("told", "waited"),
    [
        (timedelta(seconds=12), timedelta(seconds=30)),
        (timedelta(days=-1), timedelta(seconds=30)),
        (timedelta(days=400), LONGEST),
    ],
)
def test_what_the_agent_says_is_believed_within_reason(told: timedelta, waited: timedelta) -> None:
    """A time that is past, or in a year, is a mistake."""
    assert waited == waits(limited(Playbook(on_account()), retry_at=T0 + told))


def test_a_time_that_proves_too_early_again_and_again_is_held_against_longer_pauses() -> None:
    """Else it would be tried every half minute for ever."""
    play = limited(Playbook(on_account()), retry_at=T0)
    pauses = [again(play, retry_at=T0).until - play.now for _ in range(6)]
    assert [60, 120, 240, 480, 900, 900] == [pause.total_seconds() for pause in pauses]


@pytest.mark.parametrize(
    ("end", "minutes"), [(End.LIMIT, [5, 10, 20, 40, 60, 60]), (End.OVERLOAD, [0.5, 1, 2, 4, 8, 15, 15])]
)
def test_without_a_time_it_is_tried_ever_more_rarely(end: End, minutes: list[float]) -> None:
    """Up to a longest pause."""
    play = limited(Playbook(on_account()), end)
    pauses = [waits(play)]
    for _ in minutes[1:]:
        again(play, end)
        pauses.append(waits(play))
    assert minutes == [pause.total_seconds() / 60 for pause in pauses]


def test_an_account_of_an_older_release_is_known_by_its_executor() -> None:
    """Its dispatch did not say more."""
    assert "claude" == limited(Playbook(on_account(None))).ledger.limited[0].account


# --- when it is over ------------------------------------------------------------------------------
def test_after_a_minute_of_work_the_limit_is_over_whatever_the_executor_ends_with() -> None:
    """The next one begins with the shortest pause again; another account's is not touched."""
    other = Limit(account="codex", executor="codex", kind="limit", since=T0, until=T0)
    play = limited(Playbook(on_account().with_ledger(limited=(other,))))
    play.turn(executor="claude", account="claude").exits(code=1)
    assert (other,) == play.ledger.limited


@pytest.mark.parametrize(
    ("exit_fields", "over"),
    [
        ({"end": End.LOGGED_OUT, "after_min": 0.9}, False),
        ({"end": End.BAD_CALL, "after_min": 0.9}, False),
        ({"end": End.FAILED, "after_min": 0.9}, False),
        ({"end": None, "by": "lost"}, False),
        ({"end": End.CLEAN, "after_min": 0}, True),
    ],
)
def test_only_a_clean_end_within_a_minute_shows_that_the_limit_is_over(
    exit_fields: dict[str, Any], over: bool
) -> None:
    """Another one may never have asked the account; how a lost one ended is unknown."""
    play = limited(Playbook(on_account())).turn(executor="claude", account="claude")
    assert over == (() == play.exits(code=1, **exit_fields).ledger.limited)


def test_an_account_stays_limited_for_the_next_story() -> None:
    """A limit is not the story's."""
    play = limited(Playbook(on_account()))
    play.given(Started(story="US-2", force=True))
    assert "US-2" == play.state.story
    assert ["claude"] == [limit.account for limit in play.ledger.limited]


def test_a_person_may_end_the_wait() -> None:
    """Then the track goes on at its next turn; only a limit that is there can be lifted."""
    play = limited(Playbook(on_account())).given(LimitLifted(account="claude", by="mei"))
    play.expect(status=Status.PENDING, result="accepted")
    assert ((), None) == (play.ledger.limited, play.ledger.told)
    play.refused(LimitLifted(account="claude"), "NOT_LIMITED")


# --- notices --------------------------------------------------------------------------------------
def test_a_wait_has_one_notice_and_a_second_one_when_it_lasts() -> None:
    """By a warning that names the time and the agent's words."""
    play = limited(Playbook(on_account()), retry_at=T0 + timedelta(hours=2))
    [notice] = play.notices
    assert ("warning", WORDS, "handoffd status {project}") == (notice.notice, notice.why, notice.action)
    assert "bdd of US-1 waits for claude's usage limit, until Sun 01 Feb 00:00 UTC (in 2 h)" == notice.text
    later = []
    for _ in range(40):
        again(play)
        later += [notice.text for notice in play.notices]
    (text,) = later
    assert text.startswith("claude's usage limit has lasted for 1 d, and goes on until ")


def test_an_overload_that_is_soon_over_has_no_notice() -> None:
    """Only of one that lasts for a quarter of an hour."""
    play = limited(Playbook(on_account()), End.OVERLOAD)
    assert () == play.notices
    counts = []
    for _ in range(8):
        again(play, End.OVERLOAD)
        counts.append(len(play.notices))
    assert [0, 0, 0, 0, 1, 0, 0, 0] == counts


def test_a_track_shows_the_wait_that_it_is_in() -> None:
    """Also while no daemon runs."""
    play = limited(Playbook(on_account()))
    assert "claude's usage limit, until 22:05 UTC (in 5 min)" == play.ledger.told
    assert ["limits.limit"] == [ground.rule for ground in play.decision.grounds]


def test_when_another_executor_takes_over_at_once_nothing_waits() -> None:
    """The notice says who works now, and when the other one is back."""
    play, back_at = Playbook(dispatched("impl", attempt=2)), T0 + timedelta(hours=2)
    play.exits(code=1, end=End.LIMIT, tail="limit", retry_at=back_at, standby=Standby(instead="codex"))
    play.expect(status=Status.PENDING, attempt=2, orders="notify")
    (notice,) = play.notices
    assert "codex takes over impl of" in notice.text
    assert "rehearsal is back" in notice.text
    assert "waits" not in notice.text
    assert play.ledger.told is None


# --- refusals -------------------------------------------------------------------------------------
FORBIDDEN = "API Error: 403 the zebra is not amused"


def refused(play: Playbook, standby: Standby | None = None) -> Playbook:
    """Have the provider refuse before any work, at once."""
    words: dict[str, Any] = {"tail": FORBIDDEN, "line": FORBIDDEN, "stream_error": True}
    return play.exits(code=1, end=End.REFUSED, standby=standby, after_min=0, **words)


def refused_again(play: Playbook, standby: Standby | None = None) -> Playbook:
    """Have the track try again when it is due, and be refused again."""
    play.now = play.ledger.limited[0].until
    return refused(play.turn(executor="claude", account="claude"), standby)


def test_refusals_cost_no_attempt_and_the_pauses_between_them_grow() -> None:
    """The second one has a notice, with the provider's words and what to look at."""
    play = refused(Playbook(on_account(attempt=2)))
    pauses, notices = [waits(play)], [len(play.notices)]
    for _ in range(6):
        pauses.append(waits(refused_again(play)))
        notices.append(len(play.notices))
        play.expect(status=Status.PENDING, attempt=2)
    assert [0.5, 2, 10, 30, 60, 60, 60] == [pause / timedelta(minutes=1) for pause in pauses]
    assert [0, 1, 0, 0, 0, 0, 0] == notices
    assert ("claude's refusing provider" in str(play.ledger.told), 0) == (True, play.ledger.free_repeats)


def test_the_notice_of_a_refusal_names_the_error_and_a_command() -> None:
    """The setting at fault may be the reader's own."""
    (notice,) = refused_again(refused(Playbook(on_account()))).notices
    assert ("warning", FORBIDDEN) == (notice.notice, notice.why)
    assert "handoffd executors check claude" == notice.action
    assert "waits for claude's refusing provider, until" in notice.text


def test_after_six_hours_of_refusals_a_person_is_asked_and_they_are_counted_anew() -> None:
    """The attempt is still unspent; a retry begins with the shortest pause."""
    play = refused(Playbook(on_account()))
    while play.track.state is not None and play.state.status is Status.PENDING:
        assert play.now - T0 < timedelta(hours=6)
        refused_again(play)
    play.expect(status=Status.NEEDS_HUMAN, attempt=1)
    (notice,) = play.notices
    assert "claude's provider has refused bdd of " in notice.text
    assert FORBIDDEN in (notice.why or "")
    assert ((), {}) == (play.ledger.limited, play.ledger.facts.attempts)
    play.given(Retried()).turn(executor="claude", account="claude")
    assert timedelta(seconds=30) == waits(refused(play))


def test_at_a_refusal_the_next_executor_takes_over_and_the_second_has_a_notice() -> None:
    """However long it goes on: with another one at work no person is needed."""
    next_one = Standby(instead="codex")
    play = refused(Playbook(on_account()), next_one)
    play.expect(status=Status.PENDING, attempt=1)
    assert ((), None) == (play.notices, play.ledger.told)
    (notice,) = refused_again(play, next_one).notices
    assert "codex takes over bdd of" in notice.text
    for _ in range(9):
        refused_again(play, next_one).expect(status=Status.PENDING, attempt=1)
        assert () == play.notices


def test_when_all_that_are_named_refuse_a_person_is_asked_as_well() -> None:
    """Two that only wait for each other would wait for ever; one at its usage limit is waited for."""
    until = T0 + timedelta(hours=9)
    for kind, status in (("refusal", Status.NEEDS_HUMAN), ("limit", Status.PENDING)):
        other = Limit(account="codex", executor="codex", kind=kind, since=T0, until=until)  # type: ignore[arg-type]
        play = Playbook(on_account().with_ledger(limited=(other,)))
        before = replace(other, account="claude", executor="claude", kind="refusal", answers=7)
        play.track = play.track.with_ledger(limited=(replace(before, until=T0 + timedelta(hours=5)), other))
        play.now = T0 + timedelta(hours=5, minutes=59)
        play.exits(code=1, end=End.REFUSED, seconds=0.0, standby=Standby(instead="codex", until=until))
        play.expect(status=status, attempt=1)


@pytest.mark.parametrize("end", [End.CLEAN, End.FAILED, End.CRASH])
def test_an_end_of_another_kind_ends_the_row_of_refusals(end: End) -> None:
    """A limit that is known stays through it."""
    play = refused(Playbook(on_account(attempt=1)))
    play.turn(executor="claude", account="claude").exits(code=1, end=end, after_min=0)
    assert () == play.ledger.limited


def test_refusals_are_counted_apart_from_limits_and_anew_after_a_long_time() -> None:
    """What was refused last week says nothing of now."""
    play = limited(Playbook(on_account()))
    assert ("refusal", 1) == (refused_again(play).ledger.limited[0].kind, play.ledger.limited[0].answers)
    assert ("limit", 1) == (again(play).kind, play.ledger.limited[0].answers)
    play = refused_again(refused(Playbook(on_account())))
    play.now = play.ledger.limited[0].until + timedelta(hours=6)
    refused(play.turn(executor="claude", account="claude"))
    assert (1, play.now) == (play.ledger.limited[0].answers, play.ledger.limited[0].since)


@given(st.lists(st.integers(0, 90), min_size=1, max_size=30))
def test_refusals_alone_never_spend_an_attempt_and_end_with_a_person(minutes: list[int]) -> None:
    """Whenever it is tried again."""
    play = refused(Playbook(on_account()))
    for late in minutes:
        since, before = play.ledger.limited[0].since, play.ledger.limited[0].until
        play.now = before + timedelta(minutes=late)
        refused(play.turn(executor="claude", account="claude"))
        hopeless = play.now - since >= timedelta(hours=6)
        play.expect(status=Status.NEEDS_HUMAN if hopeless else Status.PENDING, attempt=1)
        if hopeless:
            return
        assert timedelta(seconds=30) <= waits(play) <= timedelta(hours=1)
