"""Reads of what has happened: events, runs, stories, usage. Each may be asked about a part of the history.

Usage reports show the protocol's expected tokens beside steps and stories. They compare tokens that were new
to the model (input, output, cache writes): an agent reads the same context again with every call, and a
cache makes that cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack, get_args

import anyio
from anyio import to_thread
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from handoffd.api.answers import (
    EventsAnswer,
    HistoryEvent,
    HistoryGap,
    Run,
    RunsAnswer,
    UsageCounts,
)
from handoffd.api.events import Names, event_answer, named, run_answer, usage_counts
from handoffd.api.ports import Supervision
from handoffd.clock import Clock
from handoffd.engine.run import Moment, Usage
from handoffd.engine.views import StoryView, TrackView, Whereabouts
from handoffd.engine.wording import shortened
from handoffd.errors import HandoffdError, NotFound, Refused, StoreError
from handoffd.execute import evidence
from handoffd.execute.checks import asked_for, runs_of
from handoffd.execute.meter import noted
from handoffd.execute.output import refused_paths
from handoffd.execute.run import recorded
from handoffd.forecast.snapshot import REFERENCE
from handoffd.journal.dispatches import Grouping
from handoffd.journal.history import StoredStory, taken_in_words
from handoffd.journal.journal import Journal
from handoffd.journal.records import Part, StoredEvent, StoredRun, UsageSum
from handoffd.protocol.state import TestCounts
from handoffd.report.claims import tally
from handoffd.report.values import Claims, ClaimsBy

_MOST_EVENTS_OF_RUN: Final = 200
_MOST_OF_WORD: Final = 300
"""Characters of a word of a command: some agents have their prompt there."""
_TRY: Final = re.compile(r"\.\d+$")
CLAIMS_SINCE: Final = "4w"
_CLAIMS: Final = "handoffd claims --since 7d"
MOST_PLACES: Final = 20
MOST_TITLES: Final = 200
PLACES_S: Final = 3.0
"""Of how many finished stories, and for how long, git is asked where they are when many are shown."""


class ToldStory(UsageCounts, frozen=True, kw_only=True):
    """A story, what it has come to, and what it cost.

    `outcome`: `landed`, `done`, `discarded`, `aborted` or `open`. `step` and `status`: where an open one is;
    set aside, where its last run was. `onto` and `commit`: where it landed. `whereabouts`: of a done or
    aborted one. `unpriced` counts runs without a known cost.
    """

    project: str
    name: str
    story: str
    outcome: str
    step: str | None
    status: str | None
    onto: str | None
    commit: str | None
    whereabouts: Whereabouts | None
    taken: str | None = None
    """Of a landed one that was not merged here: who has it, or what the command that took it has printed."""
    title: str | None = None
    began_at: Moment
    latest_at: Moment
    ended_at: Moment | None
    runs: int
    unpriced: int


class StoriesAnswer(Struct, frozen=True, kw_only=True):
    """Stories, the latest first."""

    stories: list[ToldStory]


class UsageRow(Struct, frozen=True, kw_only=True):
    """The usage of some ended runs. It names the group that they were summed up by; a total names none.

    `measured` counts the runs whose tokens are known, `unpriced` the ones among these without a cost.
    `new_tokens` are the tokens that no cache had, of a run if summed up by step, else of a story; `reference`
    is the range to expect.
    """

    project: str | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    story: str | UnsetType | None = UNSET
    step: str | UnsetType | None = UNSET
    day: str | UnsetType | None = UNSET
    executor: str | UnsetType | None = UNSET
    runs: int
    measured: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    tokens: int
    cost_usd: float | None
    priced: str | None
    new_tokens: int | UnsetType | None = UNSET
    reference: tuple[int, int] | UnsetType | None = UNSET
    above: bool | UnsetType | None = UNSET
    """Whether `new_tokens` are above the reference."""


class UsageAnswer(Struct, frozen=True, kw_only=True):
    """The usage of ended runs: a row for each group, and the total."""

    project: str | None
    since: Moment | None
    by: str
    rows: list[UsageRow]
    total: UsageRow


class Command(Struct, frozen=True, kw_only=True):
    """A program that the daemon had run for an attempt: the executor, or a check.

    `what`: `executor`, `baseline`, `tests`, `rest`, `second`, `post`, or `post.NAME` of several. Of one
    that has ended, `code` or `signal` is set, unless it was `lost`. `sandbox` is the level that held it.
    """

    what: str
    argv: tuple[str, ...]
    folder: str
    code: int | None
    signal: int | None
    by: str | None
    """Who ended it: `itself`, `deadline`, `stop`, `lost` or `outside`."""
    seconds: float | None
    sandbox: str | None
    refused: tuple[str, ...] = ()
    """Of one that a sandbox held, the paths outside that it could not reach, as its output says."""


class RunAnswer(Struct, frozen=True, kw_only=True):
    """All that is kept of one attempt. What is not known, or not kept any more, is null."""

    run: Run
    handoff: dict[str, Any] | None
    """What its hand-off said: a claim."""
    untouched: tuple[str, ...]
    """Files that it says it has changed, and that are as they were."""
    changed: dict[str, Any] | None
    """What its step had changed by its end, as measured."""
    before: TestCounts | None
    """The tests before the story."""
    post_check: dict[str, Any] | None
    post_checks: tuple[dict[str, Any], ...]
    """Each check of a step that has several by name."""
    commands: tuple[Command, ...]
    events: tuple[HistoryEvent, ...]
    """What was decided about it, oldest first."""


class Narrowed(TypedDict, total=False):
    """A part of the history: of a story, step or flow, from `since` on, before `until` (see `moment_of`)."""

    story: str | None
    step: str | None
    since: str | None
    until: str | None
    flow: str | None


class Past:
    """The reads of what has happened. `daemon`: whether a daemon answers, or the process of one command."""

    def __init__(
        self, supervision: Supervision, journal: Journal, clock: Clock, runs_dir: Path, *, daemon: bool
    ) -> None:
        self._supervision = supervision
        self.journal = journal
        self._clock = clock
        self._runs_dir = runs_dir
        self.daemon = daemon

    def now(self) -> datetime:
        """Return the time."""
        return self._clock.now()

    def names(self) -> Mapping[str, str]:
        """Return the names of projects in commands, by root; for use before the next await."""
        return self._supervision.names()

    def root_of(self, project: str | None) -> str | None:
        """Return the root of a project; None for None. Raises NotFound."""
        return None if project is None else self._supervision.find(project)

    def part(self, project: str | None, asked: Narrowed, verb: str) -> Part:
        """Return the part of the history that `verb` shows. Raises NotFound, Refused (BAD_ARGUMENT)."""
        now, again = self.now(), f"handoffd {verb} --since 7d"
        return Part(
            project=self.root_of(project),
            story=asked.get("story"),
            step=asked.get("step"),
            flow=asked.get("flow"),
            since=moment_of(asked.get("since"), now, "since", again),
            until=moment_of(asked.get("until"), now, "until", again),
        )

    async def _events(self, part: Part, after: int | None, limit: int) -> list[HistoryEvent]:
        if after is None:
            found = await self.journal.latest(limit, part)
        else:
            found = await self.journal.events(after, limit=limit, part=part)
        names = self.names()
        return [event_answer(event, names) for event in found]

    async def events(
        self,
        project: str | None = None,
        after: int | None = None,
        limit: int = 500,
        **asked: Unpack[Narrowed],
    ) -> EventsAnswer:
        """Return at most `limit` events above number `after`, oldest first; None: the last ones.

        `gaps` are numbers among them that are not kept. Without `after`, gaps before the first returned event
        are left out if older events exist, and so are gaps around a part of the history.
        """
        part = self.part(project, asked, "events")
        left_out = await self.journal.left_out()  # first: events removed meanwhile are still in `found`
        found = await self._events(part, after, limit)
        narrow = part != Part(project=part.project)
        if not limit or (narrow and not found):  # no event, so no gap between events
            return EventsAnswer(events=found, gaps=[])
        whole = len(found) < limit and not narrow
        first = after if after is not None else 0 if whole else found[0].seq
        last = self.journal.newest if whole else found[-1].seq
        gaps = [
            HistoryGap(after=max(one.after, first), next=one.next, why=one.why)
            for one in left_out
            if one.next > first + 1 and one.after < last
        ]
        return EventsAnswer(events=found, gaps=gaps)

    async def runs(
        self, project: str | None = None, limit: int = 100, **asked: Unpack[Narrowed]
    ) -> RunsAnswer:
        """Return the latest dispatches, newest first; a part of the history has the ones decided in it."""
        found = await self.journal.runs(limit=limit, part=self.part(project, asked, "runs"))
        usage = self._supervision.usage()
        if not self.daemon:
            usage = await to_thread.run_sync(
                self._noted_usage, [run.id for run in found if run.result is None]
            )
        names = self.names()
        return RunsAnswer(runs=[run_answer(run, names, usage.get(run.id)) for run in found])

    async def run(self, run: str) -> RunAnswer:
        """Return all that is kept of one attempt. Raises NotFound."""
        found = await self.journal.runs(limit=1, part=Part(run=run))
        if not found:
            raise NotFound(f"{run[:80]!r} is not the id of a run", hint="handoffd runs")
        (stored,) = found
        part = Part(project=stored.key.project, run=run, since=stored.decided_at)
        events = await self.journal.events(limit=_MOST_EVENTS_OF_RUN, part=part)
        told = {event.kind: event.event for event in events}
        ended = told.get("executor_exited") or told.get("handoff_arrived") or {}
        used, checked = self._supervision.usage().get(run), told.get("checks_finished") or {}
        before = await self._tests_before(stored)
        commands = await to_thread.run_sync(commands_of, self._runs_dir, run, _checks_ordered(events))
        names = self.names()
        return RunAnswer(
            run=run_answer(stored, names, used),
            handoff=(ended.get("reading") or {}).get("handoff"),
            untouched=tuple(ended.get("untouched") or ()),
            changed=ended.get("wrote"),
            before=before,
            post_check=checked.get("post_check"),
            post_checks=tuple(checked.get("post_checks") or ()),
            commands=commands,
            events=tuple(event_answer(event, names) for event in events),
        )

    async def _tests_before(self, run: StoredRun) -> TestCounts | None:
        body = await self.journal.load_baseline(run.key, run.story)
        with suppress(StoreError):
            return None if body is None else evidence.decode(body).counts
        return None

    def _noted_usage(self, runs: list[str]) -> Mapping[str, Usage]:
        """Return the usage of runs that a daemon saved last."""
        return {run: noted(self._runs_dir / run).seen.usage for run in runs}

    async def stories(
        self,
        project: str | None = None,
        story: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
    ) -> StoriesAnswer:
        """Return the stories of which something happened, the latest first."""
        part = self.part(project, Narrowed(story=story, since=since, until=until), "stories")
        found = await self.journal.past.stories(part, limit)
        views = await self._supervision.views()
        flying = {(view.project, track.story): track for view in views for track in view.tracks}
        ends = {"done", "aborted"}
        done = [(one.project, one.story) for one in found if one.end is not None and one.end.kind in ends]
        places = await self.places(done)
        titles = await self.titles((one.project, one.story) for one in found)
        names = self.names()  # only now: what was asked before has woken projects
        told = [story_answer(one, names, flying.get((one.project, one.story))) for one in found]
        return StoriesAnswer(
            stories=[
                replace(
                    one, whereabouts=places.get((one.project, one.story)),
                    title=titles.get((one.project, one.story)),
                )
                for one in told
            ]
        )  # fmt: skip

    async def known_story(self, root: str, story: str | None) -> StoryView:
        """Return a story; of one that the track has forgotten, as it had no text, what the journal knows."""
        try:
            found = await self._supervision.story(root, story)
        except NotFound:
            if story is None or not await self.journal.past.stories(Part(project=root, story=story), 1):
                raise
            found = StoryView(
                project=root, story=story, standing="closed", title=None, text=None, source=None
            )
        return found

    async def kept_of(self, root: str, story: str) -> str | None:
        """Return the ref that keeps what a story did that is over; None where it was not discarded."""
        known = await self.journal.past.stories(Part(project=root, story=story), 1)
        return known[0].end.kept if known and known[0].end else None

    async def places(self, stories: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Whereabouts]:
        """Return where the work of stories is that are over, as far as it is anywhere, by root and story.

        Git is asked about a few stories, for a few seconds: a screen of many must not wait for all of them.
        """
        found = dict[tuple[str, str], Whereabouts]()
        with anyio.move_on_after(PLACES_S):
            for root, story in islice(stories, MOST_PLACES):
                with suppress(HandoffdError):  # removed, or taken up again just now
                    if (where := await self._supervision.whereabouts(root, story)) is not None:
                        found[root, story] = where
        return found

    async def titles(self, stories: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return the titles of stories that have a text, by root and story; of the first ones, if many."""
        found = dict[tuple[str, str], str]()
        with anyio.move_on_after(PLACES_S):
            for root, story in islice(stories, MOST_TITLES):
                with suppress(HandoffdError):  # of an earlier life of the project
                    if (title := (await self._supervision.story(root, story)).title) is not None:
                        found[root, story] = title
        return found

    async def usage(
        self, project: str | None = None, by: str | None = None, since: str | None = None
    ) -> UsageAnswer:
        """Return the usage of ended runs, grouped by step or `by`. Raises Refused (BAD_ARGUMENT)."""
        group, begin = grouping(by), moment_of(since, self.now(), "since", "handoffd usage --since 7d")
        root = self.root_of(project)
        sums = await self.journal.usage(group, since=begin, project=root)
        rows, total = usage_report(sums, group, self.names())
        return UsageAnswer(project=root, since=begin, by=group, rows=rows, total=total)

    async def claims(
        self,
        project: str | None = None,
        since: str | None = None,
        until: str | None = None,
        by: ClaimsBy | None = None,
    ) -> Claims:
        """Return how often agents' claims were met. Raises Refused (BAD_ARGUMENT; TOO_MUCH_HISTORY)."""
        root, now = self.root_of(project), self.now()
        begin = moment_of(since or CLAIMS_SINCE, now, "since", _CLAIMS) or now
        end = min(moment_of(until, now, "until", _CLAIMS) or now, now)
        attempts = await self.journal.past.attempts(Part(project=root, since=begin, until=end))
        rows, total = await to_thread.run_sync(tally, attempts, by)  # of many nights it takes a second
        return Claims(project=root, since=begin, until=end, by=by, rows=rows, total=total)


