"""Who is told of what happens, so that it can be counted; without a daemon that is nobody.

The one that counts is `counted.Counted`, which imports the client library.
"""

from __future__ import annotations

from typing import Protocol

from handoffd.engine.events import Event
from handoffd.engine.track import Track, TrackKey


class Recorder(Protocol):
    """Takes in what happens; never raises, never waits."""

    def found(self, track: Track) -> None:
        """Take in how a track stands that an earlier life has left, or that was at rest."""

    def committed(self, key: TrackKey, event: Event, before: Track, after: Track, seconds: float) -> None:
        """Count one decision; `seconds` is what its commit took."""

    def waited(self, key: TrackKey) -> None:
        """Remember that the next start of a track was not held up by us."""

    def crashed(self) -> None:
        """Count a project whose supervision failed."""

    def lagged(self, seconds: float) -> None:
        """Count one look at how late the event loop is."""

    def asked(self, verb: str, result: str) -> None:
        """Count a verb and what became of it."""


class Uncounted:
    """For verbs that are given without a daemon: nobody could ask for the counts."""

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
