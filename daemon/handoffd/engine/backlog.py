"""Stories that wait for their turn: in which order, which of them may start, and what keeps the others.

The backlog is a part of the track's ledger, so a story is taken out of it in the transaction that begins
it. It is kept in order: by priority, and among equals by the time they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from handoffd.engine.track import Ledger, Queued, Track
from handoffd.protocol.rules import DONE

MOST_STORIES: Final = 200
"""Stories in one backlog: it is written with every decision of its track."""
MOST_TEXT: Final = 256 * 1024
"""Characters of all its instructions together, for the same reason."""

BlockerKind = Literal["in_flight", "queued", "set_aside", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """A story that another one waits for. `unknown`: nobody has heard of it, or it was never finished."""

    story: str
    kind: BlockerKind


def unmet(entry: Queued, ledger: Ledger) -> tuple[str, ...]:
    """Return the stories that must be done before `entry` starts, and are not: the journal says so or not."""
    return tuple(name for name in entry.blocked_by if name not in ledger.stories_done)


def startable(ledger: Ledger) -> Queued | None:
    """Return the story that is started next; None when each one waits for another."""
    return next((entry for entry in ledger.backlog if not unmet(entry, ledger)), None)


def needs_nobody(ledger: Ledger, entry: Queued, *, auto_continue: bool) -> bool:
    """Return whether an entry starts with nobody asking, once nothing is before it.

    What a schedule has queued was due, and missed its time only because of the story before it. At level 1
    people dispatch, and after a pause, an abort or an edit that is held it is they who go on.
    """
    if not ledger.automatic or ledger.paused_by or ledger.closed or ledger.held_edit:
        return False
    return auto_continue or entry.schedule is not None


def unasked(ledger: Ledger, *, auto_continue: bool) -> Queued | None:
    """Return the story that starts by itself where none is in flight; None when somebody has to ask."""
    ready = (entry for entry in ledger.backlog if not unmet(entry, ledger))
    return next((one for one in ready if needs_nobody(ledger, one, auto_continue=auto_continue)), None)


def coming(ledger: Ledger, *, auto_continue: bool) -> Queued | None:
    """Return the story that is next, whether by itself or when somebody asks; None when none can start."""
    return unasked(ledger, auto_continue=auto_continue) or startable(ledger)


def entry_of(ledger: Ledger, story: str) -> Queued | None:
    """Return the entry of a story; None when it is not in the backlog."""
    return next((entry for entry in ledger.backlog if entry.story == story), None)


def without(backlog: Iterable[Queued], stories: Iterable[str]) -> tuple[Queued, ...]:
    """Return the backlog without some stories."""
    gone = frozenset(stories)
    return tuple(entry for entry in backlog if entry.story not in gone)


def behind(backlog: tuple[Queued, ...], entry: Queued) -> tuple[Queued, ...]:
    """Return the backlog with `entry` behind all that are as urgent; where it stood before, it goes from."""
    others = without(backlog, (entry.story,))
    return tuple(sorted((*others, entry), key=lambda one: -one.priority))  # sorted() keeps equals in order


def before(backlog: tuple[Queued, ...], entry: Queued, index: int) -> tuple[Queued, ...]:
    """Return the backlog with `entry`, whose priority fits there, before the `index`th of the others."""
    others = without(backlog, (entry.story,))
    return (*others[:index], entry, *others[index:])


def blockers(track: Track, entry: Queued) -> tuple[Blocker, ...]:
    """Return what `entry` waits for, and what is known of each."""
    return tuple(Blocker(story=name, kind=_kind(track, name)) for name in unmet(entry, track.ledger))


def _kind(track: Track, story: str) -> BlockerKind:
    state, ledger = track.state, track.ledger
    if state is not None and state.story == story and state.step != DONE and not ledger.closed:
        return "in_flight"
    if entry_of(ledger, story) is not None:
        return "queued"
    return "set_aside" if any(parked.state.story == story for parked in ledger.parked) else "unknown"


_KINDS: Final[Mapping[BlockerKind, str]] = {
    "in_flight": "in flight",
    "queued": "in the backlog",
    "set_aside": "set aside",
    "unknown": "never started, and not in the backlog",
}


def waits_in_words(track: Track, entry: Queued) -> str | None:
    """Return what an entry waits for: `waits for US-5 (in flight) and US-9 (…)`; None when it may start."""
    named = [f"{one.story} ({_KINDS[one.kind]})" for one in blockers(track, entry)]
    return f"waits for {' and '.join(named)}" if named else None


def circle(track: Track, entries: Iterable[Queued]) -> tuple[str, ...] | None:
    """Return the stories that would wait for each other for ever once `entries` are in the backlog.

    `US-1, US-2, US-1`: the first one again at the end. None when there are none.
    """
    waits = _waits(track)
    added = {entry.story: unmet(entry, track.ledger) for entry in entries}
    waits |= added
    return next((found for story in added if (found := _way_back(story, waits)) is not None), None)


def _waits(track: Track) -> dict[str, tuple[str, ...]]:
    """Return, of every story that is not done, those it waits for."""
    ledger = track.ledger
    waits = {entry.story: unmet(entry, ledger) for entry in ledger.backlog}
    states = [parked.state for parked in ledger.parked] + ([track.state] if track.state is not None else [])
    for state in states:
        if state.story is not None and state.step != DONE:
            waits[state.story] = tuple(name for name in state.blocked_by if name not in ledger.stories_done)
    return waits


def _way_back(story: str, waits: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the shortest way from a story over what it waits for to itself."""
    ways: list[tuple[str, ...]] = [(story,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for name in waits.get(way[-1], ()):
            if name == story:
                return (*way, name)
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return None
