"""`handoffd journal verify`: makes every recorded decision again, and compares everything.

Reads the journal without a lock, while a daemon writes it. Decisions are made page by page, so memory holds
one state per track and never the history; the derived dispatches go to a temporary SQLite file until they
have been compared.

`handoffd runs` shows the journal's table of dispatches. No decision reads it, so replaying decisions does not
find a change there; it is therefore compared, too. Rows that cannot be derived are not findings: rows begun
before the replay could start, and rows after a finding of their track.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from msgspec import Struct, field, to_builtins

import handoffd
from handoffd.engine.decide import Difference, differing, replay, standing_of, unlike
from handoffd.engine.flow.flow import Flow
from handoffd.engine.track import EXTERNAL, Track, TrackKey
from handoffd.errors import Json, StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal.backup import Made, MadeFlow
from handoffd.journal.codec import as_kept
from handoffd.journal.database import Fault, gaps, integrity, projections, projects, references
from handoffd.journal.dispatches import BEGUN, JUDGED, TOLD, DerivedDispatches, DispatchRow
from handoffd.journal.flow_queries import FlowRow, name_of
from handoffd.journal.flows import FlowTexts
from handoffd.journal.records import Record
from handoffd.journal.replay import Entry, Kept, Recordings, replay_flow, unlike_flow
from handoffd.protocol.state import render_state

Progress = Callable[[int, int], None]
"""Called after each page with the number of the last event read, and the highest number."""

MOST_FINDINGS = 100
"""Findings listed one by one; further ones are only counted."""
MOST_NAMED: Final = 10
"""Differences that a finding about a flow names in its words."""


class Finding(Struct, frozen=True, kw_only=True):
    """One fault of the journal.

    `kind`: `diverged` (the decision differs now), `unreadable` (cannot be decided again), `track` (the
    stored track is not what its events make), `flow` (the same for a flow), `dispatch` (the same for a row
    of the dispatches), or a fault of the tables (`missing`, `reference`, `projection`, `project`,
    `damaged`). `engine` is the release that decided.
    """

    kind: str
    message: str
    seq: int | None = None
    project: str | None = None
    track: str | None = None
    event: str | None = None
    engine: str | None = None
    differences: tuple[Difference, ...] = ()


class Report(Struct, kw_only=True):
    """The result of a verification. `older` events precede the first event that can be replayed.

    `unreplayed` events follow a finding of their track, so their right outcome is unknown.
    """

    journal: str
    project: str | None
    newest: int = 0
    tracks: int = 0
    flows: int = 0
    dispatches: int = 0
    replayed: int = 0
    older: int = 0
    unreplayed: int = 0
    restores: tuple[dict[str, int | str], ...] = ()
    findings: list[Finding] = field(default_factory=list)
    further_findings: int = 0

    @property
    def clean(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def add(self, finding: Finding) -> None:
        """Add a finding; above MOST_FINDINGS, only count it."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.further_findings += 1

    def as_json(self) -> Json:
        """Return the report with the documented keys."""
        return {"type": "verified", "clean": self.clean, **to_builtins(self)}


class _Following(Struct):
    """One track during the replay. `lost`: the number of the event at which the replay of it stopped."""

    track: Track
    since: int = 0
    seq: int = 0
    digest: str | None = None
    engine: str | None = None
    lost: int | None = None


class _FollowingFlow(Struct):
    """One flow during the replay. `partial`: its first events are not kept."""

    flow: Flow
    partial: bool
    seq: int = 0
    engine: str | None = None
    lost: int | None = None


