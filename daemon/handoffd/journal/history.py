"""What is looked back on: the lives of daemons, the stories there were, and all that happened in a time.

The questions are bounded by a time and answered from indexes, so that a long history costs nothing: an answer
costs as much as what happened in that time, and one look at each track that was at work before it. Columns
that an older journal lacks read as NULL, because a journal may be read before a daemon has brought it up to
date.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.flow.flow import FLOWS
from handoffd.engine.routing import Awaited
from handoffd.engine.run import LandedBy, Usage
from handoffd.engine.track import EXTERNAL, TrackKey
from handoffd.errors import Refused
from handoffd.journal.codec import decode_exit, moment
from handoffd.journal.connections import Run
from handoffd.journal.dispatches import SUMS, summed
from handoffd.journal.queries import STORY_GUESSED, decoded, has_column, named, stored_standing
from handoffd.journal.records import Life, Part, Standing, outcome_of
from handoffd.journal.schema import STORY_ENDS
from handoffd.protocol.state import Status

# --- the lives of daemons -----------------------------------------------------------------------------
SLEPT: Final = timedelta(minutes=5)
"""A daemon that has noted nothing for so long was not at work: the machine slept, or hung."""

_KEPT: Final = timedelta(days=400)


class Lives:
    """When daemons were alive on this journal. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def begin(self, at: datetime) -> None:
        """Note that a daemon has begun to live."""
        await self._write("note that the daemon lives", partial(_begin, at=at))

    async def beat(self, at: datetime) -> None:
        """Note that it still lives. After a long pause, that is a new life."""
        await self._write("note that the daemon lives", partial(_beat, at=at))

    async def end(self, at: datetime) -> None:
        """Note that it ends, as it was asked to."""
        await self._write("note that the daemon ends", partial(_end, at=at))

    async def since(self, at: datetime) -> tuple[Life, ...]:
        """Return the lives that had not ended by then, and the one before them; the oldest first."""
        return await self._read("read when daemons lived", partial(_lives, since=at))


def _begin(db: sqlite3.Connection, at: datetime) -> None:
    db.execute("DELETE FROM lives WHERE seen_at < ?", (moment(at - _KEPT),))
    db.execute("INSERT INTO lives (began_at, seen_at) VALUES (?, ?)", (moment(at), moment(at)))


def _beat(db: sqlite3.Connection, at: datetime) -> None:
    row = db.execute("SELECT number, seen_at, ended FROM lives ORDER BY number DESC LIMIT 1").fetchone()
    number, seen_at, ended = row or (0, moment(at), "stopped")
    if ended is not None:  # the disk was full when this one began
        _begin(db, at)
    elif at - datetime.fromisoformat(seen_at) > SLEPT:
        db.execute("UPDATE lives SET ended = 'slept' WHERE number = ?", (number,))
        _begin(db, at)
    elif moment(at) > seen_at:  # else the clock was put back
        db.execute("UPDATE lives SET seen_at = ? WHERE number = ?", (moment(at), number))


def _end(db: sqlite3.Connection, at: datetime) -> None:
    _beat(db, at)
    db.execute("UPDATE lives SET ended = 'stopped' WHERE number = (SELECT max(number) FROM lives)")


def _lives(db: sqlite3.Connection, since: datetime) -> tuple[Life, ...]:
    if not has_column(db, "lives", "number"):
        return ()
    rows = db.execute(
        """SELECT began_at, seen_at, ended FROM lives WHERE number >= coalesce(
        (SELECT max(number) FROM lives WHERE seen_at < :since), 0) ORDER BY number""",
        {"since": moment(since)},
    )
    at = datetime.fromisoformat
    return tuple(Life(at(began), at(seen), ended) for began, seen, ended in rows)


# --- stories ------------------------------------------------------------------------------------------
class StoryEnd(Struct, frozen=True, kw_only=True):
    """An event with which a story ended: the step `done`, or a person's landing, discarding, abort."""

    seq: int
    at: datetime
    key: TrackKey
    story: str
    kind: str
    onto: str | None = None
    commit: str | None = None
    """Of a landing: the branch that has the story, and where that ended then."""
    how: LandedBy = "merge"
    told: str | None = None
    """The last line of the command that has taken the story."""
    kept: str | None = None
    """Of a discarded one: the ref that keeps its work."""
    by: str | None = None
    """Who has landed, discarded or aborted it."""


