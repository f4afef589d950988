"""The views of one project for `status`, `peek` and `backlog`: the journal's track and live facts about it.

A view shows one moment: everything that needs an await is read first, and dropped if another attempt is in
flight by then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.capacity.slots import Slots
from handoffd.engine.decision import Blocked, Decision, next_command, to_land, waits_at_gate
from handoffd.engine.routing import (
    MAX_ATTEMPTS,
    coming,
    entry_of,
    first_step,
    look_command,
    question_of,
    unasked,
    waits_in_words,
)
from handoffd.engine.track import Ledger, Queued, Track, own_story, parked_of
from handoffd.engine.views import (
    BacklogView,
    Peek,
    ProjectView,
    QueuedView,
    SnapshotsView,
    SnapshotView,
    StoryStanding,
    StoryView,
    TrackView,
)
from handoffd.engine.wording import (
    addressed,
    approving,
    command,
    command_for,
    first_few,
    repair_command,
    showing_gate,
)
from handoffd.errors import NotFound, Refused
from handoffd.execute.meter import Live
from handoffd.execute.registry import names_in
from handoffd.inspection.own_files import PIPELINES, is_pipeline
from handoffd.project.project import Project
from handoffd.project.whereabouts import is_closed
from handoffd.protocol.rules import DONE, RuleBook, commands_of, dotted
from handoffd.protocol.state import State, Status
from handoffd.track.track import TrackSupervisor


async def view_of(project: Project, slots: Slots) -> ProjectView:
    """Return the view of a project."""
    flights = [await _flight_of(project, track) for track in tuple(project.tracks.values())]
    # No await from here on: the view shows one moment of all tracks.
    tracks = [_track_view(project, flight, slots) for flight in flights]
    main = project.main.track
    condition = project.condition
    if condition == "ok" and main.state is None:
        condition = "not_initialized"
    return ProjectView(
        project=project.root,
        name=main.state.project if main.state is not None else Path(project.root).name,
        level=_level(main),
        condition=condition,
        detail=project.detail,
        paused_by=main.ledger.project_paused_by,
        test_command=project.files.settings.test.command,
        warnings=(*_warnings(project, slots), *(told for one in flights if (told := _lost(project, one)))),
        tracks=tuple(view for view in tracks if view is not None),
        executor=", ".join(names_in(project.files.settings.executor)) or None,
        since=project.since,
        auto_continue=project.main.continues,
        held=project.files.held,
        post_checks={
            dotted(step, name): command
            for step, rule in project.files.rules.steps.items()
            for name, command in commands_of(rule.post_check)
        },
    )


async def peek_of(project: Project, story: str | None = None, *, bootstrapped: bool) -> Peek:
    """Return what the next turn of a project, or of its `story`, would do.

    Raises Refused for one that has no STATE.json (NOT_INITIALIZED), and where several are meant (AMBIGUOUS).
    """
    if project.main.track.state is None:
        hint = command_for(project.root, "init")
        raise Refused(f"{project.root} has no STATE.json", code="NOT_INITIALIZED", hint=hint)
    track = project.stories.by_hand(story, lambda _: True)
    decision, event, prompt, warnings = await track.peek()
    rules, done = project.files.rules, project.stories_done()
    found = peek_at(project.root, decision, rules, done, bootstrapped=bootstrapped)
    return replace(found, track=track.key.track, executor=event.executor, prompt=prompt, warnings=warnings)


def peek_at(
    root: str, decision: Decision, rules: RuleBook, done: Collection[str], *, bootstrapped: bool
) -> Peek:
    """Return what to show of the decision that a turn would be, in a project whose stories `done` are.

    Without a story the step is the one that a story would begin at: STATE says `bootstrap` until then,
    also in a project that has that behind it (`bootstrapped`).
    """
    state, result = decision.track.state, decision.result
    assert state is not None
    step = state.step
    following = _leading_on(decision.track, rules, done)
    if isinstance(result, Blocked) and following is not None:
        result = replace(
            result, next_command=following, caller_instruction=f"{result.reason}; next: {following}"
        )
    if state.story is None and isinstance(result, Blocked):
        story = rules.pipelines["story"]
        step = first_step(story, decision.track.ledger, bootstrapped=bootstrapped)
        result = replace(result, step=step)
    return Peek(project=root, result=result, why=decision.why, step=step, attempt=state.attempt)


def _level(track: Track) -> Literal[0, 1, 2]:
    if track.state is None:
        return 0
    return 2 if track.ledger.automatic else 1


def _warnings(project: Project, slots: Slots) -> tuple[str, ...]:
    trust = command_for(project.root, "trust")
    files = project.files
    gone = [
        f"{name} {_UNREAD if name in files.unread else _GONE}; to do without it: `{trust}`"
        for name in files.gone
    ]
    crowded = [f"{PIPELINES} {files.crowd}"] if files.crowd else []
    lost = any(not is_pipeline(name) for name in project.files.gone)  # then all that it said seems edited
    keys = () if lost else project.files.held
    held = [f"edits wait for `{trust}`: {first_few(keys)}"] if keys else []
    unwritten = [track.committed.trouble for track in project.tracks.values() if track.committed.trouble]
    troubles = [(track.snapshots.trouble, track.place.trouble) for track in project.tracks.values()]
    unkept = [trouble for pair in troubles for trouble in pair if trouble]
    unkept += project.overlaps.warnings.values()
    crashed = [project.crash] if project.crash else []
    edited = [_EDITED] if project.reconciler.edited else []
    leaving = [_LEAVING] if project.leaving else []
    group = project.files.settings.group
    asks_none = project.files.settings.gates == "none" and project.lands_by_itself
    unlanded = [_NEVER_LANDS.format(project.files.settings.stories.land)] if asks_none else []
    unknown = [_UNKNOWN_GROUP.format(group)] if group is not None and group not in slots.groups else []
    return (
        *map(str, project.files.problems),
        *gone,
        *crowded,
        *held,
        *unwritten,
        *unkept,
        *crashed,
        *edited,
        *leaving,
        *unknown,
        *unlanded,
    )


_GONE = "is gone, bring it back"
_UNREAD = "cannot be read: it is not a text file, or too large, or a link is on the way"
_LEAVING = (
    "the settings no longer name it: supervision ends with its current run; `handoffd add PROJECT` keeps it"
)
_EDITED = "STATE.json was changed from outside; the next verb, or a daemon, adopts that or holds it"
_NEVER_LANDS = "gates: none asks no person about a story, so stories.land: {} lands none: that is yours to do"
_UNKNOWN_GROUP = "group: {} is none of the daemon's settings (scheduling.groups), so it limits nothing"


class _Flight(Struct, frozen=True):
    """The parts of a view that need an await; by then `attempt` may not be in flight any more."""

    track: TrackSupervisor
    attempt: tuple[object, ...]
    elapsed_min: float | None = None
    live: Live | None = None
    gone: bool = False
    """Whether the clone of a story that is over, or in which an attempt runs, has been removed."""


async def _flight_of(project: Project, track: TrackSupervisor) -> _Flight:
    attempt = _attempt_of(track.track)
    elapsed, live = await project.deadlines.elapsed_min(track), await track.live()
    return _Flight(track, attempt, elapsed, live, await _is_gone(track.track))


async def _is_gone(track: Track) -> bool:
    state, where = track.state, track.ledger.workspace
    over = state is not None and (state.step == DONE or track.ledger.closed)
    if not (over or track.ledger.dispatch) or where is None or where.kind != "clone" or where.branch is None:
        return False
    return not await to_thread.run_sync(os.path.isdir, where.folder)  # it is in our state directory


def _lost(project: Project, flight: _Flight) -> str | None:
    """Return that the clone in which an agent works is gone: its end waits for that to come back."""
    state, where = flight.track.track.state, flight.track.track.ledger.workspace
    if not flight.gone or state is None or where is None or flight.track.track.ledger.dispatch is None:
        return None
    end = command_for(project.root, "abort", "--story", state.story or "")
    return f"the clone in which {state.story} works is gone: {where.folder}; to end its attempt: {end}"


def _attempt_of(track: Track) -> tuple[object, ...]:
    """Return what changes when another attempt is in flight, or none."""
    state, dispatch = track.state, track.ledger.dispatch
    if state is None or state.status is not Status.RUNNING:
        return ()
    return (dispatch.id if dispatch is not None else None, state.dispatched_at)


def _track_view(project: Project, flight: _Flight, slots: Slots) -> TrackView | None:
    track = flight.track
    recorded = _as_recorded(track.key.track, track.track)
    if recorded is None:
        return None
    if flight.attempt != _attempt_of(track.track):
        flight = replace(flight, elapsed_min=None, live=None)
    following, ledger = _following(project, track), track.track.ledger
    gate = waits_at_gate(track.track, project.files.rules)
    look = look_command(track.track, _own(project, track), gate=gate) if project.workable else None
    going_on = _going_on(project, track)
    upcoming = coming(ledger, **going_on)
    lands = (following or "").startswith(command_for(project.root, "land"))
    if flight.gone and ledger.dispatch is None:  # by gc, or with the branch by `discard`
        recorded = replace(recorded, workspace=None, branch=recorded.branch if lands else None)
    return replace(
        recorded,
        **_of_output(flight.live, recorded.session),
        pid=track.pid(),
        elapsed_min=round(flight.elapsed_min, 2) if flight.elapsed_min is not None else None,
        waits_for=waits_for(project, track, slots),
        last_error=_latest_error(track),
        next_command=following,
        look_command=addressed(look, project.root) if look else None,
        steps=project.files.rules.path_from(recorded.task_type, recorded.step),
        gate=gate,
        to_land=lands,
        unlanded=ledger.to_land if project.files.settings.stories.land == "ask" else (),
        needs_you=following is not None and _needs_a_person(track.track, to_land=lands, gate=gate),
        next_story=upcoming.story if upcoming is not None else None,
        next_by_itself=unasked(ledger, **going_on) is not None,
        next_waits=project.stories.full() if upcoming is not None else None,
        review_suggested=recorded.step == DONE and ledger.review.suggested,
    )


def _own(project: Project, track: TrackSupervisor) -> str | None:
    """Return the story of a track, where it has to be named: where several are in flight."""
    state = track.track.state
    return state.story if len(project.tracks) > 1 and state is not None else own_story(track.key)


def _needs_a_person(track: Track, *, to_land: bool, gate: bool) -> bool:
    """Return whether a track that rests, with a command to type, waits for a person who did not choose that.

    At level 1 a pending step waits for the one who dispatches it, a person or another tool.
    """
    state, ledger = track.state, track.ledger
    if state is None or state.story is None or state.status is Status.RUNNING or ledger.dispatch is not None:
        return False
    if state.step == DONE or ledger.closed:
        return to_land
    by_hand = not ledger.automatic and not gate and state.status is Status.PENDING
    paused = ledger.paused_by is not None and not ledger.paused_by.startswith("handoffd: ")
    return not by_hand and not (paused and ledger.held_edit is None)


def _latest_error(track: TrackSupervisor) -> str | None:
    """Return what went wrong last: what a limited account said, while that is waited for.

    STATE keeps what the attempt before met, for the next prompt.
    """
    state, met = track.track.state, track.track.ledger.limited
    assert state is not None
    if track.limited is None or not met:
        return state.last_error
    return max(met, key=lambda limit: limit.until).why or None


def _of_output(live: Live | None, session: str | None) -> dict[str, Any]:
    """Return the fields that say what a running executor does and has used, by its own output.

    `session` is the one that it continues, which it need not have told yet.
    """
    if live is None:
        return {}
    seen = live.seen
    return {
        "activity": seen.activity,
        "last_output_at": live.heard_at,
        "tokens": seen.usage.tokens or None,
        "cost_usd": seen.usage.cost_usd,
        "session": seen.session or session,
        "model": seen.model,
    }


def _following(project: Project, track: TrackSupervisor) -> str | None:
    """Return the next command for a person."""
    if project.leaving:
        return command_for(project.root, "add")
    if not project.workable:
        return repair_command(project.root, project.condition)  # it takes no verb before that
    if track.shortage is not None:
        return track.shortage.action
    following = _leading_on(track.track, project.files.rules, project.stories_done())
    if project.condition == "invalid_rules" and following is not None and following in _BY_ANOTHER:
        return repair_command(project.root, project.condition)
    if project.files.held and following == command("retry"):
        following = f"{command('trust')} && {following}"  # the edit may repair it
    where = track.track.ledger.workspace
    if where is not None and following is not None and following == to_land(track.track):
        closed = is_closed(project.files.settings.stories, where.onto)
        following = f"{following} --onto BRANCH" if closed else following
    return addressed(following, project.root, _meant(project, track)) if following else None


def _meant(project: Project, track: TrackSupervisor) -> str | None:
    """Return the story that a command for a track names; None where it is for the whole project."""
    state, ledger = track.track.state, track.track.ledger
    if own_story(track.key) is not None or len(project.tracks) == 1 or ledger.paused_by or state is None:
        return own_story(track.key)
    return state.story


_BY_ANOTHER = frozenset({None, command("dispatch"), command("start", "STORY")})
"""What comes next where it may be another story's turn."""


