"""Reads about the supervised projects, with a daemon and without. What has happened is in `past.py`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial, reduce
from math import inf
from operator import add
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import asdict, replace

from handoffd.api.answers import (
    BacklogAnswer,
    GateAnswer,
    GatesAnswer,
    HeldBack,
    LimitsAnswer,
    NamedSchedule,
    NamedWorkspace,
    NoticesAnswer,
    ProjectInShort,
    ProjectsAnswer,
    SchedulesAnswer,
    SinkBacklog,
    SlotsAnswer,
    SnapshotsAnswer,
    StatusAnswer,
    StoryAnswer,
    StoryInShort,
    Tested,
    TriedSink,
    WaitingMatter,
    WorkspacesAnswer,
)
from handoffd.api.events import Names, named, peeked, seen_first
from handoffd.api.flows import FlowReads
from handoffd.api.past import Past, end_of_night, midnights, moment_of
from handoffd.api.ports import Desk, Renewing, Supervision
from handoffd.clock import Clock
from handoffd.engine.notice import Matter, Notice
from handoffd.engine.run import UNITS, Footprint, Scope, Usage
from handoffd.engine.views import (
    GateInShort,
    IdleSchedule,
    Peek,
    ProjectView,
    ScheduleView,
    TrackView,
    Whereabouts,
)
from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, NotFound, Refused, StoreError
from handoffd.execute.base import EXIT, SPEC, RunSpec
from handoffd.execute.checks import runs_of
from handoffd.execute.output import read_from
from handoffd.execute.run import claimed
from handoffd.execute.runner.capture import left_out_line
from handoffd.forecast.plan import Tonight
from handoffd.forecast.planning import plan
from handoffd.forecast.rendering import in_short
from handoffd.forecast.snapshot import Snapshot, medians
from handoffd.inspection.framework import archived
from handoffd.journal.journal import Journal
from handoffd.journal.records import Backlog, Part
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import plain
from handoffd.report.building import Asked, Fleet, asked_since, build, stories_of, with_places, with_titles
from handoffd.report.values import CapUse, Report

API = 1
"""Version of the JSON. New keys may come at any time; a key that changes its meaning raises the version."""

_RUNS_SEARCHED: Final = 20

ToldSchedules = Callable[[str | None], Awaitable[tuple[tuple[ScheduleView, ...], tuple[IdleSchedule, ...]]]]
"""Returns the schedules of one root, or of all; and the schedules that match no project."""

REPORT_SINCE: Final = "12h"
"""How far a report reaches back if no time is given: one night."""
_REPORT: Final = "handoffd report --since 12h"

LATELY_S: Final = 24 * 3600.0
"""How long `status` shows that notices were given up."""


class Reads(Past, FlowReads):
    """The reads. `daemon`: whether a daemon answers, or the process of one command."""

    def __init__(
        self,
        supervision: Supervision,
        journal: Journal,
        clock: Clock,
        runs_dir: Path,
        *,
        daemon: bool,
        desk: Desk | None = None,
        renewing: Renewing | None = None,
        schedules: ToldSchedules | None = None,
    ) -> None:
        super().__init__(supervision, journal, clock, runs_dir, daemon=daemon)
        self._renewing = renewing
        self._schedules = schedules
        self._desk = desk or NoDesk()

    async def status(self, project: str | None = None) -> StatusAnswer:
        """Return every project's status, or one's."""
        if project is None:
            views = await self._placed(await self._supervision.views())
            shown = await self.with_flows([await self.status_of(view) for view in views])
        else:
            shown = [await self.project_in_full(project)]
        return StatusAnswer(
            api=API,
            daemon=self.daemon,
            at=self.now(),
            warnings=self.warnings(),
            notices=await self._undelivered(),
            projects=shown,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the daemon's settings; none without a daemon."""
        return () if self._renewing is None else self._renewing.warnings

    async def _undelivered(self) -> list[SinkBacklog]:
        """Return the undelivered and recently given-up notices of each sink."""
        tries = self._desk.next_tries()
        return [_of_sink(one, tries.get(one.sink)) for one in await self.journal.outbox.backlog(LATELY_S)]

    async def notices(self, project: str | None = None) -> NoticesAnswer:
        """Return the backlog of each sink, held-back notices, and open matters with their next reminder.

        `project` limits the open matters. Raises NotFound.
        """
        root, outbox = self.root_of(project), self.journal.outbox
        releases, reminders = self._desk.releases(), self._desk.reminders()
        matters = [one for one in await outbox.matters() if root is None or one.lane[0] == root]
        waiting, commands = [], await self._commands({one.lane for one in matters[:MOST_WAITING]})
        for matter in matters[:MOST_WAITING]:
            notice = await outbox.outlook(matter.notice)
            if notice is not None:
                following = commands.get((*matter.lane, notice.story), notice.action)
                waiting.append(_of_matter(matter, notice, following, reminders.get(matter.notice)))
        return NoticesAnswer(
            at=self.now(),
            sinks=await self._undelivered(),
            held=[
                HeldBack(until=releases.get((one.sink, one.reason)), **asdict(one))
                for one in await outbox.held()
            ],
            waiting=waiting,
            more_waiting=max(0, len(matters) - MOST_WAITING),
        )

    async def _commands(
        self, lanes: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str, str | None], str | None]:
        """Return what status has a person type, by root, track and story; some of it may have changed."""
        views = []
        for root in sorted({root for root, track in lanes if track}):
            with suppress(HandoffdError):  # removed just now, or it cannot be read
                views.append(await self._supervision.view(root))
        return {
            (view.project, track.track, track.story): track.look_command or track.next_command
            for view in await self._placed(views)
            for track in view.tracks
            if track.needs_you
        }

    async def status_of(self, view: ProjectView) -> ProjectView:
        """Return the view; without a daemon, with the running processes from the records of runs."""
        if self.daemon:
            return view
        tracks = [await self._with_process(track, view.post_checks) for track in view.tracks]
        return replace(view, tracks=tuple(tracks))

    async def _with_process(self, track: TrackView, post_checks: Mapping[str, str]) -> TrackView:
        if track.dispatch is None:
            return track
        of_step = [key.partition(".") for key in post_checks]
        names = [name for step, _, name in of_step if step == track.step and name]
        return replace(track, pid=await to_thread.run_sync(self._living, track.dispatch, names))

    def _living(self, dispatch: str, post_checks: Sequence[str]) -> int | None:
        """Return the process id of a dispatch's running executor or check."""
        for name in runs_of(dispatch, post_checks):
            run = claimed(self._runs_dir / name)
            if run is not None and run.lives():
                return run.pid
        return None

    async def projects(self) -> ProjectsAnswer:
        """Return every project in short."""
        return ProjectsAnswer(projects=[_in_short(view) for view in await self._supervision.views()])

    async def project(self, project: str) -> ProjectView:
        """Return one project's status, with memory and tasks of its latest attempts."""
        view = await self.status_of(await self._supervision.view(self._supervision.find(project)))
        took = await self._footprints(view.project)
        tracks = (replace(track, footprint=took.get(track.track)) for track in view.tracks)
        (view,) = await self.with_flows([view], [view.project])
        return replace(view, tracks=tuple(tracks))

    async def project_in_full(self, project: str) -> ProjectView:
        """Return one project's status, with the gates of its stories, and where finished work is."""
        view = await self.project(project)
        return replace(view, tracks=tuple([await self._reviewed(view.project, one) for one in view.tracks]))

    async def _reviewed(self, root: str, track: TrackView) -> TrackView:
        here = track.workspace is None and track.branch is not None
        if track.story is not None and (track.aborted or (track.step == DONE and not here)):
            return _placed_at(track, await self._supervision.whereabouts(root, track.story))
        if not track.gate:
            return track
        try:
            review = await self._supervision.gate(root, story=track.story, since_last=False)
        except Refused:  # it was decided just now
            return track
        return replace(track, review=review)

    async def _placed(self, views: Iterable[ProjectView]) -> list[ProjectView]:
        """Return the views with where the stories are that wait to be landed, and what that would do."""
        views = list(views)
        waiting = [(view.project, track.story) for view in views for track in view.tracks if track.to_land]
        found = await self.places((root, story) for root, story in waiting if story is not None)
        return [_placed_in(view, found) if found else view for view in views]

    async def _footprints(self, root: str) -> dict[str, Footprint | None]:
        """Return memory and tasks of the latest ended attempt, by track."""
        runs = reversed(await self.journal.runs(root, _RUNS_SEARCHED))
        return {run.key.track: run.exit.footprint for run in runs if run.exit is not None}

    async def limits(self) -> LimitsAnswer:
        """Return the accounts that reported a limit and have not been seen working since."""
        return LimitsAnswer(at=self.now(), limits=self._supervision.limits())

    async def slots(self) -> SlotsAnswer:
        """Return the slots, and the running and waiting tracks; without a daemon there are none."""
        return SlotsAnswer(daemon=self.daemon, at=self.now(), **asdict(self._supervision.slots()))

    async def backlog(self, project: str) -> BacklogAnswer:
        """Return the queued stories of a project, and what each waits for."""
        root = self._supervision.find(project)
        view = await self._supervision.backlog(root)
        return BacklogAnswer(name=self.names().get(root, root), daemon=self.daemon, **asdict(view))

    async def story(self, project: str, story: str | None = None) -> StoryAnswer:
        """Return a story with its text, the one in flight by default."""
        root = self._supervision.find(project)
        view = await self.known_story(root, story)
        over = view.standing in {"done", "closed"}
        where = await self._supervision.whereabouts(root, view.story) if over else None
        kept = await self.kept_of(root, view.story) if over and where is None else None
        view = view if kept is None else replace(view, standing="discarded")
        name = self.names().get(root, root)
        return StoryAnswer(name=name, daemon=self.daemon, whereabouts=where, kept=kept, **asdict(view))

    async def gate(self, project: str, story: str | None = None, since_last: bool = False) -> GateAnswer:
        """Return the screen of the gate that a story waits at; `story` names it, where several do."""
        root = self._supervision.find(project)
        view = await self._supervision.gate(root, story=story, since_last=since_last)
        return GateAnswer(name=self.names().get(root, root), daemon=self.daemon, **asdict(view))

    async def gates(self) -> GatesAnswer:
        """Return the open gates of all projects, those first that wait longest."""
        since = {matter.lane: matter.since for matter in await self.journal.outbox.matters()}
        views, found = await self._supervision.views(), []
        names = self.names()
        for view in views:
            at_gate = (track for track in view.tracks if track.gate)
            found += [_gate_in_short(view, track, names, since) for track in at_gate]
        found.sort(key=lambda gate: (gate.since is None, gate.since or self.now(), gate.project))
        flows = [one for one in await self.open_flows() if one.questions]
        return GatesAnswer(daemon=self.daemon, gates=found, flows=flows)

    async def snapshots(self, project: str, story: str | None = None) -> SnapshotsAnswer:
        """Return the snapshots of a project's story, the first one in flight by default."""
        root = self._supervision.find(project)
        view = await self._supervision.snapshots(root, story)
        return SnapshotsAnswer(name=self.names().get(root, root), daemon=self.daemon, **asdict(view))

    async def workspaces(self, project: str | None = None) -> WorkspacesAnswer:
        """Return the clones of one project or of all."""
        views = await self._supervision.workspaces(self.root_of(project))
        names = self.names()
        told = [NamedWorkspace(name=names.get(one.project, one.project), **asdict(one)) for one in views]
        return WorkspacesAnswer(daemon=self.daemon, bytes=sum(one.bytes for one in views), workspaces=told)

    async def schedules(self, project: str | None = None) -> SchedulesAnswer:
        """Return the schedules of one project or of all, with their last outcome."""
        root = self.root_of(project)
        views, idle = await self._schedules(root) if self._schedules is not None else ((), ())
        names = self.names()
        told = [NamedSchedule(name=names.get(one.project, one.project), **asdict(one)) for one in views]
        return SchedulesAnswer(at=self.now(), daemon=self.daemon, schedules=told, idle=idle)

    async def report(
        self, project: str | None = None, since: str | None = None, until: str | None = None
    ) -> Report:
        """Return what happened since then, and where everything is now.

        Raises Refused (BAD_ARGUMENT; TOO_MUCH_HISTORY for a time in which too much happened).
        """
        root, now = self.root_of(project), self.now()
        begin = moment_of(since or REPORT_SINCE, now, "since", _REPORT) or now
        end = min(moment_of(until, now, "until", _REPORT) or now, now)
        if begin >= end:
            raise Refused("the report would end before it begins", code="BAD_ARGUMENT", hint=_REPORT)
        night = await self.journal.past.night(Part(project=root, since=begin, until=end))
        shown = await self._supervision.views() if root is None else (await self._supervision.view(root),)
        views = await self.with_flows(await self._placed(shown), None if root is None else [root])
        schedules, _ = await self._schedules(root) if self._schedules is not None else ((), ())
        fleet = Fleet(
            views=views, schedules=schedules, caps=await self._spent(now), alive=self.daemon,
            since=await self.journal.past.since(*asked_since(views)),
        )  # fmt: skip
        asked = Asked(project=root, at=now, left_out=await self.journal.left_out())
        told = await to_thread.run_sync(build, night, fleet, asked)  # a long one takes a second
        told = with_titles(told, await self.titles(stories_of(told)))
        told = with_places(told, await self.places(told.unplaced))
        if end < now:
            return told
        coming = await self._plan([root] if root else [], now, end_of_night(None, now))
        return replace(told, tonight=in_short(coming) if coming.projects else None)

    async def tonight(self, projects: str | None = None, until: str | None = None) -> Tonight:
        """Return what would happen until then in the named projects, one a line; in all without a name.

        Raises NotFound, Refused (BAD_ARGUMENT).
        """
        now = self.now()
        roots = [self._supervision.find(name) for name in (projects or "").splitlines() if name.strip()]
        return await self._plan(roots, now, end_of_night(until, now))

    async def _plan(self, roots: Sequence[str], now: datetime, until: datetime) -> Tonight:
        views = [await self._supervision.view(root) for root in dict.fromkeys(roots)]
        views = views if roots else list(await self._supervision.views())
        told, _ = await self._schedules(None) if self._schedules is not None else ((), ())
        known = {view.project for view in views}
        due = [
            one for one in told if one.project in known and one.next_at is not None and one.next_at < until
        ]
        wanted = {one.project for one in due}
        busy = [view.project for view in views if view.project in wanted or _has_work(view)]
        took = await self.journal.past.steps_took(busy)
        fleet = await self._supervision.now(busy)
        placed = await self._placed(one.view for one in fleet.projects)
        projects = (replace(one, view=view) for one, view in zip(fleet.projects, placed, strict=True))
        snapshot = Snapshot(
            at=now, until=until, fleet=replace(fleet, projects=tuple(projects)), schedules=tuple(due),
            took={root: medians(found) for root, found in took.items()}, limits=self._supervision.limits(),
            spent=await self._spent_of_all(now), midnights=midnights(now, until), idle=len(views) - len(busy),
        )  # fmt: skip
        return await to_thread.run_sync(partial(plan, snapshot, daemon=self.daemon))

    async def _spent_of_all(self, now: datetime) -> dict[Scope, Usage]:
        """Return what counts against the caps that all projects share; what runs now counts, too."""
        running = reduce(add, self._supervision.usage().values(), Usage())
        found: dict[Scope, Usage] = {}
        for scope in self._supervision.caps():
            since = moment_of("today", now, "since", _REPORT) if scope == "day" else None
            booked = (one.usage for one in await self.journal.usage("day", since=since))
            found[scope] = reduce(add, booked, running)
        return found

    async def _spent(self, now: datetime) -> list[CapUse]:
        """Return what is spent of the caps that all projects share, by what is booked."""
        found = []
        for scope, cap in self._supervision.caps().items():
            since = moment_of("today", now, "since", _REPORT) if scope == "day" else None
            used = reduce(add, (one.usage for one in await self.journal.usage("day", since=since)), Usage())
            for unit in UNITS:
                spent = (used.cost_usd or 0.0) if unit == "usd" else used.tokens
                if (most := getattr(cap, unit)) is not None:
                    found.append(CapUse(scope=scope, unit=unit, spent=spent, cap=most))
        return found

    async def peek(self, project: str, story: str | None = None) -> Peek:
        """Return what the next turn of a project would do; `story` is the one meant, of several."""
        root = self._supervision.find(project)
        bootstrapped = await to_thread.run_sync(is_bootstrapped, root)
        found = peeked(await self._supervision.peek(root, story, bootstrapped=bootstrapped))
        instead = seen_first(plain(found.result), await self._supervision.view(root))
        return replace(found, result=replace(found.result, **instead), called=self.names().get(root))

    async def log_of(self, project: str | None, run: str | None, story: str | None = None) -> RunLog:
        """Return the place of a run's output: of the named run, or of the project's or `story`'s latest."""
        if run is not None:
            return await to_thread.run_sync(find_log, self._runs_dir, run)
        if project is None:
            raise Refused("name a project or a run", code="BAD_ARGUMENT", hint="handoffd runs")
        root = self._supervision.find(project)
        runs = await self.journal.runs(root, _RUNS_SEARCHED, Part(story=story))
        for known in runs:
            if await to_thread.run_sync(has_log, self._runs_dir, known.id):
                return await to_thread.run_sync(find_log, self._runs_dir, known.id)
        if any(known.started_at is not None for known in runs):
            message = f"the output of executors in {root} is no longer kept"
            raise NotFound(message, hint="handoffd config show # retention")
        where = f"{root} for {story[:80]}" if story else root
        raise NotFound(f"no executor has run in {where} yet", hint=command_for(root, "status"))

    def name(self, error: HandoffdError) -> None:
        """Add to an error's details the project that its hint is for, and what commands call that."""
        names = self.names()
        root = next((word for word in (error.hint or "").split(" ") if word in names), None)
        if root is not None:
            error.details = {"project": root, "called": names[root], **error.details}