def taken_in_words(end: StoryEnd | None) -> str | None:
    """Return who has a story that was not merged here: a command of the project, or its own branch alone."""
    if end is None or end.kind != "landed" or end.how == "merge":
        return None
    if end.how == "branch":
        return f"on its branch {end.onto}"
    return f"for {end.onto}: {end.told or 'taken by the command of the project'}"


class StoredStory(Struct, frozen=True, kw_only=True):
    """A story of which something ran. `step` and `status` are of its latest run; `end` None: it is open."""

    project: str
    story: str
    began_at: datetime
    latest_at: datetime
    step: str
    status: str | None
    """None: the run goes on."""
    runs: int
    measured: int
    unpriced: int
    usage: Usage
    end: StoryEnd | None


class _Landing(Struct, frozen=True):
    story: str | None = None
    onto: str | None = None
    commit: str | None = None
    up_to: str | None = None
    how: LandedBy = "merge"
    told: str | None = None
    kept: str | None = None
    by: str | None = None


_landing = msgspec.json.Decoder(_Landing)


def stories(db: sqlite3.Connection, part: Part, limit: int) -> tuple[StoredStory, ...]:
    """Return at most `limit` stories of which something happened in a part, the latest first."""
    ended = {(end.key.project, end.story): end for end in story_ends(db, _timeless(part))}
    told = {"project": "AND project = :project", "story": "AND story = :story"}
    values = named(part)
    rows = db.execute(
        f"""SELECT one.*, last.step, last.result FROM (SELECT project, story, max(seq) AS latest,
        min(decided_at), max(coalesce(ended_at, decided_at)), {SUMS} FROM dispatches WHERE story IS NOT NULL
        {" ".join(text for name, text in told.items() if values[name] is not None)}
        GROUP BY project, story) AS one JOIN dispatches AS last ON last.seq = one.latest
        AND last.project = one.project""",  # noqa: S608  (fixed texts)
        values,
    )
    found = (_story(row, ended.get((row[0], row[1]))) for row in rows)
    matching = [one for one in found if _within(one, part)]
    return tuple(sorted(matching, key=lambda one: one.latest_at, reverse=True)[:limit])


def _timeless(part: Part) -> Part:
    """Return the part without its times: what a story has come to may have been before or after them."""
    return Part(project=part.project, story=part.story)


def _story(row: tuple[Any, ...], end: StoryEnd | None) -> StoredStory:
    project, story, seq, began_at, ended_at, *sums, step, result = row
    over = end is not None and end.seq > seq
    latest_at = datetime.fromisoformat(ended_at)
    runs, measured, unpriced, usage = summed(tuple(sums))
    return StoredStory(
        project=project, story=story, began_at=datetime.fromisoformat(began_at),
        latest_at=max(latest_at, end.at) if over and end else latest_at,
        step=step, status=result, runs=runs, measured=measured, unpriced=unpriced, usage=usage,
        end=end if over else None,
    )  # fmt: skip


def _within(story: StoredStory, part: Part) -> bool:
    late = part.since is None or story.latest_at >= part.since
    return late and (part.until is None or story.began_at < part.until)


def story_ends(db: sqlite3.Connection, part: Part) -> Iterator[StoryEnd]:
    """Yield the events with which stories ended in a part, in order."""
    told = {"project": "project = :project", "since": "at >= :since", "until": "at < :until"}
    values = named(part)
    # Without a condition on its columns SQLite would read all events instead of the index of ends.
    asked = [text for name, text in told.items() if values[name] is not None] or ["project >= ''"]
    known = "story" if has_column(db, "events", "story") else "NULL"
    rows = db.execute(
        f"""SELECT seq, at, project, track, kind, coalesce({known}, {STORY_GUESSED}),
        iif(kind IN ('landed', 'discarded', 'aborted'), event, NULL) FROM events
        WHERE {STORY_ENDS} AND {" AND ".join(asked)}
        ORDER BY +seq""",  # noqa: S608  (fixed texts)
        values,
    )
    for seq, at, project, track, kind, story, event in rows:
        if story is not None and part.story in {None, story}:
            told_of = _Landing() if event is None else decoded(_landing.decode, event, project, track)
            if told_of.up_to is not None:
                continue  # the rest of the story is still to be landed
            yield StoryEnd(
                seq=seq, at=datetime.fromisoformat(at), key=TrackKey(project, track), story=story,
                kind=kind if kind in {"landed", "discarded", "aborted"} else "done",
                onto=told_of.onto, commit=told_of.commit, how=told_of.how, told=told_of.told,
                kept=told_of.kept, by=told_of.by,
            )  # fmt: skip