class Verification:
    """One pass over a journal, of one project or of all."""

    def __init__(self, source: Recordings, project: str | None = None) -> None:
        self._source = source
        self._project = project
        self._report = Report(journal=str(source.path), project=project)
        self._following: dict[TrackKey, _Following] = {}
        self._flows: dict[TrackKey, _FollowingFlow] = {}
        self._texts = FlowTexts()
        self._derived = DerivedDispatches()

    def run(self, progress: Progress = lambda _, __: None) -> Report:
        """Return the report. Raises StoreError when the journal cannot be read at all."""
        with closing(self._derived):
            return self._run(progress)

    def made(self) -> Mapping[TrackKey, Made]:
        """Return the tracks that the events make; none if events are missing: any track may lack them."""
        if self._source.ask(gaps):
            return {}
        return {
            key: Made(track=one.track, seq=one.seq, digest=one.digest, engine=one.engine)
            for key, one in self._following.items()
            if one.seq and one.lost is None
        }

    def made_flows(self) -> Mapping[TrackKey, MadeFlow]:
        """Return the flows that the events make, in the same way."""
        if self._source.ask(gaps):
            return {}
        return {
            key: MadeFlow(flow=one.flow, seq=one.seq, engine=one.engine)
            for key, one in self._flows.items()
            if one.seq and one.lost is None and not one.partial
        }

    def _run(self, progress: Progress) -> Report:
        for fault in self._source.ask(integrity):
            self._report.add(_whole(fault))
        try:
            self._read(progress)
        except StoreError:
            if self._report.clean:  # else the damage found above is the reason
                raise
        return self._report

    def _read(self, progress: Progress) -> None:
        report, source = self._report, self._source
        self._begin()
        reached = source.newest()
        self._walk(0, reached, progress)
        with source.still():
            report.newest = source.newest()
            self._walk(reached, report.newest, progress)
            self._compare_tracks()
            self._compare_flows()
            self._compare_dispatches()
            for fault in source.ask(gaps, references, projections, projects):
                report.add(_whole(fault))
            report.restores = source.restored()

    def _begin(self) -> None:
        for key, (seq, track) in self._source.beginnings().items():
            if self._project not in {None, key.project}:
                continue
            self._following[key] = _Following(track, since=seq)
            if track.ledger.dispatch is not None:
                self._derived.begin(key, seq, track.ledger.dispatch)

    def _walk(self, after: int, until: int, progress: Progress) -> None:
        while page := self._source.page(after, until, self._project):
            for entry in page:
                self._follow(entry)
            after = page[-1].seq
            progress(after, until)

    def _follow(self, entry: Entry) -> None:
        if entry.of_flow:
            self._follow_flow(entry)
            return
        one = self._following.setdefault(entry.key, _Following(Track()))
        one.seq = entry.seq
        one.digest = entry.digest or one.digest
        one.engine = entry.engine
        if entry.seq <= one.since:
            self._report.older += 1
        elif one.lost is not None:
            self._report.unreplayed += 1
        elif entry.recorded is None:
            one.lost = entry.seq
            self._report.add(_of(entry, "unreadable", entry.fault or "it cannot be read"))
        else:
            self._decide_again(entry, one)

    def _decide_again(self, entry: Entry, one: _Following) -> None:
        assert entry.recorded is not None
        again = replay(one.track, entry.recorded)
        differences = again.differences or tuple(_projected(entry, again.track))
        self._report.replayed += 1
        one.track = again.track
        if differences:
            one.lost = entry.seq
            named = ", ".join(difference.what for difference in differences)
            self._report.add(_of(entry, "diverged", f"it is decided otherwise now: {named}", differences))
        else:
            self._derived.write(entry.seq, _record(entry, again.track))

    def _follow_flow(self, entry: Entry) -> None:
        begins = entry.kind == "flow_started"
        one = self._flows.setdefault(
            entry.key, _FollowingFlow(Flow(id=name_of(entry.key)), partial=not begins)
        )
        one.seq, one.engine = entry.seq, entry.engine
        if one.partial:
            self._report.older += 1
        elif one.lost is not None:
            self._report.unreplayed += 1
        elif entry.flow is None:
            one.lost = entry.seq
            self._report.add(_of(entry, "unreadable", entry.fault or "it cannot be read"))
        else:
            self._decide_flow_again(entry, one)

    def _decide_flow_again(self, entry: Entry, one: _FollowingFlow) -> None:
        assert entry.flow is not None
        again = replay_flow(one.flow, entry.flow)
        left = self._texts.of(entry.key.project, again.flow, one.flow).digest
        # Another release may have spelled the same flow in another way.
        same = entry.engine != handoffd.__version__ or entry.left == left
        differences = again.differences or (() if same else tuple(differing("flow", entry.left, left)))
        self._report.replayed += 1
        one.flow = again.flow
        if differences:
            one.lost = entry.seq
            self._report.add(
                _of(entry, "diverged", f"it is decided otherwise now: {_named(differences)}", differences)
            )

    def _compare_flows(self) -> None:
        kept = {row.key: row for row in self._source.flows(self._project)}
        self._report.flows = len(kept)
        for key, row in kept.items():
            self._compare_flow(row, self._flows.get(key))

    def _compare_flow(self, row: FlowRow, one: _FollowingFlow | None) -> None:
        add = partial(_of_track, row.key, row.seq, kind="flow")
        if one is None:
            self._report.add(add("the flow is there, but none of its events"))
            return
        if row.unsound is not None:
            self._report.add(add(f"the stored flow was changed: {row.unsound}"))
            return
        differences = (
            ()
            if row.flow is None or one.lost or one.partial
            else tuple(unlike_flow(row.flow, as_kept(one.flow)))
        )
        if differences:
            message = f"the stored flow is not what its events make: {_named(differences)}"
            self._report.add(add(message, differences))

    def _compare_tracks(self) -> None:
        kept = {stored.key: stored for stored in self._source.tracks(self._project)}
        self._report.tracks, unsound = len(kept), self._source.unsound(self._project)
        for key, stored in kept.items():
            self._compare(stored, self._following.get(key), unsound.get(key))
        for key, one in self._following.items():
            if one.seq and key not in kept:
                self._report.add(_of_track(key, one.seq, "its events are there, but the track is not"))

    def _compare(self, stored: Kept, one: _Following | None, unsound: str | None) -> None:
        if one is None or not one.seq:
            self._report.add(_of_track(stored.key, stored.seq, "the track is there, but none of its events"))
            return
        if stored.track is None:
            self._report.add(_of_track(stored.key, stored.seq, "its body cannot be read"))
            return
        differences = (
            *differing("seq", stored.seq, one.seq),
            *differing("STATE.json", stored.digest, one.digest),
            *differing("standing", stored.standing, standing_of(stored.track.state)),
            *(() if one.lost is not None else unlike(stored.track, one.track)),
        )
        if differences:
            named = ", ".join(difference.what for difference in differences)
            message = f"the stored track is not what its events make: {named}"
            self._report.add(_of_track(stored.key, stored.seq, message, differences))
        elif unsound is not None:
            self._report.add(_of_track(stored.key, stored.seq, f"the stored track was changed: {unsound}"))

    def _compare_dispatches(self) -> None:
        spans = {key: Span(one.since, one.lost) for key, one in self._following.items()}
        comparison = Rederiving(self._source, self._derived, self._project, spans)
        for one in comparison.found():
            self._report.add(
                Finding(
                    kind="dispatch", message=one.message, seq=one.seq, project=one.key.project,
                    track=one.key.track, differences=one.differences,
                )
            )  # fmt: skip
        self._report.dispatches = comparison.compared


