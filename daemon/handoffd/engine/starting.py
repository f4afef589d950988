"""Which story a track works on: what people ask to start, and what they do with the backlog.

A story that is asked for starts now, waits in the backlog, or has the one in flight set aside for it. In
which order the backlog goes, and what keeps a story of it, is in `routing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from handoffd.engine.decision import (
    Accepted,
    Decision,
    Ground,
    NoticeKind,
    Situation,
    accept,
    ground,
    is_unlanded,
    next_command,
    notice,
    refuse,
    to_land,
    way_on,
)
from handoffd.engine.events import (
    AutoContinueChosen,
    BacklogAdded,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    Continued,
    Started,
)
from handoffd.engine.routing import (
    MAX_ATTEMPTS,
    MOST_STORIES,
    MOST_TEXT,
    before,
    begin,
    behind,
    circle,
    entry_of,
    first_step,
    give_back,
    needs_nobody,
    waits_in_words,
    without,
)
from handoffd.engine.story_texts import (
    added,
    answered,
    asked_again,
    known_stories,
    missing_texts,
    not_described_in_words,
    not_quoted_in_words,
    strange_words,
    texts_taken,
)
from handoffd.engine.track import (
    Parked,
    Queued,
    Track,
    is_beside,
    next_parked,
    parked_of,
    startable,
    unmet,
    with_texts,
    without_texts,
)
from handoffd.engine.wording import command
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Status
from handoffd.protocol.story_text import NewStory, StoryText

_UNASKED: Final = "waits for a `continue`"
_TOLD_OF: Final[Mapping[Status, NoticeKind]] = {Status.NEEDS_HUMAN: "needs_human", Status.TIMEOUT: "timeout"}
"""The notice about a story that waits for a person."""


# --- starting a story that is asked for ---------------------------------------------------------------
def start(situation: Situation, event: Started) -> Decision:
    """Start, queue, park or refuse, in that order of questions."""
    entries = tuple(_entry(situation, event, story) for story in (event.story, *event.then))
    pipeline = situation.pipeline(event.task_type)
    first = first_step(pipeline, situation.ledger, bootstrapped=event.bootstrapped)
    missing, strange = missing_texts(situation, event, first), strange_words(situation, event)
    refused = _not_takeable(situation, event, entries) or _not_described(situation, event, missing, strange)
    return refused or answered(_started(situation, event, entries), event, missing, strange)


def _started(situation: Situation, event: Started, entries: tuple[Queued, ...]) -> Decision:
    running = situation.state.status is Status.RUNNING
    if not situation.in_flight and not running:
        anew = not event.force and parked_of(situation.ledger, event.story) is None
        if event.keeps_unlanded and anew and is_unlanded(situation.track):
            by_itself = event.beside or event.schedule is not None
            return _queue_beside(situation, event, entries) if by_itself else _not_landed(situation)
        if event.awaits_landing and anew and event.story != situation.state.story:
            return _queue_asked(situation, entries)
        if (waiting := _waiting_of(situation, event.schedule)) is not None:
            return _start_now(situation, event, waiting)
        return _start_one(situation, event, entries)
    if event.queue:
        return _queue(situation, entries)
    parks = event.task_type == "custom" and event.schedule is None  # only a person's task is worth that
    if not running and (event.force or parks):
        return _start_now(_set_aside(situation, event), event, entries[0], entries[1:], aside=True)
    if event.beside and (running or not event.force) and situation.state.story not in {None, event.story}:
        return _queue_beside(situation, event, entries)
    return _in_the_way(situation, event, running=running)


def _entry(situation: Situation, event: Started, story: str) -> Queued:
    """Return the request as an entry of the backlog; options given earlier for it still apply."""
    entry = entry_of(situation.ledger, story) or Queued(story=story)
    return replace(
        entry, task_type=event.task_type, instruction=event.instruction or entry.instruction,
        agent_teams=event.agent_teams or entry.agent_teams, blocked_by=event.blocked_by or entry.blocked_by,
        executor=event.executor or entry.executor, priority=event.priority or entry.priority,
        complexity=event.complexity or entry.complexity, bootstrapped=event.bootstrapped,
        by=entry.by or event.by, at=entry.at or situation.now, schedule=event.schedule or entry.schedule,
    )  # fmt: skip


def _start_one(situation: Situation, event: Started, entries: tuple[Queued, ...]) -> Decision:
    """Start the first that can start; the others wait."""
    first = next((entry for entry in entries if not unmet(entry, situation.ledger)), None)
    known = entry_of(situation.ledger, event.story) is not None
    alone = not event.then and not event.queue and not (known and not event.blocked_by)
    if event.force or (first is None and alone):
        # Asked for by itself, it is in flight and blocked, as its STATE will tell.
        blocked_by = event.blocked_by if event.force else entries[0].blocked_by
        return _start_now(situation, event, replace(entries[0], blocked_by=blocked_by), entries[1:])
    if first is not None:
        others = tuple(entry for entry in entries if entry is not first)
        return _start_now(situation, event, first, others)
    if known and not event.then and not event.queue:
        message = f"{event.story} {waits_in_words(situation.track, entries[0])}"
        return refuse(situation, "BLOCKED", message, asked_again(event, force=True))
    return _queue(situation.at(_at_its_level(situation.track, event)), entries)


def _start_now(
    situation: Situation,
    event: Started,
    first: Queued,
    others: tuple[Queued, ...] = (),
    *,
    aside: bool = False,
) -> Decision:
    """Begin a story, or take it up where it was set aside; `aside`: the one in flight was, for that."""
    before = situation.track if event.schedule is not None else situation.track.unpaused()
    track = _at_its_level(_queued(before, others), event)
    behind_ = f"; {', '.join(one.story for one in others)} behind it" if others else ""
    told, way = _aside_in_words(situation, event) if aside and event.tells_aside else ("", "")
    behind_ += told
    parked = parked_of(track.ledger, first.story)
    anew = aside and first.story == situation.state.story
    if parked is not None and (not event.force or (event.keeps_place and not anew)):
        return _saying(taken_up(situation.at(track), _as_asked(parked, event), behind_), way)
    bootstrapped = event.bootstrapped or (event.heeds_begun and _is_past_bootstrap(track, situation.rules))
    started, checklist = begin(situation.at(track), first, bootstrapped=bootstrapped)
    assert started.state is not None
    began = accept(started, f"{first.story} starts at {started.state.step}{behind_}")
    return _saying(began, way).also(checklist)


def _as_asked(parked: Parked, event: Started) -> Parked:
    """Return a story that was set aside, with the options given now."""
    if not event.keeps_place:
        return parked
    ledger = replace(
        parked.ledger,
        executor=event.executor or parked.ledger.executor,
        complexity=event.complexity or parked.ledger.complexity,
    )
    known = parked.state.blocked_by
    if event.force or event.blocked_by:  # replaces earlier blockers; a person must still look at it
        known = (*event.blocked_by, *(name for name in known if name == MAX_ATTEMPTS))
    return replace(parked, state=parked.state.with_(blocked_by=known), ledger=ledger)


def _is_past_bootstrap(track: Track, rules: RuleBook) -> bool:
    """Return whether a story was set aside behind the bootstrap: then the project has had that."""
    return any(
        pipeline.bootstrap is not None and parked.state.step != pipeline.bootstrap
        for parked in track.ledger.parked
        if (pipeline := rules.pipelines.get(parked.state.task_type)) is not None
    )


def _at_its_level(track: Track, event: Started) -> Track:
    return track.with_ledger(automatic=True) if event.automatic and not track.ledger.by_hand else track


def _queued(track: Track, entries: tuple[Queued, ...]) -> Track:
    """Return the track with `entries` in its backlog, each behind stories as urgent."""
    backlog = track.ledger.backlog
    for entry in entries:
        backlog = behind(backlog, entry)
    return track.with_ledger(backlog=backlog)


def _queue(situation: Situation, entries: tuple[Queued, ...]) -> Decision:
    track = _queued(situation.track, entries)
    names, why = ", ".join(entry.story for entry in entries), _waiting_in_words(track, entries)
    verb = "waits" if len(entries) == 1 else "wait"
    if not situation.in_flight and situation.state.status is not Status.RUNNING:
        return accept(
            track, f"{names} {verb} in the backlog{why}", do="it starts when it can and is asked to"
        )
    behind_ = f"behind {situation.state.story or 'what runs'}"
    go_on = situation.auto_continue
    by_itself = all(needs_nobody(track.ledger, entry, auto_continue=go_on) for entry in entries)
    how = "it starts by itself" if by_itself else "`continue` starts the next one"
    return accept(track, f"{names} {verb} {behind_}{why}", do=f"{how} when that is done")


def _queue_beside(situation: Situation, event: Started, entries: tuple[Queued, ...]) -> Decision:
    """Queue stories that get tracks of their own while the one in flight goes on."""
    ledger = situation.ledger
    if event.at_once and any(parked_of(ledger, one.story) for one in entries):  # it goes on in this track
        return _queue(situation, tuple(replace(one, asked=True) for one in entries))
    track = _queued(situation.track, tuple(replace(one, asked=one.asked or event.at_once) for one in entries))
    names, why = ", ".join(entry.story for entry in entries), _waiting_in_words(track, entries)
    verb = "starts" if len(entries) == 1 else "start"
    message = f"{names} {verb} beside {situation.state.story} when there is room (stories.parallel){why}"
    if event.at_once and ledger.project_paused_by is not None:
        message += f", once the project is resumed, which {ledger.project_paused_by} has paused"
    return accept(track, message)


def _queue_asked(situation: Situation, entries: tuple[Queued, ...]) -> Decision:
    """Queue stories that start, as a person wants, once the daemon has landed the one before them."""
    track = _queued(situation.track, tuple(replace(entry, asked=True) for entry in entries))
    names, why = ", ".join(entry.story for entry in entries), _waiting_in_words(track, entries)
    verb = "starts" if len(entries) == 1 else "start"
    return accept(track, f"{names} {verb} when {situation.state.story} has landed{why}")


def _waiting_in_words(track: Track, entries: Iterable[Queued]) -> str:
    waits = [f"{one.story} {what}" for one in entries if (what := waits_in_words(track, one)) is not None]
    return f": {'; '.join(waits)}" if waits else ""


def _aside_in_words(situation: Situation, event: Started) -> tuple[str, str]:
    """Return which story is set aside and where it is; and what a person types to have it taken up again.

    That is a command which is taken at once, whether or not the other story runs by then.
    """
    state = situation.state
    if state.story is None or event.story == state.story:  # it begins anew
        return "", ""
    waits = f"; {state.story} is set aside at {state.step}"
    if event.task_type == "custom" and not event.force:
        return f"{waits} and goes on when that is done", ""
    way = command("start", state.story, "--queue")
    return waits, f": `{way}` takes it up again when {event.story} is done"


def _saying(decision: Decision, more: str) -> Decision:
    """Return the decision whose answer says more than its reason: commands are for people to type."""
    result = decision.result
    if not more or not isinstance(result, Accepted):
        return decision
    message = f"{result.message}{more}"
    instruction = result.caller_instruction.replace(result.message, message, 1)
    return replace(decision, result=replace(result, message=message, caller_instruction=instruction))


def _set_aside(situation: Situation, event: Started) -> Situation:
    """Park the story in flight. Its own parked stories stay with the track, not inside it."""
    ledger = situation.ledger
    parked = Parked(
        state=situation.state,
        ledger=replace(
            ledger, parked=(), backlog=(), stories_done=(), texts={}, beside=(), to_land=(), dispatch=None
        ),
        give_back=event.task_type == "custom" and not event.force,
    )
    others = tuple(p for p in ledger.parked if p.state.story != situation.state.story)
    return situation.at(situation.track.with_ledger(parked=(*others, parked)))


# --- refusals of a start ------------------------------------------------------------------------------
def _not_takeable(situation: Situation, event: Started, entries: tuple[Queued, ...]) -> Decision | None:
    """Return why one of these stories cannot be taken at all; then none of them is."""
    if event.task_type not in situation.rules.pipelines:
        known = ", ".join(sorted(situation.rules.pipelines))
        message = f"no pipeline is called {event.task_type} (allowed: {known})"
        return refuse(situation, "UNKNOWN_TASK_TYPE", message, command("rules check"))
    if event.schedule is not None and (untimely := _untimely(situation, event)) is not None:
        return untimely
    # First the reasons that no other option would fix: a refusal names one reason.
    texts = {} if event.described is None else {event.story: event.described}
    if (refused := no_circle(situation, entries) or _too_much(situation, entries, texts)) is not None:
        return refused
    for entry in entries:
        if is_beside(situation.ledger, entry.story):
            message = f"{entry.story} is in flight in a track of its own"
            return refuse(situation, "ALREADY_RUNNING", message, command("status"))
        if not event.force and (refused := _not_startable(situation, event, entry.story)) is not None:
            return refused
    return None


def _not_startable(situation: Situation, event: Started, story: str) -> Decision | None:
    """Return why this story cannot be started at all, whatever else goes on."""
    here = situation.state.story == story
    if situation.in_flight and here:
        message = f"{story} is in flight at {situation.state.step}"
        other = _with_executor(event, situation.track)
        advice = other or way_on(situation.track, situation.rules)
        return refuse(situation, "ALREADY_RUNNING", message, advice)
    # A story that another tool brought to its end is in STATE alone.
    if story in situation.ledger.stories_done or (here and situation.done):
        busy = situation.in_flight or situation.state.status is Status.RUNNING
        anew = asked_again(event, queue=busy, force=True)
        again = command("reopen", "STEP") if here and situation.done else anew
        return refuse(situation, "ALREADY_COMPLETED", f"{story} is done", again)
    return None


def _with_executor(event: Started, track: Track) -> str | None:
    """Return what gives the story in flight the executor that a start asks for, if it asks for one."""
    if not event.executor or event.executor == track.ledger.executor:
        return None
    chosen = command("use", ",".join(event.executor))
    return f"{chosen} && {command('resume')}" if track.ledger.paused_by else chosen


def _untimely(situation: Situation, event: Started) -> Decision | None:
    """Return why a schedule starts nothing now: of each schedule, one story is enough at a time."""
    ledger = situation.ledger
    if situation.in_flight and ledger.schedule == event.schedule:
        message = f"{situation.state.story} of {event.schedule} is in flight still"
        return refuse(situation, "STORY_IN_PROGRESS", message, way_on(situation.track, situation.rules))
    if (beside := next((one for one in ledger.beside if one.schedule == event.schedule), None)) is not None:
        message = f"{beside.story} of {event.schedule} is in flight still"
        return refuse(situation, "STORY_IN_PROGRESS", message, command("status"))
    waiting = _waiting_of(situation, event.schedule)
    # Where none is in flight it has its turn now: else it would keep the schedule from ever starting again.
    if waiting is not None and (situation.in_flight or unmet(waiting, ledger)):
        message = f"{waiting.story} of {event.schedule} waits in the backlog still"
        return refuse(situation, "ALREADY_QUEUED", message, command("backlog"))
    if ledger.paused_by and not event.queue and not situation.in_flight:
        return refuse(situation, "PAUSED", f"paused by {ledger.paused_by}", command("resume"))
    return None


def _waiting_of(situation: Situation, schedule: str | None) -> Queued | None:
    """Return the story of a schedule that waits in the backlog, if one does."""
    if schedule is None:
        return None
    return next((one for one in situation.ledger.backlog if one.schedule == schedule), None)


def _not_described(
    situation: Situation, event: Started, missing: tuple[str, ...], strange: tuple[str, ...]
) -> Decision | None:
    """Return the refusal of stories that nothing describes, where an agent would be paid for guessing."""
    if event.force or not event.heeds_undescribed:
        return None
    busy = situation.in_flight or situation.state.status is Status.RUNNING  # nor is a story set aside for it
    anyway = asked_again(event, queue=event.queue or busy, force=True)
    if strange:
        text = replace(event, story="", numbers=(), then=(), described=StoryText(title="", text=""))
        message = f"{not_quoted_in_words(strange)}; if they are ids: {anyway}"
        return refuse(situation, "UNQUOTED", message, asked_again(text, queue=event.queue))
    if not missing or not _at_its_level(situation.track, event).ledger.automatic:
        return None
    edit = f"{asked_again(replace(event, story=missing[0], then=()), queue=event.queue or busy)} --edit"
    message = f"{not_described_in_words(missing)}; to start it all the same: {anyway}"
    return refuse(situation, "UNDESCRIBED", message, edit)


def _in_the_way(situation: Situation, event: Started, *, running: bool) -> Decision:
    state = situation.state
    message = f"{state.story or 'an attempt'} {'runs' if running else 'is in flight'} at {state.step}"
    itself = state.story == event.story  # given with --force: it can be done anew, but not while it runs
    # Behind a story that waits for it, it would wait for ever.
    first = not running and event.story in state.blocked_by
    again = asked_again(event, queue=not first, force=first)
    advice = way_on(situation.track, situation.rules) if itself else again
    return refuse(situation, "STORY_IN_PROGRESS", message, advice)


# --- the next of the backlog --------------------------------------------------------------------------
def go_on(situation: Situation, event: Continued) -> Decision:
    """Start the next story of the backlog, where none is in flight."""
    ledger = situation.ledger
    if situation.in_flight:
        message = f"{situation.state.story} is in flight at {situation.state.step}"
        return refuse(situation, "STORY_IN_PROGRESS", message, way_on(situation.track, situation.rules))
    if ledger.paused_by and not ledger.self_paused:
        message = f"paused by {ledger.paused_by}"
        return refuse(situation, "PAUSED", message, command("resume"))
    if event.keeps_unlanded and is_unlanded(situation.track):
        return _not_landed(situation)
    if event.awaits_landing and (upcoming := startable(ledger)) is not None:
        return _queue_asked(situation, (upcoming,))
    anew = situation.at(situation.track.unpaused())  # a person asks for another story
    parked = next_parked(situation.track) if situation.done else None
    if parked is not None:
        return taken_up(anew, parked)
    upcoming = startable(ledger)
    if upcoming is None:
        return _nothing_to_start(situation)
    return start_from_backlog(anew, upcoming)


def _not_landed(situation: Situation) -> Decision:
    """Refuse a story that would take the place of one that a person has to land, or takes up again."""
    message = f"{situation.state.story} could not be landed: {situation.ledger.unlanded}"
    return refuse(situation, "STORY_IN_PROGRESS", message, to_land(situation.track))


def start_from_backlog(situation: Situation, upcoming: Queued) -> Decision:
    """Begin a story of the backlog, which leaves it with that; one that was set aside goes on."""
    grounds = _passed_over(situation, upcoming)
    if (parked := parked_of(situation.ledger, upcoming.story)) is not None:
        return taken_up(situation, parked).because(*grounds)
    started, checklist = begin(situation, upcoming, bootstrapped=upcoming.bootstrapped)
    return accept(started, f"{upcoming.story} starts from the backlog").also(checklist).because(*grounds)


def taken_up(situation: Situation, parked: Parked, behind_: str = "") -> Decision:
    """Resume a story that was set aside; send a new notice if it waits for a person.

    The earlier notice ended when another story took its place.
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
    """Return why the stories before it are not started, and its own place."""
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