# --- all that happened in a time ----------------------------------------------------------------------
MOST_EVENTS: Final = 250_000
"""Of the time of one report: more would keep others from reading for many seconds."""

TOO_MUCH: Final = "TOO_MUCH_HISTORY"


class Counts(Struct, frozen=True):
    """Numbers of tests."""

    passed: int = msgspec.field(default=0, name="pass")
    failed: int = msgspec.field(default=0, name="fail")


class Handover(Struct, frozen=True):
    """What an executor said in its hand-off, as far as it can be measured."""

    status: str | None = None
    tests: Counts | None = None
    reason: str | None = None
    summary: str | None = None


class Reading(Struct, frozen=True):
    """What was found of a hand-off."""

    handoff: Handover = Handover()


class Claimed(Struct, frozen=True):
    """What an attempt left. `untouched` are files that it says it changed and did not."""

    dispatch: str
    reading: Reading
    untouched: tuple[str, ...] = ()

    @property
    def said(self) -> Handover:
        """Its hand-off; an empty one if there is none that can be read."""
        return self.reading.handoff


class TestsRun(Struct, frozen=True):
    """A run of the project's tests by the daemon."""

    __test__ = False

    counts: Counts = Counts()
    verified: bool = True
    timed_out: bool = False
    fault: str | None = None


class Measured(Struct, frozen=True):
    """What the daemon measured of an attempt; its checks are named in `why`."""

    dispatch: str
    tests: TestsRun | None = None


class Happened(Struct, frozen=True, kw_only=True):
    """An event as a report needs it. `claimed` and `measured` are of the ends and the checks of attempts.

    `awaits` is what its story waits for from then on; None: it is of a release that did not note that.
    """

    seq: int
    at: datetime
    key: TrackKey
    kind: str
    story: str | None
    awaits: Awaited | None
    before: Standing | None
    after: Standing | None
    why: str = ""
    claimed: Claimed | None = None
    measured: Measured | None = None


class Ran(Struct, frozen=True, kw_only=True):
    """A dispatch as a report needs it."""

    id: str
    key: TrackKey
    story: str | None
    step: str
    attempt: int
    executor: str
    started_at: datetime | None
    ended_at: datetime | None
    result: str | None
    outcome: str | None
    """The result for people (see `outcome_of`)."""
    why: str | None
    tokens: int | None
    cost_usd: float | None


class Attempts(Struct, frozen=True, kw_only=True):
    """The attempts from `since` until `until`: `runs` ended in it, or had not ended by its end.

    `events` are at least the ones that have a claim, or a measurement.
    """

    since: datetime
    until: datetime
    events: tuple[Happened, ...]
    runs: tuple[Ran, ...]


class Night(Attempts, frozen=True, kw_only=True):
    """All that happened from `since` until `until`.

    `before` is the last event before it of each track of the supervised projects; `ends` are the stories that
    ended in it.
    """

    before: tuple[Happened, ...]
    ends: tuple[StoryEnd, ...]
    lives: tuple[Life, ...]


_claimed = msgspec.json.Decoder(Claimed)
_measured = msgspec.json.Decoder(Measured)

_TOLD: Final = "'executor_exited', 'handoff_arrived', 'checks_finished'"


def attempts(db: sqlite3.Connection, part: Part) -> Attempts:
    """Return the attempts of a part, whose times are given. Raises Refused for too many events in them."""
    since, until = _times(part)
    events = _within_time(db, part, f"AND kind IN ({_TOLD})")  # first: it may refuse
    return Attempts(since=since, until=until, events=events, runs=tuple(_runs(db, part)))


def night(db: sqlite3.Connection, part: Part) -> Night:
    """Return all that happened in a part, whose times are given. Raises Refused for too much of it."""
    since, until = _times(part)
    return Night(
        since=since,
        until=until,
        events=_within_time(db, part),  # first: it may refuse
        before=tuple(_before(db, part)),
        runs=tuple(_runs(db, part)),
        ends=tuple(story_ends(db, part)),
        lives=_lives(db, since),
    )


def _times(part: Part) -> tuple[datetime, datetime]:
    assert part.since is not None
    assert part.until is not None
    return part.since, part.until


def _columns(db: sqlite3.Connection, name: str) -> str:
    later = ("story", "awaits") if has_column(db, "events", "awaits") else ("NULL", "NULL")
    columns = ("seq", "at", "project", "track", "kind", *later)
    standing = ("step_before", "status_before", "step_after", "status_after")
    return ", ".join(one if one == "NULL" else f"{name}.{one}" for one in (*columns, *standing))


