"""Builds the report: the rows of a night, and the views of the projects as they are now, become one value.

Numbers come from the rows, which outlive every daemon; what needs a person, and what goes on, from the
views. Of a step whose attempts failed the last one speaks for all: the others were answered by trying again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import PurePath
from shlex import quote
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.routing import Awaited
from handoffd.engine.track import EXTERNAL, TrackKey
from handoffd.engine.views import WORKABLE, ProjectView, ScheduleView, TrackView, Whereabouts
from handoffd.engine.wording import (
    addressed,
    bringing_back,
    command_for,
    first_few,
    flow_command,
    repair_command,
    throwing_away,
    why_in_words,
)
from handoffd.journal.history import Handover, Happened, Night, Ran, StoryEnd
from handoffd.journal.records import FAILED, LeftOut, Life
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import Status
from handoffd.report.claims import against, claims_of, ended_runs
from handoffd.report.values import (
    MOST_LISTED,
    CapUse,
    Coming,
    Cost,
    Down,
    DroppedStory,
    EndedStory,
    Entry,
    FailedStep,
    Falsehood,
    More,
    Report,
    TimeSpent,
    WaitingStory,
)

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Entry)

AHEAD: Final = timedelta(hours=24)
"""How far ahead the schedules are shown."""


class Fleet(Struct, frozen=True, kw_only=True):
    """The projects as they are now. `alive`: whether a daemon runs."""

    views: Sequence[ProjectView]
    schedules: Sequence[ScheduleView]
    caps: Sequence[CapUse]
    alive: bool
    since: Mapping[TrackKey, datetime] = {}
    """Since when tracks wait for a person, or are paused, where their views do not say it."""


class Asked(Struct, frozen=True, kw_only=True):
    """What the report is about, and when it is made. `left_out`: events that are not kept."""

    project: str | None
    at: datetime
    left_out: Sequence[LeftOut] = ()


def build(night: Night, fleet: Fleet, asked: Asked) -> Report:
    """Return the report of a night."""
    names = {view.project: view.called or view.name for view in fleet.views}

    def name(root: str) -> str:
        return names.get(root) or PurePath(root).name

    downs = without_daemon(night.lives, night.since, night.until, alive=fleet.alive or asked.at > night.until)
    landed, false = list(_landed(night.ends, fleet.views, name)), list(_false(night, name))
    paused = list(_paused(fleet))
    waiting = sorted(_waiting(fleet), key=lambda one: (one.since or asked.at, one.name))
    failed = sorted(_failed(night, name), key=lambda one: one.passed)
    coming, dropped = list(_coming(fleet, asked.at)), list(_dropped(night.ends, fleet.views, name))
    return Report(
        since=night.since, until=night.until, at=asked.at, project=asked.project, events=len(night.events),
        projects=len({event.key.project for event in night.events} | {one.project for one in waiting}),
        incomplete=_incomplete(night, asked.left_out), down=downs,
        landed=tuple(landed[:MOST_LISTED]), waiting=tuple(waiting[:MOST_LISTED]),
        failed=tuple(failed[:MOST_LISTED]), false=tuple(false[:MOST_LISTED]),
        cost=_cost(night, fleet.caps), time=time_spent(night, downs, names),
        next=tuple(coming[:MOST_LISTED]), paused=tuple(paused[:MOST_LISTED]),
        dropped=tuple(dropped[:MOST_LISTED]),
        more=More(
            landed=_beyond(landed), waiting=_beyond(waiting), failed=_beyond(failed), false=_beyond(false),
            next=_beyond(coming), paused=_beyond(paused), dropped=_beyond(dropped),
        ),
    )  # fmt: skip


def with_titles(report: Report, titles: Mapping[tuple[str, str], str]) -> Report:
    """Return a report whose stories have their titles, by root and story."""
    return replace(
        report,
        landed=_titled(report.landed, titles), waiting=_titled(report.waiting, titles),
        failed=_titled(report.failed, titles), false=_titled(report.false, titles),
        next=_titled(report.next, titles), paused=_titled(report.paused, titles),
        dropped=_titled(report.dropped, titles),
    )  # fmt: skip


def with_places(report: Report, places: Mapping[tuple[str, str], Whereabouts]) -> Report:
    """Return a report whose stories have where their work is, by root and story."""
    return replace(
        report,
        landed=tuple(_left(one, places.get((one.project, one.story or ""))) for one in report.landed),
        dropped=tuple(_placed(one, places) for one in report.dropped),
    )


def _left(one: EndedStory, where: Whereabouts | None) -> EndedStory:
    if where is None or one.outcome != "done":
        return one
    return replace(one, branch=where.branch, says=where.says, command=where.command)


def _placed(one: DroppedStory, places: Mapping[tuple[str, str], Whereabouts]) -> DroppedStory:
    where = places.get((one.project, one.story or ""))
    if where is None or one.outcome != "aborted":
        return one
    instead = command_for(one.name, "discard", one.story or "") if where.branch else None
    return replace(one, branch=where.branch, says=where.says, instead=instead)


def _titled(entries: Sequence[_E], titles: Mapping[tuple[str, str], str]) -> tuple[_E, ...]:
    return tuple(replace(one, title=titles.get((one.project, one.story or ""))) for one in entries)


def stories_of(report: Report) -> list[tuple[str, str]]:
    """Return the stories that a report lists, by root, each once."""
    listed = (
        *report.waiting, *report.paused, *report.landed, *report.dropped, *report.failed, *report.false,
        *report.next,
    )  # fmt: skip
    return list(dict.fromkeys((one.project, one.story) for one in listed if one.story is not None))


def _beyond(found: Sequence[object]) -> int:
    return max(len(found) - MOST_LISTED, 0)


def _incomplete(night: Night, left_out: Iterable[LeftOut]) -> str | None:
    """Return why events of the time are missing; what is missing before all of them may be older."""
    if not night.events:
        return None
    first, last = night.events[0].seq, night.events[-1].seq
    return next((one.why for one in left_out if first <= one.after and one.next <= last), None)


Name = Callable[[str], str]
"""Returns what commands call the project at a root."""


# --- what came to its end -----------------------------------------------------------------------------
def _landed(ends: Iterable[StoryEnd], views: Iterable[ProjectView], name: Name) -> Iterator[EndedStory]:
    """Yield the stories that are done or landed, each with its last end; the latest first."""
    tracks = {(view.project, track.story): track for view in views for track in view.tracks}
    branches = {story: track.branch for story, track in tracks.items()}
    again = {story for story, track in tracks.items() if track.step != DONE}  # it could not be landed
    for end in _last(ends):
        if end.kind in {"landed", "done"} and (end.key.project, end.story) not in again:
            landed = end.kind == "landed"
            yield EndedStory(
                project=end.key.project, name=name(end.key.project), story=end.story,
                outcome="landed" if landed else "done", onto=end.onto, commit=end.commit,
                how=end.how if landed else None, told=end.told,
                branch=None if landed else branches.get((end.key.project, end.story)), at=end.at,
            )  # fmt: skip


def _last(ends: Iterable[StoryEnd]) -> list[StoryEnd]:
    """Return the last end of each story, the latest first. What is landed stays so without its branch."""
    last: dict[tuple[str, str], StoryEnd] = {}
    for end in ends:
        story = (end.key.project, end.story)
        if end.kind != "discarded" or story not in last or last[story].kind != "landed":
            last[story] = end
    return sorted(last.values(), key=lambda end: end.seq, reverse=True)


def _dropped(ends: Iterable[StoryEnd], views: Iterable[ProjectView], name: Name) -> Iterator[DroppedStory]:
    """Yield the stories that a person has aborted or discarded, and that were not asked for again."""
    again = {(view.project, story) for view in views for track in view.tracks for story in _wanted(track)}
    for end in _last(ends):
        root, story = end.key.project, end.story
        if end.kind in {"aborted", "discarded"} and (root, story) not in again:
            called, kept = name(root), end.kept
            anew = command_for(called, "start", story)
            yield DroppedStory(
                project=root, name=called, story=story, by=end.by, at=end.at, kept=kept,
                outcome="aborted" if end.kind == "aborted" else "discarded",
                command=anew if kept is None else bringing_back(root, kept),
            )  # fmt: skip


def _wanted(track: TrackView) -> Iterator[str]:
    yield from (*track.backlog, *track.parked)
    if track.story is not None and track.step != DONE and not track.aborted:
        yield track.story


# --- what needs a person ------------------------------------------------------------------------------
def asked_since(views: Iterable[ProjectView]) -> tuple[list[TrackKey], list[TrackKey]]:
    """Return the tracks whose views do not say since when they wait for a person, and the paused ones."""
    tracks = [(TrackKey(view.project, track.track), track) for view in views for track in view.tracks]
    waiting = [key for key, track in tracks if track.needs_you and track.completed_at is None]
    return waiting, [key for key, track in tracks if _is_paused(track)]


def _is_paused(track: TrackView) -> bool:
    """Return whether a person has paused a track in which something would go on."""
    idle = track.status == Status.RUNNING or track.needs_you or track.aborted
    wanted = track.backlog or (track.story is not None and track.step != DONE)
    return bool(track.paused_by and wanted) and not idle


def _paused(fleet: Fleet) -> Iterator[WaitingStory]:
    for view in fleet.views:
        for track in view.tracks if view.condition in WORKABLE else ():
            if _is_paused(track) and track.next_command is not None:
                one = _waits(view, track, f"paused by {track.paused_by}", track.next_command)
                at = fleet.since.get(TrackKey(view.project, track.track))
                yield replace(one, since=at, instead=None)
            for story in track.parked:
                called = view.called or view.name
                yield WaitingStory(
                    project=view.project, name=called, story=story, step=None, why="set aside", since=None,
                    command=command_for(called, "start", story, "--queue"),
                )  # fmt: skip


def _flows(fleet: Fleet) -> Iterator[WaitingStory]:
    """Yield the questions of flows, and the flows that go on when a person does something."""
    for flow in (flow for view in fleet.views for flow in view.flows):
        for asked in flow.questions:
            why = f"{asked.text} ({asked.why})" if asked.why else asked.text
            yield WaitingStory(
                project=flow.project, name=flow.name, story=flow.flow, step=asked.node or None, why=why,
                since=asked.since, command=flow_command("show", flow.flow),
            )  # fmt: skip
        if not flow.questions and flow.next_command is not None:
            why = flow.waits_for or flow.state
            yield WaitingStory(
                project=flow.project, name=flow.name, story=flow.flow, step=None, why=why, since=None,
                command=flow.next_command,
            )  # fmt: skip


def _waiting(fleet: Fleet) -> Iterator[WaitingStory]:
    yield from _flows(fleet)
    for view in fleet.views:
        if view.condition not in WORKABLE:
            command = repair_command(view.project, view.condition) or command_for(view.project, "status")
            yield _waits(view, None, view.detail or view.condition.replace("_", " "), command)
            continue
        if view.held:
            held = f"edits wait for your trust: {first_few(view.held)}"
            yield _waits(view, None, held, command_for(view.project, "trust"))
        for track in view.tracks:
            if (why := _why(track)) is not None and track.next_command is not None:
                one = _waits(view, track, why, track.look_command or track.next_command)
                at = fleet.since.get(TrackKey(view.project, track.track))
                yield one if one.since else replace(one, since=at)
            for story in track.unlanded:
                called = view.called or view.name
                yield WaitingStory(
                    project=view.project, name=called, story=story, step=None, why="done, not merged yet",
                    since=None, command=command_for(called, "land", "--story", story),
                    instead=command_for(called, "discard", story),
                )  # fmt: skip


def _why(track: TrackView) -> str | None:
    """Return why a track waits for a person; None if it does not, by what status says of it."""
    if not track.needs_you:
        return None
    if track.step == DONE:
        where = track.whereabouts
        return f"done, {where.says}" if where else f"done, to be landed from the branch {track.branch}"
    return track.waits_for or track.status


def _waits(view: ProjectView, track: TrackView | None, why: str, command: str) -> WaitingStory:
    called, instead = view.called or view.name, None
    if track and track.to_land and track.story and not _is_there(track):
        instead = addressed(throwing_away(track.story), view.project)
    elif track and not track.gate:  # a gate has both answers on its screen
        instead = track.next_command

    def by_name(text: str) -> str:
        return text.replace(quote(view.project), quote(called)) if text.startswith("handoffd ") else text

    return WaitingStory(
        project=view.project, name=called, story=track.story if track else None,
        step=track.step if track and track.step != DONE else None, why=why,
        since=track.completed_at if track else view.since,
        command=by_name(command),
        instead=by_name(instead) if instead is not None and instead != command else None,
    )  # fmt: skip


def _is_there(track: TrackView) -> bool:
    """Return whether a person has merged all of a story: nothing is left to be thrown away."""
    return track.whereabouts is not None and track.whereabouts.would == "landed"


# --- what failed --------------------------------------------------------------------------------------
def _failed(night: Night, name: Name) -> Iterator[FailedStep]:
    over = {(end.key.project, end.story): end.at for end in night.ends if end.kind in {"landed", "done"}}
    steps: defaultdict[tuple[str, str | None, str], list[Ran]] = defaultdict(list)
    for run in ended_runs(night):
        steps[run.key.project, run.story, run.step].append(run)
    said = {run.id: claim.said for run, claim, _ in claims_of(night)}
    for (root, story, step), runs in steps.items():
        failed = [run for run in runs if run.outcome in FAILED]
        if failed:
            ended = story is not None and (root, story) in over
            passed = runs[-1].result == Status.PASS or ended
            yield FailedStep(
                project=root, name=name(root), story=story, step=step, attempts=len(failed),
                why=_why_failed(failed[-1], said.get(failed[-1].id, Handover())), passed=passed,
            )  # fmt: skip


def _why_failed(run: Ran, said: Handover) -> str:
    return why_in_words(run.why, said.reason, said.summary) or run.outcome or ""


# --- what was claimed, and is not so ------------------------------------------------------------------
def _false(night: Night, name: Name) -> Iterator[Falsehood]:
    for run, claim, measured in claims_of(night):
        for about, claimed, found in against(run, claim, measured):
            yield Falsehood(
                project=run.key.project, name=name(run.key.project), story=run.story, step=run.step,
                attempt=run.attempt, run=run.id, about=about, claimed=claimed, measured=found,
            )  # fmt: skip


# --- what it cost -------------------------------------------------------------------------------------
def _cost(night: Night, caps: Sequence[CapUse]) -> Cost:
    own = [run for run in night.runs if run.executor != EXTERNAL]
    ended = [run for run in ended_runs(night) if run.executor != EXTERNAL]
    counts = Counter(
        "unmeasured" if run.tokens is None else "unpriced" if run.tokens and run.cost_usd is None else "known"
        for run in ended
    )
    return Cost(
        runs=len(ended), unmeasured=counts["unmeasured"], unpriced=counts["unpriced"],
        tokens=sum(run.tokens or 0 for run in ended),
        usd=round(sum(run.cost_usd or 0.0 for run in ended), 6), running=len(own) - len(ended),
        caps=tuple(caps),
    )  # fmt: skip


# --- what goes on by itself ---------------------------------------------------------------------------
def _coming(fleet: Fleet, at: datetime) -> Iterator[Coming]:
    views: Mapping[str, ProjectView] = {view.project: view for view in fleet.views}
    for view in fleet.views:
        for track in view.tracks if view.condition in WORKABLE else ():
            if (coming := _of_track(view, track)) is not None:
                yield coming
    due = [one for one in fleet.schedules if one.next_at is not None and one.next_at < at + AHEAD]
    for schedule in sorted(due, key=lambda one: one.next_at or at):
        known = views.get(schedule.project)
        name = known.called or known.name if known else PurePath(schedule.project).name
        yield Coming(
            project=schedule.project, name=name, story=schedule.story or schedule.custom, step=None, then=(),
            at=schedule.next_at, waits_for=schedule.waits_for,
        )  # fmt: skip


def _of_track(view: ProjectView, track: TrackView) -> Coming | None:
    """Return what a track does next by itself; None if it waits for a person, or has nothing to do."""
    name, then = view.called or view.name, track.backlog if view.auto_continue else ()
    if view.level < 2 or _why_not(view, track):
        return None
    if track.story is None or track.step == DONE:
        if track.next_story is None or not track.next_by_itself:
            return None
        rest = tuple(story for story in then if story != track.next_story)
        return Coming(
            project=view.project, name=name, story=track.next_story, step=None, then=rest, at=None,
            waits_for=None,
        )  # fmt: skip
    return Coming(
        project=view.project, name=name, story=track.story, step=track.step, then=then, at=None,
        waits_for=None if track.status == Status.RUNNING else track.waits_for,
    )  # fmt: skip


def _why_not(view: ProjectView, track: TrackView) -> bool:
    """Return whether a person has to act first."""
    if track.status == Status.RUNNING:
        return False
    stuck = view.paused_by is not None or track.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}
    return stuck or (track.next_command is not None and track.step != DONE and track.story is not None)


# --- where the time went ------------------------------------------------------------------------------
# Each event says what its story waits for from then on, so the time up to the next event is known. The time
# of agents is taken from the records of their runs instead, which are true also of a run that went on while
# no daemon was there. What waited for the daemon's own work then is counted as a time without one.
RESTART: Final = timedelta(seconds=90)
"""A shorter time without a daemon is a restart. A daemon notes once a minute that it lives."""

_FIELDS: Final = {
    "checks": "checks", "slot": "slots", "limit": "limits", "person": "people", "story": "stories",
}  # fmt: skip
_OWN_WORK: Final = frozenset({"checks", "slot", "limit", "story"})
"""What does not go on without a daemon. People may decide, and agents go on."""

Span = tuple[datetime, datetime]


def without_daemon(
    lives: Sequence[Life], since: datetime, until: datetime, *, alive: bool
) -> tuple[Down, ...]:
    """Return the times without a daemon that reach into a time; `alive`: whether one runs now."""
    found = []
    seen_at: datetime | None = None
    for before, after in pairwise([*lives, None]):
        assert before is not None
        seen_at = max(seen_at or before.seen_at, before.seen_at)  # a clock that was put back
        if after is None and alive:
            break
        end = None if after is None else after.began_at
        over = (end or until) - seen_at
        if over >= RESTART and seen_at < until and (end is None or end > since):
            found.append(Down(since=seen_at, until=end, how=before.ended or "died"))
    return tuple(found)


def time_spent(night: Night, downs: Iterable[Down], supervised: Collection[str]) -> TimeSpent:
    """Return what the time of a night went into; what is not `supervised` any more waits for nothing."""
    gaps = [(max(one.since, night.since), min(one.until or night.until, night.until)) for one in downs]
    totals: defaultdict[str, float] = defaultdict(float)
    for awaited, span in _spans(night, supervised):
        seconds = _seconds(span)
        lost = sum(_seconds(_both(span, gap)) for gap in gaps) if awaited in _OWN_WORK else 0.0
        totals[_FIELDS[awaited]] += seconds - lost
        totals["down"] += lost
    totals["agents"] = sum(_seconds(_span_of(run, night)) for run in night.runs if run.executor != EXTERNAL)
    return TimeSpent(**{name: round(seconds, 3) for name, seconds in totals.items()})


def _spans(night: Night, supervised: Collection[str]) -> Iterator[tuple[Awaited, Span]]:
    """Yield for what a story waited, and from when until when; but for an agent."""
    tracks: defaultdict[TrackKey, list[Happened]] = defaultdict(list)
    for event in (*night.before, *night.events):
        tracks[event.key].append(event)
    for key, events in tracks.items():
        ends = [*(event.at for event in events[1:]), night.until if key.project in supervised else None]
        for event, end in zip(events, ends, strict=True):
            awaited = awaits(event)
            if awaited in _FIELDS and end is not None:
                yield awaited, (max(event.at, night.since), end)


def awaits(event: Happened) -> Awaited:
    """Return what a story waits for from an event on; in events of older releases, by step and status."""
    if event.awaits is not None:
        return event.awaits
    step, status = event.after or (DONE, "")
    if step == DONE or event.story is None:
        return "nothing"
    if status == Status.RUNNING:
        return "agent"
    return "person" if status in {Status.NEEDS_HUMAN, Status.TIMEOUT} else "slot"


def _span_of(run: Ran, night: Night) -> Span:
    if run.started_at is None:
        return (night.until, night.until)
    return (max(run.started_at, night.since), min(run.ended_at or night.until, night.until))


def _both(first: Span, second: Span) -> Span:
    return (max(first[0], second[0]), min(first[1], second[1]))


def _seconds(span: Span) -> float:
    return max((span[1] - span[0]).total_seconds(), 0.0)
