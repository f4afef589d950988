"""The port that events are counted through, and gauges, which hold a value of the moment.

Nothing here needs the client library: without a daemon nothing is counted (`Uncounted`). A daemon counts with
`counters.Counted`.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct, field

from handoffd.engine.events import Event
from handoffd.engine.track import Track, TrackKey

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What the text for Prometheus is."""

MOST_VALUES: Final = 50
"""Of one label; what comes after that is `other`."""
OTHER: Final = "other"

INTERRUPTED: Final = "interrupted"
TOKENS: Final = ("input", "output", "cache_read", "cache_write")


class Bounded:
    """The first values that a label gets; every further one is `other`."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return `value`, or `other` when there are too many."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


class Recorder(Protocol):
    """Counts what happens; never raises, never waits."""

    def found(self, track: Track) -> None:
        """Learn about a track that an earlier life of the daemon has left, or that was at rest."""

    def committed(self, key: TrackKey, event: Event, before: Track, after: Track, seconds: float) -> None:
        """Count one decision; `seconds` is what its commit took."""

    def waited(self, key: TrackKey) -> None:
        """Remember that the next start of a track was not held up by us."""

    def crashed(self) -> None:
        """Count a project whose supervision failed."""

    def lagged(self, seconds: float) -> None:
        """Count one look at how late the event loop is."""

    def asked(self, verb: str, result: str) -> None:
        """Count a verb with its result."""


class Uncounted:
    """For verbs without a daemon: Prometheus could not ask for the counts."""

    def found(self, track: Track) -> None:
        """Prepare for nothing."""

    def committed(self, key: TrackKey, event: Event, before: Track, after: Track, seconds: float) -> None:
        """Count nothing."""

    def waited(self, key: TrackKey) -> None:
        """Remember nothing."""

    def crashed(self) -> None:
        """Count nothing."""

    def lagged(self, seconds: float) -> None:
        """Count nothing."""

    def asked(self, verb: str, result: str) -> None:
        """Count nothing."""


# --- how something is, as a value: one series with its labels ----------------------------------------
Values = dict[tuple[str, ...], float]
"""A number for each tuple of label values."""


class Gauge(Struct, frozen=True, kw_only=True):
    """One series. `name` is without the prefix `handoffd_`."""

    name: str
    help: str
    values: Values = field(default_factory=dict)
    labels: tuple[str, ...] = ()


def single(name: str, text: str, value: float) -> Gauge:
    """Return a series without labels."""
    return Gauge(name=name, help=text, values={(): value})


def among(values: Values, most: int) -> Values:
    """Return the `most` largest of the values; the others are summed up, with `other` as their first label.

    Projects name steps: one that invents a hundred of them shall not make a hundred series.
    """
    if len(values) <= most:
        return dict(values)
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(ordered[:most])
    for labels, value in ordered[most:]:
        rest = ("other", *labels[1:])
        kept[rest] = kept.get(rest, 0.0) + value
    return kept