# --- changing the backlog -----------------------------------------------------------------------------
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
    """Change the options of a queued story."""
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


def add(situation: Situation, event: BacklogAdded) -> Decision:
    """Put stories into the backlog, or report what that would do; all of them, or none."""
    known = frozenset(known_stories(situation.track))
    new = tuple(one for one in event.stories if one.story not in known)
    entries = tuple(_new_entry(situation, event, one) for one in new)
    changed = texts_taken(situation.ledger, event, known)
    texts = {one.story: one.described for one in new} | changed
    if (refused := no_circle(situation, entries) or _too_much(situation, entries, texts)) is not None:
        return refused
    backlog = situation.ledger.backlog
    for entry in entries:
        backlog = behind(backlog, entry)
    track = with_texts(situation.track.with_ledger(backlog=backlog), texts) if texts else situation.track
    names = frozenset(one.story for one in new)
    return added(situation, event, track, new=names, changed=frozenset(changed))


def _new_entry(situation: Situation, event: BacklogAdded, one: NewStory) -> Queued:
    return Queued(
        story=one.story, blocked_by=one.blocked_by, priority=one.priority, bootstrapped=event.bootstrapped,
        by=event.by, at=situation.now,
    )  # fmt: skip


def _too_much(
    situation: Situation, entries: Iterable[Queued], texts: Mapping[str, StoryText]
) -> Decision | None:
    """Return the refusal of what would make the backlog too long; None when there is room."""
    backlog, known = situation.ledger.backlog, {**situation.ledger.texts, **texts}
    for entry in entries:
        backlog = behind(backlog, entry)
    said = [len(entry.instruction or "") for entry in backlog]
    said += [len(known[entry.story].text) for entry in backlog if entry.story in known]
    if len(backlog) <= MOST_STORIES + 1 and sum(said) <= MOST_TEXT:  # one of them may start at once
        return None
    most = f"{MOST_STORIES} stories and {MOST_TEXT} characters of instructions and texts"
    message = f"the backlog holds {most} at most"
    return refuse(situation, "BACKLOG_FULL", message, command("backlog"))


def remove(situation: Situation, event: BacklogRemoved) -> Decision:
    """Take stories out of the backlog; all of them, or none."""
    for story in event.stories:
        if entry_of(situation.ledger, story) is None:
            return _not_there(situation, story)
    ledger = situation.ledger
    unwanted = [story for story in event.stories if parked_of(ledger, story) is None]
    kept = without_texts(ledger, unwanted)
    track = situation.track.with_ledger(backlog=without(kept.backlog, event.stories), texts=kept.texts)
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