def _record(entry: Entry, track: Track) -> Record:
    recorded = entry.recorded
    assert recorded is not None
    return Record(
        key=entry.key, at=recorded.now, event=recorded.event, track=track, effects=recorded.effects,
        result=recorded.result, why=recorded.why, state_text=None,
    )  # fmt: skip


def _projected(entry: Entry, track: Track) -> Iterator[Difference]:
    text = None if track.state is None else digest_of(render_state(track.state))
    yield from differing("STATE.json", entry.digest, text)


def _whole(fault: Fault) -> Finding:
    return Finding(kind=fault.kind, message=fault.message, seq=fault.seq)


def _of(entry: Entry, kind: str, message: str, differences: tuple[Difference, ...] = ()) -> Finding:
    project, track = entry.key
    return Finding(
        kind=kind, message=message, seq=entry.seq, project=project, track=track, event=entry.kind,
        engine=entry.engine, differences=differences,
    )  # fmt: skip


def _named(differences: Sequence[Difference]) -> str:
    shown = [difference.what for difference in differences[:MOST_NAMED]]
    more = len(differences) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _of_track(
    key: TrackKey,
    seq: int,
    message: str,
    differences: tuple[Difference, ...] = (),
    kind: str = "track",
) -> Finding:
    return Finding(
        kind=kind, message=message, seq=seq, project=key.project, track=key.track, differences=differences
    )


