"""The dispatches that the events make, compared with those that the journal's table has.

The table is what `handoffd runs` shows, and nothing is decided by it: no replay of a decision meets
what was changed there. What cannot be known is not held against it: rows that were begun before a
replay could begin, and what follows a finding of their track.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from handoffd.engine.replay import Difference, differing
from handoffd.engine.track import EXTERNAL, TrackKey
from handoffd.store.dispatches import BEGUN, JUDGED, TOLD, DerivedDispatches, DispatchRow
from handoffd.store.recordings import Recordings


@dataclass(frozen=True, slots=True)
class Span:
    """The events of a track that were decided again: above `since`, and below `lost` if that is known."""

    since: int = 0
    lost: int | None = None

    def covers(self, seq: int) -> bool:
        """Return whether an event is among them."""
        return self.since < seq and (self.lost is None or seq < self.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """A row that is not as its events make it. `seq` is the number of the event that began it."""

    key: TrackKey
    seq: int | None
    message: str
    differences: tuple[Difference, ...] = ()


class Rederiving:
    """One comparison, of one project or of all; `spans` has every track of theirs that has events."""

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
        """Yield the rows that differ, those that are gone, and those that no event began."""
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
        # Their ids are not ours: another track may have had the same one before.
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
        # What was told of a dispatch before the replay began came first, and the first stays.
        columns = ("seq", *BEGUN, *TOLD, *JUDGED) if span.covers(derived.seq) else (*BEGUN, *JUDGED)
        for column in columns:
            if span.lost is None or derived.values[column] is not None:
                yield column

    def _known(self, kept: DispatchRow) -> bool:
        ours = self._project is None or kept.key.project == self._project
        return ours and self._span(kept.key).covers(kept.seq)

    def _span(self, key: TrackKey) -> Span:
        return self._spans.get(key, Span())