def _leading_on(track: Track, rules: RuleBook, done: Collection[str]) -> str | None:
    """Return the command that leads on, as a template; for a blocked story, it is about what it waits for.

    The blocked one is set aside for that, and is taken up again behind it.
    """
    following, state, ledger = next_command(track, rules), track.state, track.ledger
    if following not in _BY_ANOTHER or state is None or state.story is None or state.status is Status.RUNNING:
        return following
    own = () if ledger.automatic else ("--manual",)
    if state.step == DONE or ledger.closed:
        aside = next((one.state.story for one in ledger.parked if one.state.story is not None), None)
        return following if aside is None else command("start", aside, *own)
    first = _done_first(ledger, state.blocked_by, done)
    return following if first is None else command("start", first, "--force", *own)


def _done_first(ledger: Ledger, blocked_by: Iterable[str], done: Iterable[str]) -> str | None:
    """Return the story to do first for one that is blocked: what it waits for, or what that waits for."""
    met, first = {*done, MAX_ATTEMPTS}, None
    while (blocker := next((one for one in blocked_by if one not in met), None)) is not None:
        entry, parked = entry_of(ledger, blocker), parked_of(ledger, blocker)
        blocked_by = entry.blocked_by if entry else parked.state.blocked_by if parked else ()
        met, first = {*met, blocker}, blocker
    return first