def _within_time(db: sqlite3.Connection, part: Part, only: str = "") -> tuple[Happened, ...]:
    within = f"FROM events WHERE at >= :since AND at < :until {_of_project(part)} {only}"
    # First, and from the index alone: what is too much would take seconds to read.
    counted = f"SELECT count(*) FROM (SELECT 1 {within} LIMIT {MOST_EVENTS + 1})"  # noqa: S608  (fixed texts)
    (count,) = db.execute(counted, named(part)).fetchone()
    if count > MOST_EVENTS:
        message = f"more than {MOST_EVENTS:,} events are too many for one report"
        raise Refused(message, code=TOO_MUCH, hint="handoffd report --since 12h")
    wanted = f"{_columns(db, 'events')}, why, iif(kind IN ({_TOLD}), event, NULL)"
    rows = db.execute(f"SELECT {wanted} {within} ORDER BY seq", named(part))
    return tuple(map(_happened, rows))


def _before(db: sqlite3.Connection, part: Part) -> Iterator[Happened]:
    rows = db.execute(
        f"""SELECT {_columns(db, "e")}, '', NULL
        FROM {_at_work(db)} AS t JOIN projects AS p ON p.root = t.project
        JOIN events AS e ON e.seq = (SELECT seq FROM events AS old WHERE old.project = t.project
        AND old.track = t.track AND old.at < :since ORDER BY old.seq DESC LIMIT 1)
        WHERE p.removed_at IS NULL {_of_project(part, "t.")}""",  # noqa: S608  (fixed texts)
        named(part),
    )
    return map(_happened, rows)


def _at_work(db: sqlite3.Connection) -> str:
    """Return what gives the keys of all tracks and flows."""
    if not has_column(db, "flows", "seq"):
        return "tracks"
    return f"(SELECT project, track FROM tracks UNION ALL SELECT project, '{FLOWS}' || flow FROM flows)"  # noqa: S608


def _of_project(part: Part, table: str = "") -> str:
    return "" if part.project is None else f"AND {table}project = :project"


def _claim(event: str) -> Claimed:
    """Return what an attempt left; of one that passed without its summary, as there may be very many."""
    claimed = _claimed.decode(event)
    if claimed.said.status != Status.PASS:
        return claimed
    return replace(claimed, reading=Reading(handoff=replace(claimed.said, summary=None)))


def _happened(row: tuple[Any, ...]) -> Happened:
    seq, at, project, track, kind, story, awaits, *standing, why, event = row
    checked = kind == "checks_finished"
    claimed = None if event is None or checked else decoded(_claim, event, project, track)
    measured = decoded(_measured.decode, event, project, track) if event is not None and checked else None
    return Happened(
        seq=seq, at=datetime.fromisoformat(at), key=TrackKey(project, track), kind=kind, story=story,
        awaits=awaits, before=stored_standing(*standing[:2]), after=stored_standing(*standing[2:]), why=why,
        claimed=claimed, measured=measured,
    )  # fmt: skip


_RAN: Final = """id, project, track, story, step, attempt, executor, started_at, ended_at, result,
    iif(result = 'interrupted', exit, NULL), why,
    input_tokens + output_tokens + cache_read_tokens + cache_write_tokens, cost_usd, seq"""


def _runs(db: sqlite3.Connection, part: Part) -> Iterator[Ran]:
    # The signs keep the indexes of projects and decisions out of it: they would find far more.
    rest = f"AND +decided_at < :until {_of_project(part, '+')}"
    rows = db.execute(
        f"""SELECT {_RAN} FROM dispatches WHERE ended_at >= :since {rest}
        UNION SELECT {_RAN} FROM dispatches WHERE result IS NULL AND project >= '' {rest}
        ORDER BY seq""",  # noqa: S608  (fixed texts)
        named(part),
    )
    for (
        name,
        project,
        track,
        story,
        step,
        attempt,
        executor,
        *times,
        result,
        end,
        why,
        tokens,
        cost,
        _,
    ) in rows:
        started_at, ended_at = (None if at is None else datetime.fromisoformat(at) for at in times)
        yield Ran(
            id=name, key=TrackKey(project, track), story=story, step=step, attempt=attempt,
            executor=executor, started_at=started_at, ended_at=ended_at, result=result,
            outcome=outcome_of(result, None if end is None else decoded(decode_exit, end, project, track)),
            why=why, tokens=tokens, cost_usd=cost,
        )  # fmt: skip