def _has_work(view: ProjectView) -> bool:
    """Return whether a project has a story that is not over, or one that waits."""
    return len(view.tracks) > 1 or any(
        one.backlog or one.parked or (one.story and one.step != DONE) for one in view.tracks
    )


def _gate_in_short(
    view: ProjectView, track: TrackView, names: Names, since: Mapping[tuple[str, str], datetime]
) -> GateInShort:
    own = ("--story", track.story or "") if len(view.tracks) > 1 else ()
    return GateInShort(
        project=view.project, name=named(view.project, names), story=track.story or "", title=track.title,
        step=track.step, since=since.get((view.project, track.track)),
        command=command_for(view.project, "gate", *own),
    )  # fmt: skip


def _placed_in(view: ProjectView, found: Mapping[tuple[str, str], Whereabouts]) -> ProjectView:
    tracks = (_placed_at(track, found.get((view.project, track.story or ""))) for track in view.tracks)
    return replace(view, tracks=tuple(tracks))


def _placed_at(track: TrackView, where: Whereabouts | None) -> TrackView:
    """Return a track with where its work is; what to type follows from that, as landing may have to fail."""
    if where is None:
        return track
    following = where.command if track.to_land else track.next_command
    return replace(track, whereabouts=where, next_command=following)


def _in_short(view: ProjectView) -> ProjectInShort:
    main = view.tracks[0] if view.tracks else None
    return ProjectInShort(
        project=view.project, name=view.name, level=view.level, condition=view.condition,
        story=main.story if main else None, step=main.step if main else None,
        status=main.status if main else None,
        stories=[
            StoryInShort(story=track.story, step=track.step, status=track.status)
            for track in view.tracks if track.story is not None
        ],
    )  # fmt: skip