def _as_recorded(name: str, track: Track) -> TrackView | None:
    """Return the recorded part of a track's view, without live facts or consequences of the rules."""
    state, dispatch, where = track.state, track.ledger.dispatch, track.ledger.workspace
    if state is None:
        return None
    measured = track.ledger.facts.tests  # a later step that runs no tests repeats them as its own claim
    tests = measured or state.tests
    return TrackView(
        track=name, story=state.story, task_type=state.task_type, step=state.step,
        attempt=state.attempt, max_attempts=state.max_attempts, status=state.status.value,
        reason=state.reason.value if state.reason else None,
        phase=dispatch.phase.value if dispatch else None,
        executor=dispatch.executor if dispatch else None,
        dispatch=dispatch.id if dispatch else None,
        ask=dispatch.ask if dispatch else "handoff" if track.asking else None,
        session=dispatch.session if dispatch else None,
        pid=None, elapsed_min=None, timeout_min=state.timeout_min,
        dispatched_at=state.dispatched_at, completed_at=state.completed_at,
        tests=tests,
        tests_measured=None if tests is None else measured is not None,
        failing_tests=state.failing_tests, lint_pass=state.lint_pass,
        blocked_by=state.blocked_by, human_note=state.human_note, last_error=state.last_error,
        waits_for=None, next_command=None, steps=(),
        backlog=tuple(queued.story for queued in track.ledger.backlog),
        parked=tuple(parked.state.story or "" for parked in track.ledger.parked),
        title=_title_of(track.ledger, state.story),
        workspace=where.folder if where is not None and where.kind == "clone" else None,
        branch=where.branch if where else None, base=where.base if where else None,
        paused_by=track.ledger.paused_by, aborted=track.ledger.closed,
        discarded=track.ledger.discarded,
    )  # fmt: skip


