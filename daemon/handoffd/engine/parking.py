"""A usage limit is a schedule, not a failure: the attempt waits, unspent, until its account answers again.

When the agent says when its limit is over, that is when it is tried again; else it is tried ever more
rarely, up to a longest pause. The pauses have no chance in them: `decide` is a function, and only one track
of an account tries at a time. A provider's refusal is treated alike, but what it refuses may be wrong: after
some hours of it a person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote
from typing import Final

from handoffd.engine.advice import way_on
from handoffd.engine.decision import Decision, Situation, ground
from handoffd.engine.effects import Notify
from handoffd.engine.ends import POLICIES, End, Standby, Then
from handoffd.engine.events import ExecutorExited, Exit
from handoffd.engine.limits import LIMITS, Limit, LimitKind, limit_of, named, span, until_words, without
from handoffd.engine.requests import LimitLifted
from handoffd.engine.track import Dispatch, Track
from handoffd.engine.wording import accept, ask_human, notice, refuse, said_last
from handoffd.protocol.handoff import Found
from handoffd.protocol.state import Status

PAUSES: Final = {
    "limit": (timedelta(minutes=5), timedelta(hours=1)),
    "overload": (timedelta(seconds=30), timedelta(minutes=15)),
}
"""The first pause when nobody says how long, and the longest; each is twice the one before."""

LONGEST: Final = timedelta(days=8)
"""No limit is believed to last longer: those of a week are the longest there are."""

REFUSAL_PAUSES: Final = (
    timedelta(seconds=30),
    *(timedelta(minutes=minutes) for minutes in (2, 10, 30, 60)),
)
"""The pauses after a refusal, one after the other; the last one again and again."""

REFUSAL_TOLD_AT: Final = 2
"""A person gets a notice at this refusal in a row: a single one is not worth it."""

REFUSED_FOR: Final = timedelta(hours=6)
"""A provider that has refused for so long is not waited for any more. After such a time without any answer,
refusals are counted anew."""

OVERLOAD_TOLD_AFTER: Final = timedelta(minutes=15)
"""An overload that is over sooner is nobody's business."""

REMINDED_AFTER: Final = timedelta(hours=24)

WORKS_AFTER: Final = timedelta(seconds=60)
"""An executor that has run for so long was let in: a limit shows in the first answer."""


def account_of(dispatch: Dispatch) -> str:
    """Return whose quota a dispatch uses; one of an older release is known by its executor."""
    return dispatch.account or dispatch.executor


def park(situation: Situation, exit_: Exit, standby: Standby | None = None) -> Decision:
    """Set the attempt aside until its account may be asked again, or another executor takes over, unspent."""
    state, dispatch = situation.state, situation.dispatch
    if standby is not None and standby.instead is not None and standby.until is None:
        return _taken_over(situation, _met(situation, exit_), standby.instead)
    met = _met(situation, exit_)
    if _is_hopeless(situation, met, standby):
        return _handed_to_a_person(situation, met)
    limit, notices = _telling(situation, met)
    message = _wait_of(limit, situation.now)
    track = (
        situation.track.without_dispatch()
        .with_state(status=Status.PENDING, completed_at=situation.over_at)
        .with_ledger(limited=(*without(situation.ledger.limited, limit.account), limit), told=message)
    )
    parked = accept(track, f"{state.step} attempt {state.attempt} of {dispatch.executor} waits for {message}")
    rule = ground(f"limits.{limit.kind}", f"until {limit.until.isoformat()}, answer {limit.answers}")
    told = replace(parked, result=replace(parked.result, next_command=_look(situation)))
    return told.because(rule).also(*notices)


def _is_hopeless(situation: Situation, limit: Limit, standby: Standby | None) -> bool:
    """Return whether a provider has refused for too long, and no other executor can be waited for instead."""
    if limit.kind != "refusal" or situation.now - limit.since < REFUSED_FOR:
        return False
    instead = standby.instead if standby is not None else None
    refuse_too = {other.executor for other in situation.ledger.limited if other.kind == "refusal"}
    return instead is None or instead in refuse_too