def _checks_ordered(events: Sequence[StoredEvent]) -> list[str]:
    """Return the names of an attempt's checks, if it has several."""
    orders = [order for event in events for order in event.orders if order.get("kind") == "run_checks"]
    return [name for order in orders if isinstance(order["post_check"], dict) for name in order["post_check"]]


def commands_of(runs_dir: Path, run: str, post_checks: Sequence[str] = ()) -> tuple[Command, ...]:
    """Return the programs of an attempt whose records are kept, the executor first. Blocks."""
    found = []
    for name in runs_of(run, post_checks):
        if (records := recorded(runs_dir / name)) is not None:
            spec, start, end = records
            found.append(Command(
                what=_TRY.sub("", name.removeprefix(f"{run}.")) if name != run else "executor",
                argv=tuple(shortened(word, _MOST_OF_WORD) for word in asked_for(spec.argv, runs_dir / name)),
                folder=spec.cwd,
                code=None if end is None else end.code, signal=None if end is None else end.signal,
                by=None if end is None else end.by, seconds=None if end is None else round(end.seconds, 3),
                sandbox=None if start is None else start.sandbox or "off",
                refused=() if spec.sandbox is None else refused_paths(runs_dir / name, spec.output, spec.cwd),
            ))  # fmt: skip
    return tuple(found)


