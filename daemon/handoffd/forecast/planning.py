"""Makes the plan of a night: plays it through, and says of each story what comes of it, and what stops it.

What stops a story is derived from what is known: a human step from the step table, everything else from the
project as it is now or as the simulation leaves it. Stories that the same thing stops are one entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from shlex import quote
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from handoffd.capacity.budgets import caps_in_force
from handoffd.engine.routing import blockers
from handoffd.engine.run import SHARED, UNITS, Caps, Scope, Unit, Usage
from handoffd.engine.track import Queued, Track, unmet
from handoffd.engine.views import WORKABLE
from handoffd.engine.wording import command_for, first_few
from handoffd.files.state_file import MAIN
from handoffd.forecast.plan import (
    MOST_LISTED,
    CapAhead,
    Expected,
    LimitAhead,
    More,
    Outcome,
    PlannedStep,
    PlannedStory,
    QuietAhead,
    SlotsAhead,
    Stop,
    StopKind,
    Tonight,
)
from handoffd.forecast.simulation import Course, Simulation, Site, unfitness
from handoffd.forecast.snapshot import Snapshot
from handoffd.notify.digests import quiet_until
from handoffd.protocol.rules import REVIEW, next_gate
from handoffd.settings.model import ProjectCaps

_NAMED: Final = 10
"""Stories that one entry names."""


def plan(snapshot: Snapshot, *, daemon: bool = True) -> Tonight:
    """Return what would happen. It takes as long as the night has steps: at worst about a second."""
    night = Simulation(snapshot)
    night.run()
    told = [sorted(_tales(site, snapshot), key=lambda one: _begin(one, snapshot)) for site in night.sites]
    tales = [tale for one in sorted(told, key=lambda one: _first(one, snapshot)) for tale in one]
    stories = [one.story for one in tales]
    stops, caps = list(_stops(night, tales)), list(_caps(night, snapshot))
    ahead = [one for one in tales if one.story.outcome != "done" or one.story.steps]
    before_code = sum(one.before_code for one in ahead)
    return Tonight(
        at=snapshot.at, until=snapshot.until, daemon=daemon, projects=len(night.sites), idle=snapshot.idle,
        outcomes=_outcomes(stories), ahead=len(ahead), before_code=before_code,
        gated=0 < before_code == len(ahead), whole=night.whole, expected=_expected(stories),
        slots=SlotsAhead(total=snapshot.fleet.slots, most=night.most, waited=night.waited),
        stories=tuple(stories[:MOST_LISTED]), stops=tuple(stops[:MOST_LISTED]),
        limits=tuple(_limits(snapshot)), caps=tuple(caps[:MOST_LISTED]), quiet=_quiet(snapshot),
        schedules=tuple(night.scheduled[:MOST_LISTED]),
        more=More(
            stories=_beyond(stories), stops=_beyond(stops), caps=_beyond(caps),
            schedules=_beyond(night.scheduled),
        ),
    )  # fmt: skip


def _beyond(found: Sequence[object]) -> int:
    return max(len(found) - MOST_LISTED, 0)


def _begin(tale: _Tale, snapshot: Snapshot) -> datetime:
    """Return when a story is worked on first; one that stops already is before the ones that wait."""
    story = tale.story
    instead = snapshot.until + timedelta(seconds=story.outcome == "waits")
    return story.steps[0].starts_at if story.steps else instead


def _first(tales: Sequence[_Tale], snapshot: Snapshot) -> tuple[datetime, str]:
    begins = [_begin(one, snapshot) for one in tales]
    return min(begins, default=snapshot.until), tales[0].story.name if tales else ""


def _outcomes(stories: Iterable[PlannedStory]) -> dict[Outcome, int]:
    counts = Counter(one.outcome for one in stories)
    known: tuple[Outcome, ...] = get_args(Outcome)
    return {one: counts[one] for one in known}


# --- the stories --------------------------------------------------------------------------------------
class _Tale(Struct, frozen=True, kw_only=True):
    """A story, and what stops it. `before_code`: at a human step, before its first line of code."""

    site: Site
    story: PlannedStory
    kind: StopKind | None
    command: str | None
    at: datetime | None
    before_code: bool = False


def _tales(site: Site, snapshot: Snapshot) -> Iterator[_Tale]:
    for course in (*site.over, *site.courses):
        yield _of_course(site, course, snapshot)
    for entry in site.desk.backlog:
        kind, why, command = _why_not(site, entry)
        story = _planned(site, entry, "waits", (), why=why)
        yield _Tale(site=site, story=story, kind=kind, command=command, at=None)


def _of_course(site: Site, course: Course, snapshot: Snapshot) -> _Tale:
    entry, taken = course.entry, tuple(course.taken)
    if course.done_at is not None:
        kind: StopKind | None = "land" if course.unlanded else None
        why, command = _landing(site, course) if course.unlanded else (None, None)
        story = _planned(site, entry, "done", taken, ends_at=course.done_at, why=why)
        return _Tale(site=site, story=story, kind=kind, command=command, at=course.done_at)
    if course.halt is not None:
        return _halted(site, course)
    if course.blocked:
        missing = [name for name in entry.blocked_by if name not in site.desk.stories_done]
        story = _planned(site, entry, "waits", taken, why=f"waits for {first_few(missing)}")
        return _Tale(site=site, story=story, kind="blocked", command=None, at=None)
    if course.until is not None and course.until >= snapshot.until:
        why = f"waits for a usage limit until {course.until:%H:%M %Z}"
        story = _planned(site, entry, "stops", taken, why=why, stops_at=course.ahead[0])
        return _Tale(site=site, story=story, kind="limit", command=None, at=None)
    begun = bool(taken)
    story = _planned(site, entry, "goes_on" if begun else "waits", taken, why=None if begun else _LATE)
    return _Tale(site=site, story=story, kind=None, command=None, at=None)


_LATE: Final = "its turn does not come in that time"


def _landing(site: Site, course: Course) -> tuple[str, str | None]:
    """Return what a person does with a story that is done, and what to type; of one done now, as status."""
    done = (one for one in site.now.view.tracks if one.to_land and one.story == course.story)
    if (track := next(done, None)) is None:
        return "done, and a person lands it", command_for(site.root, "land", "--story", course.story)
    says = track.whereabouts.says if track.whereabouts is not None else "and a person lands it"
    return f"done, {says}", track.next_command


def _halted(site: Site, course: Course) -> _Tale:
    halt = course.halt
    assert halt is not None
    step, gate = course.ahead[0] if course.ahead else None, halt.kind == "gate"
    why = f"{step} waits for a person's decision" if gate else halt.why
    story = _planned(
        site, course.entry, "stops", tuple(course.taken), ends_at=halt.at, stops_at=step, why=why
    )
    ahead = next_gate(site.now.rules, course.entry.task_type, step) if gate and step is not None else None
    before = ahead is not None and ahead.before_code
    command = halt.command if halt.at is None else _ahead(site, course)
    return _Tale(site=site, story=story, kind=halt.kind, command=command, at=halt.at, before_code=before)


def _ahead(site: Site, course: Course) -> str:
    """Return what to type about a stop that is still to come; of most human steps, what the table asks."""
    halt = course.halt
    assert halt is not None
    if halt.kind == "gate" and course.ahead[0] == REVIEW:
        return command_for(site.root, "init", "--gates", "after")
    if halt.kind == "gate":
        return command_for(site.root, "rules show")
    if halt.finding is None or halt.finding.scope in SHARED:
        return "handoffd config show"
    own = () if halt.finding.scope == "project" else ("--story", course.story)
    unit = "--usd" if halt.finding.unit == "usd" else "--tokens"
    return command_for(site.root, "budget", *own, unit, "NUMBER")


def _planned(
    site: Site, entry: Queued, outcome: Outcome, steps: tuple[PlannedStep, ...], *,
    ends_at: datetime | None = None, stops_at: str | None = None, why: str | None = None,
) -> PlannedStory:  # fmt: skip
    told, view = site.desk.texts.get(entry.story), site.now.view
    return PlannedStory(
        project=site.root, name=view.called or view.name, story=entry.story,
        title=None if told is None else told.title, priority=entry.priority, blocked_by=entry.blocked_by,
        schedule=entry.schedule, outcome=outcome, steps=steps, ends_at=ends_at, stops_at=stops_at, why=why,
    )  # fmt: skip


def _why_not(site: Site, entry: Queued) -> tuple[StopKind | None, str, str | None]:
    """Return what keeps a story of the backlog from its beginning, and what to type."""
    desk, view, root = site.desk, site.now.view, site.root
    if view.condition not in WORKABLE:
        unfit = unfitness(view)
        return unfit.kind, unfit.why, unfit.command
    if unmet(entry, desk):
        waits = blockers(_desk(site), entry)
        unknown = [one.story for one in waits if one.kind == "unknown"]
        if unknown:
            why = f"waits for {first_few(unknown)}, never started and not in the backlog"
            return "blocked", why, command_for(root, "start", unknown[0])
        return "blocked", f"waits for {first_few([one.story for one in waits])}", None
    if not desk.automatic:
        return (
            "level",
            "at level 1 nothing starts by itself",
            command_for(root, "level", "2"),
        )
    if desk.paused_by:
        return "paused", f"paused by {desk.paused_by}", command_for(root, "resume")
    if desk.closed:
        return "person", "the story before it was aborted", command_for(root, "continue")
    if not site.now.continues and entry.schedule is None:
        why = "auto_continue is off, so none starts by itself"
        return "auto_continue", why, command_for(root, "backlog auto", "on")
    return None, _LATE, None


def _desk(site: Site) -> Track:
    return Track(state=site.now.tracks[MAIN].state, ledger=site.desk)


# --- what stops them ----------------------------------------------------------------------------------
_OF_A_STORY: Final[frozenset[StopKind]] = frozenset({"gate", "person", "by_hand", "cap", "limit", "blocked"})
"""What stops one story, and others only if they are at the same; the rest stops a project."""


def _stops(night: Simulation, tales: Iterable[_Tale]) -> Iterator[Stop]:
    found: dict[tuple[object, ...], Stop] = {}
    for one in tales:
        story = one.story
        if one.kind is None:
            continue
        own = (story.stops_at, story.why) if one.kind in _OF_A_STORY else ()
        key = (story.project, one.kind, one.command, own)
        before = found.get(key)
        if before is None:
            command = one.command and _by_name(one.command, story)
            found[key] = Stop(
                project=story.project, name=story.name, kind=one.kind, step=story.stops_at,
                before_code=one.before_code, why=story.why or "", command=command,
                stories=(story.story,), count=1, at=one.at,
            )  # fmt: skip
            continue
        stories = (*before.stories, story.story)[:_NAMED]
        found[key] = replace(before, stories=stories, count=before.count + 1)
    yield from sorted(found.values(), key=lambda stop: (stop.may_wait, -stop.count, stop.name))
    yield from _untrusted(night)


def _by_name(command: str, story: PlannedStory) -> str:
    """Return a command with the project's name; one for git is about a folder."""
    if not command.startswith("handoffd "):
        return command
    return command.replace(quote(story.project), quote(story.name))


