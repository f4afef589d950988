"""What can be asked about the supervised projects, as plain JSON values, with a daemon and without.

Reports of usage show beside steps and stories what the protocol expects of them. They count what was new to
the model (input, output, what was written to a cache): an agent reads the same context again with every
call, and a cache makes that cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import reduce
from math import inf
from operator import add
from pathlib import Path
from typing import Any, Final, get_args

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from handoffd.api.events import (
    Names,
    addressed,
    backlog_json,
    event_json,
    footprint_json,
    latest,
    named,
    plain,
    run_json,
    usage_json,
)
from handoffd.api.ports import Desk, Renewing, Supervision
from handoffd.clock import Clock, rfc3339
from handoffd.engine.decision import still_waits
from handoffd.engine.run import Usage
from handoffd.engine.views import (
    IdleSchedule,
    Peek,
    ProjectView,
    ScheduleView,
)
from handoffd.engine.wording import command_for
from handoffd.errors import Json, NotFound, Refused, StoreError
from handoffd.execute.base import EXIT, SPEC, RunSpec
from handoffd.execute.checks import runs_of
from handoffd.execute.meter import noted
from handoffd.execute.output import read_from
from handoffd.execute.run import claimed
from handoffd.execute.runner.capture import left_out_line
from handoffd.inspection.framework import archived
from handoffd.journal.dispatches import Grouping
from handoffd.journal.journal import Journal
from handoffd.journal.outbox import Outbox
from handoffd.journal.records import Backlog, HeldBack, MatterNow, StoredMatter, UsageSum

API = 1
"""Version of the JSON: keys may be added at any time; one that changes its meaning raises this."""

_RUNS_SEARCHED: Final = 20
_AT_ONCE: Final = 50

ToldSchedules = Callable[[str | None], Awaitable[tuple[tuple[ScheduleView, ...], tuple[IdleSchedule, ...]]]]
"""Tells the schedules of the project at a root, or of all; and those that concern no project."""

LATELY_S: Final = 24 * 3600.0
"""For so long of a daemon's life, `status` tells that notices were given up."""


