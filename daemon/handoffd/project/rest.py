"""A project at rest: its row, when a project may rest, and whether its folder has changed.

Most projects are idle most of the time: done, at a gate, paused, left to a person. Such a project is a row
here: no task, no lock, no models. Everything else about it is in the journal and in its folder, and it is
rebuilt from both when something happens to it. These are functions of values; `fleet/loops.py` calls them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from handoffd.engine.beside import may_land, standing_of
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.run import Usage
from handoffd.engine.track import Fault, Limit, Track, TrackKey, own_story
from handoffd.engine.views import Condition, ProjectView
from handoffd.inspection.own_files import Texts
from handoffd.journal.records import StoredTrack
from handoffd.project.folder import Found
from handoffd.protocol.state import Status

Digests = Mapping[str, str | None]
"""The expected digest of the STATE file of each track; None: there should be no file."""

_TRACE_BYTES = 16
_NOTHING_SPENT = Usage()


class Row(Struct, kw_only=True):
    """One project at rest; this row is all that most projects cost."""

    name: str
    automatic: bool
    """Whether it is at Level 2."""
    tracks: tuple[str, ...]
    states: Digests | None
    """The contents of its folder according to the journal; None once `trace` records them."""
    trace: bytes | None = None
    """The contents of its folder at the last visit; None before this daemon's first visit."""
    folder: str | None = None
    """The name of that folder's lock, which is not held; it identifies the folder."""
    view: ProjectView | None = None
    """Its cached view for `status`."""
    faults: tuple[tuple[str, Fault], ...] = ()
    """Faulty executors, by the track that met the fault; the poller checks whether the fault is over."""
    hints: int = 0
    """The number of hints so far: files read before the latest hint may be out of date."""

    def forget_view(self) -> None:
        """Drop the cached view, also one that is being built at this moment."""
        self.view, self.hints = None, self.hints + 1


class TrackActivity(Struct, frozen=True, kw_only=True):
    """The activity of one track. `queues`: it holds a slot, or waits for a slot or an account."""

    track: Track
    idle: bool
    queues: bool = False
    trouble: bool = False


class Activity(Struct, frozen=True, kw_only=True):
    """The activity of one project. `guests` counts the requests that are being answered."""

    tracks: tuple[TrackActivity, ...]
    hinted: bool = False
    guests: int = 0
    condition: Condition = "ok"
    crashed: bool = False
    ending: bool = False


def stays_up(activity: Activity) -> str | None:
    """Return why a project must not rest now; None when nothing of it can change by itself.

    A project that waits for a certain time stays up, however long: the poller skips projects at rest.
    """
    if activity.guests:
        return "a request is being answered"
    if activity.hinted:
        return "a hint was not followed yet"
    if activity.condition != "ok":
        return "it waits for a repair"
    if activity.crashed:
        return "its crash is still reported"
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
    return "STATE.json, the journal or a branch is behind" if activity.trouble else None


def is_quiet(track: Track) -> bool:
    """Return whether nothing happens to a track without an action from outside.

    A track with a story to start next is not quiet, even if that needs a person's approval now: the setting
    that requires the approval can change.
    """
    running = track.state is not None and track.state.status is Status.RUNNING
    return track.ledger.dispatch is None and not running and not wants_turn(track, auto_continue=True)


class Outline(NamedTuple):
    """What a starting daemon needs to know about a track that it may leave at rest."""

    key: TrackKey
    name: str | None
    automatic: bool
    quiet: bool
    digest: str | None
    spent: Usage
    limited: tuple[Limit, ...]
    faults: tuple[Fault, ...] = ()


def outline_of(stored: StoredTrack) -> Outline:
    """Return the outline of a stored track."""
    state, ledger = stored.track.state, stored.track.ledger
    return Outline(
        key=stored.key,
        name=state.project if state is not None else None,
        automatic=ledger.automatic or state is None,
        quiet=stored.unsound is None and is_quiet(stored.track) and not _is_left_undone(stored),
        digest=stored.digest if state is not None else None,
        spent=ledger.spent if ledger.spent != _NOTHING_SPENT else _NOTHING_SPENT,
        limited=ledger.limited,
        faults=stored.track.passing_faults,
    )


def _is_left_undone(stored: StoredTrack) -> bool:
    """Return whether a story may begin beside others, or be landed, or its track has to end.

    A project at rest does none of that, and the last daemon may have been about to.
    """
    track, ledger = stored.track, stored.track.ledger
    if own_story(stored.key) is not None and standing_of(track) == "free":
        return True
    where = ledger.workspace
    in_clone = where is not None and where.kind == "clone"
    return may_land(track) or (
        ledger.automatic and bool(ledger.beside or ledger.to_land or (in_clone and ledger.backlog))
    )


# --- what is in its folder -----------------------------------------------------------------------
def trace_of(folder: str, texts: Texts, states: Digests) -> bytes:
    """Return a short digest of a folder's contents: equal traces mean that nothing has changed."""
    trace = blake2b(digest_size=_TRACE_BYTES)
    for part in (folder, *_parts(texts), *_parts(states)):
        trace.update(repr(part).encode())
    return trace.digest()


def _parts(named: Mapping[str, str | None]) -> Iterable[tuple[str, str | None]]:
    return sorted(named.items())


DESK = "STATE.json"
"""Where digests are by track: of the copy for people, which several tracks share."""


def states_in(found: Found) -> Digests:
    """Return the digests of the STATE files that a visit found, that of the desk under a name of its own."""
    seen = {**found.states, **({DESK: found.desk} if found.beside else {})}
    return {name: None if one is None else one.digest for name, one in seen.items()}


def trace_in(found: Found) -> bytes | None:
    """Return the trace of what a visit found; None when the project must look for itself in any case."""
    if found.error is not None or found.halves or found.texts is None or found.owner is not None:
        return None
    return trace_of(found.lock.name, found.texts, states_in(found))
