"""Starting a story or custom task: which may start now, which waits, what is set aside for it."""

from __future__ import annotations

from dataclasses import replace

from handoffd.engine.advice import way_on
from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Situation
from handoffd.engine.requests import Started
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
    return _in_the_way(situation, event, running=running)


def _not_startable(situation: Situation, event: Started) -> Decision | None:
    """Return why this story cannot be started at all, whatever else goes on."""
    if event.task_type not in situation.rules.pipelines:
        known = ", ".join(sorted(situation.rules.pipelines))
        message = f"no pipeline is called {event.task_type} (allowed: {known})"
        return refuse(situation, "UNKNOWN_TASK_TYPE", message, command("rules check"))
    if event.force:
        return None
    here = situation.state.story == event.story
    if situation.in_flight and here:
        message = f"{event.story} is in flight at {situation.state.step}"
        return refuse(situation, "ALREADY_RUNNING", message, way_on(situation.track, situation.rules))
    # A story that another tool brought to its end is in STATE alone.
    if event.story in situation.ledger.stories_done or (here and situation.done):
        busy = situation.in_flight or situation.state.status is Status.RUNNING
        anew = _asked_again(event, queue=busy, force=True)
        again = command("reopen", "STEP") if here and situation.done else anew
        return refuse(situation, "ALREADY_COMPLETED", f"{event.story} is done", again)
    return None


def _in_the_way(situation: Situation, event: Started, *, running: bool) -> Decision:
    state = situation.state
    message = f"{state.story or 'an attempt'} {'runs' if running else 'is in flight'} at {state.step}"
    itself = state.story == event.story  # given with --force: it can be done anew, but not while it runs
    advice = way_on(situation.track, situation.rules) if itself else _asked_again(event, queue=True)
    return refuse(situation, "STORY_IN_PROGRESS", message, advice)


def _asked_again(event: Started, *, queue: bool = False, force: bool = False) -> str:
    """Return the command for what was asked for, with one option more. Each custom task is a new one."""
    behind = ["--queue"] if queue else []
    teams = ["--agent-teams"] if event.agent_teams else []
    chosen = ["--executor", ",".join(event.executor)] if event.executor else []
    if event.task_type == "custom":
        return command("custom", "TEXT", *behind, *teams, *chosen)
    forced = ["--force"] if force else []
    first = [word for story in event.blocked_by for word in ("--blocked-by", story)]
    return command("start", event.story, *behind, *forced, *first, *teams, *chosen)


def _start_now(situation: Situation, event: Started) -> Decision:
    track = situation.track
    if event.automatic and not track.ledger.by_hand:
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
        track,
        f"{event.story} waits behind {situation.state.story}",
        do="it starts when that is done and the project is resumed",
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
        executor=event.executor,
    )  # fmt: skip