def is_bootstrapped(root: str) -> bool:
    """Return whether the project has PROJECT_CONTEXT.md, or an archived story."""
    return Path(root, "PROJECT_CONTEXT.md").is_file() or bool(archived(root))


# --- the output of a run -----------------------------------------------------------------------------
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[0-9]{1,6})?(\.[a-z]{1,16}(\.[a-z0-9-]{1,40}){0,2})?")
LOOK_S = 0.1
"""Pause between reads of a growing output, which sends no notification."""


class RunLog(Struct, frozen=True, kw_only=True):
    """The place of one run's output."""

    run: str
    run_dir: Path
    output: str

    def is_over(self) -> bool:
        """Return whether the output is complete."""
        if (self.run_dir / EXIT).exists():
            return True
        run = claimed(self.run_dir)
        return run is not None and not run.is_running()


class Tail:
    """Reads an output from its beginning to its current end, and continues from there."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._position = 0

    def read(self) -> bytes:
        """Return the next bytes, with a line in place of a part that was not kept; empty at the end."""
        while True:
            chunk = read_from(self._log.run_dir, self._log.output, self._position)
            moved = chunk.next != self._position
            self._position = chunk.next
            left_out = left_out_line(chunk.left_out) if chunk.left_out else b""
            if left_out or chunk.data or not moved:
                return left_out + chunk.data


def find_log(runs_dir: Path, run: str) -> RunLog:
    """Return the place of a run's output. Raises NotFound if it has no records."""
    if not _RUN_ID.fullmatch(run):
        raise NotFound(f"{run[:80]!r} is not the id of a run", hint="handoffd runs")
    run_dir = runs_dir / run
    try:
        spec = RunSpec.from_json((run_dir / SPEC).read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there are no records of run {run}", hint="handoffd runs") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{run_dir / SPEC} cannot be read: {error}") from error
    return RunLog(run=run, run_dir=run_dir, output=spec.output)


