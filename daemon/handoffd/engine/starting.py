"""Starting a story or custom task: which may start now, which waits, what is set aside for it."""

from __future__ import annotations

from dataclasses import replace

from handoffd.engine.decision import Decision, Situation
from handoffd.engine.events import Started
from handoffd.engine.routing import begin, give_back
from handoffd.engine.track import Parked, Queued
from handoffd.engine.wording import accept, refuse
from handoffd.protocol.state import Status


def start(situation: Situation, event: Started) -> Decision:
    """Start, queue, park or refuse, in that order of questions."""
    if (refused := _not_startable(situation, event)) is not None:
        return refused
    running = situation.state.status is Status.RUNNING
    if not situation.in_flight and not running:
        return _start_now(situation, event)
    if event.queue:
        return _queue(situation, event)
    if not running and (event.force or event.task_type == "custom"):
        return _start_now(_set_aside(situation, event), event)
    return _in_the_way(situation, running=running)


def _not_startable(situation: Situation, event: Started) -> Decision | None:
    """Return why this story cannot be started at all, whatever else goes on."""
    if event.task_type not in situation.rules.pipelines:
        known = ", ".join(sorted(situation.rules.pipelines))
        message = f"no pipeline is called {event.task_type}"
        return refuse(situation, "UNKNOWN_TASK_TYPE", message, do=f"choose one of {known}")
    if event.force:
        return None
    if event.story in situation.ledger.stories_done:
        do = "reopen it, or start it with --force"
        return refuse(situation, "ALREADY_COMPLETED", f"{event.story} is done", do=do)
    if situation.in_flight and situation.state.story == event.story:
        message = f"{event.story} is in flight at {situation.state.step}"
        return refuse(situation, "ALREADY_RUNNING", message, do="resume it, or start it anew with --force")
    return None


def _in_the_way(situation: Situation, *, running: bool) -> Decision:
    state = situation.state
    if running:
        message, do = f"{state.story or 'an attempt'} runs at {state.step}", "add --queue, or abort it first"
    else:
        message = f"{state.story} is in flight at {state.step}"
        do = "add --queue to start it afterwards, or --force to replace it"
    return refuse(situation, "STORY_IN_PROGRESS", message, do=do)


def _start_now(situation: Situation, event: Started) -> Decision:
    track = situation.track
    if event.automatic:
        track = track.with_ledger(automatic=True)
    parked = next((p for p in track.ledger.parked if p.state.story == event.story), None)
    if parked is not None and not event.force:
        return accept(
            give_back(situation.at(track), parked), f"{event.story} is taken up again at {parked.state.step}"
        )
    started, checklist = begin(situation.at(track), _queued(event), bootstrapped=event.bootstrapped)
    assert started.state is not None
    return accept(started, f"{event.story} starts at {started.state.step}").also(checklist)


def _queue(situation: Situation, event: Started) -> Decision:
    waiting = tuple(q for q in situation.ledger.backlog if q.story != event.story)
    track = situation.track.with_ledger(backlog=(*waiting, _queued(event)))
    return accept(
        track, f"{event.story} waits behind {situation.state.story}", do="it can be started when that is done"
    )


def _set_aside(situation: Situation, event: Started) -> Situation:
    """Park the story in flight. Its own parked stories stay with the track, not inside it."""
    ledger = situation.ledger
    parked = Parked(
        state=situation.state,
        ledger=replace(ledger, parked=(), backlog=(), stories_done=(), dispatch=None),
        give_back=event.task_type == "custom" and not event.force,
    )
    others = tuple(p for p in ledger.parked if p.state.story != situation.state.story)
    return situation.at(situation.track.with_ledger(parked=(*others, parked)))


def _queued(event: Started) -> Queued:
    return Queued(
        story=event.story, task_type=event.task_type, instruction=event.instruction,
        agent_teams=event.agent_teams, blocked_by=event.blocked_by,
    )  # fmt: skip
