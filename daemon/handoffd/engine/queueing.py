"""What people do with the backlog: take the next story from it, give another place, change or remove one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from handoffd.engine.advice import next_command, way_on
from handoffd.engine.backlog import before, behind, circle, entry_of, startable, waits_in_words, without
from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Ground, Situation, ground
from handoffd.engine.effects import NoticeKind
from handoffd.engine.requests import (
    AutoContinueChosen,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    Continued,
)
from handoffd.engine.routing import begin, give_back, next_parked, parked_of
from handoffd.engine.track import Parked, Queued
from handoffd.engine.wording import accept, notice, refuse
from handoffd.protocol.state import Status

_UNASKED: Final = "waits for a `continue`"
_TOLD_OF: Final[Mapping[Status, NoticeKind]] = {Status.NEEDS_HUMAN: "needs_human", Status.TIMEOUT: "timeout"}
"""What people are told of a story that waits for one of them."""


def go_on(situation: Situation, event: Continued) -> Decision:
    """Start the next story of the backlog, where none is in flight."""
    ledger = situation.ledger
    if situation.in_flight:
        message = f"{situation.state.story} is in flight at {situation.state.step}"
        return refuse(situation, "STORY_IN_PROGRESS", message, way_on(situation.track, situation.rules))
    if ledger.paused_by and not ledger.self_paused:
        message = f"paused by {ledger.paused_by}"
        return refuse(situation, "PAUSED", message, command("resume"))
    anew = situation.at(situation.track.unpaused())  # a person asks for another story
    parked = next_parked(situation.track) if situation.done else None
    if parked is not None:
        return taken_up(anew, parked)
    upcoming = startable(ledger)
    if upcoming is None:
        return _nothing_to_start(situation)
    return start_from_backlog(anew, upcoming)


def start_from_backlog(situation: Situation, upcoming: Queued) -> Decision:
    """Begin a story of the backlog, which leaves it with that; one that was set aside goes on."""
    grounds = _passed_over(situation, upcoming)
    if (parked := parked_of(situation.ledger, upcoming.story)) is not None:
        return taken_up(situation, parked).because(*grounds)
    started, checklist = begin(situation, upcoming, bootstrapped=upcoming.bootstrapped)
    return accept(started, f"{upcoming.story} starts from the backlog").also(checklist).because(*grounds)


def taken_up(situation: Situation, parked: Parked, behind_: str = "") -> Decision:
    """Go on with a story where it was set aside; people are told anew what it waits for, if it does.

    What they were told before ended when another story took its place.
    """
    state, track = parked.state, give_back(situation, parked).with_ledger(told=None)
    decision = accept(track, f"{state.story} is taken up again at {state.step}{behind_}")
    kind = _TOLD_OF.get(state.status)
    if kind is None:
        return decision
    text = state.last_error or f"{state.step} of {state.story} waits for a person"
    why = "it was set aside like this, and is taken up again"
    return decision.also(notice(track, kind, text, why=why, action=next_command(track, situation.rules)))


def _passed_over(situation: Situation, upcoming: Queued) -> tuple[Ground, ...]:
    """Return why those that stand before it are not started, and its own place."""
    backlog = situation.ledger.backlog
    ahead = backlog[: backlog.index(upcoming)]
    waiting = [f"{one.story} {waits_in_words(situation.track, one) or _UNASKED}" for one in ahead]
    first = ground("backlog.next", f"{upcoming.story}, priority {upcoming.priority}")
    return (first, ground("backlog.passed_over", "; ".join(waiting))) if waiting else (first,)


def _nothing_to_start(situation: Situation) -> Decision:
    backlog = situation.ledger.backlog
    if not backlog:
        message = "the backlog is empty"
        return refuse(situation, "BACKLOG_EMPTY", message, command("start", "STORY"))
    waiting = [f"{one.story} {waits_in_words(situation.track, one)}" for one in backlog[:3]]
    more = f"; and {len(backlog) - 3} more" if len(backlog) > 3 else ""
    message = f"nothing of the backlog can be started: {'; '.join(waiting)}{more}"
    return refuse(situation, "BLOCKED", message, command("backlog"))


def move(situation: Situation, event: BacklogMoved) -> Decision:
    """Give a story another place. It gets the priority that belongs there, for that goes first."""
    entry = entry_of(situation.ledger, event.story)
    if entry is None:
        return _not_there(situation, event.story)
    others = without(situation.ledger.backlog, (event.story,))
    if event.before is not None:
        index = next((place for place, one in enumerate(others) if one.story == event.before), None)
        if index is None:
            return _not_there(situation, event.before)
    else:
        index = len(others) if event.last else 0
    fitting = _fitting(entry.priority, others, index)
    backlog = before(situation.ledger.backlog, replace(entry, priority=fitting), index)
    changed = f", with priority {fitting}" if fitting != entry.priority else ""
    track = situation.track.with_ledger(backlog=backlog)
    return accept(track, f"{event.story} is number {index + 1} of {len(backlog)} in the backlog{changed}")


def _fitting(priority: int, others: tuple[Queued, ...], index: int) -> int:
    """Return the priority nearest to `priority` that fits before the `index`th of the others."""
    least = others[index].priority if index < len(others) else None
    most = others[index - 1].priority if index > 0 else None
    if least is not None and priority < least:
        return least
    return most if most is not None and priority > most else priority


def edit(situation: Situation, event: BacklogEdited) -> Decision:
    """Change what was said of a story of the backlog."""
    entry = entry_of(situation.ledger, event.story)
    if entry is None:
        return _not_there(situation, event.story)
    asked: dict[str, Any] = {
        "priority": event.priority, "blocked_by": event.blocked_by,
        "complexity": event.complexity, "executor": event.executor,
    }  # fmt: skip
    changes = {name: value for name, value in asked.items() if value is not None}
    changed = replace(entry, **changes)
    if (refused := no_circle(situation, (changed,))) is not None:
        return refused
    moved = event.priority is not None and event.priority != entry.priority
    backlog = situation.ledger.backlog
    if moved:
        backlog = behind(backlog, changed)
    else:
        backlog = tuple(changed if one.story == event.story else one for one in backlog)
    track = situation.track.with_ledger(backlog=backlog)
    names = ", ".join(name.replace("_", " ") for name in changes) or "nothing"
    return accept(track, f"{event.story}: {names} changed in the backlog")


def no_circle(situation: Situation, entries: tuple[Queued, ...]) -> Decision | None:
    """Return the refusal of entries that would have stories wait for each other; None when they do not."""
    found = circle(situation.track, entries)
    if found is None:
        return None
    message = f"these stories would wait for each other for ever: {' → '.join(found)}"
    return refuse(situation, "BLOCKED_IN_CIRCLE", message, command("backlog"))


def remove(situation: Situation, event: BacklogRemoved) -> Decision:
    """Take stories out of the backlog; all of them, or none."""
    for story in event.stories:
        if entry_of(situation.ledger, story) is None:
            return _not_there(situation, story)
    track = situation.track.with_ledger(backlog=without(situation.ledger.backlog, event.stories))
    verb = "is" if len(event.stories) == 1 else "are"
    return accept(track, f"{', '.join(event.stories)} {verb} in the backlog no longer")


def _not_there(situation: Situation, story: str) -> Decision:
    waiting = ", ".join(entry.story for entry in situation.ledger.backlog) or "none"
    message = f"{story} is not in the backlog (waiting: {waiting})"
    return refuse(situation, "NOT_IN_BACKLOG", message, command("backlog"))


def choose_auto_continue(situation: Situation, event: AutoContinueChosen) -> Decision:
    """Have the next story start by itself, or not, whatever the settings say; or as they say."""
    track = situation.track.with_ledger(auto_continue=event.on)
    said = {
        True: "the next story of the backlog starts by itself",
        False: "the next story of the backlog waits for a `continue`",
        None: "whether the next story of the backlog starts by itself is for the settings to say",
    }[event.on]
    return accept(track, f"{said}, as {event.by} chose")
