"""The table of dispatches: a row for each attempt, from the decision to the verdict.

The rows are derived from the records, in the transaction that commits them, by the pure functions below. A
fact told twice changes nothing, because a row keeps the first value of every column; and a dispatch that is
no longer in flight is over, whatever event took it away, so that no row says "running" for ever.

Because they are derived, a replay can write them again, by the code that wrote them first. It writes to a
file that SQLite makes for us and removes when it is closed: a long history costs disk for that time, and no
memory.

A run counts in the sums from its end on, on the day (in the local time zone) on which it ended.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from msgspec import Struct

from handoffd.engine.decision import Refusal
from handoffd.engine.events import (
    Advanced,
    BaselineMeasured,
    ChecksFinished,
    ExecutorExited,
    ExecutorStarted,
    HandoffArrived,
    SpawnRefused,
    TestEvidence,
)
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import EXTERNAL, Dispatch, Phase, TrackKey
from handoffd.files.errors import storage_error
from handoffd.journal.codec import decode_exit, decode_tests, encode, moment
from handoffd.journal.queries import MOST_ROWS, decoded, named
from handoffd.journal.records import INTERRUPTED, WHOLE, Part, Record, StoredRun, UsageSum
from handoffd.journal.schema import migrate
from handoffd.protocol.state import Status

NOT_STARTED = "not_started"
"""Its executor never ran."""

_MOST_TOKENS = 10**12
"""No run uses more; a higher claim by an agent would make a sum that SQLite cannot hold."""

BEGUN = ("project", "track", "story", "step", "attempt", "executor", "decided_at")
"""What a row says from its beginning on."""
TOLD = (
    "started_at", "ended_at", "exit", "tests",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "priced", "model",
)  # fmt: skip
"""What becomes known while it is in flight."""
JUDGED = ("result", "why")
"""What the end adds."""

_COLUMNS = ("id", "seq", *BEGUN, *TOLD, *JUDGED)
_VALUES: dict[str, Callable[[str], object]] = {"exit": decode_exit, "tests": decode_tests}

Grouping = Literal["step", "story", "project", "day", "executor"]

_GROUPS: Final[Mapping[Grouping, tuple[str, ...]]] = {
    "step": ("step",),
    "story": ("project", "story"),
    "project": ("project",),
    "day": ("date(ended_at, 'localtime')",),
    "executor": ("executor",),
}
SUMS: Final = """count(*), count(input_tokens),
    count(input_tokens) - count(cost_usd), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
    coalesce(sum(cache_read_tokens), 0), coalesce(sum(cache_write_tokens), 0), sum(cost_usd),
    iif(min(priced) = max(priced), min(priced), iif(count(priced), 'mixed', NULL))"""


# --- what a record says about dispatches --------------------------------------------------------------
class Learned(Struct, frozen=True, kw_only=True):
    """What became known of one dispatch; None where nothing did."""

    id: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit: Exit | None = None
    tests: TestEvidence | None = None

    @property
    def usage(self) -> Usage | None:
        """What its executor used; None where that is not known."""
        return None if self.exit is None else self.exit.usage


class Verdict(Struct, frozen=True, kw_only=True):
    """How every dispatch of the track but `in_flight` has ended, if it was not over before."""

    in_flight: str | None
    at: datetime
    result: str
    why: str


def begun(record: Record) -> Dispatch | None:
    """Return the dispatch that `record` puts or keeps in flight, or judges at once; None if none."""
    event, state = record.event, record.track.state
    if record.track.ledger.dispatch is not None:
        return record.track.ledger.dispatch
    if not isinstance(event, HandoffArrived) or isinstance(record.result, Refusal) or state is None:
        return None
    # An external dispatch: with nothing to check it is judged at once, and never in flight.
    return Dispatch(
        id=event.dispatch,
        story=state.story,
        step=state.step,
        attempt=state.attempt,
        executor=EXTERNAL,
        decided_at=state.dispatched_at or record.at,
        phase=Phase.CHECKING,
    )


def learned(record: Record) -> Learned | None:
    """Return what `record` tells about the dispatch its event speaks of, if it speaks of one."""
    if isinstance(record.result, Refusal):
        return None
    match record.event:
        case ExecutorStarted(dispatch=dispatch, at=at):
            return Learned(id=dispatch, started_at=at or record.at)
        case ExecutorExited(dispatch=dispatch, exit=end):
            began = None if end.at is None else end.at - timedelta(seconds=end.seconds)
            return Learned(id=dispatch, started_at=began, ended_at=end.at or record.at, exit=end)
        case ChecksFinished(dispatch=dispatch, tests=tests):
            return Learned(id=dispatch, tests=tests)
    return None


def verdict(record: Record) -> Verdict:
    """Return how the dispatches ended that are not in flight any more."""
    in_flight, state = record.track.ledger.dispatch, record.track.state
    judged = state is not None and state.status not in {Status.PENDING, Status.RUNNING}
    unstarted = isinstance(record.event, SpawnRefused | BaselineMeasured | Advanced)
    return Verdict(
        in_flight=None if in_flight is None else in_flight.id,
        at=record.at,
        result=state.status.value
        if state is not None and judged
        else NOT_STARTED
        if unstarted
        else INTERRUPTED,
        why=record.why,
    )


# --- writing, inside a transaction --------------------------------------------------------------------
def write_dispatches(
    db: sqlite3.Connection,
    key: TrackKey,
    seq: int,
    started: Dispatch | None,
    news: Learned | None,
    end: Verdict,
) -> None:
    """Write what event `seq` of a track says about dispatches: by `begun`, `learned` and `verdict`."""
    if started is not None:
        write_begun(db, key, seq, started)
    if news is not None:
        _tell_dispatch(db, news)
    _close_dispatches(db, key, end)


def write_begun(db: sqlite3.Connection, key: TrackKey, seq: int, dispatch: Dispatch) -> None:
    """Write the row of a dispatch that event `seq` begins; one that is there stays as it is."""
    db.execute(
        """INSERT OR IGNORE INTO dispatches
        (id, seq, project, track, story, step, attempt, executor, decided_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(dispatch.id, seq, *key, dispatch.story, dispatch.step, dispatch.attempt, dispatch.executor),
            moment(dispatch.decided_at),
        ),
    )