def has_log(runs_dir: Path, run: str) -> bool:
    """Return whether a run was prepared for a start: only then can it have an output."""
    return (runs_dir / run / SPEC).is_file()


async def pieces(log: RunLog, *, follow: bool, closing: anyio.Event) -> AsyncIterator[bytes]:
    """Yield the output from its beginning; with `follow`, until the run is over or `closing`."""
    tail = Tail(log)
    while not closing.is_set():
        over = not follow or await to_thread.run_sync(
            log.is_over
        )  # checked before the read, so that the read is the last one
        data = await to_thread.run_sync(tail.read)
        if data:
            yield data
        elif over:
            return
        else:
            with anyio.move_on_after(LOOK_S):
                await closing.wait()


# --- undelivered notices, and coming reminders -------------------------------------------------------
MOST_WAITING = 200
"""Open matters in one answer; the oldest ones."""


class NoDesk:
    """The desk when no daemon runs: it plans nothing."""

    def next_tries(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return nothing."""
        return {}

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return nothing."""
        return {}


def tried_sinks(trials: Iterable[tuple[str, str, str | None, float]]) -> Tested:
    """Return the outcome of a sample: of each sink its name, form, error and seconds."""
    sinks = [
        TriedSink(sink=name, form=form, ok=why is None, why=why, seconds=seconds)
        for name, form, why, seconds in trials
    ]
    return Tested(ok=all(one.ok for one in sinks), sinks=sinks)


def _of_sink(backlog: Backlog, next_try_s: float | None) -> SinkBacklog:
    """Return the undelivered notices of one sink. `next_try_s`: seconds until a resting sink is tried."""
    return SinkBacklog(
        sink=backlog.sink, undelivered=backlog.undelivered, oldest=backlog.oldest,
        failed_tries=backlog.tries, last_error=backlog.last_error,
        next_try_s=None if next_try_s is None else round(next_try_s, 1), given_up=backlog.given_up,
    )  # fmt: skip


def _of_matter(
    matter: Matter, notice: Notice, following: str | None, again: datetime | None
) -> WaitingMatter:
    return WaitingMatter(
        project=matter.lane[0],
        track=notice.track,
        name=notice.name,
        story=notice.story,
        kind=notice.kind,
        text=notice.text,
        next=following,
        since=matter.since,
        reminded_min=matter.reached_min if 0 < matter.reached_min < inf else None,
        again_at=again,
    )