# --- since when tracks wait -----------------------------------------------------------------------------
_MOST_READ: Final = 5_000
"""Events of a project, the latest ones; what has waited longer is not known."""

_LATEST: Final = f"""(SELECT seq, at, track, kind, awaits FROM events WHERE project = :project
    ORDER BY seq DESC LIMIT {_MOST_READ})"""  # noqa: S608  (fixed texts)


def since(
    db: sqlite3.Connection, waiting: Iterable[TrackKey], paused: Iterable[TrackKey]
) -> dict[TrackKey, datetime]:
    """Return since when tracks have waited for a person without a break, and others were paused by one."""
    if not has_column(db, "events", "awaits"):
        return {}
    begun = f"""SELECT min(at) FROM {_LATEST} WHERE track = :track AND seq > (SELECT coalesce(max(seq), 0)
        FROM {_LATEST} WHERE track = :track AND awaits IS NOT 'person')"""  # noqa: S608  (fixed texts)
    stopped = f"SELECT max(at) FROM {_LATEST} WHERE track = :track AND kind = 'paused'"  # noqa: S608
    asked = [*((key, begun) for key in waiting), *((key, stopped) for key in paused)]
    found = ((key, db.execute(question, key._asdict()).fetchone()[0]) for key, question in asked)
    return {key: datetime.fromisoformat(at) for key, at in found if at is not None}


# --- what steps took -----------------------------------------------------------------------------------
class StepTook(Struct, frozen=True, kw_only=True):
    """What a step took one story, all its attempts together, until it passed.

    `tokens` and `cost_usd` are None unless they are known of each attempt.
    """

    step: str
    story: str
    attempts: int
    seconds: float
    tokens: int | None
    cost_usd: float | None


MOST_TOOK: Final = 1_000
"""Runs of a project that are read, the latest ones."""


def steps_took(db: sqlite3.Connection, roots: Iterable[str]) -> dict[str, tuple[StepTook, ...]]:
    """Return, by root, what steps took the latest stories of a project."""
    return {root: tuple(_took(db, root)) for root in roots}


def _took(db: sqlite3.Connection, root: str) -> Iterator[StepTook]:
    rows = db.execute(
        f"""SELECT step, story, count(*), sum((julianday(ended_at) - julianday(started_at)) * 86400.0),
        iif(count(tokens) = count(*), sum(tokens), NULL), iif(count(cost_usd) = count(*), sum(cost_usd), NULL)
        FROM (SELECT step, story, started_at, ended_at, result, cost_usd, input_tokens + output_tokens +
        cache_read_tokens + cache_write_tokens AS tokens FROM dispatches WHERE project = :root
        AND story IS NOT NULL AND started_at IS NOT NULL AND ended_at IS NOT NULL AND executor <> :by_hand
        ORDER BY seq DESC LIMIT {MOST_TOOK}) GROUP BY step, story HAVING sum(result = 'pass') > 0""",  # noqa: S608  (fixed texts)
        {"root": root, "by_hand": EXTERNAL},
    )
    for step, story, attempts, seconds, tokens, cost_usd in rows:
        yield StepTook(
            step=step, story=story, attempts=attempts, seconds=seconds, tokens=tokens, cost_usd=cost_usd
        )


class Retrospect:
    """Questions about the past. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run) -> None:
        self._read = read

    async def stories(self, part: Part, limit: int) -> tuple[StoredStory, ...]:
        """Return at most `limit` stories of which something happened in a part, the latest first."""
        return await self._read("read the stories", partial(stories, part=part, limit=limit))

    async def night(self, part: Part) -> Night:
        """Return all that happened in a part, whose times are given. Raises Refused for too much of it."""
        return await self._read("read what happened", partial(night, part=part))

    async def attempts(self, part: Part) -> Attempts:
        """Return the attempts of a part, whose times are given. Raises Refused for too much of it."""
        return await self._read("read the attempts", partial(attempts, part=part))

    async def since(
        self, waiting: Sequence[TrackKey], paused: Sequence[TrackKey]
    ) -> dict[TrackKey, datetime]:
        """Return since when tracks have waited for a person, and others were paused by one; see `since`."""
        return await self._read("read since when", partial(since, waiting=waiting, paused=paused))

    async def steps_took(self, roots: Sequence[str]) -> dict[str, tuple[StepTook, ...]]:
        """Return, by root, what each step took the latest stories of a project until it passed."""
        return await self._read("read what steps took", partial(steps_took, roots=roots))