def _tell_dispatch(db: sqlite3.Connection, news: Learned) -> None:
    db.execute(
        """UPDATE dispatches SET started_at = coalesce(started_at, ?), ended_at = coalesce(ended_at, ?),
        exit = coalesce(exit, ?), tests = coalesce(tests, ?) WHERE id = ?""",
        (
            *(None if at is None else moment(at) for at in (news.started_at, news.ended_at)),
            *(None if value is None else encode(value) for value in (news.exit, news.tests)),
            news.id,
        ),
    )
    if news.usage is not None:
        _tell_usage(db, news.id, news.usage, news.exit.model if news.exit else None)


def _tell_usage(db: sqlite3.Connection, dispatch: str, usage: Usage, model: str | None) -> None:
    db.execute(
        """UPDATE dispatches SET input_tokens = ?, output_tokens = ?, cache_read_tokens = ?,
        cache_write_tokens = ?, cost_usd = ?, priced = ?, model = ? WHERE id = ? AND input_tokens IS NULL""",
        (
            *(min(count, _MOST_TOKENS) for count in _counts(usage)),
            *(usage.cost_usd, usage.priced, model, dispatch),
        ),
    )


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens


def _close_dispatches(db: sqlite3.Connection, key: TrackKey, end: Verdict) -> None:
    db.execute(
        """UPDATE dispatches SET ended_at = coalesce(ended_at, ?), result = ?, why = ?
        WHERE project = ? AND track = ? AND result IS NULL AND id IS NOT ?""",
        (moment(end.at), end.result, end.why, *key, end.in_flight),
    )


# --- questions ----------------------------------------------------------------------------------------
_OF_PART: Final = {
    "project": "project = :project",
    "story": "story = :story",
    "step": "step = :step",
    "since": "decided_at >= :since",
    "until": "decided_at < :until",
    "run": "id = :run",
    "flow": "substr(track, 1, length(:flow) + 1) = :flow || '.'",
}


def dispatches(db: sqlite3.Connection, limit: int, part: Part = WHOLE) -> tuple[StoredRun, ...]:
    """Return at most `limit` dispatches that were decided in a part of the history, newest first."""
    values = named(part)
    only = " AND ".join(["seq > 0", *(_OF_PART[name] for name, value in values.items() if value is not None)])
    rows = db.execute(
        f"""SELECT id, project, track, story, step, attempt, executor, decided_at,
        started_at, ended_at, exit, tests, result, why FROM dispatches
        WHERE {only} ORDER BY seq DESC LIMIT :limit""",  # noqa: S608  (fixed texts)
        {**values, "limit": min(limit, MOST_ROWS)},
    )
    return tuple(_run(row) for row in rows)


def _run(row: tuple[Any, ...]) -> StoredRun:
    number, project, track, story, step, attempt, executor, decided_at, *rest = row
    started_at, ended_at, exit_, tests, result, why = rest
    return StoredRun(
        id=number,
        key=TrackKey(project, track),
        story=story,
        step=step,
        attempt=attempt,
        executor=executor,
        decided_at=datetime.fromisoformat(decided_at),
        started_at=None if started_at is None else datetime.fromisoformat(started_at),
        ended_at=None if ended_at is None else datetime.fromisoformat(ended_at),
        exit=None if exit_ is None else decoded(decode_exit, exit_, project, track),
        tests=None if tests is None else decoded(decode_tests, tests, project, track),
        result=result,
        why=why,
    )


