"""A project at rest: what is kept of it, when one may lie down, and whether its folder is as it was.

Most projects have nothing to do most of the time: done, at a gate, paused, left to a person. Such a one is a
row here: no task, no lock, no models. Everything else about it is in the journal and in its folder, and it
is made anew from both when something happens to it. These are functions of values; `fleet/loops.py` acts on
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from handoffd.engine.dispatching import wants_turn
from handoffd.engine.run import Usage
from handoffd.engine.track import Fault, Limit, Track, TrackKey
from handoffd.engine.views import Condition, ProjectView
from handoffd.inspection.own_files import Texts
from handoffd.journal.records import StoredTrack
from handoffd.project.folder import Found
from handoffd.protocol.state import Status

Digests = Mapping[str, str | None]
"""Of the STATE file of each track, as it should be there; None: it should not."""

_TRACE_BYTES = 16
_NOTHING_SPENT = Usage()


@dataclass(slots=True, kw_only=True)
class Row:
    """What is kept of one project at rest; one of these is all that most projects cost."""

    name: str
    automatic: bool
    """Whether it is at Level 2."""
    tracks: tuple[str, ...]
    states: Digests | None
    """What the journal says is in its folder; None once `trace` says that."""
    trace: bytes | None = None
    """What was in its folder when it was last looked at; None: not in this daemon's life."""
    folder: str | None = None
    """The name of that folder's lock, which is not held; it tells folders apart."""
    view: ProjectView | None = None
    """What `status` tells of it, once it was asked for."""
    faults: tuple[tuple[str, Fault], ...] = ()
    """Why executors cannot be used, by the track that met it: the poller looks whether that is over."""
    hints: int = 0
    """How many there were: what was read before the latest one may be old."""

    def forget_view(self) -> None:
        """Forget what is told of it, also what is being read just now."""
        self.view, self.hints = None, self.hints + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackActivity:
    """What goes on in one track. `queues`: it holds a slot, or waits for a slot or an account."""

    track: Track
    idle: bool
    queues: bool = False
    trouble: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What goes on in one project. `guests` are verbs and questions that are being answered."""

    tracks: tuple[TrackActivity, ...]
    hinted: bool = False
    guests: int = 0
    condition: Condition = "ok"
    crashed: bool = False
    ending: bool = False


def stays_up(activity: Activity) -> str | None:
    """Return why a project must not lie down now; None when nothing of it can change by itself.

    What waits for time to pass stays up, too, however long: the poller looks after projects that are up only.
    """
    if activity.guests:
        return "somebody asks it something"
    if activity.hinted:
        return "a hint was not followed yet"
    if activity.condition != "ok":
        return "it waits to be mended"
    if activity.crashed:
        return "people are still told of its crash"
    if activity.ending:
        return "its executors are being ended"
    return next((why for track in activity.tracks if (why := _goes_on(track))), None)


def _goes_on(activity: TrackActivity) -> str | None:
    if not activity.idle:
        return "a track decides or carries something out"
    if not is_quiet(activity.track):
        return "a track has something to do"
    if activity.queues:
        return "a track holds a slot or waits in line"
    return "STATE.json or the journal cannot be written" if activity.trouble else None


def is_quiet(track: Track) -> bool:
    """Return whether nothing happens to a track until something is done from outside.

    One with a story that could be started next is not quiet, whether that needs a person's word or not: the
    settings say so, which change.
    """
    running = track.state is not None and track.state.status is Status.RUNNING
    return track.ledger.dispatch is None and not running and not wants_turn(track, auto_continue=True)


class Outline(NamedTuple):
    """What a starting daemon needs to know of a track that it may leave at rest."""

    key: TrackKey
    name: str | None
    automatic: bool
    quiet: bool
    digest: str | None
    spent: Usage
    limited: tuple[Limit, ...]
    faults: tuple[Fault, ...] = ()


def outline_of(stored: StoredTrack) -> Outline:
    """Return the outline of a track as the journal has it."""
    state, ledger = stored.track.state, stored.track.ledger
    return Outline(
        key=stored.key,
        name=state.project if state is not None else None,
        automatic=ledger.automatic or state is None,
        quiet=stored.unsound is None and is_quiet(stored.track),
        digest=stored.digest if state is not None else None,
        spent=ledger.spent if ledger.spent != _NOTHING_SPENT else _NOTHING_SPENT,
        limited=ledger.limited,
        faults=stored.track.passing_faults,
    )


# --- what is in its folder -----------------------------------------------------------------------
def trace_of(folder: str, texts: Texts, states: Digests) -> bytes:
    """Return a short trace of a folder; two that are alike have nothing between them to look at."""
    told = blake2b(digest_size=_TRACE_BYTES)
    for part in (folder, *_parts(texts), *_parts(states)):
        told.update(repr(part).encode())
    return told.digest()


def _parts(named: Mapping[str, str | None]) -> Iterable[tuple[str, str | None]]:
    return sorted(named.items())


def states_in(found: Found) -> Digests:
    """Return the digests of the STATE files that a visit found."""
    return {track: None if seen is None else seen.digest for track, seen in found.states.items()}


def trace_in(found: Found) -> bytes | None:
    """Return the trace of what a visit found; None when that is something to look at in any case."""
    if found.error is not None or found.halves or found.texts is None or found.owner is not None:
        return None
    return trace_of(found.lock.name, found.texts, states_in(found))