class Reads:
    """Questions. `daemon` tells whether loops run behind them, or only the process of one command."""

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
        self._renewing = renewing
        self._schedules = schedules
        self._supervision = supervision
        self.journal = journal
        self._clock = clock
        self._runs_dir = runs_dir
        self.daemon = daemon
        self._desk = desk or NoDesk()

    def now(self) -> datetime:
        """Return the time."""
        return self._clock.now()

    async def status(self, project: str | None = None) -> Json:
        """Return every project's status, or one's."""
        if project is None:
            shown = [one async for one in self._statuses(await self._supervision.views())]
        else:
            shown = [await self.project(project)]
        return {
            "api": API,
            "daemon": self.daemon,
            "at": rfc3339(self._clock.now()),
            "warnings": list(self.warnings()),
            "notices": await self.notices(),
            "projects": shown,
        }

    async def _statuses(self, views: Iterable[ProjectView]) -> AsyncIterator[Json]:
        for number, view in enumerate(views, 1):
            yield await self.status_of(view)
            if number % _AT_ONCE == 0:
                await checkpoint()  # others have their turn

    def warnings(self) -> tuple[str, ...]:
        """Return what people should know of the daemon's settings; nothing without a daemon."""
        return () if self._renewing is None else self._renewing.warnings

    async def notices(self) -> list[Json]:
        """Return what people have not been told yet, or could not be told lately, for each sink."""
        backlogs = await self.journal.outbox.backlog(LATELY_S)
        return [backlog_json(one, self._desk.next_tries().get(one.sink)) for one in backlogs]

    async def notices_in_full(self, project: str | None = None) -> Json:
        """Return that, what is held back until when, and what waits for people, with when they hear again.

        `project`: what waits there alone. Raises NotFound.
        """
        found = await notices_json(self.journal.outbox, self._desk, LATELY_S, self.root_of(project))
        return {"at": rfc3339(self._clock.now()), **found}

    async def status_of(self, view: ProjectView) -> Json:
        """Return the view; without a daemon, with the processes that its records say are running."""
        shown = plain(view)
        for track in shown["tracks"]:
            if track["dispatch"] is not None and not self.daemon:
                track["pid"] = await to_thread.run_sync(self._living, track["dispatch"])
        return shown

    def _living(self, dispatch: str) -> int | None:
        """Return the process id of what still runs of a dispatch: its executor, or a check of it."""
        for name in runs_of(dispatch):
            run = claimed(self._runs_dir / name)
            if run is not None and run.lives():
                return run.pid
        return None

    async def projects(self) -> Json:
        """Return every project in a few words."""
        views = await self._supervision.views()
        return {"projects": [_in_short(view) for view in views]}

    async def project(self, project: str) -> Json:
        """Return one project's status, with what its latest attempts took of the machine."""
        view = await self._supervision.view(self._supervision.find(project))
        shown, took = await self.status_of(view), await self._footprints(view.project)
        for track in shown["tracks"]:
            track["footprint"] = took.get(track["track"])
        return shown

    async def _footprints(self, root: str) -> dict[str, Json | None]:
        """Return what the latest attempt that is over took, by track."""
        over = [run for run in await self.journal.runs(root, _RUNS_SEARCHED) if run.exit is not None]
        return {run.key.track: footprint_json(run) for run in reversed(over)}

    async def limits(self) -> Json:
        """Return the accounts that answered with a limit and are not known to have worked since."""
        limited = [plain(view) for view in self._supervision.limits()]
        return {"at": rfc3339(self._clock.now()), "limits": limited}

    async def slots(self) -> Json:
        """Return who may run, who does, and who waits; without a daemon nobody does either."""
        view = plain(self._supervision.slots())
        return {"daemon": self.daemon, "at": rfc3339(self._clock.now()), **view}

    async def backlog(self, project: str) -> Json:
        """Return the stories that wait in a project, and what keeps each of them."""
        root = self._supervision.find(project)
        shown = plain(await self._supervision.backlog(root))
        return {**shown, "name": self.names().get(root, root), "daemon": self.daemon}

    async def schedules(self, project: str | None = None) -> Json:
        """Return what the clock starts, in one project or in all, and what became of it last."""
        root, names = self.root_of(project), self.names()
        views, idle = await self._schedules(root) if self._schedules is not None else ((), ())
        told = [{**plain(view), "name": names.get(view.project, view.project)} for view in views]
        return {
            "at": rfc3339(self._clock.now()), "daemon": self.daemon, "schedules": told,
            "idle": [plain(one) for one in idle],
        }  # fmt: skip

    async def peek(self, project: str) -> Json:
        """Return what the next turn of a project would do."""
        root = self._supervision.find(project)
        bootstrapped = await to_thread.run_sync(is_bootstrapped, root)
        return peek_json(await self._supervision.peek(root, bootstrapped=bootstrapped))

    async def events(self, after: int | None, project: str | None = None, limit: int = 500) -> list[Json]:
        """Return at most `limit` events above number `after`, oldest first; after None: the last ones."""
        root = self.root_of(project)
        if after is None:
            found = await latest(self.journal, root, limit)
        else:
            found = list(await self.journal.events(after, root, limit))
        names = self.names()
        return [event_json(event, names) for event in found]

    async def history(self, after: int | None, project: str | None = None, limit: int = 500) -> Json:
        """Return `events` as they are asked for, and the `gaps` among them: numbers that are not kept.

        A gap lies above `after`, or, without one, above the first event that is told, if there are more.
        """
        left_out = await self.journal.left_out()  # before: what goes meanwhile was there to be told
        found = await self.events(after, project, limit)
        if not limit:  # no number is reached
            return {"events": [], "gaps": []}
        whole = len(found) < limit
        first = after if after is not None else 0 if whole else found[0]["seq"]
        last = self.journal.newest if whole else found[-1]["seq"]
        gaps = [one for one in left_out if one.next > first + 1 and one.after < last]
        return {
            "events": found,
            "gaps": [{"type": "gap", **one._replace(after=max(one.after, first))._asdict()} for one in gaps],
        }

    async def runs(self, project: str | None = None, limit: int = 100) -> list[Json]:
        """Return the latest dispatches, newest first."""
        found = await self.journal.runs(self.root_of(project), limit)
        names, usage = self.names(), self._supervision.usage()
        if not self.daemon:
            usage = await to_thread.run_sync(
                self._noted_usage, [run.id for run in found if run.result is None]
            )
        return [run_json(run, names, usage.get(run.id)) for run in found]

    def _noted_usage(self, runs: list[str]) -> Mapping[str, Usage]:
        """Return what runs had used when a daemon looked last."""
        return {run: noted(self._runs_dir / run).seen.usage for run in runs}

    async def usage(
        self, by: str | None = None, since: str | None = None, project: str | None = None
    ) -> Json:
        """Return what ended runs used, by step or what `by` says. Raises Refused (BAD_ARGUMENT)."""
        group, begin = grouping(by), begin_of(since, self._clock.now())
        root = self.root_of(project)
        sums = await self.journal.usage(group, since=begin, project=root)
        told = {"project": root, "since": None if begin is None else rfc3339(begin)}
        return {**told, **usage_report(sums, group, self.names())}

    async def log_of(self, project: str | None, run: str | None) -> RunLog:
        """Return where the output of a run is: the one named, or the project's latest."""
        if run is not None:
            return await to_thread.run_sync(find_log, self._runs_dir, run)
        if project is None:
            raise Refused("name a project or a run", code="BAD_ARGUMENT", hint="handoffd runs")
        root = self._supervision.find(project)
        runs = await self.journal.runs(root, _RUNS_SEARCHED)
        for known in runs:
            if await to_thread.run_sync(has_log, self._runs_dir, known.id):
                return await to_thread.run_sync(find_log, self._runs_dir, known.id)
        if any(known.started_at is not None for known in runs):
            message = f"what executors have printed in {root} is not kept any more"
            raise NotFound(message, hint="handoffd config show # retention")
        raise NotFound(f"no executor has run in {root} yet", hint=command_for(root, "status"))

    def names(self) -> Mapping[str, str]:
        """Return what projects are called in commands, by root."""
        return self._supervision.names()

    def root_of(self, project: str | None) -> str | None:
        """Return the root of a project; None for None. Raises NotFound."""
        return None if project is None else self._supervision.find(project)