def waits_for(project: Project, track: TrackSupervisor, slots: Slots) -> str | None:
    """Return why nothing of a track runs, in words; None while something runs or when it is done."""
    state, ledger = track.track.state, track.track.ledger
    if state is None or state.status is Status.RUNNING or state.step == DONE:
        return None
    if project.leaving:
        return _LEAVING
    if not project.workable:
        return project.detail or project.condition
    if ledger.held_edit:
        return ledger.held_edit.why
    if ledger.paused_by:
        return f"paused by {ledger.paused_by}{_tried_again(ledger)}"
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return _asked(track.track) or state.last_error or _question(state)
    unmet = [name for name in state.blocked_by if name not in project.stories_done()]
    if state.story is not None and not ledger.closed and unmet:
        return f"blocked by {', '.join(unmet)}{', which is not done' if len(unmet) == 1 else ''}"
    if not ledger.automatic or state.story is None:
        wanted = "a start" if state.story is None else "you or another tool to dispatch it"
        return wanted if ledger.automatic else f"{wanted}: the project is at level 1"
    if ledger.capped is not None and state.status is Status.PENDING:
        return ledger.capped.text
    if track.shortage is not None:
        return track.shortage.why
    if track.limited is not None:
        return track.limited
    return slots.words(track.key) or ledger.told