# --- the table of dispatches, against the one that the events make -----------------------------------
class Span(Struct, frozen=True):
    """The replayed events of a track: above `since`, and below `lost` unless that is None."""

    since: int = 0
    lost: int | None = None

    def covers(self, seq: int) -> bool:
        """Return whether the event was replayed."""
        return self.since < seq and (self.lost is None or seq < self.lost)


class Unlike(Struct, frozen=True, kw_only=True):
    """A row that differs from its events. `seq` is the number of the event that began it."""

    key: TrackKey
    seq: int | None
    message: str
    differences: tuple[Difference, ...] = ()


class Rederiving:
    """One comparison, of one project or of all; `spans` has every track with events."""

    def __init__(
        self,
        source: Recordings,
        derived: DerivedDispatches,
        project: str | None,
        spans: Mapping[TrackKey, Span],
    ) -> None:
        self._source = source
        self._derived = derived
        self._project = project
        self._spans = spans
        self.compared = 0

    def found(self) -> Iterator[Unlike]:
        """Yield rows that differ, are missing, or that no event began."""
        for row in self._derived.rows(self._project):
            yield from self._compare(row, self._source.dispatch(row.id))
        for kept in self._source.dispatches(self._project):
            known = self._span(kept.key).covers(kept.seq)
            if known and self._derived.row(kept.id) is None:
                message = f"the dispatch {kept.id} is there, but no event began it"
                yield Unlike(key=kept.key, seq=kept.seq, message=message)

    def _compare(self, derived: DispatchRow, kept: DispatchRow | None) -> Iterator[Unlike]:
        span = self._span(derived.key)
        seq = derived.seq if span.covers(derived.seq) else None
        if kept is None:
            message = f"the dispatch {derived.id} is not there, though its events are"
            yield Unlike(key=derived.key, seq=seq, message=message)
            return
        # handoffd does not make the ids of external attempts: another track may have used this one before.
        if derived.values["executor"] == EXTERNAL and not self._known(kept):
            return
        self.compared += 1
        differences = tuple(
            difference
            for column in self._columns(derived, span)
            if derived.value(column) != kept.value(column)
            for difference in differing(column, kept.values[column], derived.values[column])
        )
        if differences:
            named = ", ".join(difference.what for difference in differences)
            message = f"the dispatch {derived.id} is not what its events make: {named}"
            yield Unlike(key=derived.key, seq=seq, message=message, differences=differences)

    def _columns(self, derived: DispatchRow, span: Span) -> Iterator[str]:
        # A row keeps the first report of its start, which may precede the replay.
        columns = ("seq", *BEGUN, *TOLD, *JUDGED) if span.covers(derived.seq) else (*BEGUN, *JUDGED)
        for column in columns:
            if span.lost is None or derived.values[column] is not None:
                yield column

    def _known(self, kept: DispatchRow) -> bool:
        ours = self._project is None or kept.key.project == self._project
        return ours and self._span(kept.key).covers(kept.seq)

    def _span(self, key: TrackKey) -> Span:
        return self._spans.get(key, Span())