def _in_short(view: ProjectView) -> Json:
    main = view.tracks[0] if view.tracks else None
    return {
        "project": view.project,
        "name": view.name,
        "level": view.level,
        "condition": view.condition,
        "story": main.story if main else None,
        "step": main.step if main else None,
        "status": main.status if main else None,
    }


def is_bootstrapped(root: str) -> bool:
    """Return whether the project has what a bootstrap would make first, or has had a story by its archive."""
    return Path(root, "PROJECT_CONTEXT.md").is_file() or bool(archived(root))


def peek_json(found: Peek) -> Json:
    """Return what a turn would do as JSON, its commands for the project that it is of."""
    shown = plain(found)
    return {**shown, "result": addressed(shown["result"], found.project)}


# --- the output of a run -----------------------------------------------------------------------------
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[a-z]{1,16})?")
LOOK_S = 0.1
"""How often a growing output is looked at: a file that grows tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Where the output of one run is."""

    run: str
    run_dir: Path
    output: str

    def is_over(self) -> bool:
        """Return whether nothing more will be written."""
        if (self.run_dir / EXIT).exists():
            return True
        run = claimed(self.run_dir)
        return run is not None and not run.is_running()


class Tail:
    """Reads an output from its beginning to its present end, and on from there."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._position = 0

    def read(self) -> bytes:
        """Return what comes next, a line in place of what was not kept; nothing at the present end."""
        while True:
            chunk = read_from(self._log.run_dir, self._log.output, self._position)
            moved = chunk.next != self._position
            self._position = chunk.next
            left_out = left_out_line(chunk.left_out) if chunk.left_out else b""
            if left_out or chunk.data or not moved:
                return left_out + chunk.data


def find_log(runs_dir: Path, run: str) -> RunLog:
    """Return the output of a run. Raises NotFound for one that is not there."""
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
    """Return whether a run was ever prepared for a start: only then can it have an output."""
    return (runs_dir / run / SPEC).is_file()


async def pieces(log: RunLog, *, follow: bool, closing: anyio.Event) -> AsyncIterator[bytes]:
    """Yield the output from its beginning; with `follow`, on until the run is over or `closing`."""
    tail = Tail(log)
    while not closing.is_set():
        over = not follow or await to_thread.run_sync(log.is_over)  # before reading: nothing comes later
        data = await to_thread.run_sync(tail.read)
        if data:
            yield data
        elif over:
            return
        else:
            with anyio.move_on_after(LOOK_S):
                await closing.wait()


# --- what runs used ----------------------------------------------------------------------------------
REFERENCE: Final[Mapping[str, tuple[int, int]]] = {
    "bdd": (2_000, 5_000),
    "sdd-delta": (3_000, 8_000),
    "contract": (1_000, 3_000),
    "review": (0, 0),
    "scaffold": (2_000, 5_000),
    "impl": (5_000, 15_000),
    "verify": (1_000, 3_000),
    "update-memory": (500, 1_000),
}
"""Tokens of one run of a step, by the protocol's own reckoning."""
STORY_REFERENCE: Final = (15_000, 40_000)
"""Tokens of a whole story."""