def _tried_again(ledger: Ledger) -> str:
    """Return when handoffd tries again by itself what it paused the project for."""
    if not ledger.self_paused:
        return ""
    at = min((fault.again_at for fault in ledger.faults if fault.again_at is not None), default=None)
    return "" if at is None else f"; tried again at {at.astimezone():%H:%M %Z}"


def _asked(track: Track) -> str | None:
    """Return the question of an agent, and the note by which a person may have answered it."""
    question, note = question_of(track), track.state.human_note if track.state is not None else None
    if question is None:
        return None
    return f"your answer to: {question}" + (f" (your note so far: {note})" if note else "")


def _question(state: State) -> str:
    """Return the question to a person if no error contains it."""
    if MAX_ATTEMPTS in state.blocked_by:
        failed = f"{state.step} failed: {state.reason}" if state.reason else f"{state.step} failed"
        return f"{failed}, no attempt left"
    return f"{state.step} ended with {state.reason}" if state.reason else "a person's decision"


# --- the backlog --------------------------------------------------------------------------------------
def backlog_of(project: Project) -> BacklogView:
    """Return a project's backlog, and what each of its stories waits for."""
    main = project.main
    track, going_on = main.track, _going_on(project, main)
    by_itself, upcoming = unasked(track.ledger, **going_on), coming(track.ledger, **going_on)
    held = track.ledger.project_paused_by and not track.ledger.paused_by
    ended = [one.track for one in project.tracks.values() if to_land(one.track) is not None]
    over = tuple(one.state.story for one in ended if one.state is not None and one.state.story is not None)
    following = command("resume") if held else next_command(track, project.files.rules)
    if following == approving(_in_flight(track)):
        following = showing_gate(_own(project, main))
    return BacklogView(
        project=project.root,
        story=_in_flight(track),
        auto_continue=main.continues,
        chosen=track.ledger.auto_continue,
        paused_by=track.ledger.project_paused_by,
        next_story=upcoming.story if upcoming is not None else None,
        next_by_itself=by_itself is not None,
        next_waits=project.stories.full() if upcoming is not None else None,
        beside=tuple(one.story for one in track.ledger.beside if one.story not in over),
        set_aside=tuple(one.state.story for one in track.ledger.parked if one.state.story is not None),
        to_land=(*over, *track.ledger.to_land),
        next_command=addressed(following, project.root) if following else None,
        stories=tuple(
            _queued_view(track, place, entry) for place, entry in enumerate(track.ledger.backlog, start=1)
        ),
    )


