"""A usage limit is a schedule, not a failure: the attempt waits, unspent, until its account answers again.

Nothing here asks for a person. When the agent says when its limit is over, that is when it is tried
again; else it is tried ever more rarely, up to a longest pause. The pauses have no chance in them:
`decide` is a function, and only one track of an account tries at a time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from handoffd.engine.advice import way_on
from handoffd.engine.decision import Decision, Situation, ground
from handoffd.engine.effects import Notify
from handoffd.engine.ends import End, Standby
from handoffd.engine.events import ExecutorExited, Exit
from handoffd.engine.limits import LIMITS, Limit, LimitKind, limit_of, named, span, until_words, without
from handoffd.engine.requests import LimitLifted
from handoffd.engine.track import Dispatch, Track
from handoffd.engine.wording import accept, notice, refuse, said_last
from handoffd.protocol.handoff import Found
from handoffd.protocol.state import Status

PAUSES: Final = {
    "limit": (timedelta(minutes=5), timedelta(hours=1)),
    "overload": (timedelta(seconds=30), timedelta(minutes=15)),
}
"""The first pause when nobody says how long, and the longest; each is twice the one before."""

LONGEST: Final = timedelta(days=8)
"""No limit is believed to last longer: those of a week are the longest there are."""

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
    limit, notices = _telling(situation, _met(situation, exit_))
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


def _taken_over(situation: Situation, limit: Limit, instead: str) -> Decision:
    """Leave the attempt to the next executor that is named, which can begin at once: nothing waits."""
    state = situation.state
    back = f"{limit.executor} is back {until_words(limit.until, situation.now).removeprefix('until ')}"
    message = (
        f"{instead} takes over {state.step} of {state.story} at {named(limit.account, limit.kind)}; {back}"
    )
    others = without(situation.ledger.limited, limit.account)
    known = replace(limit, told=True)
    track = (
        situation.track.without_dispatch()
        .with_state(status=Status.PENDING, completed_at=situation.now)
        .with_ledger(limited=(*others, known), told=None)
    )
    taken = accept(track, message).because(ground(f"limits.{limit.kind}", f"until {limit.until.isoformat()}"))
    if limit.told:
        return taken
    order = notice(track, "warning", message, why=limit.why or None, action=_look(situation))
    return taken.also(order)


def _look(situation: Situation) -> str:
    """Return what a person types: nobody needs to act, unless something else holds the track back."""
    resting = situation.track.without_dispatch().with_state(status=Status.PENDING)
    return way_on(resting, situation.rules)


def _met(situation: Situation, exit_: Exit) -> Limit:
    account, now = account_of(situation.dispatch), situation.now
    before = limit_of(situation.ledger.limited, account)
    kind: LimitKind = "overload" if exit_.end is End.OVERLOAD else "limit"
    answers = before.answers + 1 if before else 1
    return Limit(
        account=account,
        executor=situation.dispatch.executor,
        kind=kind,
        since=before.since if before else now,
        until=_again_at(kind, answers, now, exit_.retry_at),
        answers=answers,
        why=said_last(exit_),
        told=before.told if before else False,
        reminded=before.reminded if before else False,
    )


def _again_at(kind: LimitKind, answers: int, now: datetime, told: datetime | None) -> datetime:
    """Return when to ask again.

    An agent may name a time that is past, or one that proves too early again and again, so the pauses of
    an overload are the shortest there are.
    """
    if told is None:
        return now + _pause(kind, answers)
    return min(max(told, now + _pause("overload", answers)), now + LONGEST)


def _pause(kind: LimitKind, answers: int) -> timedelta:
    first, longest = PAUSES[kind]
    doublings = min(answers - 1, 16)  # far beyond the longest pause, and no number grows without end
    return min(first * (1 << doublings), longest)


def _wait_of(limit: Limit, now: datetime) -> str:
    return f"{named(limit.account, limit.kind)}, {until_words(limit.until, now)}"


def _telling(situation: Situation, limit: Limit) -> tuple[Limit, tuple[Notify, ...]]:
    """Return what a person is told of a limit: once, and once more when it lasts long."""
    track, now, lasting = situation.track, situation.now, situation.now - limit.since
    look = _look(situation)
    if not limit.told and (limit.kind == "limit" or lasting >= OVERLOAD_TOLD_AFTER):
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
        return situation.track.with_ledger(limited=(*others, _met(situation, event.exit)))
    return situation.track.with_ledger(limited=others) if let_in(event) else situation.track


def let_in(event: ExecutorExited) -> bool:
    """Return whether an executor's end shows that its account let it work.

    One that is not logged in, or does not take its arguments, never asked the account.
    """
    exit_ = event.exit
    if exit_.end in LIMITS:
        return False
    lasted = exit_.by != "lost" and exit_.seconds >= WORKS_AFTER.total_seconds()
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