def _handed_to_a_person(situation: Situation, limit: Limit) -> Decision:
    """Ask a person, who has seen notices of it before. No attempt is spent, and refusals are counted anew."""
    state, lasted = situation.state, span(situation.now - limit.since)
    track = (
        situation.track.without_dispatch()
        .with_state(
            status=Status.NEEDS_HUMAN, completed_at=situation.over_at, last_error=limit.why or "refused"
        )
        .with_ledger(limited=without(situation.ledger.limited, limit.account), told=None)
    )
    message = f"{limit.executor}'s provider has refused {state.step} of {state.story} for {lasted}"
    rule = ground("limits.refusal", f"since {limit.since.isoformat()}, answer {limit.answers}")
    why = f"{limit.why}; no attempt was spent" if limit.why else "no attempt was spent"
    return ask_human(situation.at(track), message, why=why).because(rule)


def _taken_over(situation: Situation, limit: Limit, instead: str) -> Decision:
    """Leave the attempt to the next executor that is named, which can begin at once: nothing waits."""
    state = situation.state
    back = f"{limit.executor} is back {until_words(limit.until, situation.now).removeprefix('until ')}"
    message = (
        f"{instead} takes over {state.step} of {state.story} at {named(limit.account, limit.kind)}; {back}"
    )
    others = without(situation.ledger.limited, limit.account)
    known = replace(limit, told=limit.told or _is_to_be_told(limit))
    track = (
        situation.track.without_dispatch()
        .with_state(status=Status.PENDING, completed_at=situation.over_at)
        .with_ledger(limited=(*others, known), told=None)
    )
    taken = accept(track, message).because(ground(f"limits.{limit.kind}", f"until {limit.until.isoformat()}"))
    if limit.told or not known.told:
        return taken
    order = notice(track, "warning", message, why=limit.why or None, action=_remedy(situation, limit))
    return taken.also(order)


def _is_to_be_told(limit: Limit) -> bool:
    return limit.kind != "refusal" or limit.answers >= REFUSAL_TOLD_AT


def _remedy(situation: Situation, limit: Limit) -> str:
    """Return what a person types: what is refused may be their own setting."""
    refused = limit.kind == "refusal"
    return f"handoffd executors check {quote(limit.executor)}" if refused else _look(situation)


def _look(situation: Situation) -> str:
    """Return what a person types: nobody needs to act, unless something else holds the track back."""
    resting = situation.track.without_dispatch().with_state(status=Status.PENDING)
    return way_on(resting, situation.rules)


_KINDS: Final[Mapping[End | None, LimitKind]] = {
    End.LIMIT: "limit",
    End.OVERLOAD: "overload",
    End.REFUSED: "refusal",
}


def _met(situation: Situation, exit_: Exit) -> Limit:
    account, now = account_of(situation.dispatch), situation.now
    kind = _KINDS[exit_.end]
    before = limit_of(situation.ledger.limited, account)
    if before is not None and not _continues(before, kind, now):
        before = None
    answers = before.answers + 1 if before else 1
    return Limit(
        account=account,
        executor=situation.dispatch.executor,
        kind=kind,
        since=before.since if before else _seen_at(situation, exit_),
        until=_again_at(kind, answers, now, exit_.retry_at),
        answers=answers,
        why=said_last(exit_),
        told=before.told if before else False,
        reminded=before.reminded if before else False,
    )


def _seen_at(situation: Situation, exit_: Exit) -> datetime:
    """Return when an executor met a limit: at its end, which may be long before anybody hears of it.

    One heard of so late that refusals are counted anew begins now: nothing is known of the time between.
    """
    now = situation.now
    if exit_.at is None or now - exit_.at >= REFUSED_FOR:
        return now
    return min(max(exit_.at, situation.dispatch.decided_at), now)


def _continues(before: Limit, kind: LimitKind, now: datetime) -> bool:
    """Return whether an answer of a kind is one more in the row of those known."""
    if "refusal" not in {before.kind, kind}:
        return True
    return before.kind == kind and now - before.until < REFUSED_FOR


def _again_at(kind: LimitKind, answers: int, now: datetime, told: datetime | None) -> datetime:
    """Return when to ask again.

    An agent may name a time that is past, or one that proves too early again and again, so the pauses of
    an overload are the shortest there are.
    """
    if told is None:
        return now + pause(kind, answers)
    return min(max(told, now + pause("overload", answers)), now + LONGEST)