_AGO = re.compile(r"(\d{1,4})([hdw])")
_UNITS: Final[Mapping[str, timedelta]] = {
    "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1),
}  # fmt: skip


def grouping(text: str | None) -> Grouping:
    """Return how to group, by step unless told otherwise. Raises Refused (BAD_ARGUMENT)."""
    if text is None:
        return "step"
    known: tuple[Grouping, ...] = get_args(Grouping)
    for by in known:
        if text == by:
            return by
    message = f"by must be one of {', '.join(get_args(Grouping))}, not {str(text)[:80]!r}"
    raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --by step")


def begin_of(text: str | None, now: datetime) -> datetime | None:
    """Return the moment that `7d`, `12h`, `2w`, a date (its midnight here) or an RFC 3339 time means.

    Raises Refused (BAD_ARGUMENT) for anything else.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else datetime.combine(moment.date(), time())).astimezone()
    except (ValueError, OverflowError):
        message = f"since must be like 7d, 12h, 2w or 2026-01-31, not {text[:80]!r}"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --since 7d") from None


def usage_report(sums: Iterable[UsageSum], by: Grouping, names: Names) -> Json:
    """Return the sums as rows, and all of them together."""
    found = tuple(sums)
    whole = UsageSum(
        key=(),
        runs=sum(one.runs for one in found),
        measured=sum(one.measured for one in found),
        unpriced=sum(one.unpriced for one in found),
        usage=reduce(add, (one.usage for one in found), Usage()),
    )
    return {"by": by, "rows": [_row(one, by, names) for one in found], "total": _numbers(whole)}


def _row(one: UsageSum, by: Grouping, names: Names) -> Json:
    return {**_key(one.key, by, names), **_numbers(one), **_beside(one, by)}


def _key(key: tuple[str | None, ...], by: Grouping, names: Names) -> Json:
    match by:
        case "story":
            root, story = key
            return {"project": root, "name": named(root or "", names), "story": story}
        case "project":
            (root,) = key
            return {"project": root, "name": named(root or "", names)}
        case _:
            return {by: key[0]}


def _numbers(one: UsageSum) -> Json:
    counts = {"runs": one.runs, "measured": one.measured, "unpriced": one.unpriced}
    return {**counts, **usage_json(one.usage)}


def _beside(one: UsageSum, by: Grouping) -> dict[str, Any]:
    """Return what is new to the model, of one run or of the story, beside what is expected; or nothing."""
    new = one.usage.tokens - one.usage.cache_read_tokens
    if by == "step" and one.measured:
        return _compared(round(new / one.measured), REFERENCE.get(one.key[0] or ""))
    if by == "story" and one.measured and not str(one.key[1]).startswith("CUSTOM-"):
        return _compared(new, STORY_REFERENCE)
    return _compared(None, None) if by in {"step", "story"} else {}


def _compared(new: int | None, expected: tuple[int, int] | None) -> dict[str, Any]:
    above = None if new is None or expected is None else new > expected[1]
    return {"new_tokens": new, "reference": None if expected is None else list(expected), "above": above}


# --- what people have not been told, and what they will be told again --------------------------------
MOST_WAITING = 200
"""Matters that are told of; the oldest."""


class NoDesk:
    """Nothing is known of what will be: no daemon runs."""

    def next_tries(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return nothing."""
        return {}

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return nothing."""
        return {}


async def notices_json(outbox: Outbox, desk: Desk, lately_s: float, root: str | None = None) -> Json:
    """Return what waits for each sink, what is held back until when, and what people hear of again.

    `root`: of what waits, that of one project.
    """
    backlogs, held = await outbox.backlog(lately_s), await outbox.held_back()
    tries, releases, reminders = desk.next_tries(), desk.releases(), desk.reminders()
    matters = [one for one in await outbox.matters() if root is None or one.key.project == root]
    waiting = []
    for matter in matters[:MOST_WAITING]:
        now = await outbox.matter_now(matter.notice)
        if now is not None and _waits(now):
            waiting.append(_matter(matter, now, reminders.get(matter.notice)))
    return {
        "sinks": [_backlog(one, tries) for one in backlogs],
        "held": [_held(one, releases.get((one.sink, one.reason))) for one in held],
        "waiting": waiting,
        "more_waiting": max(0, len(matters) - MOST_WAITING),
    }


def trials_json(trials: Iterable[tuple[str, str, str | None, float]]) -> Json:
    """Return how a sample went through sinks: name, form, why it failed, and seconds of each."""
    sinks = [
        {"sink": name, "form": form, "ok": why is None, "why": why, "seconds": seconds}
        for name, form, why, seconds in trials
    ]
    return {"type": "tested", "ok": all(one["ok"] for one in sinks), "sinks": sinks}


def _backlog(backlog: Backlog, tries: Mapping[str, float]) -> Json:
    return backlog_json(backlog, tries.get(backlog.sink))


def _held(held: HeldBack, until: datetime | None) -> Json:
    return {
        "sink": held.sink,
        "reason": held.reason,
        "count": held.count,
        "since": rfc3339(held.oldest),
        "until": None if until is None else rfc3339(until),
    }


def _waits(now: MatterNow) -> bool:
    told = _told(now)
    if not now.supervised:
        return False
    return now.track is None or still_waits(now.track, told.get("story"), str(told.get("step")))


def _matter(matter: StoredMatter, now: MatterNow, again: datetime | None) -> Json:
    told = _told(now)
    return {
        "project": matter.key.project,
        "track": told.get("track", ""),
        "name": told.get("name"),
        "story": told.get("story"),
        "kind": told.get("kind"),
        "text": told.get("text"),
        "next": told.get("action"),
        "since": rfc3339(matter.since),
        "reminded_min": matter.reached_min if 0 < matter.reached_min < inf else None,
        "again_at": None if again is None else rfc3339(again),
    }


def _told(now: MatterNow) -> dict[str, Any]:
    """Return a notice as recorded; of one that cannot be read, nothing."""
    try:
        told = json.loads(now.body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