def story_answer(story: StoredStory, names: Names, track: TrackView | None) -> ToldStory:
    """Return a story with its outcome; `track` is the one in which it is in flight."""
    end = story.end
    step, status = (story.step, story.status) if track is None else (track.step, track.status)
    return ToldStory(
        project=story.project, name=named(story.project, names), story=story.story,
        outcome="open" if end is None else end.kind,
        step=step if end is None else None, status=status if end is None else None,
        onto=None if end is None else end.onto, commit=None if end is None else end.commit, whereabouts=None,
        taken=taken_in_words(end),
        began_at=story.began_at, latest_at=story.latest_at, ended_at=None if end is None else end.at,
        runs=story.runs, unpriced=story.unpriced, **asdict(usage_counts(story.usage)),
    )  # fmt: skip


# --- what runs used ----------------------------------------------------------------------------------
STORY_REFERENCE: Final = (15_000, 40_000)
"""Expected tokens of a whole story: low and high."""

_AGO = re.compile(r"(\d{1,4})([mhdw])")
_UNITS: Final[Mapping[str, timedelta]] = {
    "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1),
}  # fmt: skip


def grouping(text: str | None) -> Grouping:
    """Return the grouping, by step for None. Raises Refused (BAD_ARGUMENT)."""
    if text is None:
        return "step"
    known: tuple[Grouping, ...] = get_args(Grouping)
    for by in known:
        if text == by:
            return by
    message = f"by must be one of {', '.join(get_args(Grouping))}, not {str(text)[:80]!r}"
    raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --by step")