def _going_on(project: Project, track: TrackSupervisor) -> dict[str, bool]:
    """Return how the backlog of a track goes on, as `unasked` has it."""
    return {"auto_continue": track.continues, "beside": project.beside}


def _in_flight(track: Track) -> str | None:
    state = track.state
    return None if state is None or state.step == DONE or track.ledger.closed else state.story


def _queued_view(track: Track, place: int, entry: Queued) -> QueuedView:
    waits_for = waits_in_words(track, entry)
    return QueuedView(
        story=entry.story, place=place, priority=entry.priority, task_type=entry.task_type,
        instruction=entry.instruction, complexity=entry.complexity, blocked_by=entry.blocked_by,
        executor=entry.executor, agent_teams=entry.agent_teams, by=entry.by, at=entry.at,
        schedule=entry.schedule, startable=waits_for is None, waits_for=waits_for,
        title=_title_of(track.ledger, entry.story),
    )  # fmt: skip


# --- one story ----------------------------------------------------------------------------------------
def story_of(project: Project, story: str | None) -> StoryView:
    """Return a story with its text; None: the one in flight, or that ended last. Raises NotFound."""
    track, own = project.main.track, project.track_of(story).track
    name = story or (track.state.story if track.state is not None else None)
    standing = None if name is None else _standing_of(own, name) or _standing_of(track, name)
    if standing is None and name in track.ledger.texts:
        standing = "closed"  # aborted, and others were started since
    if name is None or standing is None:
        what = "no story was started" if name is None else f"no story is called {name[:80]!r} here"
        raise NotFound(what, hint=command_for(project.root, "backlog"))
    told = track.ledger.texts.get(name)
    return StoryView(
        project=project.root, story=name, standing=standing,
        title=told.title if told is not None else None,
        text=told.text or None if told is not None else None,
        source=told.source if told is not None else None,
    )  # fmt: skip


def _standing_of(track: Track, story: str) -> StoryStanding | None:
    if track.state is not None and track.state.story == story:
        return "closed" if track.ledger.closed else "done" if track.state.step == DONE else "in_flight"
    if entry_of(track.ledger, story) is not None:
        return "queued"
    if parked_of(track.ledger, story) is not None:
        return "set_aside"
    return "done" if story in track.ledger.stories_done else None


def _title_of(ledger: Ledger, story: str | None) -> str | None:
    told = ledger.texts.get(story) if story is not None else None
    return told.title if told is not None else None


# --- the snapshots ------------------------------------------------------------------------------------
async def snapshots_of(project: Project, story: str | None) -> SnapshotsView:
    """Return the snapshots of a project's story. Raises NotFound, and StoreError where there can be none.

    `story` names the one that is meant, where several are in flight.
    """
    found = project.track_of(story)
    track = found.track
    if story is not None and (track.state is None or track.state.story != story):
        hint = command_for(project.root, "status")
        raise NotFound(f"{story} is not in flight", hint=hint)
    kept = await found.snapshots.all(track)
    views = [
        SnapshotView(
            name=one.name, ref=one.ref or None, commit=one.commit, step=one.label.step,
            result=one.label.result, run=one.label.run, by=one.label.by, at=one.label.at, files=one.files,
        )
        for one in kept
    ]  # fmt: skip
    shown = track.state.story if track.state is not None else None
    folder = track.works_in(project.root).folder
    return SnapshotsView(project=project.root, story=shown, snapshots=tuple(views), folder=folder)