def _untrusted(night: Simulation) -> Iterator[Stop]:
    for site in night.sites:
        view = site.now.view
        if view.held:
            why = f"edits do not count before you trust them: {first_few(view.held)}"
            yield Stop(
                project=site.root, name=view.called or view.name, kind="held", step=None, before_code=False,
                why=why, command=command_for(view.called or site.root, "trust"), stories=(), count=0, at=None,
            )  # fmt: skip


# --- what it takes ------------------------------------------------------------------------------------
def _expected(stories: Iterable[PlannedStory]) -> Expected:
    steps = [step for story in stories for step in story.steps]
    bases = {step.basis for step in steps}
    return Expected(
        steps=len(steps), seconds=sum((one.ends_at - one.starts_at).total_seconds() for one in steps),
        tokens=sum(one.tokens or 0 for one in steps), unmeasured=sum(one.tokens is None for one in steps),
        cost_usd=round(sum(one.cost_usd or 0.0 for one in steps), 6),
        unpriced=sum(one.cost_usd is None for one in steps),
        basis="mixed" if len(bases) > 1 else next(iter(bases), "nothing"),
    )  # fmt: skip


def _limits(snapshot: Snapshot) -> Iterator[LimitAhead]:
    for one in sorted(snapshot.limits, key=lambda one: one.until):
        if one.until > snapshot.at and one.kind != "refusal":
            yield LimitAhead(account=one.account, until=one.until, why=one.why)