WHEN: Final = (
    "30m, 12h, 7d, 2w, yesterday, today, a date like 2026-01-31, or a time like 2026-01-31T07:00 (without a"
    " zone: by the local clock)"
)


def moment_of(text: str | None, now: datetime, name: str, again: str) -> datetime | None:
    """Return the moment for `30m` (ago), `12h`, `7d`, `2w`, `yesterday`, a date (local midnight) or a time.

    A time without a zone is one of the local clock.
    Raises Refused (BAD_ARGUMENT) for anything else, with the parameter's `name` and what to type `again`.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    if text in _DAYS:
        return _midnight((now.astimezone() - _DAYS[text]).date())
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{name} must be like {WHEN}, not {text[:80]!r}"
        raise Refused(message, code="BAD_ARGUMENT", hint=again) from None


_DAYS: Final[Mapping[str, timedelta]] = {"today": timedelta(0), "yesterday": timedelta(days=1)}


MORNING: Final = "08:00"
"""Until when a night is planned, if no time is given."""

_LONGEST: Final = timedelta(days=2)
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def end_of_night(text: str | None, now: datetime) -> datetime:
    """Return the next time that the local clock shows `08:00`, the moment for `8h` from now, or a time.

    One without a zone is a time of the local clock, and a date its midnight.
    Raises Refused (BAD_ARGUMENT) for anything else, a time that is over, and one more than two days ahead.
    """
    until = _ahead(text or MORNING, now)
    if until is None or not now < until <= now + _LONGEST:
        said = "must be like 08:00, 8h, or a time like 2026-01-31T07:00, within the next two days"
        message = f"until {said}, not {(text or '')[:80]!r}"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd tonight --until 08:00")
    return until


def _ahead(text: str, now: datetime) -> datetime | None:
    if (clock := _CLOCK.fullmatch(text)) is not None:
        today = now.astimezone().date()
        at = time(int(clock[1]), int(clock[2]))
        moments = (datetime.combine(today + timedelta(days=n), at).astimezone() for n in range(2))
        return next((moment for moment in moments if moment > now), None)
    if (hours := _AGO.fullmatch(text)) is not None:
        return now + int(hours[1]) * _UNITS[hours[2]]
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def midnights(since: datetime, until: datetime) -> tuple[datetime, ...]:
    """Return when days begin here in a time."""
    first = since.astimezone().date()
    days = (_midnight(first + timedelta(days=n)) for n in range(1, (until - since).days + 3))
    return tuple(day for day in days if since < day < until)


def _midnight(day: date) -> datetime:
    """Return when a day begins here."""
    return datetime.combine(day, time()).astimezone().astimezone(UTC)


def usage_report(sums: Iterable[UsageSum], by: Grouping, names: Names) -> tuple[list[UsageRow], UsageRow]:
    """Return the sums as rows, and their total."""
    found = tuple(sums)
    whole = UsageSum(
        key=(),
        runs=sum(one.runs for one in found),
        measured=sum(one.measured for one in found),
        unpriced=sum(one.unpriced for one in found),
        usage=reduce(add, (one.usage for one in found), Usage()),
    )
    rows = [_row(one, **_key(one.key, by, names), **_compared(one, by)) for one in found]
    return rows, _row(whole)


def _row(one: UsageSum, **more: Any) -> UsageRow:
    counts = asdict(usage_counts(one.usage))
    return UsageRow(runs=one.runs, measured=one.measured, unpriced=one.unpriced, **counts, **more)


def _key(key: tuple[str | None, ...], by: Grouping, names: Names) -> dict[str, str | None]:
    match by:
        case "story":
            root, story = key
            return {"project": root, "name": named(root or "", names), "story": story}
        case "project":
            (root,) = key
            return {"project": root, "name": named(root or "", names)}
        case _:
            return {by: key[0]}


def _compared(one: UsageSum, by: Grouping) -> dict[str, Any]:
    """Return the tokens new to the model, per run or per story, beside the expected ones; else empty."""
    if by not in {"step", "story"}:
        return {}
    new, expected = _new_tokens(one, by)
    above = None if new is None or expected is None else new > expected[1]
    return {"new_tokens": new, "reference": expected, "above": above}


def _new_tokens(one: UsageSum, by: Grouping) -> tuple[int | None, tuple[int, int] | None]:
    new = one.usage.tokens - one.usage.cache_read_tokens
    if by == "step" and one.measured:
        return round(new / one.measured), REFERENCE.get(one.key[0] or "")
    if by == "story" and one.measured and not str(one.key[1]).startswith("CUSTOM-"):
        return new, STORY_REFERENCE
    return None, None