def pause(kind: LimitKind, answers: int) -> timedelta:
    """Return how long an account is left alone after so many such answers in a row."""
    if kind == "refusal":
        return REFUSAL_PAUSES[min(answers, len(REFUSAL_PAUSES)) - 1]
    first, longest = PAUSES[kind]
    doublings = min(answers - 1, 16)  # far beyond the longest pause, and no number grows without end
    return min(first * (1 << doublings), longest)


def _wait_of(limit: Limit, now: datetime) -> str:
    return f"{named(limit.account, limit.kind)}, {until_words(limit.until, now)}"


def _telling(situation: Situation, limit: Limit) -> tuple[Limit, tuple[Notify, ...]]:
    """Return what a person is told of a limit: once, and once more when it lasts long."""
    track, now, lasting = situation.track, situation.now, situation.now - limit.since
    look = _remedy(situation, limit)
    overloaded_for_short = limit.kind == "overload" and lasting < OVERLOAD_TOLD_AFTER
    if not limit.told and _is_to_be_told(limit) and not overloaded_for_short:
        text = f"{situation.state.step} of {situation.state.story} waits for {_wait_of(limit, now)}"
        order = notice(track, "warning", text, why=limit.why or None, action=look)
        return replace(limit, told=True), (order,)
    if limit.told and not limit.reminded and lasting >= REMINDED_AFTER:
        lasts = f"has lasted for {span(lasting)}, and goes on {until_words(limit.until, now)}"
        text = f"{named(limit.account, limit.kind)} {lasts}"
        order = notice(track, "warning", text, why=limit.why or None, action=look)
        return replace(limit, reminded=True), (order,)
    return limit, ()


def heard_from(situation: Situation, event: ExecutorExited) -> Track:
    """Return the track after an executor's end, with what that tells of the account.

    One that let it work is limited no longer. One that answered with a limit is limited also if there is
    a hand-off, which counts; without one the attempt is parked.
    """
    others = without(situation.ledger.limited, account_of(situation.dispatch))
    if event.exit.end in LIMITS and isinstance(event.reading, Found):
        limited = (*others, _met(situation, event.exit))
        return _without_trial(situation, event).with_ledger(limited=limited)
    before = limit_of(situation.ledger.limited, account_of(situation.dispatch))
    ended_otherwise = before is not None and before.kind == "refusal" and _is_judged(event.exit.end)
    track = _without_trial(situation, event)
    return track.with_ledger(limited=others) if let_in(event) or ended_otherwise else track


def _without_trial(situation: Situation, event: ExecutorExited) -> Track:
    """Return the track without the fault that was tried, where the end shows that it is over."""
    track, executor, end = situation.track, situation.dispatch.executor, event.exit.end
    over = let_in(event) or _is_judged(end) or (end is not None and POLICIES[end].then is Then.PARK)
    left = tuple(one for one in track.ledger.faults if not (one.trying and one.executor == executor))
    return track.with_ledger(faults=left, remedy=None) if over and left != track.ledger.faults else track


def _is_judged(end: End | None) -> bool:
    """Return whether an end is one of the agent's own, to be judged as an attempt."""
    return end is not None and POLICIES[end].then in {Then.FAILING, Then.ASK}


def let_in(event: ExecutorExited) -> bool:
    """Return whether an executor's end shows that its account let it work.

    One that is not logged in, or does not take its arguments, never asked the account.
    """
    exit_ = event.exit
    if exit_.end in LIMITS:
        return False
    lasted = (
        exit_.by != "lost" and exit_.end is not End.REFUSED and exit_.seconds >= WORKS_AFTER.total_seconds()
    )
    return isinstance(event.reading, Found) or exit_.end is End.CLEAN or lasted


def lift(situation: Situation, event: LimitLifted) -> Decision:
    """Forget an account's limit: a person says that it can be asked now."""
    track = situation.track
    limit = limit_of(track.ledger.limited, event.account)
    if limit is None:
        message = f"{event.account} is not limited as far as this project knows"
        return refuse(situation, "NOT_LIMITED", message, way_on(track, situation.rules))
    lifted = track.with_ledger(limited=without(track.ledger.limited, event.account), told=None)
    return accept(lifted, f"{named(event.account, limit.kind)} is not waited for any more")