def _quiet(snapshot: Snapshot) -> QuietAhead | None:
    quiet = snapshot.fleet.quiet
    if quiet is None:
        return None
    now = quiet_until(quiet, snapshot.at) is not None
    return QuietAhead(start=quiet.start, end=quiet.end, now=now)


# --- caps ---------------------------------------------------------------------------------------------
def _caps(night: Simulation, snapshot: Snapshot) -> Iterator[CapAhead]:
    settings = snapshot.fleet.caps
    for scope, unit, cap in _measured(caps_in_force(settings, ProjectCaps(), {}), SHARED):
        yield from _shared(night, snapshot, scope, unit, cap)
    for site in night.sites:
        caps = caps_in_force(settings, site.now.settings.caps, site.desk.granted)
        for scope, unit, cap in _measured(caps, frozenset({"project"})):
            before = reduce(add, (one.ledger.spent for one in site.now.tracks.values()), Usage())
            yield _cap(night, site, scope, unit, cap, (before, site.spent))
        for course in (*site.over, *site.courses):
            found = course.halt.finding if course.halt is not None else None
            if found is not None and found.scope in {"story", "attempt"}:
                spent = (
                    (Usage(), Usage())
                    if found.scope == "attempt"
                    else (course.ledger.facts.usage, course.spent)
                )
                own = _cap(night, site, found.scope, found.unit, found.cap, spent, story=course.story)
                yield replace(own, expected=found.spent)


