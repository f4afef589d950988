"""The journal as a replay reads it: page by page, with everything a decision was made with.

A journal may be years long, and a daemon may write to it meanwhile. So pages are short transactions,
which hold nothing up; only the last look (`still`) sees all tables at one instant. A row that cannot be
read is reported, never raised: finding such rows is what a replay is for.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from handoffd.engine.decide import Difference, Recorded, Standing, differing
from handoffd.engine.decision import Effect
from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import FlowDecision, FlowEvent, Order, Reason
from handoffd.engine.flow.flow import Flow, Node
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.files.errors import NOT_A_JOURNAL, storage_error
from handoffd.journal.codec import (
    as_kept,
    decode,
    decode_effect,
    decode_event,
    decode_flow_event,
    decode_flow_order,
    decode_grounds,
    decode_result,
    decode_rules,
    decode_track,
)
from handoffd.journal.database import Fault, open_reader, restores
from handoffd.journal.dispatches import DispatchRow, row, rows
from handoffd.journal.flow_queries import FlowRow, flows_held_against, plan_from
from handoffd.journal.queries import held_against, stored_standing
from handoffd.journal.records import FlowResult, flow_key
from handoffd.journal.schema import VERSION, refuse_newer, version_of
from handoffd.protocol.plan import Plan
from handoffd.protocol.rules import RuleBook

PAGE = 500
"""Events read at once."""

_BOOKS = 32
"""Step tables, and plans, held in memory."""

Question = Callable[[sqlite3.Connection], Iterable[Fault]]

UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)


class RecordedFlow(Struct, frozen=True, kw_only=True):
    """A decision about a flow as it was recorded: what it was made with, and what came out."""

    event: FlowEvent
    plan: Plan
    now: datetime
    orders: tuple[Order, ...]
    reasons: tuple[Reason, ...]
    past: tuple[Node, ...]


class Entry(Struct, frozen=True, kw_only=True):
    """One event for a replay. Without `recorded`, `fault` says why it cannot be decided again.

    `engine` is the release that decided; `digest` that of the STATE.json text, None without one.
    """

    seq: int
    key: TrackKey
    kind: str
    engine: str | None
    digest: str | None
    recorded: Recorded | None
    fault: str | None = None
    flow: RecordedFlow | None = None
    """In place of `recorded`, of an event of a flow."""
    of_flow: bool = False
    left: str | None = None
    """The digest of all that is kept of the flow after it."""


class Kept(Struct, frozen=True, kw_only=True):
    """A track as the tables hold it now. Without `track`, its body cannot be read."""

    key: TrackKey
    seq: int
    digest: str | None
    standing: Standing | None
    track: Track | None


class Recordings:
    """A journal opened for a replay. Raises StoreError when the file fails; close it in the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._books: OrderedDict[int, tuple[RuleBook, str]] = OrderedDict()
        self._plans: OrderedDict[int, tuple[str, Plan]] = OrderedDict()
        if not path.is_file():
            raise StoreError(f"there is no journal at {path}", hint="handoffd config show")
        with _explained("open the journal", path):
            self.db = open_reader(path)
        try:
            self._check_version()
        except BaseException:
            self.close()
            raise

    def _check_version(self) -> None:
        with _explained("open the journal", self.path):
            version = version_of(self.db, str(self.path))
        if version == 0:
            raise StoreError(f"{self.path} is empty, not a journal", code=NOT_A_JOURNAL)
        refuse_newer(version, str(self.path))
        if version < VERSION:
            raise StoreError(
                f"{self.path} has the schema {version}, of before decisions could be replayed",
                code="OLDER_SCHEMA",
                hint="handoffd doctor   (says how the daemon is started, which migrates it)",
            )

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    @contextmanager
    def still(self) -> Iterator[None]:
        """See all tables as they are at one instant, whatever is written meanwhile."""
        with _explained("read the journal", self.path):
            self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    def ask(self, *questions: Question) -> tuple[Fault, ...]:
        """Return what is found wrong with the journal as a whole."""
        with _explained("check the journal", self.path):
            return tuple(fault for question in questions for fault in question(self.db))

    def restored(self) -> tuple[dict[str, int | str], ...]:
        """Return the restores of the journal, as `database.restores` reads them."""
        with _explained("read the journal", self.path):
            return restores(self.db)

    def newest(self) -> int:
        """Return the highest number of an event."""
        (seq,) = self._rows("SELECT coalesce(max(seq), 0) FROM events")[0]
        return int(seq)

    def roots(self) -> dict[str, str]:
        """Return every project that was ever supervised or has a track or flow: its root, and its name."""
        rows = self._rows(
            """SELECT project, name FROM (SELECT project FROM tracks UNION SELECT project FROM flows
            UNION SELECT root FROM projects)
            LEFT JOIN projects ON root = project ORDER BY project"""
        )
        return {root: name or Path(root).name for root, name in rows}

    def beginnings(self) -> dict[TrackKey, tuple[int, Track]]:
        """Return the tracks whose first events cannot be replayed: up to which number, and the track then."""
        rows = self._rows("SELECT project, track, seq, body FROM snapshots")
        return {TrackKey(root, name): (seq, decode_track(body)) for root, name, seq, body in rows}

    def beginning(self, key: TrackKey) -> tuple[int, Track]:
        """Return where the replay of one track begins: after which number, and the track then."""
        rows = self._rows(
            "SELECT seq, body FROM snapshots WHERE project = :project AND track = :track", key._asdict()
        )
        return next(((seq, decode_track(body)) for seq, body in rows), (0, Track()))

    def page(self, after: int, until: int, project: str | None) -> tuple[Entry, ...]:
        """Return the next events above `after` and up to `until`, in order; of one root or of all."""
        only = "" if project is None else "AND project = :project"
        rows = self._rows(
            f"""SELECT seq, at, project, track, kind, event, result, why, step_before, status_before,
            step_after, status_after, digest, rulebook, grounds, plan, track_digest FROM events
            WHERE seq > :after AND seq <= :until {only} ORDER BY seq LIMIT :page""",  # noqa: S608  (two fixed texts)
            {"after": after, "until": until, "project": project, "page": PAGE},
        )
        if not rows:
            return ()
        first, last = rows[0][0], rows[-1][0]
        effects, past = self._effects(first, last), self._past(first, last)
        return tuple(
            self._entry(row[:-2], effects.get(row[0], []))
            if row[-2] is None
            else self._flow_entry(row, effects.get(row[0], []), past.get(row[0], []))
            for row in rows
        )

    def tracks(self, project: str | None) -> tuple[Kept, ...]:
        """Return the tracks as the tables hold them, of one root or of all."""
        only = "" if project is None else "WHERE project = :project"
        rows = self._rows(
            f"SELECT project, track, seq, digest, step, status, body FROM tracks {only}",  # noqa: S608  (as above)
            {"project": project},
        )
        return tuple(_kept(row) for row in rows)

    def flows(self, project: str | None) -> tuple[FlowRow, ...]:
        """Return the flows as the tables hold them, of one root or of all, each held against its events."""
        with _explained("read the flows", self.path):
            return tuple(flows_held_against(self.db, None if project is None else (project,)))

    def unsound(self, project: str | None) -> dict[TrackKey, str]:
        """Return the tracks that a daemon leaves alone, of one root or of all, each with the reason."""
        with _explained("read the tracks", self.path):
            rows = held_against(self.db, None if project is None else (project,))
            return {row.key: row.unsound for row in rows if row.unsound is not None}

    def dispatches(self, project: str | None) -> Iterator[DispatchRow]:
        """Yield the dispatches as the tables hold them, of one root or of all."""
        with _explained("read the dispatches", self.path):
            yield from rows(self.db, project)

    def dispatch(self, number: str) -> DispatchRow | None:
        """Return one of them; None when it is not there."""
        with _explained("read the dispatches", self.path):
            return row(self.db, number)

    def _effects(self, first: int, last: int) -> dict[int, list[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        wanted = {"first": first, "last": last}
        query = "SELECT seq, effect FROM effects WHERE seq BETWEEN :first AND :last ORDER BY id"
        for seq, effect in self._rows(query, wanted):
            found[seq].append(effect)
        return found

    def _past(self, first: int, last: int) -> dict[int, list[tuple[str, str, str]]]:
        found: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
        query = """SELECT seq, project, flow, body FROM flow_past WHERE seq BETWEEN :first AND :last
            ORDER BY number"""
        for seq, *about in self._rows(query, {"first": first, "last": last}):
            found[seq].append(tuple(about))
        return found

    def _flow_entry(
        self, row: tuple[Any, ...], effects: list[str], past: list[tuple[str, str, str]]
    ) -> Entry:
        seq, _, project, track, kind, *_, plan, left = row
        key = TrackKey(project, track)
        make = partial(
            Entry, seq=seq, key=key, kind=kind, digest=None, recorded=None, of_flow=True, left=left
        )
        try:
            engine, kept = self._plan(plan)
            nodes = tuple(decode(Node, body) for _, _, body in past)
            if {flow_key(root, name) for root, name, _ in past} - {key}:
                raise ValueError("a node of another flow says that it was superseded by it")
            return make(engine=engine, flow=_recorded_flow(row, kept, effects, nodes))
        except UNREADABLE as error:
            return make(engine=None, fault=f"it cannot be read: {error}")

    def _plan(self, number: int) -> tuple[str, Plan]:
        """Return the release that decided by a plan, and the plan. Raises what is in `UNREADABLE`."""
        if number not in self._plans:
            rows = self._rows("SELECT engine, digest, sum, body FROM plans WHERE id = :id", {"id": number})
            if not rows:
                raise ValueError(f"plan {number} is missing")
            engine, *kept = rows[0]
            self._plans[number] = engine, plan_from(*kept)
        self._plans.move_to_end(number)
        if len(self._plans) > _BOOKS:
            self._plans.popitem(last=False)
        return self._plans[number]

    def _entry(self, row: tuple[Any, ...], effects: list[str]) -> Entry:
        seq, _, project, track, kind, *_, digest, rulebook, _ = row
        make = partial(Entry, seq=seq, key=TrackKey(project, track), kind=kind, digest=digest)
        try:
            rules, engine = self._book(rulebook)
        except UNREADABLE as error:
            return make(engine=None, recorded=None, fault=f"its rules cannot be read: {error}")
        try:
            recorded = _recorded(row, rules, tuple(decode_effect(effect) for effect in effects))
        except UNREADABLE as error:
            return make(engine=engine, recorded=None, fault=f"it cannot be read: {error}")
        return make(engine=engine, recorded=recorded)

    def _book(self, number: int | None) -> tuple[RuleBook, str]:
        """Return a step table and the release that decided by it. Raises what is in `UNREADABLE`."""
        if number is None:
            raise ValueError("it does not say by which it was decided")
        if number not in self._books:
            rows = self._rows("SELECT digest, engine, body FROM rulebooks WHERE id = :id", {"id": number})
            if not rows:
                raise ValueError(f"step table {number} is missing")
            digest, engine, body = rows[0]
            if digest_of(body) != digest:
                raise ValueError(f"step table {number} was changed")
            self._books[number] = decode_rules(body), engine
        self._books.move_to_end(number)
        if len(self._books) > _BOOKS:
            self._books.popitem(last=False)
        return self._books[number]

    def _rows(self, query: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with _explained("read the journal", self.path):
            return self.db.execute(query, values or {}).fetchall()


def _recorded(row: tuple[Any, ...], rules: RuleBook, effects: tuple[Effect, ...]) -> Recorded:
    _, at, _, _, kind, body, result, why, *standings, _, _, grounds = row
    event = decode_event(body)
    if event.kind != kind:
        raise ValueError(f"it is kept as {kind}, and is {event.kind}")
    return Recorded(
        event=event,
        rules=rules,
        now=datetime.fromisoformat(at),
        before=stored_standing(*standings[:2]),
        after=stored_standing(*standings[2:]),
        result=decode_result(result),
        effects=effects,
        why=why,
        grounds=decode_grounds(grounds or "{}"),
    )


def _recorded_flow(
    row: tuple[Any, ...], plan: Plan, effects: list[str], past: tuple[Node, ...]
) -> RecordedFlow:
    _, at, _, _, kind, body, result, why, *_ = row
    event, told = decode_flow_event(body), decode(FlowResult, result)
    if event.kind != kind:
        raise ValueError(f"it is kept as {kind}, and is {event.kind}")
    if told.message != why:
        raise ValueError("it gives two reasons")
    return RecordedFlow(
        event=event,
        plan=plan,
        now=datetime.fromisoformat(at),
        orders=tuple(decode_flow_order(effect) for effect in effects),
        reasons=told.reasons,
        past=past,
    )


def _kept(row: tuple[Any, ...]) -> Kept:
    project, name, seq, digest, step, status, body = row
    try:
        track = decode_track(body)
    except UNREADABLE:
        track = None
    return Kept(
        key=TrackKey(project, name),
        seq=seq,
        digest=digest,
        standing=stored_standing(step, status),
        track=track,
    )


@contextmanager
def _explained(activity: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise storage_error(activity, path, error) from error


# --- a decision about a flow, made again --------------------------------------------------------------
# Values are compared as the journal gives them back: where an expression has the same value as before, it
# does not matter what has evaluated it.
class ReplayedFlow(Struct, frozen=True, kw_only=True):
    """What a decision is now: the next flow, and what differs from the record."""

    flow: Flow
    differences: tuple[Difference, ...]


def replay_flow(flow: Flow, recorded: RecordedFlow) -> ReplayedFlow:
    """Decide again on a recorded event of `flow`. Raises nothing: no decision is a difference, too."""
    try:
        decision = decide_flow(flow, recorded.event, recorded.plan, recorded.now)
    except Exception as error:  # a changed record may hold what no event could say
        return _without_decision(flow, f"no decision: {type(error).__name__}: {error}")
    if decision.refused is not None:
        return _without_decision(flow, f"a refusal: {decision.refused.message}")
    return ReplayedFlow(flow=decision.flow, differences=tuple(_differences(recorded, decision)))


def unlike_flow(recorded: Flow, replayed: Flow) -> Iterator[Difference]:
    """Yield what differs between a flow as it is kept and as its events make it, entry by entry."""
    for field in fields(Flow):
        one, other = getattr(recorded, field.name), getattr(replayed, field.name)
        if not isinstance(one, Mapping) or not isinstance(other, Mapping):
            yield from differing(field.name, one, other)
            continue
        for key in {**one, **other}:
            yield from differing(f"{field.name}.{key}", one.get(key), other.get(key))


def _without_decision(flow: Flow, instead: str) -> ReplayedFlow:
    difference = Difference(what="decision", recorded="one", replayed=instead)
    return ReplayedFlow(flow=flow, differences=(difference,))


def _differences(recorded: RecordedFlow, decision: FlowDecision) -> Iterator[Difference]:
    for what in ("orders", "reasons", "past"):
        kept, made = getattr(recorded, what), tuple(map(as_kept, getattr(decision, what)))
        names, others = [_name(one) for one in kept], [_name(one) for one in made]
        if names != others:
            yield from differing(what, ", ".join(names) or None, ", ".join(others) or None)
            continue
        for name, one, other in zip(names, kept, made, strict=True):
            yield from differing(f"{what}: {name}", one, other)


def _name(one: Order | Reason | Node) -> str:
    """Return what an order, a reason or a superseded node is about."""
    if isinstance(one, Node):
        return f"{one.id} at visit {one.visit}"
    about = getattr(one, "node", "")
    return about if isinstance(one, Reason) else f"{one.kind} {about}".rstrip()