def sums(
    db: sqlite3.Connection, by: Grouping, since: datetime | None, project: str | None
) -> tuple[UsageSum, ...]:
    """Return a sum for each group in which a run has ended, by name."""
    columns = ", ".join(_GROUPS[by])
    late = "AND ended_at >= :since" if since else ""
    of_one = "AND project = :project" if project else ""
    rows = db.execute(
        f"""SELECT {columns}, {SUMS} FROM dispatches WHERE exit IS NOT NULL {late} {of_one}
        GROUP BY {columns} ORDER BY {columns}""",  # noqa: S608  (fixed texts)
        {"since": moment(since) if since else None, "project": project},
    )
    width = len(_GROUPS[by])
    return tuple(_sum(row[:width], row[width:]) for row in rows)


def _sum(key: tuple[str | None, ...], row: tuple[Any, ...]) -> UsageSum:
    runs, measured, unpriced, usage = summed(row)
    return UsageSum(key=key, runs=runs, measured=measured, unpriced=unpriced, usage=usage)


def summed(row: tuple[Any, ...]) -> tuple[int, int, int, Usage]:
    """Return what `SUMS` counts: runs, the ones whose tokens are known, those without a price, the usage."""
    runs, measured, unpriced, *tokens, cost_usd, priced = row
    sent, answered, cache_read, cache_write = tokens
    usage = Usage(
        input_tokens=sent, output_tokens=answered, cache_read_tokens=cache_read,
        cache_write_tokens=cache_write, cost_usd=cost_usd, priced=priced,
    )  # fmt: skip
    return int(runs), int(measured), int(unpriced), usage


# --- rows for a comparison, and the table made again ---------------------------------------------------
class DispatchRow(Struct, frozen=True, kw_only=True):
    """One row. `values` are the columns as they are written, with `seq`, by name."""

    id: str
    seq: int
    key: TrackKey
    values: dict[str, Any]

    def value(self, column: str) -> object:
        """Return what a column says, however it is written; the text itself when it cannot be read."""
        text = self.values[column]
        if text is None or column not in _VALUES:
            return text
        try:
            # An earlier release wrote fewer fields, and means the same by it.
            return _VALUES[column](text)
        except (ValueError, KeyError, TypeError, RecursionError):
            return text


def rows(db: sqlite3.Connection, project: str | None) -> Iterator[DispatchRow]:
    """Yield every row, of one root or of all, in no order."""
    return _rows(db, "" if project is None else "WHERE project = :project", {"project": project})


def row(db: sqlite3.Connection, dispatch: str) -> DispatchRow | None:
    """Return the row of a dispatch; None when there is none."""
    return next(_rows(db, "WHERE id = :id", {"id": dispatch}), None)


def _rows(db: sqlite3.Connection, where: str, values: dict[str, Any]) -> Iterator[DispatchRow]:
    for found in db.execute(f"SELECT {', '.join(_COLUMNS)} FROM dispatches {where}", values):  # noqa: S608  (fixed texts)
        named = dict(zip(_COLUMNS, found, strict=True))
        key = TrackKey(named["project"], named["track"])
        yield DispatchRow(id=named.pop("id"), seq=named["seq"], key=key, values=named)


class DerivedDispatches:
    """What the table says by the records it is given, in their order; close it in the end.

    Raises StoreError when there is no room for a temporary file.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        with _explained():
            # Nothing of it is needed after a crash.
            self._db.execute("PRAGMA journal_mode = OFF")
            self._db.execute("PRAGMA synchronous = OFF")
            migrate(self._db, "the derived dispatches")

    def close(self) -> None:
        """Remove what was written."""
        self._db.close()

    def begin(self, key: TrackKey, seq: int, dispatch: Dispatch) -> None:
        """Write the row of a dispatch that was in flight already when the replay began, after `seq`."""
        with _explained():
            write_begun(self._db, key, seq, dispatch)

    def write(self, seq: int, record: Record) -> None:
        """Write what an event says about dispatches."""
        with _explained():
            write_dispatches(self._db, record.key, seq, begun(record), learned(record), verdict(record))

    def rows(self, project: str | None) -> Iterator[DispatchRow]:
        """Yield what was written, of one root or of all."""
        with _explained():
            yield from rows(self._db, project)

    def row(self, dispatch: str) -> DispatchRow | None:
        """Return what was written of a dispatch; None when nothing was."""
        with _explained():
            return row(self._db, dispatch)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # Where SQLite looks first for a place.
        folder = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108
        place = os.path.join(folder, "a temporary file")
        raise storage_error("write down the dispatches again", place, error) from error