def _measured(caps: Caps, scopes: Container[Scope]) -> Iterator[tuple[Scope, Unit, float]]:
    for scope, cap in caps.items():
        for unit in UNITS if scope in scopes else ():
            most = cap.usd if unit == "usd" else cap.tokens
            if most is not None:
                yield scope, unit, most


def _shared(
    night: Simulation, snapshot: Snapshot, scope: Scope, unit: Unit, cap: float
) -> Iterator[CapAhead]:
    """Yield a cap on all projects; one on a day for each day that has begun by the end of the time."""
    before, after = snapshot.spent.get(scope, Usage()), night.spent.get(scope, Usage())
    days = [*night.days, after] if scope == "day" else [after]
    for number, spent in enumerate(days):
        stops = night.capped.get((scope, unit, "", number))
        if number and stops is None and spent == Usage():
            continue
        begun = (snapshot.midnights[number - 1] if number else snapshot.at).astimezone(snapshot.zone)
        yield CapAhead(
            scope=scope, unit=unit, day=f"{begun:%Y-%m-%d}" if scope == "day" else None,
            whose=None, spent=0.0 if number else _of(before, unit), expected=_of(spent, unit), cap=cap,
            stops=stops, unsure=night.unknown[unit, ""],
        )  # fmt: skip


def _cap(
    night: Simulation,
    site: Site,
    scope: Scope,
    unit: Unit,
    cap: float,
    spent: tuple[Usage, Usage],
    story: str = "",
) -> CapAhead:
    whose = f"{site.now.view.called or site.now.view.name} {story}".rstrip()
    return CapAhead(
        scope=scope, unit=unit, day=None, whose=whose,
        spent=_of(spent[0], unit), expected=_of(spent[1], unit), cap=cap,
        stops=story or night.capped.get((scope, unit, site.root, 0)), unsure=night.unknown[unit, site.root],
    )  # fmt: skip


def _of(usage: Usage, unit: Unit) -> float:
    return usage.tokens if unit == "tokens" else round(usage.cost_usd or 0.0, 6)
