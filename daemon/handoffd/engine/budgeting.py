"""What caps mean for a track: what is booked, what a reached one ends or holds back, who may raise it.

The sums that many tracks share are the supervisor's; here arrives only what it found.
"""

from __future__ import annotations

from dataclasses import replace

from handoffd.engine.advice import raising
from handoffd.engine.caps import Cap, Finding, Unit, amount, granted_past
from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Ground, Situation, ground
from handoffd.engine.requests import BudgetRaised
from handoffd.engine.track import Track
from handoffd.engine.usage import Usage
from handoffd.engine.wording import accept, notice, refuse
from handoffd.protocol.state import Status


def spend(track: Track, usage: Usage | None) -> Track:
    """Return the track with the usage of an attempt booked, on its story and on itself."""
    if usage is None:
        return track
    facts = replace(track.ledger.facts, usage=track.ledger.facts.usage + usage)
    return track.with_ledger(facts=facts, spent=track.ledger.spent + usage)


def capped(situation: Situation, finding: Finding) -> Decision:
    """Make an attempt pending again that was ended for a cap. It is not spent.

    After the cap of each attempt it waits for a person, as the next run would end the same way. Whether
    that cap is still in force, and how the others are, is looked at whenever it is about to be dispatched.
    """
    state = situation.state
    track = situation.track.without_dispatch().with_state(
        status=Status.PENDING, last_error=finding.text, completed_at=situation.over_at
    )
    message = f"{state.step} attempt {state.attempt} was ended and is not counted: {finding.text}"
    if finding.scope != "attempt":
        return accept(track, message).because(cap_ground(finding))
    waiting = track.with_ledger(capped=finding)
    action = raising(finding, state.story)
    told = notice(
        waiting,
        "blocked",
        message,
        why="it goes on when a person raises the cap, or has it retried",
        action=action,
    )
    return accept(waiting, message, do=f"a person must act: {action}").also(told).because(cap_ground(finding))


def raise_budget(situation: Situation, event: BudgetRaised) -> Decision:
    """Let more be spent than the settings do."""
    if (refused := _not_raisable(situation, event)) is not None:
        return refused
    ledger = situation.ledger
    before = ledger.granted.get(event.scope, Cap())
    granted = Cap(
        usd=before.usd if event.usd is None else event.usd,
        tokens=before.tokens if event.tokens is None else event.tokens,
    )
    held = ledger.capped
    if held is not None and held.scope == event.scope and granted_past(held, granted):
        held = None
    track = situation.track.with_ledger(granted={**ledger.granted, event.scope: granted}, capped=held)
    whose = {"attempt": "an attempt", "story": situation.state.story, "project": "the project"}[event.scope]
    return accept(track, f"{whose} may use {_in_words(event)} in all, as {event.by} granted")


def _not_raisable(situation: Situation, event: BudgetRaised) -> Decision | None:
    story = situation.state.story if situation.in_flight else None
    again = command(
        "budget", *(("--story", story) if event.scope != "project" and story else ()), "--usd", "10"
    )
    if event.usd is None and event.tokens is None:
        return refuse(situation, "NO_AMOUNT", "nothing says how much: give --usd or --tokens", again)
    if event.scope != "project" and story is None:
        return refuse(situation, "NO_STORY", "no story is in flight whose budget could be raised", again)
    if event.story is not None and event.story != story:
        return refuse(situation, "WRONG_STORY", f"{event.story} is not in flight, {story} is", again)
    return None


def _in_words(event: BudgetRaised) -> str:
    given: tuple[tuple[float | None, Unit], ...] = ((event.usd, "usd"), (event.tokens, "tokens"))
    return " and ".join(amount(number, unit) for number, unit in given if number is not None)


def news_of(finding: Finding, known: Finding | None) -> bool:
    """Return whether a cap is another one than the one that is known to be used up."""
    return known is None or (known.scope, known.unit, known.cap) != (finding.scope, finding.unit, finding.cap)


def cap_ground(finding: Finding) -> Ground:
    """Return the ground that a cap is."""
    return ground(f"settings.caps.{finding.scope}_{finding.unit}", amount(finding.cap, finding.unit))
